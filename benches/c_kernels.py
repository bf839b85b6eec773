"""The benchmarks in C: builds `c_kernels.c` with the system's compiler at -O3 for this machine, calls it by ctypes."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import measuring
import numpy as np
from measuring import CELLS, ITERATIONS, LEVELS, RADIUS, SIZES, TIME_STEP

FLAGS = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]
library: ctypes.CDLL


def available() -> bool:
    """Whether there is a C compiler."""
    return shutil.which("cc") is not None


def start(threads: int) -> None:
    """Builds and loads the library."""
    global library
    folder = tempfile.mkdtemp(prefix="c_kernels")
    path = Path(folder) / "c_kernels.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", *FLAGS, str(source), "-o", str(path), "-lm"], check=True)
    library = ctypes.CDLL(str(path))
    shutil.rmtree(folder)
    library.set_threads(threads)


def wait() -> None:
    """Calls return when they are done."""


def prepare(name: str) -> tuple[Callable[[], object], Callable[[], np.ndarray]]:
    """A call that does the work once, and one that returns the result."""
    arrays = measuring.inputs(name)
    n = ctypes.c_long(SIZES[name])
    more: dict[str, list[object]] = {
        "triad": [ctypes.c_float(3.0), n],
        "histogram": [n, LEVELS],
        "mandelbrot": [n, ITERATIONS],
        "blur": [n, RADIUS],
        "mpm88": [n, CELLS, ctypes.c_float(TIME_STEP)],
    }
    function = getattr(library, name)
    given = [a.ctypes.data_as(ctypes.c_void_p) for a in arrays] + more.get(name, [n])
    result = {"nbody": 3, "mpm88": 0}.get(name, -1)
    return lambda: function(*given), lambda: arrays[result]
