"""Fields whose elements are in another order in memory: reordered attributes of meshes.

Python and kernels index them by the elements' numbers. A permutation maps numbers to positions in memory.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from octants._arrays import interchange, shadow_buffers
from octants._fields.fields import MatrixField, ScalarField, TensorField
from octants._language.python_scope import only_in_python

__all__ = ["ReorderedMatrixField", "ReorderedScalarField", "reordered"]


class _Reordered(TensorField):
    """Base class of reordered fields."""

    _octants_entity = "reordered_field"
    _NO_VIEW = "no array can describe the memory of a reordered attribute: use to_numpy()"

    _stored: TensorField
    """The field in the order of memory."""
    _positions: ScalarField
    """For each index, the element of that field; read by kernels."""
    _order: np.ndarray[Any, Any]
    """The same numbers for Python."""

    def _index(self, memory: Any, key: Any) -> tuple[int, ...]:
        (index,) = super()._index(memory, key)
        return (int(self._order[index]),)

    def _export(self, dtype: Any, copy: bool | None, element_shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError(f"copy=False: {self._NO_VIEW}")
        return super()._export(dtype, True, element_shape)[self._order]

    def _write(self, arr: np.ndarray[Any, Any], qd_stream: Any) -> None:
        stored = np.empty_like(arr)
        stored[self._order] = arr
        super()._write(stored, qd_stream)

    @only_in_python
    def to_torch(self, device: Any = None, *, copy: bool | None = True) -> Any:
        """All elements as a torch tensor on `device` (the CPU by default)."""
        return interchange.to_torch(self.to_numpy(copy=copy), device, copy)

    @only_in_python
    def from_torch(self, arr: Any) -> None:
        """Sets all elements from a torch tensor."""
        self._import(interchange.from_torch(arr))
        if shadow_buffers.open_scopes:
            shadow_buffers.host_wrote(self)

    def __dlpack__(self, **kwargs: Any) -> NoReturn:
        raise BufferError(self._NO_VIEW)


class ReorderedScalarField(_Reordered, ScalarField):
    """A field of scalars stored in another order."""


class ReorderedMatrixField(_Reordered, MatrixField):
    """A field of vectors or matrices stored in another order."""

    @only_in_python
    def to_torch(self, device: Any = None, keep_dims: bool = False, *, copy: bool | None = True) -> Any:
        """All elements as a torch tensor on `device` (the CPU by default)."""
        return interchange.to_torch(self.to_numpy(keep_dims=keep_dims, copy=copy), device, copy)

    def get_scalar_field(self, *indices: int) -> ScalarField:
        """A scalar field of one component, in the memory of this field."""
        stored = self._stored
        assert isinstance(stored, MatrixField)
        component = stored.get_scalar_field(*indices)
        place = indices[0] * self.m + (indices[1] if len(indices) == 2 else 0)
        if place not in self._scalar_fields:
            self._scalar_fields[place] = reordered(component, self._positions, self._order)
        return self._scalar_fields[place]


def reordered(stored: TensorField, positions: ScalarField, order: np.ndarray[Any, Any]) -> Any:
    """A field over the memory of `stored` whose element `i` is element `order[i]` there, with gradient and dual.
    `positions` is `order` as a field, for kernels.
    """
    made: Any = object.__new__(ReorderedMatrixField if isinstance(stored, MatrixField) else ReorderedScalarField)
    made.__dict__.update(stored.__dict__)
    made._stored, made._positions, made._order = stored, positions, order
    if isinstance(stored, MatrixField):
        made._scalar_fields = {}
    for which in ("grad", "dual"):
        shadow_buffer = getattr(stored, which)
        setattr(made, which, None if shadow_buffer is None else reordered(shadow_buffer, positions, order))
    return made
