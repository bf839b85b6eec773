"""The common part of fields and ndarrays: element keys, and whole-array operations (numpy, torch, DLPack, fills,
copies)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from octants import _octants
from octants._arrays import interchange, shadow_buffers
from octants._arrays.queued_access import (
    Elements,
    done_by_device,
    queue_between_devices,
    queue_copy,
    queue_fill,
    queue_write,
    take_tensor,
    wait_for_stream,
)
from octants._language.python_scope import only_in_python, runs_as_python
from octants.exceptions import OctantsRuntimeError
from octants.types.values import Matrix

if TYPE_CHECKING:
    from octants._arrays.host_memory import CopiedMemory, HostMemory
    from octants._fields.packed_fields import PackedMemory


class WholeArray:
    """A field or an ndarray, as far as all its elements go."""

    _shifted = False
    """Whether the indices have an offset."""

    if TYPE_CHECKING:

        def _checked_index(self, shape: tuple[int, ...], key: Any) -> tuple[int, ...]:
            """Like `_index`, for all kinds of keys and with an offset, with specific errors."""

        def _memory(self) -> HostMemory | CopiedMemory | PackedMemory:
            """Host access to the elements; raises when the program that made the array has ended."""

        def _elements(self) -> Elements:
            """The placement of the elements in a buffer."""

        @property
        def _serial(self) -> int:
            """The number of the program whose memory it is."""

        def _element(self, value: Any) -> Any:
            """A value as one element (a scalar stays one)."""

        def _import(self, arr: np.ndarray[Any, Any], qd_stream: Any = None) -> None:
            """Sets all elements from an array whose shape is checked."""

    @only_in_python
    def from_numpy(self, arr: np.ndarray[Any, Any], qd_stream: Any = None) -> None:
        """Sets all elements from an array of shape `shape + element_shape`. On a stream the array is read now, and the
        elements are set when the stream gets there."""
        if not isinstance(arr, (np.ndarray, np.generic)):
            raise TypeError(f"{np.ndarray} expected, but {type(arr)} provided: from_numpy() takes a numpy array")
        if type(arr) is not np.ndarray and isinstance(arr, np.ma.MaskedArray):
            raise ValueError("from_numpy() would lose the mask of a masked array: pass array.filled(...)")
        self._import(np.asarray(arr), qd_stream)
        if shadow_buffers.open_scopes:
            shadow_buffers.host_wrote(self)

    def _write(self, arr: np.ndarray[Any, Any], qd_stream: Any) -> None:
        """Sets all elements from an array of the right shape, now or on a stream."""
        memory = self._memory()
        values = interchange.converted(arr, memory.dtype)
        if qd_stream is not None:
            with _octants.on_program(self._serial):
                stream = _octants.queueing_stream(qd_stream)
            if stream is not None and queue_write(stream, self._elements(), values):
                return
            wait_for_stream(qd_stream, self)
        memory.write(values)

    def _index(self, memory: HostMemory | CopiedMemory | PackedMemory, key: Any) -> tuple[int, ...]:
        """A key as zero-based indices, checked against the shape."""
        shape = memory.shape
        if type(key) is int and len(shape) == 1 and 0 <= key < shape[0] and not self._shifted:
            return (key,)
        given = () if key is None else key if type(key) is tuple else (key,)
        if len(given) == len(shape) and not self._shifted:
            for value, extent in zip(given, shape):  # noqa: B905
                if type(value) is not int or not 0 <= value < extent:
                    break
            else:
                return given
        return self._checked_index(shape, key)

    def _typed(self, component: Any) -> Any:
        """A component, a row or a Python scalar, as a scalar of the array's own type."""
        return component if isinstance(component, Matrix) else self._memory().dtype.type(component)

    def size(self, axis: int | None = None) -> Any:
        """The extents of the axes, and after them those of an element; or the one of them that `axis` counts."""
        memory = self._memory()
        extents = tuple(memory.shape) + tuple(memory.element_shape)
        return extents if axis is None else extents[axis]

    def __len__(self) -> int:
        return len_in_python(self)

    def __bool__(self) -> bool:
        return True

    @only_in_python
    def to_torch(self, device: Any = None, *, copy: bool | None = True) -> Any:
        """All elements as a torch tensor on `device` (the CPU by default)."""
        return self._memory().torch(self, device, copy)

    @only_in_python
    def from_torch(self, arr: Any) -> None:
        """Sets all elements from a torch tensor."""
        if not take_tensor(self, arr):
            self._import(interchange.from_torch(arr))
        if shadow_buffers.open_scopes:
            shadow_buffers.host_wrote(self)

    @only_in_python
    def to_dlpack(self, versioned: bool = False) -> Any:
        """A DLPack capsule of the memory."""
        return self.__dlpack__(**interchange.dlpack_keywords(versioned))

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self._memory().dlpack(kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._memory().device

    def fill(self, val: Any, qd_stream: Any = None) -> None:
        """Sets all elements to a scalar, or to one vector or matrix."""
        element = self._element(val)
        memory = self._memory()
        if memory.at_once and qd_stream is None and not _octants.capturing():
            memory.fill(element)
        elif not done_by_device(qd_stream, [self], lambda stream: queue_fill(stream, self._elements(), element)):
            wait_for_stream(qd_stream, self)
            memory.fill(element)
        if shadow_buffers.open_scopes:
            shadow_buffers.host_wrote(self)

    def _copy(self, other: WholeArray, qd_stream: Any) -> None:
        """Sets all elements from another array of the same kind and shape."""
        if self._serial != other._serial:
            done = self._copy_between_devices(other, qd_stream)
        else:
            done = done_by_device(
                qd_stream, [self, other], lambda stream: queue_copy(stream, self._elements(), other._elements())
            )
        if not done:
            wait_for_stream(qd_stream, self)
            memory = self._memory()
            self._import(other._memory().read().reshape(memory.shape + memory.element_shape))
        if shadow_buffers.open_scopes:
            shadow_buffers.host_copied(self, other)

    def _copy_between_devices(self, other: WholeArray, qd_stream: Any) -> bool:
        """Queues a copy from another device's array, on the given stream, or else in place of the host. Returns False
        if the host must copy."""
        if _octants.capturing():
            raise OctantsRuntimeError(
                "a copy between devices cannot be captured: copy before or after the graph's launch"
            )
        with _octants.on_program(self._serial):
            stream = _octants.queueing_stream(qd_stream)
        return queue_between_devices(stream, self._elements(), other._elements())

    @property
    def device(self) -> _octants.Device:
        """The device whose memory it is."""
        return _octants.device_of(self._serial)


def len_in_python(array: Any) -> int:
    """The extent of the first axis, if kernels run as Python. Otherwise `len` of an array is available only in
    kernels."""
    if not runs_as_python():
        raise TypeError(f"object of type '{type(array).__name__}' has no len(): use its `shape`")
    if not array.shape:
        raise TypeError("len() of a 0-dimensional array")
    return int(array.shape[0])


def items_in_python(array: Any) -> Iterator[Any]:
    """If kernels run as Python: the elements of a one-dimensional array, or the rows of any other array as numpy
    arrays."""
    if len(array.shape) == 1:
        return (array[index] for index in range(len_in_python(array)))
    return iter(array.to_numpy(copy=None)[: len_in_python(array)])


def component_key(key: Any, axes: int) -> tuple[Any, Any] | None:
    """If kernels run as Python, a key may also name a component, after the indices of its element. Returns both
    separately."""
    if not runs_as_python() or not isinstance(key, tuple) or len(key) <= axes:
        return None
    component = key[axes:]
    return key[:axes], component if len(component) > 1 else component[0]


def flat_index(key: Any, wrong: Callable[[Any], str]) -> list[int]:
    """A key as integers; a vector in it expands to its components. `wrong` describes the error for any other item."""
    if isinstance(key, Matrix):
        key = key.entries.tolist()
    flat: list[int] = []
    for item in () if key is None else key if isinstance(key, (tuple, list)) else (key,):
        if isinstance(item, Matrix):
            flat.extend(item.entries.tolist())
        elif hasattr(item, "__index__") and not (isinstance(item, np.ndarray) and item.ndim):
            flat.append(item.__index__())
        else:
            raise TypeError(wrong(item))
    return flat
