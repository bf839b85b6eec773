"""Messages through MPI, by mpi4py."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from mpi4py import MPI

from octants._distributed.communicators import Communicator, Exchange, Pending, await_end, failed
from octants._distributed.memory_ranges import MemoryRange

__all__ = ["MpiCommunicator"]

_OPERATIONS = {
    "add": MPI.SUM,
    "mul": MPI.PROD,
    "min": MPI.MIN,
    "max": MPI.MAX,
    "and": MPI.BAND,
    "or": MPI.BOR,
    "xor": MPI.BXOR,
}


class _Requests:
    def __init__(self, of: Communicator, requests: list[MPI.Request], what: str, peers: list[int]) -> None:
        self._of, self._requests, self._what, self._peers = of, requests, what, peers

    def wait(self) -> None:
        """Returns when all messages have arrived."""
        await_end(self._of, self._what, lambda: MPI.Request.Testall(self._requests), self._peers)


class MpiCommunicator:
    """The ranks of an MPI communicator, `MPI.COMM_WORLD` by default. Raises for device memory."""

    def __init__(self, timeout: float, ranks: Any = None) -> None:
        # Messages of the program itself cannot be confused with these.
        self._mpi = (MPI.COMM_WORLD if ranks is None else ranks).Dup()
        self.rank, self.size = self._mpi.Get_rank(), self._mpi.Get_size()
        self.timeout = timeout
        if self.size > 1:
            _end_all_on_exception(self._mpi)

    def prepare(self, what: str) -> None:
        """Does nothing."""

    def exchange(self, messages: Exchange, what: str, stream: int = 0) -> Pending:
        """Sends and receives bytes."""
        if messages.prepared is None:
            receives, sends = (
                [([self._host(memory, what), MPI.BYTE], peer) for peer, memory in part]
                for part in (messages.receives, messages.sends)
            )
            peers = [peer for peer, _ in (*messages.sends, *messages.receives)]
            messages.prepared = receives, sends, peers
        receives, sends, peers = messages.prepared
        # Messages between two ranks arrive in the order in which they were sent.
        requests = [self._mpi.Irecv(memory, peer) for memory, peer in receives]
        requests += [self._mpi.Isend(memory, peer) for memory, peer in sends]
        return _Requests(self, requests, what, peers)

    def all_reduce(self, memory: MemoryRange, op: str, what: str, stream: int = 0) -> None:
        """Reduces over all ranks, element by element."""
        self._host(memory, what)
        values = memory.numpy()
        # MPI has no type for half precision.
        wide = values.astype(np.float32) if values.dtype == np.float16 else values
        request = self._mpi.Iallreduce(MPI.IN_PLACE, wide, _OPERATIONS[op])
        await_end(self, what, request.Test, self._others())
        if wide is not values:
            values[:] = wide

    def fill(self, memory: MemoryRange, value: float, stream: int = 0) -> None:
        """Sets all elements of this rank."""
        self._host(memory, "a reduction")
        memory.numpy()[:] = value

    def barrier(self, what: str) -> None:
        """Returns once all ranks have called it."""
        await_end(self, what, self._mpi.Ibarrier().Test, self._others())

    def close(self) -> None:
        """Frees the communicator."""
        self._mpi.Free()

    def _others(self) -> list[int]:
        return [rank for rank in range(self.size) if rank != self.rank]

    def _host(self, memory: MemoryRange, what: str) -> np.ndarray[Any, Any]:
        if not memory.on_host:
            raise failed(
                self, what, "MPI transfers only host memory; install nccl4py for NVIDIA GPUs, or use backend='torch'"
            )
        return memory.numpy().view(np.uint8)


def _end_all_on_exception(ranks: Any) -> None:
    """Aborts all ranks on an uncaught exception; otherwise the others would wait for this one at exit."""
    shown = sys.excepthook

    def hook(*raised: Any) -> None:
        shown(*raised)
        sys.stdout.flush()
        sys.stderr.flush()
        ranks.Abort(1)

    sys.excepthook = hook
