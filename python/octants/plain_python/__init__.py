"""Kernels as plain Python, for `qd.init(arch=qd.python)`, so that a debugger can step through a kernel.

Fields and ndarrays are in the memory of a CPU program, and are accessed as in Python scope. `rewrite` changes the
constructs that have a different meaning in the kernel language; then the kernel runs as a Python function. `stand_ins`
implements the built-in functions of the kernel language. Everything runs in order, on one thread.
"""

from __future__ import annotations

from typing import Any

from octants import _octants
from octants._arrays import host_memory
from octants._language.python_scope import STAND_INS
from octants.plain_python.run_function import run_function
from octants.plain_python.stand_ins import make_stand_ins
from octants.plain_python.typed_memory import TypedMemory

__all__ = ["begin", "end"]


def begin(seed: Any) -> None:
    """Runs kernels as Python from now on. `seed` seeds the random numbers."""
    STAND_INS.update(make_stand_ins(seed))
    host_memory.class_of_host_memory = TypedMemory
    _octants.run_as_python(run_function)


def end() -> None:
    """Compiles kernels again."""
    STAND_INS.clear()
    host_memory.class_of_host_memory = host_memory.HostMemory
    _octants.run_as_python(None)
