"""Ranges of memory that ranks exchange, as numpy and torch see them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["MemoryRange", "add_on_host", "range_of_numpy"]


@dataclass(frozen=True)
class MemoryRange:
    """Elements of one type, one after the other."""

    address: int
    count: int
    dtype: np.dtype[Any]
    on_host: bool
    keeps: Any = None
    """What owns the memory."""
    views: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The range as objects of other libraries, which take time to make."""

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return self.count * self.dtype.itemsize

    def numpy(self) -> np.ndarray[Any, Any]:
        """The elements in the host's memory, without a copy."""
        if "numpy" not in self.views:
            memory = (ctypes.c_char * self.nbytes).from_address(self.address)
            self.views["numpy"] = np.frombuffer(memoryview(memory), dtype=self.dtype)
        elements: np.ndarray[Any, Any] = self.views["numpy"]
        return elements

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": (self.count,),
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "version": 3,
        }


def range_of_numpy(array: np.ndarray[Any, Any]) -> MemoryRange:
    """The elements of a contiguous array."""
    assert array.flags.c_contiguous
    return MemoryRange(array.ctypes.data, array.size, array.dtype, True, array)


def add_on_host(memory: MemoryRange, values: MemoryRange) -> None:
    """Adds elements in the host's memory. Integers wrap around, as those of kernels do."""
    sums = memory.numpy()
    np.add(sums, values.numpy(), out=sums)
