"""Gradients and duals of fields: which exist, and the effect of host writes on differentiation.

`qd.ad` builds on this module. Fields and ndarrays depend on nothing else of differentiation.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from typing import Any, Protocol

from octants import _octants


class HostWrites(Protocol):
    """An open tape or forward mode, as the receiver of notifications about host writes."""

    _thread: int

    def _host_wrote(self, whole: Any, key: Any, component: Any) -> None: ...

    def _host_copied(self, to: Any, source: Any) -> None: ...


open_scopes: list[HostWrites] = []
"""The open scopes of all threads. Usually empty, which makes the check by host writes cheap."""

_known: dict[str, weakref.WeakSet[Any]] = {
    "field": weakref.WeakSet(),
    "grad": weakref.WeakSet(),
    "dual": weakref.WeakSet(),
    "marks": weakref.WeakSet(),
    "split_grad": weakref.WeakSet(),
}


def remember(kind: str, field: Any) -> None:
    """Registers a field under its kind: "field", "grad", "dual", "marks", or "split_grad", the gradient of a field that
    is split over ranks.
    """
    _known[kind].add(field)


def fields_in_memory(kind: str) -> list[Any]:
    """The fields of this kind that have memory in the running program. While this thread captures a graph, also those
    that get memory when they are used: launches of the graph will find them in use.
    """
    captures = _octants.capturing()
    return [field for field in _placed(kind) if captures or all(part.node._tree.finalized for part in field._parts)]


def split_gradients() -> list[Any]:
    """The gradients of fields of the running program that are split over ranks."""
    return [gradient for gradient in _known["split_grad"] if gradient.alive]


def any_gradients() -> bool:
    """Whether a field of the running program has a gradient."""
    return next(_placed("grad"), None) is not None or bool(split_gradients())


def _placed(kind: str) -> Iterator[Any]:
    """The fields of this kind that are placed in a tree of the running program."""
    for field in list(_known[kind]):
        nodes = [part.node for part in field._parts]
        if all(node is not None and node._tree.alive for node in nodes):
            yield field


def shadow_buffer(whole: Any, which: str) -> Any:
    """The gradient or dual of a field or ndarray; None unless it has memory."""
    found = getattr(whole, which, None)
    parts = getattr(found, "_parts", None)
    return None if parts is not None and parts[0].node is None else found


def host_wrote(whole: Any, key: Any = None, component: Any = None) -> None:
    """Called after the host has set all elements, one element, or one component of an element."""
    for scope in open_scopes:
        if scope._thread == threading.get_ident():
            scope._host_wrote(whole, key, component)


def host_copied(to: Any, source: Any) -> None:
    """Called after the host has copied all elements from another field or ndarray."""
    for scope in open_scopes:
        if scope._thread == threading.get_ident():
            scope._host_copied(to, source)
