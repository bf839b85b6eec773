"""Launches of kernels on split arrays, task by task.

A task runs on the rows that this rank has. What it reads beside them comes from other ranks: rows that need none of
those are computed meanwhile, the others when they have arrived. Other memory that the task reduces into holds a part of
the sum on each rank, and is summed over the ranks after the task.
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
Read = tuple[int, int, int]
Update = tuple[str, str, int, int]
Task = tuple[list[Read], list[int], list[Update], list[tuple[int, int]]]

# A row that no array has, to which constants may be added.
_FAR = 1 << 30

# What an element starts from on all ranks but the first. Other operations may see an element any number of times.
_NEUTRAL = {"add": 0, "mul": 1, "xor": 0}


class SplitLaunch:
    """One launch. `kernel/split_launch.rs` of octants-python calls it for each task, and runs the rows it returns."""

    @staticmethod
    def begin(
        kernel: str, tasks: list[Task | None], arrays: dict[int, tuple[SplitNdarray, bool]], stream: int
    ) -> SplitLaunch | None:
        """A launch on the rows of this rank; None when this process has all rows. Checks the tasks in both cases."""
        launch = SplitLaunch(kernel, tasks, arrays, stream)
        for task in filter(None, tasks):
            launch.check(*task)
        if world().size == 1:
            return None
        launch.agree()
        return launch

    @staticmethod
    def is_alone() -> bool:
        """Whether this process is the only rank."""
        return world().size == 1

    def __init__(
        self, kernel: str, tasks: list[Task | None], arrays: dict[int, tuple[SplitNdarray, bool]], stream: int
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

    def check(
        self, reads: list[Read], writes: list[int], updates: list[Update], last_rows: list[tuple[int, int]]
    ) -> None:
        """Raises for a task that could not run on several ranks."""
        used = [*writes, *(read[0] for read in reads)]
        if len({self._arrays[buffer].shape[0] for buffer in used}) > 1:
            shapes = ", ".join(sorted({str(self._arrays[buffer].shape) for buffer in used}))
            raise self._error(
                f"one loop uses arrays of different numbers of rows ({shapes}), which ranks split elsewhere"
            )
        for buffer, row in last_rows:
            extent = self._arrays[buffer].shape[0]
            if row != extent - 1:
                raise self._error(
                    f"a row is clamped to {row}, which is not the last one of {extent}: ranks do not have it"
                )
        for buffer, before, after in reads:
            width, halo = max(before, after), self._arrays[buffer].halo
            if width > halo:
                raise self._error(
                    f"rows up to {width} away are read of an array with {halo} ghost rows: make it with halo={width}"
                )

    def agree(self) -> None:
        """Raises on all ranks unless they launch the same kernel on arrays of the same shapes."""
        shapes = {buffer: (array.shape, array.halo) for buffer, array in self._arrays.items()}
        plan = [None if t is None else (t[0], t[1], [(u[0], u[1], u[3]) for u in t[2]]) for t in self._tasks]
        agree(f"kernel `{self._kernel}` on split arrays {shapes} with tasks {plan}", f"kernel `{self._kernel}`")

    def begin_task(self, number: int) -> list[Rows]:
        """Sends rows to other ranks. Returns rows that need none of theirs."""
        reads, writes, updates, _ = self._task(number)
        array = self._arrays[writes[0] if writes else reads[0][0]]
        extent, (first, end) = array.shape[0], array.rows
        ranks = world()
        if ranks.rank != 0:
            for op, dtype, address, count in updates:
                self._reset(op, self._memory(dtype, address, count))
        sends, receives, before, after = [], [], 0, 0
        for buffer, rows_before, rows_after in reads:
            sent, received = self._arrays[buffer].messages(rows_before, rows_after)
            sends += sent
            receives += received
            if received:
                before, after = max(before, rows_before), max(after, rows_after)
        if not (sends or receives):
            self._pending, self._left = None, []
            return self._outward([(first, end)], extent)
        self._pending = ranks.exchange(sends, receives, f"kernel `{self._kernel}`", self._stream)
        inner = (first + before * (first > 0), end - after * (end < extent))
        if inner[0] >= inner[1]:
            self._left = self._outward([(first, end)], extent)
            return []
        self._left = self._outward([(first, inner[0]), (inner[1], end)], extent)
        return self._outward([inner], extent)

    @staticmethod
    def _outward(ranges: list[Rows], extent: int) -> list[Rows]:
        """The ranges that have rows. Iterations whose row is outside of the array, which may reduce all the same, belong
        to the rank with the first or the last row."""
        return [
            (-_FAR if first == 0 else first, _FAR if end == extent else end) for first, end in ranges if first < end
        ]

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
