"""Tensors: one interface over the two kinds of array. `qd.tensor(qd.f32, shape=(4, 5), backend=qd.Backend.FIELD)`.

A `Tensor` wraps a field or an ndarray and forwards to it. The class is an annotation too: a parameter `x: qd.Tensor`
takes tensors of either kind, and the kernel sees the array inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import numpy as np

from octants._arrays.array_factories import factories
from octants._arrays.ndarrays import MatrixNdarray, Ndarray, VectorNdarray, element_type_of, make_ndarray
from octants._arrays.whole_arrays import items_in_python, len_in_python
from octants._fields.fields import MatrixField, TensorField
from octants._fields.make_field import field
from octants._language.python_scope import only_in_python, runs_as_python
from octants._program.current_device import on
from octants.types.per_axis import per_axis
from octants.types.primitive import DataType, resolve_dtype
from octants.types.tensor_types import MatrixType
from octants.types.values import Matrix


class Backend(IntEnum):
    """The storage of a tensor: field or ndarray."""

    FIELD = 0
    """The shape is a compile-time constant: faster kernels, but recompiled for each shape."""
    NDARRAY = 1
    """The shape is a launch argument: one kernel for all shapes."""


class Tensor:
    """A field or an ndarray of scalars behind one interface."""

    _octants_entity = "tensor_wrapper"

    def __init__(self, impl: Any) -> None:
        if not isinstance(impl, (TensorField, Ndarray)):
            raise TypeError(f"Tensor(impl) requires an Ndarray or Field; got {type(impl).__name__}")
        self._impl: Any = impl
        self._shadow_buffers: dict[str, Tensor] = {}

    def _unwrap(self) -> Any:
        return self._impl

    def _is_field(self) -> bool:
        return isinstance(self._impl, TensorField)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis; None for an ndarray of a program that has ended."""
        shape: tuple[int, ...] = self._impl.shape
        return shape

    @property
    def dtype(self) -> DataType:
        """The scalar type."""
        dtype: DataType = self._impl.dtype
        return dtype

    @property
    def layout(self) -> tuple[int, ...] | None:
        """The axes, outermost first in memory; None for the natural order."""
        layout: tuple[int, ...] | None = self._impl.layout
        return layout

    @property
    def grad(self) -> Tensor | None:
        """The gradient, or None."""
        return self._shadow_buffer("grad")

    @property
    def dual(self) -> Tensor | None:
        """The dual, or None."""
        return self._shadow_buffer("dual")

    def _shadow_buffer(self, which: str) -> Tensor | None:
        impl = getattr(self._impl, which, None)
        if impl is None:
            return None
        known = self._shadow_buffers.get(which)
        if known is None or known._impl is not impl:
            known = self._shadow_buffers[which] = wrap(impl)
        return known

    def has_grad(self) -> bool:
        """Whether the gradient has memory."""
        return bool(self._impl.has_grad())

    def has_dual(self) -> bool:
        """Whether the dual has memory."""
        return bool(self._impl.has_dual())

    def __getitem__(self, key: Any) -> Any:
        self._check_key(key)
        return self._impl[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._check_key(key)
        self._impl[key] = value

    def _check_key(self, key: Any) -> None:
        if self.layout is None:
            return
        rank = len(self.layout)
        if not isinstance(key, (tuple, list, Matrix)):
            raise TypeError(f"layout-tagged Tensor requires a full tuple key; got {type(key).__name__} for rank {rank}")
        if len(key) != rank:
            raise TypeError(f"layout-tagged Tensor key has {len(key)} entries but rank is {rank}")

    def __len__(self) -> int:
        return len_in_python(self)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        if runs_as_python():
            return items_in_python(self)
        raise TypeError("a tensor can only be looped over in a kernel; in Python, loop over to_numpy()")

    @only_in_python
    def to_numpy(self, dtype: Any = None, *, copy: bool | None = True) -> np.ndarray[Any, Any]:
        """All elements as an array of shape `shape + element_shape`."""
        values: np.ndarray[Any, Any] = self._impl.to_numpy(dtype=dtype, copy=copy)
        return values

    @only_in_python
    def from_numpy(self, arr: np.ndarray[Any, Any], qd_stream: Any = None) -> None:
        """Sets all elements."""
        self._impl.from_numpy(arr, qd_stream=qd_stream)

    @only_in_python
    def to_torch(self, device: Any = None, *, copy: bool | None = True) -> Any:
        """All elements as a torch tensor."""
        return self._impl.to_torch(device=device, copy=copy)

    @only_in_python
    def from_torch(self, arr: Any) -> None:
        """Sets all elements."""
        self._impl.from_torch(arr)

    @only_in_python
    def to_dlpack(self, versioned: bool = False) -> Any:
        """A DLPack capsule of the memory."""
        return self._impl.to_dlpack(versioned)

    def __getattr__(self, name: str) -> Any:
        # The device's array protocol is forwarded to the wrapped array.
        if name.startswith("__") and name.endswith("_array_interface__"):
            return getattr(self._impl, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self._impl.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self._impl.__dlpack_device__()
        return device

    def fill(self, value: Any, qd_stream: Any = None) -> None:
        """Sets all elements to one value."""
        self._impl.fill(value, qd_stream=qd_stream)

    @only_in_python
    def copy_from(self, other: Any, qd_stream: Any = None) -> None:
        """Sets all elements from a tensor of the same backend and shape."""
        source = other._unwrap() if isinstance(other, Tensor) else other
        if not isinstance(source, TensorField if self._is_field() else Ndarray):
            # Quadrants' classes of the two.
            error = TypeError if self._is_field() else AssertionError
            raise error(
                f"copy_from() needs two tensors of one backend, got {type(source).__name__} for {self!r}; "
                "go through to_numpy() and from_numpy()"
            )
        self._impl.copy_from(source, qd_stream=qd_stream)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        rebuild, args = self.__reduce__()
        made: Tensor = rebuild(*args)
        return made

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        element = getattr(self._impl, "element_shape", ())
        dtype: Any = self.dtype
        if element:
            dtype = element_type_of(self.dtype, tuple(element))
        backend = Backend.FIELD if self._is_field() else Backend.NDARRAY
        grad = self._impl.grad.to_numpy() if self.has_grad() else None
        return _rebuild, (dtype, self.shape, int(backend), self.layout, self.to_numpy(), grad)

    def __repr__(self) -> str:
        backend = "FIELD" if self._is_field() else "NDARRAY"
        layout = "" if self.layout is None else f", layout={self.layout}"
        if self._is_field() and self._impl.parent() is None:
            return f"Tensor(without memory, dtype={self.dtype}, backend={backend})"
        return f"Tensor(shape={self.shape}, dtype={self.dtype}, backend={backend}{layout})"


class _CompoundTensor(Tensor):
    _axes_of_elements: int

    def __init__(self, impl: Any) -> None:
        super().__init__(impl)
        if len(getattr(impl, "element_shape", ())) != self._axes_of_elements:
            kind = "vector" if self._axes_of_elements == 1 else "matrix"
            raise TypeError(f"{type(self).__name__} requires a {kind}-element impl; got {type(impl).__name__}")

    @property
    def element_shape(self) -> tuple[int, ...]:
        """Shape of an element."""
        return tuple(self._impl.element_shape)

    @property
    def n(self) -> int:
        """Rows of an element, or components of a vector."""
        return int(self._impl.n)

    @property
    def m(self) -> int:
        """Columns of an element; 1 for vectors."""
        return int(self._impl.m)


class VectorTensor(_CompoundTensor):
    """A field or an ndarray of vectors behind one interface."""

    _axes_of_elements = 1


class MatrixTensor(_CompoundTensor):
    """A field or an ndarray of matrices behind one interface."""

    _axes_of_elements = 2


def wrap(impl: Any) -> Tensor:
    """The tensor around a field or an ndarray."""
    if isinstance(impl, VectorNdarray) or (isinstance(impl, MatrixField) and impl.ndim == 1):
        return VectorTensor(impl)
    if isinstance(impl, (MatrixNdarray, MatrixField)):
        return MatrixTensor(impl)
    return Tensor(impl)


@only_in_python
def tensor(
    dtype: Any,
    shape: Any,
    *,
    backend: Any = Backend.NDARRAY,
    layout: Any = None,
    needs_grad: bool = False,
    device: Any = None,
    **kwargs: Any,
) -> Tensor:
    """A tensor of scalars, or of vectors or matrices if `dtype` is such a type.

    `layout` lists the axes, outermost first in memory; it changes neither the shape nor the indices. Tensors of
    integers have no gradient, whatever `needs_grad` is. `device` is the result of `qd.device()` or a device name; None
    means the current device.
    """
    _refuse("qd.tensor", kwargs, "backend, device, dtype, layout, needs_grad, shape")
    chosen = _backend(backend)
    if isinstance(dtype, MatrixType):
        if layout is not None:
            raise TypeError(
                "layout= is not supported with compound dtypes (vectors and matrices): omit it, or create a "
                "tensor of scalars"
            )
        order = None
    else:
        order = permutation(layout, shape)
    with on(device):
        return _make(dtype, shape, chosen, order, needs_grad)


def make_compound_tensor(
    caller: str, element_shape: tuple[Any, ...], dtype: Any, shape: Any, kwargs: dict[str, Any]
) -> Tensor:
    """Implements `qd.Vector.tensor` and `qd.Matrix.tensor`."""
    options = dict(kwargs)
    backend = _backend(options.pop("backend", Backend.NDARRAY))
    needs_grad = options.pop("needs_grad", False)
    device = options.pop("device", None)
    _refuse(caller, options, "backend, device, dtype, needs_grad, shape")
    with on(device):
        return _make(element_type_of(dtype, element_shape), shape, backend, None, needs_grad)


factories.tensor = make_compound_tensor


def _make(dtype: Any, shape: Any, backend: Backend, layout: tuple[int, ...] | None, needs_grad: bool) -> Tensor:
    if not isinstance(dtype, MatrixType):
        dtype = resolve_dtype(dtype)
    needs_grad = needs_grad and (dtype.dtype if isinstance(dtype, MatrixType) else dtype).is_float
    if backend is Backend.NDARRAY:
        return wrap(make_ndarray(dtype, shape, needs_grad, layout))
    order = None if layout is None else "".join(chr(ord("i") + axis) for axis in layout)
    return wrap(field(dtype, shape, order=order, needs_grad=needs_grad))


def _refuse(caller: str, unknown: dict[str, Any], accepted: str) -> None:
    if "order" in unknown:
        instead = (
            "pass layout=(...)" if "layout" in accepted else f"use {caller.replace('tensor', 'field')}(..., order=...)"
        )
        raise TypeError(f"{caller}(...) does not accept order=; {instead} instead")
    if unknown:
        raise TypeError(f"{caller}() got unexpected keyword argument(s) {sorted(unknown)}; accepted: {accepted}")


def _backend(value: Any) -> Backend:
    try:
        return Backend(value)
    except ValueError:
        raise ValueError(
            f"backend={value!r} is not a valid qd.Backend; expected one of qd.Backend.FIELD, qd.Backend.NDARRAY"
        ) from None


def permutation(layout: Any, shape: Any) -> tuple[int, ...] | None:
    """The layout as a tuple; None for the natural order."""
    if layout is None:
        return None
    order = tuple(layout)
    ndim = len(per_axis(shape))
    if len(order) != ndim:
        raise ValueError(f"layout has {len(order)} entries but shape has {ndim} dimensions; they must match")
    if not all(isinstance(axis, (int, np.integer)) for axis in order) or sorted(order) != list(range(ndim)):
        raise ValueError(f"layout={order} is not a permutation of range({ndim})")
    return None if order == tuple(range(ndim)) else tuple(int(axis) for axis in order)


def _rebuild(
    dtype: Any, shape: tuple[int, ...], backend: int, layout: tuple[int, ...] | None, values: Any, grad: Any
) -> Tensor:
    made = _make(dtype, shape, Backend(backend), layout, grad is not None)
    made.from_numpy(values)
    if grad is not None:
        made._unwrap().grad.from_numpy(grad)
    return made
