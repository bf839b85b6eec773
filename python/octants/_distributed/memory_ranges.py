"""Ranges of memory that ranks exchange, with numpy and torch views."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from octants import _octants
from octants.types.primitive import BY_NUMPY

__all__ = ["MemoryRange", "is_on_host", "range_of_buffer", "range_of_numpy"]


@dataclass(frozen=True)
class MemoryRange:
    """Contiguous elements of one type."""

    address: int
    count: int
    dtype: np.dtype[Any]
    on_host: bool
    keeps: Any = None
    """Keeps the memory alive."""
    place: tuple[_octants.Buffer, int] | None = None
    """Buffer and byte offset, with which kernels access memory that is not the host's."""
    views: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The range as objects of other libraries, cached because they take time to create."""

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return self.count * self.dtype.itemsize

    def numpy(self) -> np.ndarray[Any, Any]:
        """A numpy view of the elements in host memory."""
        if "numpy" not in self.views:
            memory = (ctypes.c_char * self.nbytes).from_address(self.address)
            self.views["numpy"] = np.frombuffer(memoryview(memory), dtype=self.dtype)
        elements: np.ndarray[Any, Any] = self.views["numpy"]
        return elements

    def elements(self) -> _octants.ElementView:
        """The elements as a kernel argument."""
        assert self.place is not None
        if "elements" not in self.views:
            buffer, offset = self.place
            strides = [self.dtype.itemsize]
            view = _octants.ElementView(buffer, BY_NUMPY[self.dtype].name, offset, [self.count], strides)
            self.views["elements"] = view
        elements: _octants.ElementView = self.views["elements"]
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


def range_of_buffer(
    buffer: _octants.Buffer, offset: int, count: int, dtype: np.dtype[Any], keeps: Any = None
) -> MemoryRange:
    """Elements in a buffer of the program, starting at a byte offset."""
    return MemoryRange(buffer.ptr + offset, count, dtype, is_on_host(buffer), keeps, (buffer, offset))


def is_on_host(buffer: _octants.Buffer) -> bool:
    """Whether the host reads and writes a buffer by its address."""
    return buffer.host_addressable
