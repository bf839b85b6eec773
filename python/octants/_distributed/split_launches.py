"""Launches of kernels on split arrays, task by task.

A task runs on the rows that this rank has. Other rows that it reads are received from other ranks. Rows that need none
of these are computed meanwhile, the others after they have arrived. Other memory that the task reduces into holds a
part of the sum on each rank, and is summed over the ranks after the task. What it adds to rows of other ranks goes to
ghost rows, which start at zero, and from there to the owners of the rows after the task.

`split_rows.rs` of octants-python keeps the plans, and knows which ghost rows are valid. `split_dispatch.rs` calls the
functions that this module gives it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octants import _octants
from octants._distributed.communicators import Communicator, Exchange
from octants._distributed.local_rows import add_rows, clear_rows, copy_rows
from octants._distributed.memory_ranges import MemoryRange
from octants._distributed.split_ndarrays import SplitNdarray
from octants._distributed.split_plans import Described, Halo, Rows, SplitPlan, TaskPlan, make_exchange
from octants._distributed.world import world

__all__ = ["SplitLaunch"]

Start = Callable[[int, _octants.Stream], Callable[[], None] | None]
"""Starts an exchange on a stream, given with the driver's handle of it. Returns what waits for its end, if it has not
ended."""

Reduce = Callable[[int, _octants.Stream], None]

TaskFunctions = tuple[list[Halo], list[int], Reduce | None, Reduce | None, Any]
"""Reads and changed arrays of a task; what to do before it, after it, and to exchange the ghost rows that it reads."""


class SplitLaunch:
    """What `kernel/split_launch.rs` of octants-python calls."""

    @staticmethod
    def plan(
        kernel: str, tasks: Described, arrays: dict[int, tuple[SplitNdarray, bool]]
    ) -> list[TaskFunctions | None] | None:
        """How launches of a kernel run on these arrays, or None if this process owns all rows. Checks the tasks in both
        cases. Raises on all ranks if they launch different kernels, or if the kernel cannot run split.
        """
        plan = SplitPlan(kernel, tasks, arrays)
        if plan.is_whole:
            return None
        return [None if task is None else _functions(task, plan.what) for task in plan.tasks]

    @staticmethod
    def is_alone() -> bool:
        """Whether this process is the only rank."""
        return world().size == 1


def _functions(task: TaskPlan, what: str) -> TaskFunctions:
    """They refer to no array of the launch."""
    of_task = _Task(task, what, world())
    before = of_task.prepare if task.resets or task.ghosts else None
    after = of_task.reduce if task.ghost_sums is not None or task.sums or task.updates else None
    return task.reads, task.changed, before, after, of_task.exchange


class _Task:
    """A task on this rank."""

    def __init__(self, plan: TaskPlan, what: str, ranks: Communicator) -> None:
        self._plan, self._what, self._ranks = plan, what, ranks

    def prepare(self, handle: int, stream: _octants.Stream) -> None:
        """Sets this rank's part of reductions to neutral elements."""
        for memory, value in self._plan.resets:
            self._ranks.fill(memory, value, handle)
        for ghosts in self._plan.ghosts:
            clear_rows(ghosts, stream)

    def exchange(
        self, missing: tuple[bool, ...], arrays: dict[int, SplitNdarray]
    ) -> tuple[Start | None, list[Rows], list[Rows]]:
        """The exchange for the given reads whose ghost rows are not valid: the function that starts it, the rows to
        compute meanwhile, and the rows to compute with the ghost rows.
        """
        made = make_exchange(self._plan, missing, arrays)
        start = _Start(made.messages, made.copies, self._what, self._ranks)
        return start.start if made.messages or made.copies else None, made.inner, made.left

    def reduce(self, handle: int, stream: _octants.Stream) -> None:
        """Reduces over the ranks: the task's additions to rows of other ranks, and its other reductions."""
        plan, ranks = self._plan, self._ranks
        if plan.ghost_sums is not None:
            ranks.exchange(plan.ghost_sums, self._what, handle).wait()
        for rows, arrived in plan.sums:
            add_rows(rows, arrived, stream)
        for memory, op in plan.updates:
            ranks.all_reduce(memory, op, self._what, handle)


class _Start:
    """An exchange of ghost rows."""

    def __init__(
        self, messages: Exchange | None, copies: list[tuple[MemoryRange, MemoryRange]], what: str, ranks: Communicator
    ) -> None:
        self._messages, self._copies, self._what, self._ranks = messages, copies, what, ranks

    def start(self, handle: int, stream: _octants.Stream) -> Callable[[], None] | None:
        """Copies rows, and sends rows to other ranks."""
        for ghosts, rows in self._copies:
            copy_rows(ghosts, rows, stream)
        if self._messages is None:
            return None
        return self._ranks.exchange(self._messages, self._what, handle).wait
