"""Messages through NCCL, by nccl4py: memory of NVIDIA GPUs. Another communicator transfers host memory.

Messages have a separate high-priority stream, so that kernels run while they are in flight. Reductions run on the
stream of the launch.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from typing import Any

import numpy as np
from nccl.bindings import nccl

from octants import _octants
from octants._distributed.communicators import Communicator, Exchange, Pending, failed
from octants._distributed.memory_ranges import MemoryRange, range_of_numpy
from octants._distributed.nccl_watchdog import Watchdog
from octants._program import program_events

__all__ = ["NcclCommunicator"]

_OPERATIONS = {
    "add": int(nccl.RedOp.Sum),
    "mul": int(nccl.RedOp.Prod),
    "min": int(nccl.RedOp.Min),
    "max": int(nccl.RedOp.Max),
}

_TYPES = {
    "int8": int(nccl.DataType.Int8),
    "uint8": int(nccl.DataType.Uint8),
    "int32": int(nccl.DataType.Int32),
    "uint32": int(nccl.DataType.Uint32),
    "int64": int(nccl.DataType.Int64),
    "uint64": int(nccl.DataType.Uint64),
    "float16": int(nccl.DataType.Float16),
    "float32": int(nccl.DataType.Float32),
    "float64": int(nccl.DataType.Float64),
}

_BYTES = int(nccl.DataType.Uint8)

# Higher than any priority that a program requests; the driver clamps it.
_PRIORITY = 100


class _Lane:
    """A stream of the program, ordered with the stream of the messages by events."""

    __slots__ = ("done", "handle", "ready", "reduced", "stream")

    def __init__(self, stream: _octants.Stream) -> None:
        self.stream, self.handle = stream, stream._native_handle
        self.ready, self.done, self.reduced = (_octants.create_event() for _ in range(3))

    def wait(self) -> None:
        """Makes the stream wait for the messages."""
        self.done.wait(self.stream)


class NcclCommunicator:
    """NCCL for GPU memory, `host` for other memory.

    Joins NCCL's communicator at the first use of GPU memory. Unless `required`, GPU memory is left to `host` if NCCL
    cannot be used.
    """

    def __init__(self, host: Communicator, required: bool) -> None:
        self._host, self._required = host, required
        self.rank, self.size, self.timeout = host.rank, host.size, host.timeout
        self._joined = self._usable = False
        self._comm: Any = None
        self._messages: tuple[_octants.Stream, int] | None = None
        # By the handles of their streams.
        self._lanes: dict[int, _Lane] = {}
        self._watchdog: Watchdog | None = None
        program_events.ended.append(self._forget_streams)
        atexit.register(self.close)

    def prepare(self, what: str) -> None:
        """Joins NCCL's communicator, unless that was done."""
        if not self._joined and _octants.current_device().kind == "cuda":
            self._join(what)
        self._host.prepare(what)

    def exchange(self, messages: Exchange, what: str, stream: int = 0) -> Pending:
        """Sends and receives bytes. Messages between device memory are queued."""
        if type(messages.prepared) is not _Prepared:
            if not self._is_device(messages, what):
                return self._host.exchange(messages, what, stream)
            if not self._usable:
                return self._through_host(messages, what, stream)
            messages.prepared = _Prepared(messages)
        lane = self._lanes.get(stream) or self._lane(stream)
        watchdog, comm = self._watchdog, self._comm
        assert watchdog is not None
        assert self._messages is not None
        queue, handle = self._messages
        watchdog.begin(what)
        try:
            lane.ready.record(lane.stream)
            lane.ready.wait(queue)
            nccl.group_start()
            for function, address, nbytes, peer in messages.prepared.calls:
                function(address, nbytes, _BYTES, peer, comm, handle)
            nccl.group_end()
            lane.done.record(queue)
        except nccl.NCCLError as error:
            raise self._error(what, error) from error
        finally:
            watchdog.end()
        return lane

    def all_reduce(self, memory: MemoryRange, op: str, what: str, stream: int = 0) -> None:
        """Reduces over all ranks, element by element; device memory in stream order. Types and operations that NCCL
        does not support go through the host.
        """
        if memory.on_host:
            self._host.all_reduce(memory, op, what, stream)
            return
        self.prepare(what)
        if not self._usable:
            self._host.all_reduce(memory, op, what, stream)
            return
        lane = self._lanes.get(stream) or self._lane(stream)
        operation, dtype = _OPERATIONS.get(op), _TYPES.get(memory.dtype.name)
        if operation is None or dtype is None:
            values = np.frombuffer(lane.stream._read(memory.address, memory.nbytes), memory.dtype)
            self._host.all_reduce(range_of_numpy(values), op, what)
            lane.stream._write(memory.address, values.tobytes())
            return
        watchdog = self._watchdog
        assert watchdog is not None
        watchdog.begin(what)
        try:
            nccl.all_reduce(memory.address, memory.address, memory.count, dtype, operation, self._comm, lane.handle)
            lane.reduced.record(lane.stream)
        except nccl.NCCLError as error:
            raise self._error(what, error) from error
        finally:
            watchdog.end()

    def fill(self, memory: MemoryRange, value: float, stream: int = 0) -> None:
        """Sets all elements of this rank; in device memory, in stream order."""
        if memory.on_host or not self._usable:
            self._host.fill(memory, value, stream)
            return
        lane = self._lanes.get(stream) or self._lane(stream)
        lane.stream._fill(memory.address, np.array(value, memory.dtype).tobytes(), memory.count)

    def barrier(self, what: str) -> None:
        """Returns once all ranks have called it."""
        self._host.barrier(what)

    def close(self) -> None:
        """Leaves NCCL's communicator after the messages in flight, and closes the other one."""
        atexit.unregister(self.close)
        if self._forget_streams in program_events.ended:
            program_events.ended.remove(self._forget_streams)
        if self._comm is not None and self._watchdog is not None:
            is_lost = self._watchdog.lost is not None
            self._watchdog.stop()
            # After an exception the other ranks may not come here.
            if not is_lost and getattr(sys, "last_value", None) is None and self._have_ended():
                nccl.comm_destroy(self._comm)
            elif not is_lost:
                nccl.comm_abort(self._comm)
            self._comm = None
        self._host.close()

    # The communicator

    def _join(self, what: str) -> None:
        """Joins NCCL's communicator. All ranks must call it."""
        self._joined = True
        why = _missing()
        usable = np.array([why is None], np.int32)
        self._host.all_reduce(range_of_numpy(usable), "min", what)
        if not usable[0]:
            if self._required:
                raise failed(self, what, f"NCCL cannot be used: {why or 'another rank has none'}")
            return
        unique = np.zeros(len(bytes(nccl.UniqueId())), np.uint8)
        others = [rank for rank in range(self.size) if rank != 0]
        if self.rank == 0:
            unique[:] = np.frombuffer(bytes(nccl.get_unique_id()), np.uint8)
            self._host.exchange(Exchange([(other, range_of_numpy(unique)) for other in others], []), what).wait()
        else:
            self._host.exchange(Exchange([], [(0, range_of_numpy(unique))]), what).wait()
        self._comm = self._enter(nccl.UniqueId.from_buffer(unique.tobytes()), what)
        self._usable = True
        name = f"rank {self.rank} of {self.size}"
        self._watchdog = Watchdog(name, self.timeout, self._is_idle, self._abort)

    def _enter(self, unique: Any, what: str) -> Any:
        """The communicator. The call waits for all ranks, so it runs on a separate thread."""
        made: list[Any] = []
        ready = _octants.create_event()
        stream = _octants.default_stream()

        def enter() -> None:
            try:
                # Makes the device current on this thread.
                ready.record(stream)
                made.append(nccl.comm_init_rank(self.size, unique, self.rank))
            except Exception as error:
                made.append(error)

        thread = threading.Thread(target=enter, name="octants NCCL start", daemon=True)
        thread.start()
        thread.join(self.timeout)
        if not made:
            raise failed(
                self, what, f"joining NCCL's communicator: no answer from other ranks after {self.timeout:g} s"
            )
        if isinstance(made[0], Exception):
            raise failed(self, what, f"joining NCCL's communicator: {made[0]}") from made[0]
        return made[0]

    def _abort(self) -> None:
        comm, self._comm = self._comm, None
        nccl.comm_abort(comm)

    def _error(self, what: str, error: Exception) -> Exception:
        assert self._watchdog is not None
        return failed(self, what, f"NCCL failed: {error}") if self._watchdog.lost is None else self._watchdog.error()

    # Streams

    def _lane(self, stream: int) -> _Lane:
        if self._messages is None:
            queue = _octants.create_stream(_PRIORITY)
            self._messages = queue, queue._native_handle
        lane = self._lanes[stream] = _Lane(_octants.Stream.from_handle(stream))
        return lane

    def _forget_streams(self) -> None:
        """The program has ended, and its streams and events with it."""
        self._lanes.clear()
        self._messages = None

    def _is_idle(self) -> bool:
        """All queued operations have ended."""
        try:
            return all(lane.done.query() and lane.reduced.query() for lane in list(self._lanes.values()))
        except RuntimeError:
            # The program has ended.
            return True

    def _have_ended(self) -> bool:
        """Waits until the operations of all ranks have ended."""
        end = time.monotonic() + self.timeout
        while not self._is_idle():
            if time.monotonic() > end:
                return False
            time.sleep(1e-3)
        try:
            self._host.barrier("leaving NCCL's communicator")
        except RuntimeError:
            return False
        return True

    # Messages

    def _is_device(self, messages: Exchange, what: str) -> bool:
        """The messages are between memory of an NVIDIA GPU."""
        some = next(iter((*messages.sends, *messages.receives)), None)
        if some is None or some[1].on_host or _octants.current_device().kind != "cuda":
            return False
        if messages.collective:
            self.prepare(what)
        return self._usable or not (messages.collective or self._joined)

    def _through_host(self, messages: Exchange, what: str, stream: int) -> Pending:
        """Messages between two ranks, while not all of them have joined NCCL's communicator."""
        lane = _octants.Stream.from_handle(stream)
        sends = [
            (peer, range_of_numpy(np.frombuffer(lane._read(memory.address, memory.nbytes), np.uint8)))
            for peer, memory in messages.sends
        ]
        arrays = [np.empty(memory.nbytes, np.uint8) for _, memory in messages.receives]
        receives = [(peer, range_of_numpy(array)) for (peer, _), array in zip(messages.receives, arrays, strict=True)]
        pending = self._host.exchange(Exchange(sends, receives), what)
        pending.wait()
        for (_, memory), array in zip(messages.receives, arrays, strict=True):
            lane._write(memory.address, array.tobytes())
        return pending


class _Prepared:
    """The calls of an exchange."""

    __slots__ = ("calls",)

    def __init__(self, messages: Exchange) -> None:
        # Messages between two ranks arrive in the order in which they were sent.
        self.calls = [
            (function, memory.address, memory.nbytes, peer)
            for function, part in ((nccl.recv, messages.receives), (nccl.send, messages.sends))
            for peer, memory in part
        ]


def _missing() -> str | None:
    """Why NCCL's library cannot be used."""
    try:
        nccl.get_version()
    except (ImportError, OSError, RuntimeError) as error:
        return str(error)
    return None
