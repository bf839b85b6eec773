"""Plans for launches of one kernel on the same split arrays: checks, messages, row ranges.

A plan is made at the first such launch and kept by the first of the arrays: see `split_rows.rs` of octants-python. It
refers to no array.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from octants._distributed import memory_ranges
from octants._distributed.communicators import Exchange
from octants._distributed.memory_ranges import MemoryRange
from octants._distributed.split_ndarrays import GhostSums, SplitNdarray
from octants._distributed.world import agree, world
from octants.exceptions import OctantsDistributedError

__all__ = ["GhostExchange", "SplitPlan", "TaskPlan", "make_exchange"]

Rows = tuple[int, int]
Halo = tuple[int, int, int]
Update = tuple[str, str, int, int]
Described = list[tuple[Any, ...] | None]

# A row that no array has, to which constants may be added.
_FAR = 1 << 30

# Initial values of reductions on all ranks but the first. Other operations are idempotent and need none.
_NEUTRAL = {"add": 0, "mul": 1, "xor": 0}


class Task(NamedTuple):
    """How a task accesses split arrays, by buffer number, and other memory."""

    reads: list[Halo]
    writes: list[int]
    adds: list[Halo]
    local: list[tuple[int, bool, int, int]]
    """Arrays accessed at any row of a range: buffer, whether added to (else read), first and last row."""
    updates: list[Update]
    """Reductions: operation, type, address and number of scalars."""
    wraps: list[tuple[int, int | None, int | None]]
    """Arrays whose row indices wrap around: buffer, the modulus in the code, and the end of the loop's rows."""
    last_rows: list[tuple[int, int]]
    """Buffers, and rows that must be the last row of the array."""

    def of_rows(self) -> list[int]:
        """The arrays that the loop accesses at the row of the iteration or at a fixed distance from it."""
        return [*self.writes, *(add[0] for add in self.adds), *(read[0] for read in self.reads)]


class GhostExchange(NamedTuple):
    """The exchange before a task whose ghost rows are not valid."""

    messages: Exchange | None
    copies: list[tuple[MemoryRange, MemoryRange]]
    inner: list[Rows]
    """Rows that do not depend on the exchange."""
    left: list[Rows]


class TaskPlan(NamedTuple):
    """How a task runs on this rank."""

    rows: int
    """The array whose rows determine which rank runs an iteration."""
    reads: list[Halo]
    """Arrays, and the number of ghost rows to read before and after."""
    inner_reads: int
    """How many of these are read at a fixed distance from the iteration's row; any iteration may read the others."""
    changed: list[int]
    resets: list[tuple[MemoryRange, int]]
    """Targets of reductions, and their initial values on this rank."""
    updates: list[tuple[MemoryRange, str]]
    ghosts: list[MemoryRange]
    """Ghost rows that the task adds to. Zeroed before it."""
    ghost_sums: Exchange | None
    sums: list[tuple[MemoryRange, MemoryRange]]
    """Local rows, and the received contributions to them."""


class SplitPlan:
    """The plan for launches of one kernel on the same arrays."""

    def __init__(self, kernel: str, described: Described, arrays: dict[int, tuple[SplitNdarray, bool]]) -> None:
        self.what = f"kernel `{kernel}`"
        self._kernel = kernel
        self._described = [None if task is None else Task(*task) for task in described]
        self._arrays = {buffer: array for buffer, (array, _) in arrays.items()}
        self._on_host = memory_ranges.is_on_host(next(iter(self._arrays.values())).buffer)
        self._refuse_aliases(arrays)
        for task in filter(None, self._described):
            self._check(task)
        self.is_whole = world().size == 1 and not any(task.wraps for task in self._described if task is not None)
        """This process owns all rows, and no ghost rows need copying."""
        if not self.is_whole:
            self._agree()
            if not self._on_host:
                world().prepare(self.what)
            self.tasks = [None if task is None else self._plan(task) for task in self._described]
        del self._arrays

    def _refuse_aliases(self, arrays: dict[int, tuple[SplitNdarray, bool]]) -> None:
        seen: dict[int, bool] = {}
        for array, is_argument in arrays.values():
            if not (is_argument and seen.get(id(array), True)):
                if id(array) in seen:
                    raise OctantsDistributedError(
                        f"kernel `{self._kernel}` uses a split array both as an argument and as a global"
                    )
            seen[id(array)] = is_argument

    def _check(self, task: Task) -> None:
        """Raises if a task cannot run on several ranks."""
        used = task.of_rows()
        if len({self._arrays[buffer]._extent for buffer in used}) > 1:
            shapes = ", ".join(sorted({str(self._arrays[buffer].shape) for buffer in used}))
            raise self._error(
                f"one loop uses arrays with different numbers of rows ({shapes}), whose rows are split differently"
            )
        for buffer, row in task.last_rows:
            extent = self._arrays[buffer]._extent
            if row != extent - 1:
                raise self._error(
                    f"a row index is clamped to {row}, but only clamping to the last row, {extent - 1}, is supported"
                )
        for buffer, modulus, end in task.wraps:
            array = self._arrays[buffer]
            if not array.periodic:
                raise self._error(
                    f"a row index wraps around in an array of shape {array.shape}: create the array with periodic=True"
                )
            if modulus not in (None, array._extent):
                raise self._error(f"a row index is taken modulo {modulus} in an array with {array._extent} rows")
            if end is not None and end > array._extent:
                raise self._error(
                    f"row indices wrap around in a loop over rows up to {end - 1} of an array with {array._extent} rows"
                )
        for halos, verb in ((task.reads, "read of"), (task.adds, "added to in")):
            for buffer, before, after in halos:
                width, halo = max(before, after), self._arrays[buffer].halo
                if width > halo:
                    raise self._error(
                        f"rows up to {width} away are {verb} an array with {halo} ghost rows: "
                        f"create it with halo={width}"
                    )
        for buffer, _, first, last in task.local:
            array = self._arrays[buffer]
            low, end = array.rows[0] - array.halo, array.rows[1] + array.halo
            if first < low or last >= end:
                raise self._error(
                    f"a row index is clamped to {first} to {last}, but this rank has only rows {low} to {end - 1} "
                    "(with ghost rows); use qd.distributed.assume_local(array, row) for a row that it has"
                )

    def _agree(self) -> None:
        """Raises on all ranks unless they launch the same kernel on arrays of the same shapes."""
        shapes = {
            buffer: (array.shape, array.split, array.halo, array.periodic) for buffer, array in self._arrays.items()
        }
        plan = [
            None if t is None else (t.reads, t.writes, t.adds, [(u[0], u[1], u[3]) for u in t.updates])
            for t in self._described
        ]
        agree(f"kernel `{self._kernel}` on split arrays {shapes} with tasks {plan}", f"kernel `{self._kernel}`")

    def _ghost_sums(self, task: Task) -> list[GhostSums]:
        """How a task's contributions in ghost rows reach their owners."""
        halos = {buffer: (before, after) for buffer, before, after in task.adds}
        for buffer, adds, _, _ in task.local:
            if adds:
                halos[buffer] = (self._arrays[buffer].halo,) * 2
        return [self._arrays[buffer].ghost_sums(*halo) for buffer, halo in sorted(halos.items())]

    def _plan(self, task: Task) -> TaskPlan:
        arrays, local = self._arrays, [rows[0] for rows in task.local if not rows[1]]
        all_ghosts = [(buffer, arrays[buffer].halo, arrays[buffer].halo) for buffer in local]
        added = [*(add[0] for add in task.adds), *(rows[0] for rows in task.local if rows[1])]
        of_arrays = self._ghost_sums(task)
        sends = [message for of_array in of_arrays for message in of_array.sends]
        receives = [message for of_array in of_arrays for message in of_array.receives]
        updates = [(self._memory(dtype, address, count), op) for op, dtype, address, count in task.updates]
        return TaskPlan(
            rows=task.of_rows()[0],
            reads=[*task.reads, *all_ghosts],
            inner_reads=len(task.reads),
            changed=[*task.writes, *added],
            resets=[(memory, _NEUTRAL[op]) for memory, op in updates if op in _NEUTRAL and world().rank != 0],
            updates=updates,
            ghosts=[memory for of_array in of_arrays for memory in of_array.ghosts],
            ghost_sums=Exchange(sends, receives) if sends or receives else None,
            sums=[pair for of_array in of_arrays for pair in of_array.sums],
        )

    def _memory(self, dtype: str, address: int, count: int) -> MemoryRange:
        return MemoryRange(address, count, np.dtype(_NUMPY.get(dtype, dtype)), self._on_host)

    def _error(self, text: str) -> OctantsDistributedError:
        return OctantsDistributedError(f"kernel `{self._kernel}`: {text}")


def make_exchange(task: TaskPlan, missing: tuple[bool, ...], arrays: dict[int, SplitNdarray]) -> GhostExchange:
    """The exchange before a task, for the given reads whose ghost rows are not valid."""
    array = arrays[task.rows]
    extent, (first, end) = array._extent, array.rows
    sends, receives, copies, before, after = [], [], [], 0, 0
    for place, (buffer, rows_before, rows_after) in enumerate(task.reads):
        if not missing[place]:
            continue
        read = arrays[buffer]
        messages = read.messages(rows_before, rows_after)
        sends += messages.sends
        receives += messages.receives
        copies += messages.copies
        if not messages.receives:
            continue
        if place >= task.inner_reads:
            # Any iteration may read the received rows.
            rows_before = rows_after = extent
        before = max(before, rows_before * (first > 0 or read.periodic))
        after = max(after, rows_after * (end < extent or read.periodic))
    whole = _outward([(first, end)], extent)
    if not (sends or receives):
        return GhostExchange(None, copies, whole, [])
    inner = (first + before, end - after)
    if inner[0] >= inner[1]:
        return GhostExchange(Exchange(sends, receives), copies, [], whole)
    left = _outward([(first, inner[0]), (inner[1], end)], extent)
    return GhostExchange(Exchange(sends, receives), copies, _outward([inner], extent), left)


def _outward(ranges: list[Rows], extent: int) -> list[Rows]:
    """The ranges that have rows. Iterations whose row lies outside the array, which may still reduce, belong to the
    rank with the first or the last row.
    """
    return [(-_FAR if first == 0 else first, _FAR if end == extent else end) for first, end in ranges if first < end]


_NUMPY = {
    "u1": "uint8",
    **{f"{kind}{bits}": f"{name}{bits}" for kind, name in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)},
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
}
