"""Fills, copies and imports of fields and ndarrays that are queued on a stream instead of executed by the host.

The driver sets and copies contiguous elements, kernels all others. Each function returns whether it could queue the
work; if not, the caller executes it on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from octants import _octants
from octants._arrays import interchange
from octants._arrays.element_kernels import copy_array, copy_parts, fill_parts
from octants._arrays.host_memory import HostMemory


class Elements(NamedTuple):
    """The elements of a field or an ndarray: the placement of each component in a buffer."""

    buffer: _octants.Buffer
    dtype: np.dtype[Any]
    element_shape: tuple[int, ...]
    placements: Sequence[_octants.Placement]


class _Range(NamedTuple):
    low: int
    nbytes: int
    components: slice


def done_by_device(qd_stream: Any, wholes: Sequence[Any], queue: Callable[[_octants.Stream], bool]) -> bool:
    """Queues work on fields or ndarrays on the given or current stream. Returns False if the host must do it.

    Without a stream, a device whose memory the host cannot address does the work, with the semantics of host access.
    """
    if wholes[0]._serial != _octants.program_serial():
        with _octants.on_program(wholes[0]._serial):
            return done_by_device(qd_stream, wholes, queue)
    stream = _octants.queueing_stream(qd_stream)
    if stream is not None:
        return queue(stream)
    if isinstance(wholes[0]._memory(), HostMemory) and not _octants.capturing():
        return False
    if not queue(_octants.default_stream_after([whole._elements().buffer for whole in wholes])):
        return False
    _octants.end_host_work()
    return True


def wait_for_stream(qd_stream: Any, whole: Any) -> None:
    """Waits for the given or current stream before the host accesses a field or an ndarray."""
    with _octants.on_program(whole._serial):
        _octants.before_host_work(qd_stream)


def queue_between_devices(stream: _octants.Stream | None, to: Elements, source: Elements) -> bool:
    """Queues a copy between devices, after all work that uses either array. Returns False if the layouts differ, or if
    the devices cannot copy.
    """
    ranges, sources = _ranges(to), _ranges(source)
    same = to.dtype == source.dtype and _relative(to) == _relative(source)
    if ranges is None or sources is None or len(ranges) != len(sources) or not same:
        return False
    pairs = [(each.low, other.low, each.nbytes) for each, other in zip(ranges, sources, strict=True)]
    return to.buffer.copy_from_device(source.buffer, pairs, stream)


def queue_fill(stream: _octants.Stream, to: Elements, value: Any) -> bool:
    """Queues a fill with `value`: an array of the element's shape, or a scalar."""
    # Adjacent components of an element form one larger element; otherwise each component has a separate range.
    step = _octants.common_step(to.placements)
    ranges = _ranges(to, joined=step == to.dtype.itemsize or len(to.placements) == 1)
    components = np.broadcast_to(np.asarray(value, to.dtype), to.element_shape).reshape(-1)
    if ranges is None:
        fill_parts(stream, to, components)
        return True
    for each in ranges:
        element = components[each.components].tobytes()
        to.buffer.fill(stream, each.low, element, each.nbytes // len(element))
    return True


def queue_copy(stream: _octants.Stream, to: Elements, source: Elements) -> bool:
    """Queues a copy of all elements, with conversion if the types differ. Returns False if the host must do it."""
    ranges, sources = _ranges(to), _ranges(source)
    same = to.dtype == source.dtype and _relative(to) == _relative(source)
    if ranges is None or sources is None or len(ranges) != len(sources) or not same:
        return copy_parts(stream, to, source)
    if to.buffer is source.buffer:
        if ranges[0].low == sources[0].low:
            return True
        if any(abs(each.low - other.low) < each.nbytes for each, other in zip(ranges, sources, strict=True)):
            return False  # views of one ndarray that overlap
    for each, other in zip(ranges, sources, strict=True):
        to.buffer.copy_from(stream, each.low, source.buffer, other.low, each.nbytes)
    return True


def queue_write(stream: _octants.Stream, to: Elements, values: np.ndarray[Any, Any]) -> bool:
    """Queues a copy of an array of shape `shape + element_shape`, which is read before the call returns."""
    ranges = _ranges(to)
    if ranges is None:
        return False
    for each in ranges:
        memory = np.empty(each.nbytes, np.uint8)
        parts = to.placements[each.components]
        moved = [part.relative_to(each.low) for part in parts]
        whole = len(parts) == len(to.placements)
        element_shape = to.element_shape if whole else ()
        column = values if whole else values.reshape((*moved[0].shape, -1))[..., each.components.start]
        HostMemory(_no_wait, memory, to.dtype, element_shape, moved).write(column)
        to.buffer.upload(stream, each.low, memory)
    return True


def take_tensor(whole: Any, tensor: Any) -> bool:
    """Copies a torch tensor into a field or an ndarray on the device. Returns False if one of them is elsewhere."""
    memory = whole._memory()
    place = memory.layout_for(tensor)
    if place is None:
        return False
    tensor = tensor.detach()
    buffer = whole._elements().buffer
    if buffer.has_foreign_addresses:
        # The other library copies, as its own memory cannot be used here.
        interchange.device_to_torch(whole, None, False).copy_(tensor)
        return True
    unnamed = buffer.hand_over()
    if unnamed is None:
        return False
    # The stream that libraries use when they name none waits for the tensor's stream, and is ordered with the default
    # stream.
    tensor.__dlpack__(stream=unnamed)

    def queue(stream: _octants.Stream) -> bool:
        copy_array(stream, buffer, memory.dtype, place, tensor)
        return True

    return done_by_device(None, [whole], queue)


def _no_wait(write: bool = False) -> None:
    """For memory without other users."""


def _relative(elements: Elements) -> list[tuple[int, Any]]:
    first = elements.placements[0].base
    return [(part.base - first, part.axes) for part in elements.placements]


def _ranges(elements: Elements, joined: bool = True) -> list[_Range] | None:
    """One range for all components if they are contiguous (and `joined`), else one for each component, else None."""
    count, itemsize = len(elements.placements), elements.dtype.itemsize
    step = _octants.common_step(elements.placements)
    if joined and step is not None:
        found = elements.placements[0].gapless_range(itemsize, count, step)
        if found is not None:
            return [_Range(*found, slice(0, count))]
    ranges = []
    for number, placement in enumerate(elements.placements):
        found = placement.gapless_range(itemsize, 1, 0)
        if found is None:
            return None
        ranges.append(_Range(*found, slice(number, number + 1)))
    return ranges
