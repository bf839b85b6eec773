"""`qd.BufferView`: a range of the elements of an ndarray, which kernels accept as an array.

It is an ndarray in the memory of another one. Any function that accepts ndarrays therefore accepts views. Overlapping
views are detected at launch, like any other overlapping arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from octants._arrays.array_factories import factories
from octants._arrays.ndarrays import Ndarray
from octants._language.python_scope import runs_as_python
from octants.types.annotations import BufferViewType


class BufferView(Ndarray):
    """A view of a contiguous range of a 1-dimensional ndarray, without a copy. `data[8:24]` makes one.

    A kernel parameter annotated `qd.BufferView` or `qd.BufferView[qd.f32]` takes it as an array of `size` elements.
    """

    _octants_entity = "buffer_view"
    _octants_builtin = "BufferView"

    def __new__(cls, arr: Ndarray, offset: int, size: int) -> BufferView:
        """A view of `size` elements, starting at `offset`."""
        if isinstance(arr, BufferView):
            raise TypeError("Cannot nest BufferView(view, ...); use view.subview(offset, size) instead")
        ndarray = getattr(arr, "_impl", arr)
        if not isinstance(ndarray, Ndarray):
            raise TypeError(f"qd.BufferView takes an ndarray, got {type(ndarray).__name__}")
        if len(ndarray.shape) != 1:
            raise TypeError(f"qd.BufferView takes a 1-dimensional ndarray, got shape {ndarray.shape}")
        if ndarray.needs_grad:
            raise TypeError("BufferView does not support ndarrays with gradients (needs_grad=True)")
        length = ndarray.shape[0]
        if offset < 0 or size < 0 or offset + size > length:
            raise ValueError(f"BufferView out of range: offset={offset}, size={size}, ndarray length={length}")
        return cls._make(ndarray, offset, size)

    @classmethod
    def _make(cls, ndarray: Ndarray, offset: int, size: int) -> BufferView:
        made = super().__new__(cls, ndarray.dtype_name, ndarray.element_shape, (size,), False, ndarray, offset)
        made._setup(None)
        made.offset = offset
        made._whole = ndarray._whole if isinstance(ndarray, BufferView) else ndarray
        return made

    _whole: Ndarray

    def get_ndarray(self) -> Ndarray:
        """The ndarray that the view refers to."""
        return self._whole

    @property
    def arr(self) -> Ndarray:
        """The ndarray that the view refers to."""
        return self._whole

    offset: int
    """Index of the first element in the ndarray."""

    @property
    def size(self) -> int:  # type: ignore[override]
        """Number of elements."""
        return self.shape[0]

    def subview(self, offset: int, size: int) -> BufferView:
        """A view of `size` elements of this view, starting at `offset`."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise ValueError(f"subview out of range: offset={offset}, size={size}, parent size={self.size}")
        made = self._make(self, offset, size)
        made.offset += self.offset
        return made

    def __getitem__(self, key: slice) -> BufferView:
        if not isinstance(key, slice):
            raise TypeError(
                f"BufferView host-side indexing requires a slice, got {type(key).__name__}: "
                "use to_numpy() to read elements"
            )
        return self.subview(*_offset_and_size(key, self.size))

    def __iter__(self) -> Iterator[Any]:
        if runs_as_python():
            return iter(self.to_numpy(copy=None))
        raise TypeError("BufferView host-side indexing requires a slice: in Python, loop over to_numpy()")

    def __class_getitem__(cls, dtype: Any) -> BufferViewType:
        return BufferViewType(dtype)

    def __repr__(self) -> str:
        return f"<qd.BufferView offset={self.offset} size={self.size}>"


def view_of_slice(whole: Ndarray, key: slice) -> BufferView:
    """The view that `whole[key]` returns."""
    if len(whole.shape) != 1:
        raise TypeError(f"ndarray slice to BufferView requires a 1D array, got shape {whole.shape}")
    return BufferView(whole, *_offset_and_size(key, whole.shape[0]))


factories.view_of_slice = view_of_slice


def _offset_and_size(key: slice, length: int) -> tuple[int, int]:
    start, stop, step = key.indices(length)
    if step != 1:
        raise ValueError(f"BufferView slice requires step=1, got step={step}")
    return start, max(stop - start, 0)
