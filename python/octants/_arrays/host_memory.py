"""Host access to the elements of a field or an ndarray.

If the host can address the device's memory, each component is a numpy view with the byte strides of its placement,
with one numpy axis per digit (`HostMemory`). Otherwise bytes are copied: the whole range for a whole array, and an
element's own bytes for an element (`CopiedMemory`). The same views then describe the copy. Both wait for conflicting
work first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from octants import _octants
from octants._arrays import interchange

MemoryLayout = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Byte offset, extents and byte strides of an array in a buffer."""

REPEATED = 4096
"""Number of components set at once by a fill."""

NEAR = 4096
"""Components of an element within this many bytes of each other are read together."""


def host_access(
    buffer: _octants.Buffer,
    dtype: np.dtype[Any],
    element_shape: tuple[int, ...],
    placements: Sequence[_octants.Placement],
) -> HostMemory | CopiedMemory:
    """Access to the elements whose components are at `placements` in the buffer."""
    if not buffer.host_addressable:
        return CopiedMemory(buffer, dtype, element_shape, placements)
    memory = np.frombuffer(memoryview(buffer), dtype=np.uint8)
    access = class_of_host_memory(buffer.wait, memory, dtype, element_shape, placements)
    access.at_once = buffer.immediate
    return access


def _repeat(memory: np.ndarray[Any, Any], element: np.ndarray[Any, Any]) -> None:
    """Fills memory with copies of an element's components.

    Sets blocks that fit the cache: numpy's broadcast assignment loops over each element.
    """
    block = np.tile(element, REPEATED // len(element) + 1)[: len(memory)]
    rest = len(memory) % len(block)
    memory[: len(memory) - rest].reshape(-1, len(block))[...] = block
    memory[len(memory) - rest :] = block[:rest]


class HostMemory:
    """Reads and writes elements in memory that the host can address; indices count from zero on every axis."""

    NO_VIEW = "copy=False: no numpy array can describe this memory without a conversion; use copy=None or copy=True"

    at_once = False
    """All work on this memory is synchronous, so streams have no effect."""

    def __init__(
        self,
        wait: Callable[..., None],
        memory: np.ndarray[Any, Any],
        dtype: np.dtype[Any],
        element_shape: tuple[int, ...],
        placements: Sequence[_octants.Placement],
    ) -> None:
        first = placements[0]
        self._wait = wait
        self._first = first
        self.shape = first.shape
        self.element_shape = element_shape
        self.dtype = dtype
        self._digits = tuple(tuple(extent for extent, _ in digits) for digits in first.axes)
        self._plain = all(len(digits) == 1 for digits in self._digits)
        step = _octants.common_step(placements)
        if step is None:
            self._views = [_view(memory, dtype, placement) for placement in placements]
        else:
            strides = tuple(step * count for count in _element_strides(element_shape))
            self._views = [_view(memory, dtype, first, element_shape, strides)]
        self._view = self._views[0] if self._plain and len(self._views) == 1 else None
        """All elements by index; None when no single numpy array can describe the memory."""
        self._columns = self._views if len(self._views) > 1 else _columns(self._views[0], element_shape)
        """A view of each component if components are read separately; else empty."""
        self._simple = self._view is not None and not element_shape and dtype.kind != "b"
        self._wide = wide_type(dtype)

    def read(self) -> np.ndarray[Any, Any]:
        """All elements in a new array of shape `shape + element_shape`."""
        self._wait()
        shape = self.shape + self.element_shape
        if not self._columns:
            return np.array(self._views[0], order="C").reshape(shape)
        values = np.empty((*self._columns[0].shape, len(self._columns)), self.dtype)
        for number, view in enumerate(self._columns):
            values[..., number] = view
        return values.reshape(shape)

    def write(self, values: np.ndarray[Any, Any]) -> None:
        """Stores all elements, converted like an assignment in numpy."""
        self._wait(write=True)
        digits = tuple(extent for axis in self._digits for extent in axis)
        if len(self._views) == 1:
            self._views[0][...] = values.reshape(digits + self.element_shape)
            return
        columns = values.reshape((*digits, len(self._views)))
        for number, view in enumerate(self._views):
            view[...] = columns[..., number]

    def fill(self, value: Any) -> None:
        """Stores one element (an array of `element_shape`, or a scalar) everywhere."""
        self._wait(write=True)
        views = self._views
        if len(views) == 1:
            view = views[0]
            if not isinstance(value, np.ndarray):
                view.fill(value)
            elif view.size and view.flags.c_contiguous:
                _repeat(view.reshape(-1), value.ravel())
            else:
                view[...] = value
            return
        for view, item in zip(views, np.broadcast_to(value, self.element_shape).ravel(), strict=True):
            view[...] = item

    def get(self, index: tuple[int, ...]) -> Any:
        """One element: a Python scalar, or a new array of `element_shape`."""
        self._wait()
        if self._simple:
            return self._views[0].item(index)
        place = index if self._plain else self._first.digits_of(index)
        if len(self._views) == 1:
            found = self._views[0][place]
            return np.array(found) if self.element_shape else _number(found)
        return np.array([view[place] for view in self._views]).reshape(self.element_shape)

    def element(self, index: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """The components of a vector or matrix, in the types of Python scalars."""
        if self._view is None:
            return self.get(index).astype(self._wide, copy=False)
        self._wait()
        return self._view[index].astype(self._wide)

    def set(self, index: tuple[int, ...], value: Any) -> None:
        """Stores one element: a scalar, or an array of `element_shape`."""
        self._wait(write=True)
        if self._view is not None:
            self._view[index] = value
            return
        place = index if self._plain else self._first.digits_of(index)
        if len(self._views) == 1:
            self._views[0][place] = value
            return
        for view, item in zip(self._views, np.ravel(value), strict=True):
            view[place] = item

    def set_component(self, index: tuple[int, ...], component: tuple[int, ...], value: Any) -> None:
        """Stores one component of an element."""
        self._wait(write=True)
        place = index if self._plain else self._first.digits_of(index)
        if len(self._views) == 1:
            self._views[0][place + component] = value
        else:
            self._views[component_number(component, self.element_shape)][place] = value

    @property
    def device(self) -> tuple[int, int]:
        """The device as DLPack names it."""
        return interchange.CPU_DEVICE

    def dlpack(self, keywords: dict[str, Any]) -> Any:
        """A DLPack capsule of the memory."""
        view = self.direct()
        if view is None:
            raise ValueError(self.NO_VIEW)
        return interchange.export_dlpack(view, keywords)

    def torch(self, whole: Any, device: Any, copy: bool | None) -> Any:
        """A torch tensor of `whole`, the array in this memory, on `device` (the CPU by default)."""
        return interchange.to_torch(whole.to_numpy(copy=copy), device, copy)

    def layout_for(self, tensor: Any) -> MemoryLayout | None:
        """None: the host sets the elements."""
        return None

    def direct(self) -> np.ndarray[Any, Any] | None:
        """A view of the memory, or None when no single numpy array can describe it. Waits for all pending uses."""
        self._wait(write=True)
        return self._view


class_of_host_memory = HostMemory
"""The class that new fields and ndarrays use where the host can address their memory."""


class CopiedMemory:
    """Reads and writes elements in memory that the host cannot address. The same interface as `HostMemory`."""

    NO_VIEW = "copy=False: the host cannot address the memory of this device; use copy=None or copy=True"

    at_once = False

    def __init__(
        self,
        buffer: _octants.Buffer,
        dtype: np.dtype[Any],
        element_shape: tuple[int, ...],
        placements: Sequence[_octants.Placement],
    ) -> None:
        self._buffer = buffer
        self.shape = placements[0].shape
        self.element_shape = element_shape
        self.dtype = dtype
        self._placements = list(placements)
        spans = [placement.span(dtype.itemsize) for placement in placements]
        self._low, self._high = min(low for low, _ in spans), max(high for _, high in spans)
        count = int(np.prod(self.shape, dtype=np.int64)) * dtype.itemsize
        self._dense = self._high - self._low == count * len(spans)
        # Copy dense components one by one: the bytes between them belong to other fields.
        apart = not self._dense and len(spans) > 1 and all(high - low == count for low, high in spans)
        self._parts = [CopiedMemory(buffer, dtype, (), [each]) for each in placements] if apart else []
        # An array without elements has no bytes, regardless of its span.
        self._is_empty = count == 0
        self._in_order = self._dense and self._is_in_order()

    def read(self) -> np.ndarray[Any, Any]:
        """All elements in a new array of shape `shape + element_shape`."""
        if self._is_empty:
            return np.empty(self.shape + self.element_shape, self.dtype)
        if self._in_order:
            values = np.empty(self.shape + self.element_shape, self.dtype)
            self._buffer.read_into(self._low, values.reshape(-1))
            return values
        if self._parts:
            return np.stack([part.read() for part in self._parts], axis=-1).reshape(self.shape + self.element_shape)
        return self._local(self._bytes()).read()

    def write(self, values: np.ndarray[Any, Any]) -> None:
        """Stores all elements, converted like an assignment in numpy."""
        if self._is_empty:
            return
        if self._in_order:
            self._buffer.write(self._low, np.asarray(values, self.dtype, order="C").reshape(-1))
            return
        if self._parts:
            columns = values.reshape((*self.shape, len(self._parts)))
            for number, part in enumerate(self._parts):
                part.write(columns[..., number])
            return
        memory = np.empty(self._high - self._low, np.uint8) if self._dense else self._bytes()
        self._local(memory).write(values)
        self._buffer.write(self._low, memory)

    def fill(self, value: Any) -> None:
        """Stores one element (an array of `element_shape`, or a scalar) everywhere."""
        self.write(np.broadcast_to(np.asarray(value, self.dtype), self.shape + self.element_shape))

    def get(self, index: tuple[int, ...]) -> Any:
        """One element: a Python scalar, or a new array of `element_shape`."""
        itemsize = self.dtype.itemsize
        places = _octants.component_offsets(self._placements, index)
        low, high = min(places), max(places) + itemsize
        if high - low <= NEAR:
            memory = self._buffer.read(low, high - low)
            found = [np.frombuffer(memory, self.dtype, 1, place - low)[0] for place in places]
        else:
            found = [np.frombuffer(self._buffer.read(place, itemsize), self.dtype)[0] for place in places]
        return np.array(found, self.dtype).reshape(self.element_shape) if self.element_shape else _number(found[0])

    def element(self, index: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """The components of a vector or matrix, in the types of Python scalars."""
        return self.get(index).astype(wide_type(self.dtype), copy=False)

    def set(self, index: tuple[int, ...], value: Any) -> None:
        """Stores one element: a scalar, or an array of `element_shape`."""
        places = _octants.component_offsets(self._placements, index)
        element = np.empty(len(places), self.dtype)
        element[...] = np.ravel(value)
        start = 0
        for end in range(1, len(places) + 1):
            if end == len(places) or places[end] != places[end - 1] + self.dtype.itemsize:
                self._buffer.write(places[start], element[start:end])
                start = end

    def set_component(self, index: tuple[int, ...], component: tuple[int, ...], value: Any) -> None:
        """Stores one component of an element."""
        number = component_number(component, self.element_shape)
        item = np.empty(1, self.dtype)
        item[0] = value
        self._buffer.write(_octants.component_offsets(self._placements, index)[number], item)

    @property
    def device(self) -> tuple[int, int]:
        """The device as DLPack names it."""
        return self._buffer.dlpack_device

    def dlpack(self, keywords: dict[str, Any]) -> Any:
        """A DLPack capsule of the memory, on the device."""
        place = self._layout()
        if place is None:
            raise ValueError("DLPack needs one stride per axis, which this memory layout does not have; use copy=True")
        return interchange.export_device(self._buffer, place, self.dtype, keywords, self.read)

    def torch(self, whole: Any, device: Any, copy: bool | None) -> Any:
        """A torch tensor of `whole`, the array in this memory: on this device or on the CPU, as `device` and `copy`
        ask.
        """
        if self._layout() is None and copy is not False:
            return interchange.to_torch(self.read(), device, None)
        return interchange.device_to_torch(whole, device, copy)

    def layout_for(self, tensor: Any) -> MemoryLayout | None:
        """The layout with which the device can copy this torch tensor into the memory. None if the tensor is on another
        device or has another shape.
        """
        place = self._layout()
        if place is None or not hasattr(tensor, "detach") or tensor.device.type == "cpu":
            return None
        return place if tuple(tensor.shape) == place[1] and tensor.__dlpack_device__() == self.device else None

    def array_protocol(self) -> dict[str, Any]:
        """The value of `__cuda_array_interface__` or its equivalent for this device."""
        place = self._layout()
        if place is None:
            raise AttributeError("this memory layout cannot be described by one strided array")
        offset, shape, strides = place
        stream = self._buffer.hand_over()
        if stream == 0:
            # The protocol has no handle for this stream, and omitting the handle declares the contents ready.
            self._buffer.wait(write=True)
            stream = None
        return {
            "shape": shape,
            "typestr": self.dtype.str,
            "data": (self._buffer.ptr + offset, False),
            "strides": strides,
            "version": 3,
            "stream": stream,
        }

    def _is_in_order(self) -> bool:
        """Whether the memory is C-contiguous."""
        place = self._layout()
        if place is None:
            return False
        _, shape, strides = place
        expected = self.dtype.itemsize
        for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
            if extent > 1 and stride != expected:
                return False
            expected *= extent
        return True

    def _layout(self) -> MemoryLayout | None:
        """Byte offset, extents and byte strides; None when one strided array cannot describe the memory."""
        first, step = self._placements[0], _octants.common_step(self._placements)
        if step is None or any(len(digits) != 1 for digits in first.axes):
            return None
        strides = tuple(digits[0][1] for digits in first.axes)
        strides += tuple(step * count for count in _element_strides(self.element_shape))
        return first.base, self.shape + self.element_shape, strides

    def direct(self) -> np.ndarray[Any, Any] | None:
        """None: no numpy array can describe the memory."""
        return None

    def _bytes(self) -> np.ndarray[Any, Any]:
        memory = np.empty(self._high - self._low, np.uint8)
        self._buffer.read_into(self._low, memory)
        return memory

    def _local(self, memory: np.ndarray[Any, Any]) -> HostMemory:
        moved = [each.relative_to(self._low) for each in self._placements]
        return HostMemory(_no_wait, memory, self.dtype, self.element_shape, moved)


def _columns(view: np.ndarray[Any, Any], element_shape: tuple[int, ...]) -> list[np.ndarray[Any, Any]]:
    """A view of each component if the strides of components exceed those of elements; else an empty list.

    With such strides, numpy copies element by element. Large elements are excluded: separate copies of their components
    do not fit the cache.
    """
    axes = view.ndim - len(element_shape)
    strides, apart = view.strides[:axes], view.strides[axes:]
    if not strides or not apart or min(apart) < max(strides) or prod(element_shape) > 16:
        return []
    places = [(Ellipsis, *place) for place in np.ndindex(element_shape)]
    return [view[place] for place in places]


def wide_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The numpy type of Python scalars, so that host arithmetic on an element follows the rules of Python."""
    return _FLOAT64 if dtype.kind == "f" else dtype if dtype == np.uint64 else _INT64


_FLOAT64, _INT64 = np.dtype(np.float64), np.dtype(np.int64)


def component_number(component: tuple[int, ...], element_shape: tuple[int, ...]) -> int:
    """The position of a component in row-major order. Negative indices count from the end."""
    number = 0
    for place, extent in zip(component, element_shape, strict=True):
        number = number * extent + range(extent)[place]
    return number


def _number(element: Any) -> int | float:
    """An element as a Python scalar. A `u1` becomes 0 or 1, like the result of a kernel."""
    return int(element) if element.dtype.kind == "b" else element.item()


def _no_wait(write: bool = False) -> None:
    """For memory without other users."""


def _view(
    memory: np.ndarray[Any, Any],
    dtype: np.dtype[Any],
    placement: _octants.Placement,
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


def _element_strides(element_shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    count = 1
    for extent in reversed(element_shape):
        strides.append(count)
        count *= extent
    return tuple(reversed(strides))
