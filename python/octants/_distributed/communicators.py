"""The interface for communication between ranks: message exchange and reductions. Each library has one class."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from os import path
from types import FrameType
from typing import Any, Protocol

from octants import _octants
from octants._distributed.memory_ranges import MemoryRange
from octants.exceptions import OctantsDistributedError

__all__ = [
    "Alone",
    "Communicator",
    "Exchange",
    "Message",
    "Pending",
    "await_end",
    "calling_frame",
    "failed",
    "user_line",
]

Message = tuple[int, MemoryRange]
"""A rank, and the memory to send to it or to receive from it."""


class Exchange:
    """A reusable set of messages that a rank sends and receives concurrently."""

    __slots__ = ("collective", "prepared", "receives", "sends")

    def __init__(self, sends: Sequence[Message], receives: Sequence[Message], collective: bool = True) -> None:
        self.sends = sends
        self.receives = receives
        self.collective = collective
        """All ranks exchange messages at this point, or have none."""
        self.prepared: Any = None
        """The communicator's own representation, cached because it takes time to create."""


_PACKAGE = path.join(path.dirname(_octants.__file__), "")

# Initial and maximum polling interval in seconds.
_SOON, _LATER = 2e-5, 2e-3


class Pending(Protocol):
    """Messages in flight."""

    def wait(self) -> None:
        """Waits until the messages have arrived, or makes the stream wait for them.

        Raises `OctantsDistributedError` after the timeout.
        """


class Communicator(Protocol):
    """The ranks of a program."""

    rank: int
    size: int
    timeout: float
    """Seconds after which a rank that does not respond is an error."""

    def prepare(self, what: str) -> None:
        """Called by all ranks before they exchange messages of launches."""

    def exchange(self, messages: Exchange, what: str, stream: int = 0) -> Pending:
        """Sends and receives. `stream` is the driver's handle of the stream that uses the device memory."""

    def all_reduce(self, memory: MemoryRange, op: str, what: str, stream: int = 0) -> None:
        """Reduces over all ranks, element by element and in place: `add`, `mul`, `min`, `max`, `and`, `or` or `xor`."""

    def fill(self, memory: MemoryRange, value: float, stream: int = 0) -> None:
        """Sets all elements of this rank's part of a reduction to one value."""

    def barrier(self, what: str) -> None:
        """Returns once all ranks have called it."""

    def close(self) -> None:
        """Releases what this communicator created."""


class Alone:
    """The only rank of a program of one process."""

    rank = 0
    size = 1

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout

    def prepare(self, what: str) -> None:
        """Does nothing."""

    def exchange(self, messages: Exchange, what: str, stream: int = 0) -> Pending:
        """Returns at once: there are no other ranks."""
        assert not messages.sends
        assert not messages.receives
        return self

    def wait(self) -> None:
        """Returns at once."""

    def all_reduce(self, memory: MemoryRange, op: str, what: str, stream: int = 0) -> None:
        """Does nothing: the elements are those of all ranks."""

    def fill(self, memory: MemoryRange, value: float, stream: int = 0) -> None:
        """Does nothing: the first rank keeps its elements."""

    def barrier(self, what: str) -> None:
        """Returns at once."""

    def close(self) -> None:
        """Does nothing."""


def user_line() -> str:
    """`file:line` of the call into the package."""
    frame = calling_frame()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def calling_frame() -> FrameType:
    """The frame of the call into the package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame


def failed(of: Communicator, what: str, why: str) -> OctantsDistributedError:
    """The error for an operation in which another rank did not take part."""
    return OctantsDistributedError(f"rank {of.rank} of {of.size}: {what} at {user_line()}: {why}")


def await_end(of: Communicator, what: str, has_ended: Callable[[], bool], peers: Sequence[int]) -> None:
    """Polls until an operation has ended. Raises after the timeout."""
    end, pause = time.monotonic() + of.timeout, _SOON
    for _ in range(200):
        if has_ended():
            return
    while not has_ended():
        if time.monotonic() > end:
            others = ", ".join(map(str, sorted(set(peers)))) or "others"
            raise failed(
                of,
                what,
                f"no answer from rank {others} after {of.timeout:g} s; it has ended, hangs, "
                "or runs a different operation",
            )
        time.sleep(pause)
        pause = min(2 * pause, _LATER)
