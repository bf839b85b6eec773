"""Launches of kernels on split arrays, task by task.

A task runs on the rows that this rank has. What it reads beside them comes from other ranks: rows that need none of
those are computed meanwhile, the others when they have arrived. Other memory that the task reduces into holds a part of
the sum on each rank, and is summed over the ranks behind the task.
"""

from __future__ import annotations

import numpy as np

from octants._distributed.communicators import Pending
from octants._distributed.memory_ranges import MemoryRange
from octants._distributed.split_ndarrays import SplitNdarray
from octants._distributed.world import agree, world
from octants.exceptions import OctantsDistributedError

__all__ = ["SplitLaunch"]

Rows = tuple[int, int]
Task = tuple[list[tuple[int, int, int]], list[int], list[tuple[str, str, int, int]], list[tuple[int, int]]]

# What an element starts from on all ranks but the first. Other operations may see an element any number of times.
_NEUTRAL = {"add": 0, "mul": 1, "xor": 0}


class SplitLaunch:
    """One launch. `kernel/split_launch.rs` of octants-python calls it for each task, and runs the rows it returns."""

    def __init__(
        self,
        kernel: str,
        tasks: list[Task | None],
        arrays: dict[int, tuple[SplitNdarray, bool]],
        stream: int,
    ) -> None:
        self._kernel = kernel
        self._tasks = tasks
        self._arrays = {buffer: array for buffer, (array, _) in arrays.items()}
        self._stream = stream
        self._pending: Pending | None = None
        self._left: list[Rows] = []
        seen: dict[int, bool] = {}
        for array, is_argument in arrays.values():
            if not (is_argument and seen.get(id(array), True)):
                if id(array) in seen:
                    raise OctantsDistributedError(
                        f"kernel `{kernel}` takes a split array as an argument that it also uses by its name"
                    )
            seen[id(array)] = is_argument
        shapes = {buffer: (array.shape, array.halo) for buffer, array in self._arrays.items()}
        plan = [None if t is None else (t[0], t[1], [(u[0], u[1], u[3]) for u in t[2]]) for t in tasks]
        agree(f"kernel `{kernel}` on split arrays {shapes} with tasks {plan}", f"kernel `{kernel}`")

    def begin_task(self, number: int) -> list[Rows]:
        """Sends rows to other ranks. Returns rows that need none of theirs."""
        reads, writes, updates, last_rows = self._task(number)
        first, end = self._rows_of(writes or [read[0] for read in reads])
        for buffer, row in last_rows:
            extent = self._arrays[buffer].shape[0]
            if row != extent - 1:
                raise self._error(
                    f"a row is clamped to {row}, which is not the last one of {extent}: ranks do not have it"
                )
        ranks = world()
        if ranks.rank != 0:
            for op, dtype, address, count in updates:
                self._reset(op, self._memory(dtype, address, count))
        sends, receives, before, after = [], [], 0, 0
        for buffer, rows_before, rows_after in reads:
            array = self._arrays[buffer]
            self._check_halo(array, rows_before, rows_after, (first, end))
            sent, received = array.messages(rows_before, rows_after)
            sends += sent
            receives += received
            if received:
                before, after = max(before, rows_before), max(after, rows_after)
        if not (sends or receives):
            self._pending, self._left = None, []
            return [(first, end)]
        self._pending = ranks.exchange(sends, receives, f"kernel `{self._kernel}`", self._stream)
        extent = self._arrays[reads[0][0]].shape[0]
        inner = (first + before * (first > 0), end - after * (end < extent))
        if inner[0] >= inner[1]:
            self._left = [(first, end)]
            return []
        self._left = [rows for rows in ((first, inner[0]), (inner[1], end)) if rows[0] < rows[1]]
        return [inner]

    def finish_exchange(self, number: int) -> list[Rows]:
        """Waits for the rows of other ranks. Returns the rows that need them."""
        if self._pending is not None:
            self._pending.wait()
        return self._left

    def end_task(self, number: int) -> list[Rows]:
        """Sums what the task reduces into."""
        _, writes, updates, _ = self._task(number)
        for buffer in writes:
            self._arrays[buffer].forget_ghosts()
        for op, dtype, address, count in updates:
            world().all_reduce(self._memory(dtype, address, count), op, f"kernel `{self._kernel}`", self._stream)
        return []

    def _task(self, number: int) -> Task:
        task = self._tasks[number]
        assert task is not None
        return task

    def _rows_of(self, buffers: list[int]) -> Rows:
        """The rows that this rank computes."""
        rows = {self._arrays[buffer].rows for buffer in buffers}
        if len(rows) > 1:
            shapes = ", ".join(str(self._arrays[buffer].shape) for buffer in buffers)
            raise self._error(
                f"one loop runs over arrays of different numbers of rows ({shapes}), so ranks have others"
            )
        return rows.pop()

    def _check_halo(self, array: SplitNdarray, before: int, after: int, rows: Rows) -> None:
        # An array with other rows than the loop's is read that much farther away.
        own, ranks = array.rows, world()
        far_before, far_after = own[0] - rows[0], rows[1] - own[1]
        if max(before, after) > array.halo and ranks.size > 1:
            raise self._error(
                f"rows up to {max(before, after)} away are read of an array with {array.halo} ghost rows: make it with "
                f"halo={max(before, after)}"
            )
        if ranks.size > 1 and (far_before or far_after):
            raise self._error("a loop reads an array that has another number of rows than those that it writes")

    def _memory(self, dtype: str, address: int, count: int) -> MemoryRange:
        on_host = next(iter(self._arrays.values()))._local.buffer.host_addressable
        return MemoryRange(address, count, np.dtype(_NUMPY.get(dtype, dtype)), on_host)

    def _reset(self, op: str, memory: MemoryRange) -> None:
        if op in _NEUTRAL:
            world().fill(memory, _NEUTRAL[op], self._stream)

    def _error(self, text: str) -> OctantsDistributedError:
        return OctantsDistributedError(f"kernel `{self._kernel}`: {text}")


_NUMPY = {
    "u1": "uint8",
    **{f"{kind}{bits}": f"{name}{bits}" for kind, name in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)},
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
}
