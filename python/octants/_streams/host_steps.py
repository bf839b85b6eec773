"""Steps of captured graphs that the host performs at each launch of the graph: exchanges with other ranks, and fills
and copies of split arrays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = ["HostStep", "capturing_graph", "form_of", "open_graphs"]

open_graphs: dict[int, Any] = {}
"""The graph that each thread captures."""


class HostStep(NamedTuple):
    """What the host does at each launch of a graph."""

    name: str
    arrays: tuple[Any, ...]
    """What it uses, which `update` may replace."""
    perform: Callable[..., None]
    """Called with the arrays and the stream that the graph is launched on."""
    collective: str | None = None
    """What all ranks do together at this step; None if others do not take part, or only some of them."""
    gradient: Callable[[], None] | None = None
    """Captures its gradient; None if it has no effect on gradients."""

    def calling(self) -> Callable[[Any], None]:
        """A function of the stream."""
        arrays, perform = self.arrays, self.perform
        return lambda stream: perform(*arrays, stream)


def capturing_graph() -> Any:
    """The `CapturedGraph` that this thread captures, or None."""
    return open_graphs.get(threading.get_ident()) if open_graphs else None


def form_of(array: Any) -> str:
    """What must be the same for an array that replaces another one in a step."""
    if isinstance(array, np.ndarray):
        return f"a numpy array of {array.dtype} with shape {array.shape}"
    element = "".join(f"[{n}]" for n in getattr(array, "element_shape", ()))
    kind = (
        "an array" if not hasattr(array, "rows") else f"an array split along axis {array.split} with halo={array.halo}"
    )
    return f"{kind} of {array.dtype.name}{element} with shape {tuple(array.shape)}"
