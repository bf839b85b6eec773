"""Launches of kernels on split arrays, task by task.

A task runs on the rows that this rank has. What it reads beside them comes from other ranks: rows that need none of
those are computed meanwhile, the others when they have arrived. Other memory that the task reduces into holds a part of
the sum on each rank, and is summed over the ranks after the task. What it adds to rows of other ranks goes to ghost
rows, which start at zero, and from there to the owners of the rows after the task.
"""

from __future__ import annotations

from octants._distributed.communicators import Pending
from octants._distributed.split_ndarrays import SplitNdarray
from octants._distributed.split_plans import Described, Rows, SplitPlan, TaskPlan, plan_of
from octants._distributed.world import world

__all__ = ["SplitLaunch"]


class SplitLaunch:
    """One launch. `kernel/split_launch.rs` of octants-python calls it for each task, and runs the rows it returns."""

    @staticmethod
    def begin(
        kernel: str, tasks: Described, arrays: dict[int, tuple[SplitNdarray, bool]], stream: int
    ) -> SplitLaunch | None:
        """A launch on the rows of this rank; None when this process has all rows. Checks the tasks in both cases."""
        plan = plan_of(kernel, tasks, arrays)
        return None if plan.is_whole else SplitLaunch(plan, arrays, stream)

    @staticmethod
    def is_alone() -> bool:
        """Whether this process is the only rank."""
        return world().size == 1

    def __init__(self, plan: SplitPlan, arrays: dict[int, tuple[SplitNdarray, bool]], stream: int) -> None:
        self._plan = plan
        self._arrays = {buffer: array for buffer, (array, _) in arrays.items()}
        self._stream = stream
        self._ranks = world()
        self._pending: Pending | None = None
        self._left: list[Rows] = []

    def begin_task(self, number: int) -> list[Rows]:
        """Sends rows to other ranks. Returns rows that need none of theirs."""
        task, ranks, stream = self._task(number), self._ranks, self._stream
        for memory, value in task.resets:
            ranks.fill(memory, value, stream)
        for ghosts in task.ghosts:
            ranks.fill(ghosts, 0, stream)
        missing = tuple([self._arrays[buffer].lacks(before, after) for buffer, before, after in task.reads])
        exchange = self._plan.exchange(task, missing, self._arrays)
        for ghosts, rows in exchange.copies:
            ranks.copy(ghosts, rows, stream)
        messages = exchange.messages
        self._pending = None if messages is None else ranks.exchange(messages, self._plan.what, stream)
        self._left = exchange.left
        return exchange.inner

    def finish_exchange(self, number: int) -> list[Rows]:
        """Waits for the rows of other ranks. Returns the rows that need them."""
        if self._pending is not None:
            self._pending.wait()
        return self._left

    def end_task(self, number: int) -> list[Rows]:
        """Sums what the task adds to rows of other ranks, and what it reduces into."""
        task, ranks, what, stream = self._task(number), self._ranks, self._plan.what, self._stream
        for buffer in task.changed:
            self._arrays[buffer].forget_ghosts()
        if task.ghost_sums is not None:
            ranks.exchange(task.ghost_sums, what, stream).wait()
        for rows, arrived in task.sums:
            ranks.add(rows, arrived, stream)
        for memory, op in task.updates:
            ranks.all_reduce(memory, op, what, stream)
        return []

    def _task(self, number: int) -> TaskPlan:
        task = self._plan.tasks[number]
        assert task is not None
        return task
