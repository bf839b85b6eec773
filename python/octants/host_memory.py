"""The host's access to the elements of a field.

On the CPU a field's memory is addressed directly: each component is a numpy view with the byte strides of its placement,
with one numpy axis per digit. A device whose memory the host cannot address needs another class with this interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from octants import _octants
from octants.snode import Placement


class HostMemory:
    """Reads and writes the elements of a field; indices count from zero on every axis."""

    def __init__(
        self,
        buffer: _octants.Buffer,
        dtype: np.dtype[Any],
        element_shape: tuple[int, ...],
        placements: Sequence[Placement],
    ) -> None:
        first = placements[0]
        self._buffer = buffer
        self.shape = first.shape
        self.element_shape = element_shape
        self.dtype = dtype
        self._digits = tuple(tuple(extent for extent, _ in digits) for digits in first.axes)
        self._plain = all(len(digits) == 1 for digits in self._digits)
        memory = np.frombuffer(memoryview(buffer), dtype=np.uint8)
        step = _common_step(placements)
        if step is None:
            self._views = [_view(memory, dtype, placement) for placement in placements]
        else:
            strides = tuple(step * count for count in _element_strides(element_shape))
            self._views = [_view(memory, dtype, first, element_shape, strides)]
        self._simple = self._plain and len(self._views) == 1 and not element_shape

    def read(self) -> np.ndarray[Any, Any]:
        """All elements in a new array of shape `shape + element_shape`."""
        self._buffer.wait()
        shape = self.shape + self.element_shape
        if len(self._views) == 1:
            return np.array(self._views[0], order="C").reshape(shape)
        return np.stack([np.array(view).reshape(self.shape) for view in self._views], axis=-1).reshape(shape)

    def write(self, values: np.ndarray[Any, Any]) -> None:
        """Stores all elements, converted like an assignment in numpy."""
        self._buffer.wait(write=True)
        digits = tuple(extent for axis in self._digits for extent in axis)
        if len(self._views) == 1:
            self._views[0][...] = values.reshape(digits + self.element_shape)
            return
        columns = values.reshape((*digits, len(self._views)))
        for number, view in enumerate(self._views):
            view[...] = columns[..., number]

    def fill(self, value: Any) -> None:
        """Stores one element (an array of `element_shape`, or a scalar) everywhere."""
        self._buffer.wait(write=True)
        if len(self._views) == 1:
            self._views[0][...] = value
            return
        for view, item in zip(self._views, np.broadcast_to(value, self.element_shape).ravel(), strict=True):
            view[...] = item

    def get(self, index: tuple[int, ...]) -> Any:
        """One element: a Python scalar, or a new array of `element_shape`."""
        self._buffer.wait()
        if self._simple:
            return self._views[0].item(index)
        place = index if self._plain else self._place(index)
        if len(self._views) == 1:
            found = self._views[0][place]
            return found.item() if not self.element_shape else np.array(found)
        return np.array([view[place] for view in self._views]).reshape(self.element_shape)

    def set(self, index: tuple[int, ...], value: Any) -> None:
        """Stores one element: a scalar, or an array of `element_shape`."""
        self._buffer.wait(write=True)
        place = index if self._plain else self._place(index)
        if len(self._views) == 1:
            self._views[0][place] = value
            return
        for view, item in zip(self._views, np.ravel(value), strict=True):
            view[place] = item

    def set_component(self, index: tuple[int, ...], component: tuple[int, ...], value: Any) -> None:
        """Stores one component of an element."""
        self._buffer.wait(write=True)
        place = index if self._plain else self._place(index)
        if len(self._views) == 1:
            self._views[0][place + component] = value
        else:
            self._views[int(np.ravel_multi_index(component, self.element_shape))][place] = value

    def direct(self) -> np.ndarray[Any, Any] | None:
        """A view of the field's own memory, where one numpy array can describe it. Waits for all who use the memory."""
        self._buffer.wait(write=True)
        return self._views[0] if self._plain and len(self._views) == 1 else None

    def _place(self, index: tuple[int, ...]) -> tuple[int, ...]:
        place: list[int] = []
        for value, extents in zip(index, self._digits, strict=True):
            place.extend(int(digit) for digit in np.unravel_index(value, extents))
        return tuple(place)


def _view(
    memory: np.ndarray[Any, Any],
    dtype: np.dtype[Any],
    placement: Placement,
    element_shape: tuple[int, ...] = (),
    element_strides: tuple[int, ...] = (),
) -> np.ndarray[Any, Any]:
    digits = [digit for axis in placement.axes for digit in axis]
    return np.ndarray(
        shape=tuple(extent for extent, _ in digits) + element_shape,
        dtype=dtype,
        buffer=memory.data,
        offset=placement.base,
        strides=tuple(stride for _, stride in digits) + element_strides,
    )


def _common_step(placements: Sequence[Placement]) -> int | None:
    """The distance in bytes from each component to the next, where it is the same for all."""
    if len(placements) == 1:
        return 0
    step = placements[1].base - placements[0].base
    for before, after in zip(placements, placements[1:], strict=False):
        if after.base - before.base != step or after.axes != before.axes:
            return None
    return step


def _element_strides(element_shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    count = 1
    for extent in reversed(element_shape):
        strides.append(count)
        count *= extent
    return tuple(reversed(strides))
