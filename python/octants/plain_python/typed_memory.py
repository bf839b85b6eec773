"""Elements of fields and ndarrays that keep their type: `a[i] * 2.0` of an `f32` is an `f32`, as in kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from octants._arrays.host_memory import HostMemory
from octants._arrays.whole_arrays import flat_index
from octants.types.primitive import BY_NUMPY
from octants.types.values import Matrix


class TypedMemory(HostMemory):
    """Memory whose scalars are read as numpy scalars, not as Python's."""

    def get(self, index: tuple[int, ...]) -> Any:
        """One element: a numpy scalar, or a new array of `element_shape`."""
        return self.dtype.type(super().get(index)) if not self.element_shape else super().get(index)


class ArrayArgument:
    """A numpy array, or a CPU torch tensor as one, as an argument of a kernel. Its elements are those of the kernel
    language, which may be vectors or matrices in its last axes.
    """

    def __init__(self, values: np.ndarray[Any, Any], element_ndim: int) -> None:
        self.values = values
        self._axes = values.ndim - element_ndim
        self.shape = values.shape[: self._axes]

    def _place(self, key: Any) -> tuple[int, ...]:
        return tuple(flat_index(key, lambda item: f"array indices must be integers, got {item!r}"))

    def __getitem__(self, key: Any) -> Any:
        place = self._place(key)
        found = self.values[place]
        if not isinstance(found, np.ndarray):
            return found

        def write_back(component: Any, value: Any) -> None:
            self.values[place][component] = value

        return Matrix._around(np.array(found), BY_NUMPY[found.dtype], write_back)

    def __setitem__(self, key: Any, value: Any) -> None:
        entries = getattr(value, "entries", value)
        self.values[self._place(key)] = entries

    def __len__(self) -> int:
        return len(self.values)
