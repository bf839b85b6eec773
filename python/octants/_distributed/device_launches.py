"""Launches of kernels on arrays that are split over the devices of one process, task by task.

Each device is a rank with its own plan (`split_plans`). This process knows all plans, so no messages are needed: a send
of one rank and the matching receive of another become one copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from octants import _octants
from octants._arrays.element_kernels import fill_kernel
from octants._distributed.communicators import Message
from octants._distributed.device_arrays import DevicesNdarray
from octants._distributed.device_blocks import as_block
from octants._distributed.device_reductions import HostReduction, PeerReduction
from octants._distributed.local_rows import add_rows, clear_rows, copy_rows
from octants._distributed.memory_ranges import MemoryRange
from octants._distributed.split_ndarrays import SplitNdarray
from octants._distributed.split_plans import Described, Rows, SplitPlan, Task, TaskPlan, make_exchange
from octants.types.primitive import BY_NUMPY

__all__ = ["DeviceLaunch"]

# Maximum number of plans that an array keeps.
_MOST_PLANS = 64
_UPDATES = Task._fields.index("updates")

Pair = tuple[MemoryRange, MemoryRange]
Streams = list[_octants.Stream]


class DeviceLaunch:
    """One launch. `kernel/group_launch.rs` of octants-python calls it for each task, and runs the rows that it returns:
    a list for each device.
    """

    @staticmethod
    def begin(
        kernel: str, tasks: list[Described], arrays: dict[int, tuple[DevicesNdarray, bool]], streams: Streams
    ) -> DeviceLaunch:
        """A launch on all devices. `tasks` and `streams` have an item for each."""
        kept = next(iter(arrays.values()))[0]._device_plans
        used = [(buffer, array._device_number, is_argument) for buffer, (array, is_argument) in arrays.items()]
        key = (kernel, *used, *(tuple(task[_UPDATES]) for task in tasks[0] if task is not None))
        plan = kept.get(key)
        if plan is None or plan.given != tasks:
            plan = _GroupPlan(kernel, tasks, arrays)
            if len(kept) >= _MOST_PLANS:
                kept.clear()
            kept[key] = plan
        return DeviceLaunch(plan, arrays, streams)

    def __init__(self, plan: _GroupPlan, arrays: dict[int, tuple[DevicesNdarray, bool]], streams: Streams) -> None:
        self._plan, self._streams = plan, streams
        self._arrays = {buffer: array for buffer, (array, _) in arrays.items()}
        self._exchange: _GhostExchange | None = None

    def forget_ghosts(self) -> None:
        """Invalidates the ghost rows of all arrays, after a launch that has failed."""
        for array in self._arrays.values():
            array.forget_ghosts()

    def begin_task(self, number: int) -> list[list[Rows]]:
        """Begins the exchange of ghost rows. Returns the rows that need none of them."""
        task, streams = self._plan.tasks[number], self._streams
        assert task is not None
        for device, memory, value in task.resets:
            _fill(device, memory, value, streams)
        for device, ghosts in task.ghosts:
            with as_block(device):
                clear_rows(ghosts, streams[device])
        missing = tuple([self._arrays[buffer].lacks_ghosts(before, after) for buffer, before, after in task.reads])
        exchange = self._exchange = self._plan.exchange(number, missing, self._arrays)
        for device, ghosts, rows in exchange.copies:
            with as_block(device):
                copy_rows(ghosts, rows, streams[device])
        if exchange.messages is not None:
            exchange.messages.begin(streams)
        return exchange.inner

    def finish_exchange(self, number: int) -> list[list[Rows]]:
        """Orders the streams after the exchange. Returns the rows that need it."""
        exchange = self._exchange
        assert exchange is not None
        if exchange.messages is not None:
            exchange.messages.finish(self._streams)
        return exchange.left

    def end_task(self, number: int) -> list[list[Rows]]:
        """Reduces over the devices: additions to rows of other devices, and other reductions."""
        task, streams = self._plan.tasks[number], self._streams
        assert task is not None
        for buffer in task.changed:
            self._arrays[buffer].forget_ghosts()
        if task.ghost_sums is not None:
            task.ghost_sums.begin(streams)
            task.ghost_sums.finish(streams)
        for device, rows, arrived in task.sums:
            with as_block(device):
                add_rows(rows, arrived, streams[device])
        for reduction in task.reductions:
            reduction.run(streams)
        return []


class _GhostExchange(NamedTuple):
    """The exchange before a task whose ghost rows are not valid."""

    messages: _octants.PeerExchange | None
    copies: list[tuple[int, MemoryRange, MemoryRange]]
    inner: list[list[Rows]]
    left: list[list[Rows]]


class _Task(NamedTuple):
    """How a task runs on all devices: the parts of each device's plan, after the number of the device."""

    reads: list[tuple[int, int, int]]
    changed: list[int]
    resets: list[tuple[int, MemoryRange, int]]
    ghosts: list[tuple[int, MemoryRange]]
    ghost_sums: _octants.PeerExchange | None
    sums: list[tuple[int, MemoryRange, MemoryRange]]
    reductions: list[HostReduction | PeerReduction]
    exchanges: dict[tuple[bool, ...], _GhostExchange]


class _GroupPlan:
    """The plans of all devices for launches of one kernel on the same arrays."""

    def __init__(self, kernel: str, given: list[Described], arrays: dict[int, tuple[DevicesNdarray, bool]]) -> None:
        self.given = given
        self._plans = []
        for number, tasks in enumerate(given):
            with as_block(number):
                self._plans.append(SplitPlan(kernel, tasks, _parts_of(arrays, number)))
        self.tasks = [self._join(tasks) for tasks in zip(*(plan.tasks for plan in self._plans), strict=True)]

    def _join(self, tasks: Sequence[TaskPlan | None]) -> _Task | None:
        plans = [task for task in tasks if task is not None]
        if not plans:
            return None
        sums = [task.ghost_sums for task in plans]
        sends = [[] if exchange is None else list(exchange.sends) for exchange in sums]
        receives = [[] if exchange is None else list(exchange.receives) for exchange in sums]
        updates = [
            [(_in_buffer(memory, number), op) for memory, op in task.updates] for number, task in enumerate(plans)
        ]
        where = [{memory.address: memory for memory, _ in of_device} for of_device in updates]
        return _Task(
            reads=plans[0].reads,
            changed=plans[0].changed,
            resets=[(n, where[n][m.address], value) for n, task in enumerate(plans) for m, value in task.resets],
            ghosts=[(n, ghosts) for n, task in enumerate(plans) for ghosts in task.ghosts],
            ghost_sums=_copies(sends, receives),
            sums=[(n, *pair) for n, task in enumerate(plans) for pair in task.sums],
            reductions=[_reduction(parts) for parts in zip(*updates, strict=True)],
            exchanges={},
        )

    def exchange(self, number: int, missing: tuple[bool, ...], arrays: dict[int, DevicesNdarray]) -> _GhostExchange:
        """The exchange before a task, for the given reads whose ghost rows are not valid."""
        task = self.tasks[number]
        assert task is not None
        found = task.exchanges.get(missing)
        if found is None:
            found = task.exchanges[missing] = self._make_exchange(number, missing, arrays)
        return found

    def _make_exchange(
        self, number: int, missing: tuple[bool, ...], arrays: dict[int, DevicesNdarray]
    ) -> _GhostExchange:
        made = []
        for device, plan in enumerate(self._plans):
            task = plan.tasks[number]
            assert task is not None
            with as_block(device):
                parts = {buffer: array._parts[device] for buffer, array in arrays.items()}
                made.append(make_exchange(task, missing, parts))
        messages = [each.messages for each in made]
        return _GhostExchange(
            _copies(
                [[] if each is None else list(each.sends) for each in messages],
                [[] if each is None else list(each.receives) for each in messages],
            ),
            [(device, *pair) for device, each in enumerate(made) for pair in each.copies],
            [each.inner for each in made],
            [each.left for each in made],
        )


def _parts_of(arrays: dict[int, tuple[DevicesNdarray, bool]], number: int) -> dict[int, tuple[SplitNdarray, bool]]:
    return {buffer: (array._parts[number], is_argument) for buffer, (array, is_argument) in arrays.items()}


def _copies(sends: list[list[Message]], receives: list[list[Message]]) -> _octants.PeerExchange | None:
    """The messages of all devices, as copies. Both devices have their common messages in the same order."""
    copies = []
    for receiver, messages in enumerate(receives):
        for sender in {rank for rank, _ in messages}:
            targets = [memory for rank, memory in messages if rank == sender]
            sources = [memory for rank, memory in sends[sender] if rank == receiver]
            for to, source in zip(targets, sources, strict=True):
                assert to.nbytes == source.nbytes
                assert to.place is not None
                assert source.place is not None
                copies.append(((receiver, *to.place), (sender, *source.place), to.nbytes))
    return _octants.PeerExchange(copies) if copies else None


def _in_buffer(memory: MemoryRange, device: int) -> MemoryRange:
    """A range that is known by its address."""
    buffer, offset = _octants.buffer_at(_octants.device_group()[device], memory.address)
    return replace(memory, keeps=buffer, place=(buffer, offset), views={})


def _reduction(parts: Sequence[tuple[MemoryRange, str]]) -> HostReduction | PeerReduction:
    memory, op = [memory for memory, _ in parts], parts[0][1]
    return HostReduction(memory, op) if all(part.on_host for part in memory) else PeerReduction(memory, op)


def _fill(device: int, memory: MemoryRange, value: int, streams: Streams) -> None:
    if memory.on_host:
        memory.numpy()[:] = value
        return
    with as_block(device):
        fill_kernel(BY_NUMPY[memory.dtype])(memory.elements(), value, qd_stream=streams[device])
