"""`qd.graph`: graph control flow in kernels declared with `graph=True`, and captured graphs of many launches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from octants._language.ops import kernel_only, known_to_compiler

if TYPE_CHECKING:
    from octants._streams.captured_graphs import CapturedGraph, capture, load

__all__ = ["CapturedGraph", "capture", "cond", "do_while", "load", "parallel", "parallel_context"]


def __getattr__(name: str) -> Any:
    if name in ("CapturedGraph", "capture", "load"):
        found = getattr(import_module("octants._streams.captured_graphs"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'octants.graph' has no attribute {name!r}")


class GraphStatus:
    """The result of launching a kernel declared with `graph=True, checkpoints=True`.

    `yielded` is true if a checkpoint ended the launch. `checkpoint` is then its label (an int, or a member of an
    `IntEnum`), otherwise `None`.
    """

    __slots__ = ("checkpoint", "yielded")

    def __init__(self, yielded: bool, checkpoint: Any = None) -> None:
        self.yielded = yielded
        self.checkpoint = checkpoint

    def __repr__(self) -> str:
        if not self.yielded:
            return "GraphStatus(yielded=False)"
        return f"GraphStatus(yielded=True, checkpoint={self.checkpoint!r})"


@known_to_compiler("checkpoint")
@contextmanager
def checkpoint(cp_id: Any, yield_on: Any = None) -> Iterator[None]:
    """In a kernel declared with `graph=True, checkpoints=True`: `with qd.checkpoint(label, yield_on=flag):` marks loops
    after which the launch ends if `flag`, a 0-dimensional i32 ndarray, is not zero.

    `kernel.resume(..., from_checkpoint=label)` repeats these loops and continues with what follows. The label is an int
    or a member of an `IntEnum`, unique in the kernel. No effect outside of kernels.
    """
    yield


do_while = kernel_only(
    "do_while",
    "`while qd.graph.do_while(counter):` runs its body once, then repeats it while `counter`, a 0-dimensional i32 "
    "ndarray, is not zero. Its `for` loops are parallel.",
    lambda condition: None,
    "graph.do_while",
)


cond = kernel_only(
    "cond",
    "`if qd.graph.cond(flag):` at the top level of a kernel runs its body if `flag`, a 0-dimensional i32 ndarray or "
    "any scalar expression, is not zero, and an `else` or `elif` otherwise. The `for` loops of both are parallel. "
    "The device evaluates the condition if it can.",
    lambda condition: None,
    "graph.cond",
)


@known_to_compiler("graph_parallel_context")
@contextmanager
def parallel_context(*, allow_nesting: bool = False) -> Iterator[None]:
    """In a kernel: `with qd.graph.parallel_context():` contains `with qd.graph.parallel():` blocks that are independent
    of each other. With `allow_nesting=True`, the blocks may contain `qd.graph.do_while` loops and further contexts, and
    the context may be in a kernel with checkpoints. No effect outside of kernels.
    """
    yield


@known_to_compiler("graph_parallel")
@contextmanager
def parallel(*, allow_overlap: bool = False) -> Iterator[None]:
    """A section of a `qd.graph.parallel_context`. Sections run concurrently if the device has streams. Two sections
    that certainly access the same element, one of them with a write, are an error; if that depends on values, a
    warning. `allow_overlap=True` on one of them permits it.
    """
    yield
