"""Argument handling of the calls: arrays and their lengths, the number of elements, the stream."""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from typing import Any

import numpy as np

from octants._language.kernel_decorators import func
from octants._language.ops import cast, min, static
from octants.types import i64, template
from octants.types import ndarray as array_type
from octants.types.primitive import BY_NAME, DataType

__all__ = [
    "ANY_CAPACITY",
    "MOST_INDEXED",
    "Array",
    "check_length",
    "count_of",
    "counted",
    "dtype_of",
    "indexed_length",
    "length_of",
    "on",
]

Array = array_type()
"""The annotation of arrays of any type."""

ANY_CAPACITY = 4
"""The capacity passed to functions. With 64-bit scratch memory, larger arrays work too."""

MOST_INDEXED = 1 << 32
"""Arrays with at least this many elements need indices wider than 32 bits."""


def length_of(name: str, arr: Any) -> int:
    """The length of a one-dimensional array.

    Raises `ValueError` for another shape, and `TypeError` for another object.
    """
    if not hasattr(arr, "shape"):
        raise TypeError(f"`{name}` must be a field, an ndarray or an array of another library, not {type(arr)}")
    if len(arr.shape) != 1:
        raise ValueError(f"`{name}` must be one-dimensional, but has shape {tuple(arr.shape)}")
    return int(arr.shape[0])


def check_length(name: str, arr: Any, needed: int) -> None:
    """Raises `ValueError` if an array has fewer elements than a kernel may access. Other errors: see `length_of`."""
    length = length_of(name, arr)
    if length < needed:
        raise ValueError(f"`{name}` has {length} elements, but {needed} are needed")


def counted(arr: Any, n: Any, capacity: int) -> tuple[Any, int, bool]:
    """The kernel arguments for the number of elements: an array, a number, and whether the array holds the number.

    Outputs need that many elements; if the array holds the number, it is at most `n`.
    """
    if n is None:
        return arr, capacity, False
    if not isinstance(n, (int, np.integer)):
        check_length("n", n, 1)
        return n, capacity, True
    if not 0 <= n <= capacity:
        raise ValueError(f"`n` must be from 0 to {capacity}, the length of the array, not {n}")
    return arr, int(n), False


def on(stream: Any) -> dict[str, Any]:
    """The keyword argument for the stream of a launch, if a stream was given."""
    return {} if stream is None else {"qd_stream": stream}


def dtype_of(arr: Any) -> DataType:
    """The element type of an array. Arrays of other libraries have a numpy name for it."""
    if getattr(arr, "element_shape", ()) or getattr(arr, "_element_shape", ()):
        raise NotImplementedError("the algorithms do not support elements that are vectors or matrices")
    if isinstance(arr.dtype, DataType):
        return arr.dtype
    named = np.dtype(str(arr.dtype).rpartition(".")[2])
    for dtype in BY_NAME.values():
        if dtype.numpy == named:
            return dtype
    raise NotImplementedError(f"the algorithms do not support elements of type {arr.dtype}")


@func
def count_of(counts: template(), n: Any, on_device: template()) -> Any:
    """The number of elements to process: at most `n`, or with `on_device` the value in the array."""
    result = cast(n, i64)
    if static(on_device):
        result = min(cast(counts[0], i64), result)
    return result


def indexed_length(name: str, arr: Any) -> int:
    """The length of an array that is indexed with 32 bits. Raises `ValueError` for a longer one."""
    length = length_of(name, arr)
    if length >= MOST_INDEXED:
        raise ValueError(f"`{name}` has {length} elements: this algorithm supports fewer than 2**32")
    return length
