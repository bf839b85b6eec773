"""The devices of `qd.init(devices=...)` as ranks: each has a block of rows of an array that is split over them.

A program on several devices has one thread, and `qd.distributed.rank()` and `size()` count processes. Code that creates
arrays and plans for a rank runs once for each device, with that device as the rank.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from octants import _octants
from octants._distributed.communicators import Exchange, Pending
from octants._distributed.memory_ranges import MemoryRange
from octants.exceptions import OctantsDistributedError

__all__ = ["Block", "as_block", "current_block"]


class Block:
    """The rank of one device. It sends nothing by itself: `device_launches` transfers the rows of all devices
    together."""

    timeout = 0.0

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def prepare(self, what: str) -> None:
        """Does nothing."""

    def exchange(self, messages: Exchange, what: str, stream: int = 0) -> Pending:
        """Raises: compiled code and plans of a device do not communicate."""
        raise self._refusal(what)

    def all_reduce(self, memory: MemoryRange, op: str, what: str, stream: int = 0) -> None:
        """Raises like `exchange`."""
        raise self._refusal(what)

    def fill(self, memory: MemoryRange, value: float, stream: int = 0) -> None:
        """Raises like `exchange`."""
        raise self._refusal("a reduction")

    def barrier(self, what: str) -> None:
        """Raises like `exchange`."""
        raise self._refusal(what)

    def close(self) -> None:
        """Does nothing."""

    def _refusal(self, what: str) -> OctantsDistributedError:
        return OctantsDistributedError(f"device {self.rank} of {self.size}: {what} needs all devices")


class _ThisThread(threading.local):
    block: Block | None = None


_this_thread = _ThisThread()


def current_block() -> Block | None:
    """The rank that this thread is for the moment; None for the program itself."""
    return _this_thread.block


@contextmanager
def as_block(number: int) -> Iterator[Block]:
    """Makes this thread the rank of a device: the device is current, and `world()` is the rank."""
    serials = _octants.device_group()
    before = _this_thread.block
    with _octants.on_program(serials[number]):
        _this_thread.block = made = Block(number, len(serials))
        try:
            yield made
        finally:
            _this_thread.block = before
