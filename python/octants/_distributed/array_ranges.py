"""The memory of fields, ndarrays and numpy arrays as ranges for communication."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from octants._arrays.ndarrays import Ndarray
from octants._distributed.memory_ranges import MemoryRange, range_of_buffer, range_of_numpy

__all__ = ["check_memory", "memory_of"]


def check_memory(array: Any) -> None:
    """Raises TypeError for an object that `memory_of` does not take."""
    if not isinstance(array, np.ndarray) and not (hasattr(array, "to_numpy") and hasattr(array, "from_numpy")):
        raise TypeError(f"expected a field, an ndarray or a numpy array, got {type(array).__name__}")


@contextmanager
def memory_of(array: Any, stream: Any, *, writes: bool) -> Iterator[MemoryRange]:
    """The elements of an array in one range, for work on a stream. A copy is written back at the end."""
    if isinstance(array, np.ndarray):
        dense = np.ascontiguousarray(array)
        yield range_of_numpy(dense)
        if writes and dense is not array:
            array[...] = dense
        return
    if isinstance(array, Ndarray) and array.layout is None:
        buffer = array.buffer
        count = int(np.prod((*array.shape, *array.element_shape), dtype=np.int64))
        memory = range_of_buffer(buffer, array._offset_in_memory, count, np.dtype(array.dtype.numpy), array)
        if memory.on_host:
            buffer.wait()
        else:
            stream._note_use(buffer)
        yield memory
        return
    check_memory(array)
    copy = np.ascontiguousarray(array.to_numpy())
    yield range_of_numpy(copy)
    if writes:
        array.from_numpy(copy)
