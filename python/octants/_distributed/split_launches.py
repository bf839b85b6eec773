"""Launches of kernels on split arrays, task by task.

A task runs on the rows that this rank has. What it reads beside them comes from other ranks: rows that need none of
those are computed meanwhile, the others when they have arrived. Other memory that the task reduces into holds a part of
the sum on each rank, and is summed over the ranks after the task. What it adds to rows of other ranks goes to ghost rows,
which start at zero, and from there to the owners of the rows after the task.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from octants._distributed.communicators import Pending
from octants._distributed.memory_ranges import MemoryRange
from octants._distributed.split_ndarrays import GhostSums, SplitNdarray
from octants._distributed.world import agree, world
from octants.exceptions import OctantsDistributedError

__all__ = ["SplitLaunch"]

Rows = tuple[int, int]
Halo = tuple[int, int, int]
Update = tuple[str, str, int, int]


class Task(NamedTuple):
    """What a task does with split arrays, by their numbers among the buffers, and with other memory."""

    reads: list[Halo]
    writes: list[int]
    adds: list[Halo]
    local: list[tuple[int, bool, int, int]]
    """Arrays that are read (False) or added to (True) at rows from the first to the last number."""
    updates: list[Update]
    """Operation, type, address and number of scalars."""
    wraps: list[tuple[int, int | None, int | None]]
    """Arrays whose rows wrap around, what the code takes for their number of rows, and the end of the loop's rows."""
    last_rows: list[tuple[int, int]]
    """Rows that have to be the last of the array."""

    def of_rows(self) -> list[int]:
        """The arrays whose rows iterations follow."""
        return [*self.writes, *(add[0] for add in self.adds), *(read[0] for read in self.reads)]


# A row that no array has, to which constants may be added.
_FAR = 1 << 30

# What an element starts from on all ranks but the first. Other operations may see an element any number of times.
_NEUTRAL = {"add": 0, "mul": 1, "xor": 0}


class SplitLaunch:
    """One launch. `kernel/split_launch.rs` of octants-python calls it for each task, and runs the rows it returns."""

    @staticmethod
    def begin(
        kernel: str, tasks: list[tuple[Any, ...] | None], arrays: dict[int, tuple[SplitNdarray, bool]], stream: int
    ) -> SplitLaunch | None:
        """A launch on the rows of this rank; None when this process has all rows. Checks the tasks in both cases."""
        launch = SplitLaunch(kernel, [None if task is None else Task(*task) for task in tasks], arrays, stream)
        for task in filter(None, launch._tasks):
            launch.check(task)
        if world().size == 1 and not any(task.wraps for task in launch._tasks if task is not None):
            return None
        launch.agree()
        for task in filter(None, launch._tasks):
            launch.ghost_sums(task)
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

    def check(self, task: Task) -> None:
        """Raises for a task that could not run on several ranks."""
        used = task.of_rows()
        if len({self._arrays[buffer].shape[0] for buffer in used}) > 1:
            shapes = ", ".join(sorted({str(self._arrays[buffer].shape) for buffer in used}))
            raise self._error(
                f"one loop uses arrays of different numbers of rows ({shapes}), which ranks split elsewhere"
            )
        for buffer, row in task.last_rows:
            extent = self._arrays[buffer].shape[0]
            if row != extent - 1:
                raise self._error(
                    f"a row is clamped to {row}, which is not the last one of {extent}: ranks do not have it"
                )
        for buffer, modulus, end in task.wraps:
            array = self._arrays[buffer]
            if not array.periodic:
                raise self._error(
                    f"a row is taken modulo the number of rows of an array of shape {array.shape}: make it with "
                    "periodic=True"
                )
            if modulus not in (None, array.shape[0]):
                raise self._error(f"a row is taken modulo {modulus} in an array with {array.shape[0]} rows")
            if end is not None and end > array.shape[0]:
                raise self._error(
                    f"rows wrap around in a loop over rows up to {end - 1} of an array with {array.shape[0]} rows"
                )
        for halos, verb in ((task.reads, "read of"), (task.adds, "added to in")):
            for buffer, before, after in halos:
                width, halo = max(before, after), self._arrays[buffer].halo
                if width > halo:
                    raise self._error(
                        f"rows up to {width} away are {verb} an array with {halo} ghost rows: make it with halo={width}"
                    )
        for buffer, _, first, last in task.local:
            array = self._arrays[buffer]
            low, end = array.rows[0] - array.halo, array.rows[1] + array.halo
            if first < low or last >= end:
                raise self._error(
                    f"a row is clamped to {first} to {last}, and this rank has rows {low} to {end - 1} with ghost rows; "
                    "qd.distributed.assume_local(array, row) is a row that it has"
                )

    def agree(self) -> None:
        """Raises on all ranks unless they launch the same kernel on arrays of the same shapes."""
        shapes = {buffer: (array.shape, array.halo, array.periodic) for buffer, array in self._arrays.items()}
        plan = [
            None if t is None else (t.reads, t.writes, t.adds, [(u[0], u[1], u[3]) for u in t.updates])
            for t in self._tasks
        ]
        agree(f"kernel `{self._kernel}` on split arrays {shapes} with tasks {plan}", f"kernel `{self._kernel}`")

    def ghost_sums(self, task: Task) -> list[GhostSums]:
        """How the sums of a task in ghost rows get to their owners."""
        halos = {buffer: (before, after) for buffer, before, after in task.adds}
        for buffer, adds, _, _ in task.local:
            if adds:
                halos[buffer] = (self._arrays[buffer].halo,) * 2
        return [self._arrays[buffer].ghost_sums(*halo) for buffer, halo in sorted(halos.items())]

    def begin_task(self, number: int) -> list[Rows]:
        """Sends rows to other ranks. Returns rows that need none of theirs."""
        task = self._task(number)
        array = self._arrays[task.of_rows()[0]]
        extent, (first, end) = array.shape[0], array.rows
        ranks = world()
        if ranks.rank != 0:
            for op, dtype, address, count in task.updates:
                self._reset(op, self._memory(dtype, address, count))
        for of_array in self.ghost_sums(task):
            for ghosts in of_array.ghosts:
                ranks.fill(ghosts, 0, self._stream)
        # Rows before and after the inner ones, which need others.
        sends, receives, before, after = [], [], 0, 0
        local = [
            (rows[0], self._arrays[rows[0]].halo, self._arrays[rows[0]].halo) for rows in task.local if not rows[1]
        ]
        for place, (buffer, rows_before, rows_after) in enumerate([*task.reads, *local]):
            read = self._arrays[buffer]
            messages = read.messages(rows_before, rows_after)
            sends += messages.sends
            receives += messages.receives
            for ghosts, rows in messages.copies:
                ranks.copy(ghosts, rows, self._stream)
            if not messages.receives:
                continue
            if place >= len(task.reads):
                # Any iteration may read what comes.
                rows_before = rows_after = extent
            before = max(before, rows_before * (first > 0 or read.periodic))
            after = max(after, rows_after * (end < extent or read.periodic))
        if not (sends or receives):
            self._pending, self._left = None, []
            return self._outward([(first, end)], extent)
        self._pending = ranks.exchange(sends, receives, f"kernel `{self._kernel}`", self._stream)
        inner = (first + before, end - after)
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
        """Sums what the task adds to rows of other ranks, and what it reduces into."""
        task = self._task(number)
        ranks, what = world(), f"kernel `{self._kernel}`"
        for buffer in (*task.writes, *(add[0] for add in task.adds), *(rows[0] for rows in task.local if rows[1])):
            self._arrays[buffer].forget_ghosts()
        of_arrays = self.ghost_sums(task)
        sends = [message for of_array in of_arrays for message in of_array.sends]
        receives = [message for of_array in of_arrays for message in of_array.receives]
        if sends or receives:
            ranks.exchange(sends, receives, what, self._stream).wait()
        for of_array in of_arrays:
            for rows, arrived in of_array.sums:
                ranks.add(rows, arrived, self._stream)
        for op, dtype, address, count in task.updates:
            ranks.all_reduce(self._memory(dtype, address, count), op, what, self._stream)
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
