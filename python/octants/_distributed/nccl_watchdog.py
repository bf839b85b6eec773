"""A thread that detects unresponsive ranks while this rank waits for NCCL's device work."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType

from octants._distributed.communicators import calling_frame
from octants.exceptions import OctantsDistributedError

__all__ = ["Watchdog"]

# Seconds that the program has to exit after a rank was lost. Then the process is terminated.
_GRACE = 10.0


class Watchdog:
    """Raises an error in the thread that uses NCCL if an operation does not end before the timeout.

    A lost rank blocks the stream, so the program may wait anywhere: in a synchronization, in a read of an array, or in
    NCCL. The error is raised there, and then `abort` ends the operations.
    """

    def __init__(self, name: str, timeout: float, is_idle: Callable[[], bool], abort: Callable[[], None]) -> None:
        self._name, self._timeout, self._is_idle, self._abort = name, timeout, is_idle, abort
        self.lost: str | None = None
        """The message about a rank that was lost."""
        self._begun = 0
        self._inside = False
        self._latest: tuple[str, CodeType, int] | None = None
        self._user = threading.get_ident()
        self._told = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="octants NCCL watchdog", daemon=True)
        self._thread.start()

    def begin(self, what: str) -> None:
        """Notes that the thread is about to queue an operation. Raises if a rank was lost."""
        if self.lost is not None:
            raise self.error()
        frame = calling_frame()
        self._latest = what, frame.f_code, frame.f_lineno
        self._begun += 1
        self._inside = True

    def end(self) -> None:
        """Notes that the operation is queued."""
        self._inside = False

    def error(self) -> OctantsDistributedError:
        """The error about the lost rank, for the thread that uses NCCL to raise."""
        self._told = True
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._user), None)
        return OctantsDistributedError(self.lost)

    def stop(self) -> None:
        """Ends the thread."""
        self._ended.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        seen, since = -1, time.monotonic()
        while not self._ended.wait(min(1.0, self._timeout / 8)):
            if self._begun != seen or (not self._inside and self._is_idle()):
                seen, since = self._begun, time.monotonic()
            elif time.monotonic() - since > self._timeout:
                self._give_up()
                return

    def _give_up(self) -> None:
        what, code, line = self._latest or ("an operation", None, 0)
        place = f" at {code.co_filename}:{line}" if code is not None else ""
        self.lost = text = (
            f"{self._name}: {what}{place}, or an operation before it: no answer from other ranks after "
            f"{self._timeout:g} s; one has ended, hangs, or runs a different operation"
        )
        timer = threading.Timer(_GRACE, self._end_process)
        timer.daemon = True
        timer.start()

        def told(error: OctantsDistributedError) -> None:
            self._told = True
            OctantsDistributedError.__init__(error, text)

        members = {"__init__": told, "__module__": OctantsDistributedError.__module__}
        raised = type(OctantsDistributedError.__name__, (OctantsDistributedError,), members)
        # Before the abort, after which the thread continues with wrong values.
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._user), ctypes.py_object(raised))
        self._abort()

    def _end_process(self) -> None:
        """Ends a process whose thread did not get the error."""
        if not self._told:
            sys.stderr.write(f"{OctantsDistributedError.__name__}: {self.lost}\n")
            sys.stderr.flush()
            os._exit(1)
