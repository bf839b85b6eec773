"""The tape or forward mode of the current thread, at most one, as the extension module knows it."""

from __future__ import annotations

import abc
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from octants import _octants
from octants._arrays import shadow_buffers
from octants._language.python_scope import runs_as_python
from octants.exceptions import OctantsAssertionError, OctantsRuntimeError


class Scope(abc.ABC):
    """Base class of `Tape` and `FwdMode`: entered once, and at most one per thread."""

    _thread = 0
    _entered = False

    @abc.abstractmethod
    def _start(self) -> None:
        """Starts taking part in launches."""

    def _check_entry(self) -> None:
        if self._entered:
            raise OctantsAssertionError(f"this {self._name()} was already used: create a new one for each use")
        other = current()
        if other is not None:
            raise OctantsRuntimeError(
                f"a {self._name()} cannot be entered inside a {other._name()}: leave that one first (gradients of "
                "gradients are not supported)"
            )
        if runs_as_python():
            raise OctantsRuntimeError(f"{self._name()}: arch=qd.python does not support derivatives")
        self._entered = True

    def _open(self) -> None:
        self._thread = threading.get_ident()
        shadow_buffers.open_scopes.append(self)  # type: ignore[arg-type]
        self._start()

    def _close(self) -> None:
        _octants.set_autodiff_scope(None)
        shadow_buffers.open_scopes.remove(self)  # type: ignore[arg-type]

    @classmethod
    def _name(cls) -> str:
        return f"qd.ad.{cls.__name__}"


def current() -> Scope | None:
    """The open scope of this thread."""
    here = threading.get_ident()
    for scope in shadow_buffers.open_scopes:
        if scope._thread == here and isinstance(scope, Scope):
            return scope
    return None


@contextlib.contextmanager
def paused(scope: Scope | None) -> Iterator[None]:
    """Runs a block as if no scope were open."""
    if scope is None:
        yield
        return
    scope._close()
    try:
        yield
    finally:
        scope._open()


def unwrapped(value: Any) -> Any:
    """The object inside a `qd.Tensor`; any other object itself."""
    unwrap = getattr(value, "_unwrap", None)
    return value if unwrap is None else unwrap()
