"""Ahead-of-time compilation: of one kernel, or of many in parallel, optionally in the background."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

from octants import _octants
from octants.exceptions import OctantsRuntimeError, OctantsTypeError

_BAR = 30


def compile(kernel: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Compiles a kernel for a call with these arguments, without making the call. A later call then starts without
    compiling.

    Only the element type and the number of axes of arrays matter, so small arrays suffice.
    """
    _octants.PreparedCall(kernel, args, kwargs).compile()


def precompile(
    calls: Iterable[Any], *, background: bool = False, progress: bool | None = None, threads: int | None = None
) -> Precompilation:
    """Compiles kernels in parallel for calls, without making the calls.

        qd.precompile([(step, x, 0.1), (render, image), reset])

    A call is a tuple of a kernel and its arguments, a kernel that takes none, or `functools.partial(kernel, ...)` for
    keyword arguments. The function returns when all kernels are compiled, and raises the first error among them. With
    `background=True` it returns immediately, and the result's `wait` does so. `progress` shows a progress bar on
    standard error; the default is to show it if that is a terminal and the function waits. `threads` is the number of
    kernels compiled at a time, by default one per processor."""
    prepared = [_prepared(call) for call in calls]
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")
    if not _octants.is_initialized():
        raise OctantsRuntimeError("call qd.init() before qd.precompile()")
    if progress is None:
        progress = not background and sys.stderr is not None and sys.stderr.isatty()
    made = Precompilation(prepared, threads or os.cpu_count() or 1, sys.stderr if progress else None)
    if not background:
        made.wait()
    return made


class Precompilation:
    """A running precompilation. Made by `octants.precompile`."""

    def __init__(self, calls: Sequence[_octants.PreparedCall], threads: int, progress: TextIO | None) -> None:
        self._calls = calls
        self._program = _octants.generation()
        self._serial = _octants.program_serial()
        self._changed = threading.Condition()
        self._next = 0
        self._completed = 0
        self._errors: dict[int, BaseException] = {}
        self._progress = progress
        self._draw()
        for _ in range(min(threads, len(calls))):
            threading.Thread(target=self._work, name="octants precompile").start()

    @property
    def total(self) -> int:
        """Number of calls to compile for."""
        return len(self._calls)

    @property
    def completed(self) -> int:
        """Number of calls whose compilation has finished or failed."""
        return self._completed

    @property
    def done(self) -> bool:
        """Whether all compilations have finished."""
        return self._completed == self.total

    @property
    def errors(self) -> list[BaseException]:
        """The errors raised so far, in the order of the calls."""
        with self._changed:
            return [self._errors[i] for i in sorted(self._errors)]

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until all is compiled, at most `timeout` seconds; returns whether it is.

        Once all compilations have finished, raises the first error, in the order of the calls.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self.done, timeout):
                return False
        for error in self.errors:
            raise error
        return True

    def __repr__(self) -> str:
        return f"<octants precompilation, {self._completed} of {self.total} done>"

    def _work(self) -> None:
        while True:
            with self._changed:
                i = self._next
                self._next += 1
            if i >= self.total:
                return
            error: BaseException | None = None
            try:
                # A process that ends does not wait for compilations that have not started.
                if not threading.main_thread().is_alive():
                    raise OctantsRuntimeError("the process ended before this kernel was compiled")
                if _octants.generation() != self._program:
                    raise OctantsRuntimeError("the program ended before this kernel was compiled")
                with _octants.on_program(self._serial):
                    self._calls[i].compile()
            except BaseException as raised:  # noqa: BLE001 (whoever waits gets it)
                error = raised
            with self._changed:
                self._completed += 1
                if error is not None:
                    self._errors[i] = error
                self._draw()
                self._changed.notify_all()

    def _draw(self) -> None:
        if self._progress is None or not self.total:
            return
        full = _BAR * self._completed // self.total
        end = "\n" if self.done else ""
        self._progress.write(f"\rcompiling [{'#' * full}{'.' * (_BAR - full)}] {self._completed}/{self.total}{end}")
        self._progress.flush()


def _prepared(call: Any) -> _octants.PreparedCall:
    if isinstance(call, functools.partial):
        return _octants.PreparedCall(call.func, call.args, call.keywords)
    if isinstance(call, (tuple, list)):
        if not call:
            raise OctantsTypeError(
                "each call to precompile must be a tuple of a kernel and its arguments, got an empty tuple"
            )
        return _octants.PreparedCall(call[0], tuple(call[1:]))
    return _octants.PreparedCall(call, ())
