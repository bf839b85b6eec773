"""Launches of kernels on split arrays, task by task.

A task runs on the rows that this rank has. What it reads beside them comes from other ranks: rows that need none of
those are computed meanwhile, the others when they have arrived. Other memory that the task reduces into holds a part of
the sum on each rank, and is summed over the ranks after the task. What it adds to rows of other ranks goes to ghost
rows, which start at zero, and from there to the owners of the rows after the task.
"""

from __future__ import annotations

from octants import _octants
from octants._distributed.communicators import Pending
from octants._distributed.local_rows import add_rows, clear_rows, copy_rows
from octants._distributed.split_ndarrays import SplitNdarray
from octants._distributed.split_plans import Described, Rows, SplitPlan, TaskPlan, plan_of
from octants._distributed.world import world

__all__ = ["SplitLaunch"]


class SplitLaunch:
    """One launch. `kernel/split_launch.rs` of octants-python calls it for each task, and runs the rows it returns."""

    @staticmethod
    def begin(
        kernel: str,
        tasks: Described,
        arrays: dict[int, tuple[SplitNdarray, bool]],
        handle: int,
        stream: _octants.Stream,
    ) -> SplitLaunch | None:
        """A launch on the rows of this rank, or None if this process owns all rows. Checks the tasks in both cases.
        `handle` is the driver's handle of the stream.
        """
        plan = plan_of(kernel, tasks, arrays)
        return None if plan.is_whole else SplitLaunch(plan, arrays, handle, stream)

    @staticmethod
    def is_alone() -> bool:
        """Whether this process is the only rank."""
        return world().size == 1

    def __init__(
        self,
        plan: SplitPlan,
        arrays: dict[int, tuple[SplitNdarray, bool]],
        handle: int,
        stream: _octants.Stream,
    ) -> None:
        self._plan = plan
        self._arrays = {buffer: array for buffer, (array, _) in arrays.items()}
        self._handle, self._stream = handle, stream
        self._ranks = world()
        self._pending: Pending | None = None
        self._left: list[Rows] = []

    def begin_task(self, number: int) -> list[Rows]:
        """Sends rows to other ranks. Returns the rows to compute meanwhile, which need no rows of other ranks."""
        task, ranks = self._task(number), self._ranks
        for memory, value in task.resets:
            ranks.fill(memory, value, self._handle)
        for ghosts in task.ghosts:
            clear_rows(ghosts, self._stream)
        missing = tuple([self._arrays[buffer].lacks(before, after) for buffer, before, after in task.reads])
        exchange = self._plan.exchange(task, missing, self._arrays)
        for ghosts, rows in exchange.copies:
            copy_rows(ghosts, rows, self._stream)
        messages = exchange.messages
        self._pending = None if messages is None else ranks.exchange(messages, self._plan.what, self._handle)
        self._left = exchange.left
        return exchange.inner

    def finish_exchange(self, number: int) -> list[Rows]:
        """Waits for the rows of other ranks. Returns the rows to compute with them."""
        if self._pending is not None:
            self._pending.wait()
        return self._left

    def end_task(self, number: int) -> list[Rows]:
        """Reduces over the ranks: the task's additions to rows of other ranks, and its other reductions."""
        task, ranks, what = self._task(number), self._ranks, self._plan.what
        for buffer in task.changed:
            self._arrays[buffer].forget_ghosts()
        if task.ghost_sums is not None:
            ranks.exchange(task.ghost_sums, what, self._handle).wait()
        for rows, arrived in task.sums:
            add_rows(rows, arrived, self._stream)
        for memory, op in task.updates:
            ranks.all_reduce(memory, op, what, self._handle)
        return []

    def _task(self, number: int) -> TaskPlan:
        task = self._plan.tasks[number]
        assert task is not None
        return task
