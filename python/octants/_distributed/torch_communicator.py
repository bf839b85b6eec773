"""Messages through torch.distributed: gloo for the host's memory, NCCL for that of NVIDIA and AMD GPUs."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as ranks

from octants._distributed.communicators import Communicator, Exchange, Pending, failed
from octants._distributed.launchers import Position
from octants._distributed.memory_ranges import MemoryRange

__all__ = ["TorchCommunicator"]

T = TypeVar("T")

_OPERATIONS = {
    "add": ranks.ReduceOp.SUM,
    "mul": ranks.ReduceOp.PRODUCT,
    "min": ranks.ReduceOp.MIN,
    "max": ranks.ReduceOp.MAX,
    "and": ranks.ReduceOp.BAND,
    "or": ranks.ReduceOp.BOR,
    "xor": ranks.ReduceOp.BXOR,
}

# NCCL has no operations on bits.
_ON_DEVICE = ("add", "mul", "min", "max")

# Torch computes with few unsigned types. A sum has the same bits.
_SIGNED = {"uint16": "int16", "uint32": "int32", "uint64": "int64"}

# Gloo and NCCL have no reductions of these.
_SHORT = ("int16", "uint16")


class _HostWorks:
    """Messages between host memory."""

    def __init__(self, of: Communicator, works: list[Any], what: str) -> None:
        self._of, self._works, self._what = of, works, what

    def wait(self) -> None:
        """Returns when all messages have arrived."""
        for work in self._works:
            _wait(self._of, work, self._what)


class _DeviceWorks:
    """Messages between device memory."""

    def __init__(self, of: Communicator, works: list[Any], what: str, stream: Any) -> None:
        self._of, self._works, self._what, self._stream = of, works, what, stream

    def wait(self) -> None:
        """Makes the stream wait for the messages."""
        with self._stream:
            for work in self._works:
                _queue(self._of, work, self._what)


def _queue(of: Communicator, work: Any, what: str) -> None:
    """Makes the current stream wait for NCCL work. Torch's watchdog aborts the work after the group's timeout.

    With a timeout of its own, torch would wait on the host.
    """
    try:
        work.wait()
    except RuntimeError as error:
        raise failed(of, what, f"NCCL failed ({error})") from error


def _wait(of: Communicator, work: Any, what: str) -> None:
    try:
        work.wait(timedelta(seconds=of.timeout))
    except RuntimeError as error:
        raise failed(of, what, f"no answer after {of.timeout:g} s or less ({error})") from error


def _begin(of: Communicator, start: Callable[[], T], what: str) -> T:
    """Starts an operation, which fails at once if another rank has closed its connections."""
    try:
        return start()
    except RuntimeError as error:
        raise failed(of, what, f"no answer from another rank ({error})") from error


class TorchCommunicator:
    """The ranks of torch's process group, which is created if there is none."""

    def __init__(self, position: Position, timeout: float) -> None:
        self.timeout = timeout
        wait = timedelta(seconds=timeout)
        has_gpu = torch.cuda.is_available()
        self._owns_group = not ranks.is_initialized()
        if self._owns_group:
            if has_gpu:
                torch.cuda.set_device(position.local_rank % torch.cuda.device_count())
            ranks.init_process_group(
                "cpu:gloo,cuda:nccl" if has_gpu else "gloo",
                rank=position.rank,
                world_size=position.size,
                timeout=wait,
                init_method="env://" if position.size > 1 else "tcp://127.0.0.1:0",
            )
            atexit.register(self.close)
        self.rank, self.size = ranks.get_rank(), ranks.get_world_size()
        self._host = ranks.new_group(backend="gloo", timeout=wait)
        # By their handles.
        self._streams: dict[int, Any] = {}
        self._device = ranks.new_group(backend="nccl", timeout=wait) if has_gpu else None

    def prepare(self, what: str) -> None:
        """Does nothing."""

    def exchange(self, messages: Exchange, what: str, stream: int = 0) -> Pending:
        """Sends and receives bytes."""
        if not (messages.sends or messages.receives):
            return _HostWorks(self, [], what)
        if messages.prepared is None:
            on_host = (*messages.sends, *messages.receives)[0][1].on_host
            group = self._group(on_host, what)
            operations = [
                ranks.P2POp(operation, _bytes_of(memory), peer, group)
                for operation, part in ((ranks.irecv, messages.receives), (ranks.isend, messages.sends))
                for peer, memory in part
            ]
            messages.prepared = on_host, operations
        on_host, operations = messages.prepared
        if on_host:
            return _HostWorks(self, _begin(self, lambda: ranks.batch_isend_irecv(operations), what), what)
        with self._on(stream):
            works = _begin(self, lambda: ranks.batch_isend_irecv(operations), what)
        return _DeviceWorks(self, works, what, self._on(stream))

    def all_reduce(self, memory: MemoryRange, op: str, what: str, stream: int = 0) -> None:
        """Reduces over all ranks, element by element; in device memory, in stream order."""
        if memory.on_host:
            self._reduce_on_host(memory.numpy(), op, what)
            return
        group, name = self._group(False, what), memory.dtype.name
        compares_unsigned = op in ("min", "max") and name in _SIGNED
        with self._on(stream):
            if op in _ON_DEVICE and name not in _SHORT and not compares_unsigned:
                _queue(self, ranks.all_reduce(_tensor_of(memory), _OPERATIONS[op], group, async_op=True), what)
                return
            raw = _bytes_of(memory)
            values = raw.cpu().numpy().view(memory.dtype)
            self._reduce_on_host(values, op, what)
            raw.copy_(torch.from_numpy(values.view(np.uint8)))

    def fill(self, memory: MemoryRange, value: float, stream: int = 0) -> None:
        """Sets all elements of this rank; in device memory, in stream order."""
        if memory.on_host:
            memory.numpy()[:] = value
            return
        with self._on(stream):
            _tensor_of(memory).fill_(value)

    def barrier(self, what: str) -> None:
        """Returns once all ranks have called it."""
        _wait(self, _begin(self, lambda: ranks.barrier(self._host, async_op=True), what), what)

    def close(self) -> None:
        """Destroys the process group if this program created it."""
        atexit.unregister(self.close)
        if self._owns_group and ranks.is_initialized():
            ranks.destroy_process_group()

    def _reduce_on_host(self, values: np.ndarray[Any, Any], op: str, what: str) -> None:
        name, given = values.dtype.name, values
        top = np.uint64(1 << 63)
        if name in _SHORT:
            given = values.astype(np.int32)
        elif name in _SIGNED and op in ("min", "max"):
            # In the same order.
            given = values.astype(np.int64) if name == "uint32" else (values ^ top).view(np.int64)
        elif name in _SIGNED:
            given = values.view(_SIGNED[name])
        tensor, operation = torch.from_numpy(given), _OPERATIONS[op]
        work = _begin(self, lambda: ranks.all_reduce(tensor, operation, self._host, async_op=True), what)
        _wait(self, work, what)
        if name == "uint64" and op in ("min", "max"):
            values[...] = given.view(np.uint64) ^ top
        elif given.dtype.itemsize != values.dtype.itemsize:
            values[...] = given.astype(values.dtype)

    def _group(self, on_host: bool, what: str) -> Any:
        if on_host:
            return self._host
        if self._device is None:
            raise failed(self, what, "this torch build has no NCCL, which GPU memory needs")
        return self._device

    def _on(self, stream: int) -> AbstractContextManager[Any]:
        if stream not in self._streams:
            # Torch takes the handle 0 for a request of a new stream.
            self._streams[stream] = torch.cuda.ExternalStream(stream) if stream else torch.cuda.default_stream()
        context: AbstractContextManager[Any] = torch.cuda.stream(self._streams[stream])
        return context


def _bytes_of(memory: MemoryRange) -> Any:
    if "torch" not in memory.views:
        raw = replace(memory, count=memory.nbytes, dtype=np.dtype(np.uint8), views={})
        on_host = memory.on_host
        memory.views["torch"] = torch.from_numpy(raw.numpy()) if on_host else torch.as_tensor(raw, device="cuda")
    return memory.views["torch"]


def _tensor_of(memory: MemoryRange) -> Any:
    """Device memory as a tensor. Sums of signed and unsigned integers have the same bits."""
    name = memory.dtype.name
    if name in _SIGNED:
        memory = replace(memory, dtype=np.dtype(_SIGNED[name]), views={})
    return torch.as_tensor(memory, device="cuda")
