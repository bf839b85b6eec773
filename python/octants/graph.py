"""`qd.graph`: what kernels declared with `graph=True` may say about their tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from octants.ops import kernel_only, known_to_compiler

__all__ = ["do_while", "parallel", "parallel_context"]

do_while = kernel_only(
    "do_while",
    "`while qd.graph.do_while(counter):` runs its body once, then again as long as `counter`, a 0-dimensional i32 ndarray, "
    "is not zero. Its `for` loops are parallel.",
)


@known_to_compiler("graph_parallel_context")
@contextmanager
def parallel_context() -> Iterator[None]:
    """In a kernel, `with qd.graph.parallel_context():` holds `with qd.graph.parallel():` blocks, none of which needs what
    another one does. Nothing outside of kernels."""
    yield


@known_to_compiler("graph_parallel")
@contextmanager
def parallel() -> Iterator[None]:
    """A block in a `qd.graph.parallel_context`. Blocks may run side by side; now they run one after the other."""
    yield
