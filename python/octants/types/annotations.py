"""Annotations of kernel and function parameters: `qd.Template`, `qd.types.ndarray(...)`, `qd.ref`.

The compiler reads the attributes; nothing here checks a call.
"""

from __future__ import annotations

from typing import Any

from octants._arrays.array_factories import factories
from octants.layouts import Layout
from octants.types.primitive import DataType, resolve_dtype
from octants.types.template import Template, template
from octants.types.tensor_types import AnySize, MatrixType, matrix, vector

__all__ = [
    "BufferViewType",
    "NDArray",
    "NdarrayType",
    "OptionalNdarrayType",
    "RefType",
    "Template",
    "ndarray",
    "ref",
    "sparse_matrix_builder",
    "template",
]


class NdarrayType:
    """The annotation of an array parameter, optionally with an element type and a number of axes."""

    _octants_entity = "ndarray_type"

    def __init__(
        self,
        dtype: Any = None,
        ndim: int | None = None,
        element_dim: int | None = None,
        element_shape: tuple[int, ...] | None = None,
        field_dim: None = None,
        needs_grad: bool | None = None,
        boundary: str = "unsafe",
        layout: Layout = Layout.AOS,
    ) -> None:
        if field_dim is not None:
            raise ValueError("The field_dim argument for ndarray type is already deprecated. Please use ndim instead.")
        if boundary not in ("unsafe", "clamp"):
            raise ValueError(f"Invalid boundary argument: {boundary}. Valid options: 'unsafe', 'clamp'")
        if ndim is not None:
            _check_ndim(ndim)
        if element_dim is not None and not 0 <= element_dim <= 2:
            raise ValueError(
                f"Only scalars, vectors, and matrices are allowed as elements, got element_dim={element_dim}"
            )
        if element_shape is not None and element_dim is not None and len(element_shape) != element_dim:
            raise ValueError(f"element_shape {element_shape} does not have element_dim={element_dim} axes")
        if isinstance(dtype, MatrixType) and (element_shape is not None or element_dim is not None):
            raise TypeError(f"dtype={dtype} already specifies the element shape: remove element_shape and element_dim")
        if element_shape:
            dtype = (
                vector(element_shape[0], dtype)
                if len(element_shape) == 1
                else matrix(element_shape[0], element_shape[1], dtype)
            )
        if isinstance(dtype, AnySize):
            element_dim, dtype = dtype.ndim, None
        self.declared = dtype
        self.ndim = ndim
        self.element_dim = element_dim
        self.needs_grad = needs_grad
        self.boundary = boundary
        self.layout = layout
        if dtype is not None and not isinstance(dtype, MatrixType):
            resolve_dtype(dtype)

    @property
    def dtype(self) -> DataType | MatrixType | None:
        """The element type; None for any."""
        declared = self.declared
        return declared if declared is None or isinstance(declared, MatrixType) else resolve_dtype(declared)

    @property
    def element_shape(self) -> tuple[int, ...] | None:
        """Shape of an element: () for scalars; None for any."""
        if self.declared is None:
            return () if self.element_dim == 0 else None
        return self.declared.shape if isinstance(self.declared, MatrixType) else ()

    def __class_getitem__(cls, args: Any) -> NdarrayType:
        return cls(*args) if isinstance(args, tuple) else cls(args)

    def __or__(self, other: object) -> OptionalNdarrayType:
        if other is None or other is type(None):
            return OptionalNdarrayType(self)
        return NotImplemented

    __ror__ = __or__

    def __repr__(self) -> str:
        return f"NdarrayType(dtype={self.dtype}, ndim={self.ndim}, layout={self.layout}, needs_grad={self.needs_grad})"


def _check_ndim(ndim: Any) -> None:
    if isinstance(ndim, (bool, float)) or not hasattr(ndim, "__index__"):
        raise TypeError(f"ndim of an array parameter must be an integer, got {ndim!r}")
    if ndim.__index__() < 0:
        raise ValueError(f"ndim of an array parameter must be at least 0, got {ndim}")


ndarray = NdarrayType
NDArray = NdarrayType


class OptionalNdarrayType:
    """The annotation of an array parameter that also takes `None`: `qd.types.NDArray[qd.f32, 1] | None`."""

    _octants_entity = "optional_ndarray"

    def __init__(self, inner: NdarrayType) -> None:
        self.inner = inner

    def __repr__(self) -> str:
        return f"{self.inner!r} | None"


class BufferViewType(NdarrayType):
    """The annotation of a parameter that takes a `qd.BufferView` of an element type: `qd.BufferView[qd.f32]`."""

    of = "views"

    def __init__(self, dtype: Any = None, boundary: str = "unsafe") -> None:
        super().__init__(dtype, ndim=1, boundary=boundary)

    def __repr__(self) -> str:
        return f"BufferViewType(dtype={self.dtype})"


class RefType:
    """The annotation of a by-reference scalar parameter of a `@qd.real_func`, which the callee may write to."""

    _octants_entity = "ref_type"

    def __init__(self, target: Any) -> None:
        self.target = resolve_dtype(target)

    def __repr__(self) -> str:
        return f"qd.ref({self.target})"


def ref(target: Any) -> RefType:
    """The annotation of a by-reference scalar parameter."""
    return RefType(target)


def sparse_matrix_builder() -> type:
    """The annotation of a `qd.linalg.SparseMatrixBuilder`: in kernels `builder[i, j] += value` adds to an element."""
    return factories.sparse_matrix_builder()
