"""Ndarrays: arrays whose shape is an argument of the launch. `qd.ndarray(qd.f32, shape=(4, 5))`.

Elements are in row-major order, with the components of an element innermost. With a `layout`, the axes are in another
order in memory; shape and indices do not change.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from octants import _octants
from octants._arrays import shadow_buffers
from octants._arrays.array_factories import factories
from octants._arrays.host_memory import CopiedMemory, HostMemory, host_access
from octants._arrays.host_views import report_accesses
from octants._arrays.queued_access import Elements
from octants._arrays.split_options import SplitOptions
from octants._arrays.whole_arrays import WholeArray, component_key, flat_index, items_in_python
from octants._fields.fields import store_component
from octants._fields.placement_checks import refuse_unplaced_fields
from octants._fields.snode_trees import require_program
from octants._language.python_scope import only_in_python, runs_as_python
from octants._program.current_device import on
from octants.exceptions import OctantsIndexError, OctantsOutOfBoundsError, OctantsRuntimeError
from octants.layouts import Layout
from octants.types.per_axis import per_axis
from octants.types.primitive import BY_NAME, DataType, i32, is_plain_number, numpy_dtype, resolve_dtype
from octants.types.tensor_types import MatrixType, components_array, matrix, vector
from octants.types.values import Matrix


class ElementType:
    """Scalar type and shape of the elements of an ndarray of vectors or matrices."""

    def __init__(self, dtype: DataType, shape: tuple[int, ...]) -> None:
        self._dtype = dtype
        self._shape = shape

    def element_type(self) -> DataType:
        """The scalar type."""
        return self._dtype

    def shape(self) -> list[int]:
        """Extents of an element."""
        return list(self._shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ElementType) and (other._dtype, other._shape) == (self._dtype, self._shape)

    def __hash__(self) -> int:
        return hash((self._dtype, self._shape))

    def __repr__(self) -> str:
        return f"[Tensor ({', '.join(map(str, self._shape))}) {self._dtype}]"


@dataclass(frozen=True)
class NdarrayTypeMetadata:
    """The type information that `Ndarray.get_type()` returns."""

    element_type: Any
    shape: tuple[int, ...]
    needs_grad: bool
    layout: Layout = Layout.AOS


class Ndarray(WholeArray, _octants.Ndarray):
    """The base class of all ndarrays. Created by `qd.ndarray` and related functions, not by calling the class."""

    _octants_entity = "ndarray"

    grad: Any
    dual: Any
    _qd_layout: tuple[int, ...] | None
    _dtype: DataType
    _host: HostMemory | CopiedMemory | None

    def _setup(self, layout: tuple[int, ...] | None) -> None:
        if layout is not None:
            self._set_layout(layout)
        self._qd_layout = layout
        self._dtype = BY_NAME[self.dtype_name]
        self._host = None
        self.grad = None
        self.dual = None

    # Description

    @property
    def dtype(self) -> DataType:
        """The scalar type."""
        return self._dtype

    @property
    def element_type(self) -> DataType | ElementType:
        """The type of an element: a scalar type, or a description of a vector or matrix."""
        return ElementType(self.dtype, tuple(self.element_shape)) if self.element_shape else self.dtype

    def _value_type(self) -> DataType | MatrixType:
        return element_type_of(self.dtype, self.element_shape)

    @property
    def layout(self) -> tuple[int, ...] | None:
        """The axes in memory order, outermost first, if this is not the natural order."""
        return self._qd_layout

    @property
    def arr(self) -> Ndarray | None:
        """The array itself while the program that made it runs, None afterwards."""
        return self if self.alive else None

    def device_allocation_ptr(self) -> int:
        """The array's address on the device, which identifies its memory."""
        return self.buffer.ptr

    @property
    def _physical_shape(self) -> tuple[int, ...]:
        shape = self.shape
        return shape if self._qd_layout is None else tuple(shape[axis] for axis in self._qd_layout)

    def _get_nelement(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def _get_element_size(self) -> int:
        return self.dtype.nbytes * int(np.prod(self.element_shape, dtype=np.int64))

    @property
    def _read_marks(self) -> Any:
        """A mark for each element, for kernels that validate the assumptions of their gradient; None without a
        gradient."""
        return read_marks(self, len(self.shape)) if self.has_grad() else None

    def get_type(self) -> NdarrayTypeMetadata:
        """Type of the elements, shape, and whether there is a gradient."""
        return NdarrayTypeMetadata(self.element_type, self.shape, self.has_grad())

    def has_grad(self) -> bool:
        """Whether a gradient was allocated."""
        return self.grad is not None

    def has_dual(self) -> bool:
        """Whether a dual was allocated."""
        return self.dual is not None

    # Elements

    @property
    def _serial(self) -> int:
        return self.buffer.serial

    def _memory(self) -> HostMemory | CopiedMemory:
        """Host access to the elements; raises when the program that made the ndarray has ended."""
        if not self.alive:
            raise OctantsRuntimeError(
                "this ndarray belongs to a program that qd.init() or qd.reset() has ended; create it again after "
                "qd.init()"
            )
        host = self._host
        if host is None:
            refuse_unplaced_fields()
            host = self._host = host_access(self.buffer, self.dtype.numpy, tuple(self.element_shape), self._placed())
        return host

    def _elements(self) -> Elements:
        self._memory()  # raises when the program has ended
        return Elements(self.buffer, self.dtype.numpy, tuple(self.element_shape), self._placed())

    def _placed(self) -> list[_octants.Placement]:
        """The placement of each component of an element."""
        return _octants.Placement.of_array(
            self._offset_in_memory, self.shape, self._qd_layout, self.dtype.nbytes, prod(self.element_shape)
        )

    def _checked_index(self, shape: tuple[int, ...], key: Any) -> tuple[int, ...]:
        flat = flat_index(key, lambda item: f"ndarray indices must be integers, got {item!r}")
        if not shape and flat == [0] and runs_as_python():
            return ()
        if len(flat) != len(shape):
            raise OctantsIndexError(f"{len(shape)}d ndarray indexed with {len(flat)}d indices: {tuple(flat)}")
        for value, extent in zip(flat, shape, strict=True):
            if not 0 <= value < extent:
                raise OctantsOutOfBoundsError(
                    f"Out of bound access to ndarray of shape {shape} with indices {tuple(flat)}"
                )
        return tuple(flat)

    def _sliced(self, key: slice) -> Ndarray:
        view: Ndarray = factories.view_of_slice(self, key)
        return view

    def __iter__(self) -> Iterator[Any]:
        if runs_as_python():
            return items_in_python(self)
        raise NotImplementedError("an ndarray can only be looped over in a kernel; in Python, loop over to_numpy()")

    # Whole arrays

    @only_in_python
    def to_numpy(self, dtype: Any = None, *, copy: bool | None = True) -> np.ndarray[Any, Any]:
        """All elements as an array of shape `shape + element_shape`. `copy=False` gives a view of the memory or raises,
        `copy=None` gives a view if possible."""
        memory = self._memory()
        wanted = memory.dtype if dtype is None else numpy_dtype(dtype)
        if copy is not True:
            direct = memory.direct() if wanted == memory.dtype else None
            if direct is not None:
                return report_accesses(direct)
            if copy is False:
                raise ValueError(memory.NO_VIEW)
        return memory.read().astype(wanted, copy=False)

    def _import(self, arr: np.ndarray[Any, Any], qd_stream: Any = None) -> None:
        memory = self._memory()
        expected = memory.shape + memory.element_shape
        if arr.shape != expected:
            raise ValueError(f"Mismatch shape: {expected} expected, but {arr.shape} provided")
        self._write(arr, qd_stream)

    def __getattr__(self, name: str) -> Any:
        # The attribute by which libraries on the device take arrays has a name of the device's own.
        if name.startswith("__") and name == self.buffer.array_protocol:
            memory = self._memory()
            if isinstance(memory, CopiedMemory):
                return memory.array_protocol()
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @only_in_python
    def copy_from(self, other: Ndarray, qd_stream: Any = None) -> None:
        """Sets all elements from another ndarray of the same shape."""
        if not isinstance(other, Ndarray):
            raise AssertionError(f"copy_from() takes an ndarray, got {type(other).__name__}")
        self.check_alive()
        other.check_alive()
        if self.shape != other.shape:
            raise AssertionError(f"copy_from shape mismatch: destination {self.shape} vs source {other.shape}")
        self._copy(other, qd_stream)

    @staticmethod
    def _values(value: Any) -> np.ndarray[Any, Any]:
        return np.asarray(value.to_numpy() if isinstance(value, Matrix) else value)

    def _element(self, value: Any) -> Any:
        dtype = self._dtype
        if is_plain_number(value):
            if dtype.kind != "float" and not self.element_shape:
                dtype.check_element(value)
            return dtype.convert(value)
        values = self._values(value)
        if values.dtype.kind not in "biuf":
            raise TypeError(f"expected numbers, got {value!r}")
        if values.ndim == 0:
            if not self.element_shape:
                dtype.check_element(value)
            return dtype.convert(values.item())
        if values.shape != tuple(self.element_shape):
            raise ValueError(f"an element must have shape {tuple(self.element_shape)}, got {value!r}")
        return components_array(values.ravel().tolist(), dtype).reshape(values.shape)

    # Copies

    def __deepcopy__(self, memo: dict[int, Any]) -> Ndarray:
        self.check_alive()
        with _octants.on_program(self._serial):
            made = make_ndarray(self._value_type(), self.shape, self.needs_grad, self._qd_layout)
        made.copy_from(self)
        if self.grad is not None:
            made.grad.copy_from(self.grad)
        return made

    def __copy__(self) -> Ndarray:
        return self.__deepcopy__({})

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        grad = None if self.grad is None else self.grad.to_numpy()
        return _rebuild, (self._value_type(), self.shape, self.needs_grad, self._qd_layout, self.to_numpy(), grad)


class ScalarNdarray(Ndarray):
    """An ndarray of scalars. `ScalarNdarray(dtype, shape)` is `qd.ndarray(dtype, shape)`."""

    def __new__(cls, dtype: Any, shape: Any) -> Any:
        return make_ndarray(dtype, shape)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self._sliced(key)
        memory = self._memory()
        return memory.get(self._index(memory, key))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._dtype.check_element(value)
        memory = self._memory()
        memory.set(self._index(memory, key), self._dtype.convert(value))
        if shadow_buffers.open_scopes:
            shadow_buffers.host_wrote(self, key)

    def __repr__(self) -> str:
        return "<qd.ndarray>"


class _CompoundNdarray(Ndarray):
    @property
    def n(self) -> int:
        """Rows of an element, or components of a vector."""
        return int(self.element_shape[0])

    @property
    def m(self) -> int:
        """Columns of an element; 1 for vectors."""
        return int(self.element_shape[1]) if len(self.element_shape) == 2 else 1

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self._sliced(key)
        memory = self._memory()
        if (apart := component_key(key, len(memory.shape))) is not None:
            return self._typed(self[apart[0]][apart[1]])
        index = self._index(memory, key)

        def write_back(component: Any, value: Any) -> None:
            store_component(self._memory(), self._dtype, index, component, value)
            if shadow_buffers.open_scopes:
                shadow_buffers.host_wrote(self, key, component)

        return Matrix._around(memory.element(index), self._dtype, write_back)

    def __setitem__(self, key: Any, value: Any) -> None:
        memory = self._memory()
        if (apart := component_key(key, len(memory.shape))) is not None:
            self[apart[0]][apart[1]] = value
            return
        index = self._index(memory, key)
        element = self._element(value)
        if not isinstance(element, np.ndarray):
            raise TypeError(f"an element must have shape {tuple(self.element_shape)}, got {value!r}")
        if not self._dtype.is_float:
            self._dtype.check_components(self._values(value))
        memory.set(index, element)
        if shadow_buffers.open_scopes:
            shadow_buffers.host_wrote(self, key)


class VectorNdarray(_CompoundNdarray):
    """An ndarray of vectors. `VectorNdarray(n, dtype, shape)` is `qd.Vector.ndarray(n, dtype, shape)`."""

    def __new__(cls, n: int, dtype: Any, shape: Any) -> Any:
        return make_matrix_ndarray((n,), dtype, shape, False)

    def __repr__(self) -> str:
        return f"<{self.n} Layout.AOS qd.Vector.ndarray>"


class MatrixNdarray(_CompoundNdarray):
    """An ndarray of matrices. `MatrixNdarray(n, m, dtype, shape)` is `qd.Matrix.ndarray(n, m, dtype, shape)`."""

    def __new__(cls, n: int, m: int, dtype: Any, shape: Any) -> Any:
        return make_matrix_ndarray((n, m), dtype, shape, False)

    def __repr__(self) -> str:
        return f"<{self.n}x{self.m} Layout.AOS qd.Matrix.ndarray>"


@only_in_python
def ndarray(
    dtype: Any,
    shape: Any,
    needs_grad: bool = False,
    device: Any = None,
    *,
    split: int | str | None = None,
    halo: int = 2,
    periodic: bool = False,
) -> Any:
    """An ndarray of scalars, or of vectors or matrices where `dtype` is such a type, filled with zeros.

    `shape` is an extent or a tuple of them, each at least 1. `needs_grad` makes another one of the same shape, `grad`,
    for gradients; only floats have one. Both mistakes are an `OctantsRuntimeError`. `device` is what
    `qd.device()` returns, or its name; the current device for None.

    `split=0` distributes the first axis over the ranks of `qd.distributed`, `split=1` the second one: the array is a
    `SplitNdarray`, with `halo` ghost rows on each side. With `periodic` kernels index it modulo its number of rows,
    `x[(i + 1) % x.shape[0]]`.
    """
    with on(device):
        return _make(dtype, shape, needs_grad, None if split is None else SplitOptions(split, halo, periodic))


def _make(dtype: Any, shape: Any, needs_grad: bool, split: SplitOptions | None) -> Any:
    if split is None:
        return make_ndarray(dtype, shape, needs_grad)
    return factories.split_ndarray(dtype, shape, split, needs_grad)


def make_ndarray(dtype: Any, shape: Any, needs_grad: bool = False, layout: tuple[int, ...] | None = None) -> Ndarray:
    """An ndarray; `layout` lists the axes outermost first in memory."""
    require_program()
    scalar, element_shape = _split(dtype)
    # An array of vectors or matrices may be empty.
    extents = _checked_shape(shape, 0 if element_shape else 1)
    if needs_grad and not scalar.is_float:
        raise OctantsRuntimeError(f"{scalar} is not supported for ndarray with `needs_grad=True` or `needs_dual=True`.")
    made = _allocate(scalar, element_shape, extents, needs_grad, layout)
    if needs_grad:
        made.grad = _allocate(scalar, element_shape, extents, False, layout)
    return made


def make_matrix_ndarray(
    element_shape: tuple[Any, ...],
    dtype: Any,
    shape: Any,
    needs_grad: bool,
    device: Any = None,
    split: SplitOptions | None = None,
) -> Any:
    """An ndarray of vectors (`element_shape` of one axis) or matrices."""
    with on(device):
        return _make(element_type_of(dtype, element_shape), shape, needs_grad, split)


factories.ndarray = make_matrix_ndarray


def element_type_of(dtype: DataType, element_shape: Sequence[int]) -> DataType | MatrixType:
    """The type of elements of the given shape."""
    if not element_shape:
        return dtype
    return (
        vector(element_shape[0], dtype)
        if len(element_shape) == 1
        else matrix(element_shape[0], element_shape[1], dtype)
    )


def _allocate(
    dtype: DataType,
    element_shape: tuple[int, ...],
    shape: tuple[int, ...],
    needs_grad: bool,
    layout: tuple[int, ...] | None,
) -> Ndarray:
    cls = (ScalarNdarray, VectorNdarray, MatrixNdarray)[len(element_shape)]
    made = _octants.Ndarray.__new__(cls, dtype.name, element_shape, shape, needs_grad)
    made._setup(layout)
    _made.add(made)
    return made


def with_layout(array: Ndarray, layout: tuple[int, ...]) -> Ndarray:
    """The memory of `array`, whose axes are read as those of an array with this layout, outermost first."""
    shape = [0] * len(layout)
    for axis, extent in zip(layout, array.shape, strict=True):
        shape[axis] = extent
    described = (array.dtype.name, tuple(array.element_shape), tuple(shape), array.needs_grad)
    made = _octants.Ndarray.__new__(type(array), *described, array)
    made._setup(layout)
    if array.grad is not None:
        made.grad = with_layout(array.grad, layout)
    _made.discard(array)
    _made.add(made)
    return made


_made: weakref.WeakSet[Ndarray] = weakref.WeakSet()


def live_ndarrays() -> list[Ndarray]:
    """The ndarrays of the running program that are still referred to."""
    return [array for array in _made if array.alive]


_marks_of_arrays: dict[Any, tuple[Any, Any]] = {}


def read_marks(array: Any, ndim: int) -> Any:
    """The read marks of an ndarray or tensor of rank `ndim`: an i32 ndarray in which validation marks the elements
    read."""
    address = getattr(array, "data_ptr", None)
    key = id(array) if address is None else (address(), tuple(array.shape))
    if key not in _marks_of_arrays:
        # The array itself is kept, so that its address stays its own.
        _marks_of_arrays[key] = array, make_ndarray(i32, tuple(array.shape)[:ndim])
    return _marks_of_arrays[key][1]


def forget_marks_of_arrays() -> None:
    """Lets go of arrays and their marks."""
    _marks_of_arrays.clear()


def _split(dtype: Any) -> tuple[DataType, tuple[int, ...]]:
    try:
        if isinstance(dtype, MatrixType):
            return resolve_dtype(dtype._stored), dtype.shape
        return resolve_dtype(dtype), ()
    except ValueError:
        raise OctantsRuntimeError(f"{dtype!r} is not supported as ndarray element type") from None


def _checked_shape(shape: Any, least: int) -> tuple[int, ...]:
    extents = per_axis(shape)
    for extent in extents:
        if isinstance(extent, (bool, float)) or not hasattr(extent, "__index__") or extent < least:
            raise OctantsRuntimeError(
                f"{extents} is not a valid shape for ndarray: extents must be integers of at least {least}"
            )
    return tuple(int(extent) for extent in extents)


def _rebuild(
    element_type: Any,
    shape: tuple[int, ...],
    needs_grad: bool,
    layout: tuple[int, ...] | None,
    values: np.ndarray[Any, Any],
    grad: np.ndarray[Any, Any] | None,
) -> Ndarray:
    if not _octants.is_initialized():
        raise OctantsRuntimeError("qd.init() must be called before unpickling ndarrays")
    made = make_ndarray(element_type, shape, needs_grad, layout)
    made.from_numpy(values)
    if grad is not None:
        made.grad.from_numpy(grad)
    return made
