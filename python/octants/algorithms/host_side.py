"""The two algorithms that are called from Python: a sort in place and an inclusive scan in place."""

# mypy: ignore-errors
# Kernels are Python in form only: their annotations are values, and they assign to what no Python type describes.

import warnings
from typing import Any

from octants.algorithms.tile_shapes import CHUNKS
from octants.kernel_decorators import kernel
from octants.ops import min, static
from octants.types import i32, template


@kernel
def _exchange(
    keys: template(),
    values: template(),
    has_values: template(),
    first: i32,
    n: i32,
    distance: i32,
    bit: i32,
    wanted: i32,
):
    for i in range(n - distance):
        if (i & bit) == wanted:
            lower = first + i
            upper = lower + distance
            if keys[lower] > keys[upper]:
                key = keys[lower]
                keys[lower] = keys[upper]
                keys[upper] = key
                if static(has_values):
                    value = values[lower]
                    values[lower] = values[upper]
                    values[upper] = value


def _first_index(field: Any) -> int:
    offset = getattr(field, "_offset", None)
    return int(offset[0]) if offset else 0


def parallel_sort(keys: Any, values: Any = None) -> None:
    """Sorts a one-dimensional field ascending, in place, and `values` along with it: Batcher's odd-even merge exchange
    (Knuth, The Art of Computer Programming, volume 3, algorithm 5.2.2M). Equal keys may change their order.
    """
    warnings.warn(
        "parallel_sort is deprecated: `qd.algorithms.sort`, called in a kernel, is faster and stable",
        DeprecationWarning,
        stacklevel=2,
    )
    n = _counted(keys.shape[0])
    first = _first_index(keys)
    has_values = values is not None
    moved = values if has_values else keys
    top = 1
    while top * 2 < n:
        top *= 2
    bit = top if n > 1 else 0
    while bit > 0:
        distance, merged, wanted = bit, top, 0
        while True:
            _exchange(keys, moved, has_values, first, n, distance, bit, wanted)
            if merged == bit:
                break
            distance, merged, wanted = merged - bit, merged // 2, bit
        bit //= 2


@kernel
def _inclusive_scan(arr: template(), scratch: template(), first: i32, n: i32):
    for chunk in range(static(CHUNKS)):
        length = (n + static(CHUNKS - 1)) // static(CHUNKS)
        total = 0
        for i in range(chunk * length, min(n, (chunk + 1) * length)):
            total += arr[first + i]
        scratch[chunk] = total
    for _ in range(1):
        total = 0
        for chunk in range(static(CHUNKS)):
            count = scratch[chunk]
            scratch[chunk] = total
            total += count
    for chunk in range(static(CHUNKS)):
        length = (n + static(CHUNKS - 1)) // static(CHUNKS)
        total = scratch[chunk]
        for i in range(chunk * length, min(n, (chunk + 1) * length)):
            total += arr[first + i]
            arr[first + i] = total


def _counted(n: int) -> int:
    if n >= 2**31:
        raise ValueError(f"{n} elements are too many: the algorithms count with i32")
    return n


class PrefixSumExecutor:
    """The inclusive prefix sum of i32 fields of one length, in place."""

    def __init__(self, length: int) -> None:
        warnings.warn(
            "PrefixSumExecutor is deprecated: use `qd.algorithms.exclusive_scan_add` in a kernel",
            DeprecationWarning,
            stacklevel=2,
        )
        import octants

        self.sorting_length = _counted(length)
        self._scratch = octants.field(i32, shape=CHUNKS)

    def run(self, input_arr: Any) -> None:
        """Replaces each element by the sum of all up to and including it."""
        if input_arr.dtype != i32:
            raise RuntimeError("Only qd.i32 type is supported for prefix sum.")
        _inclusive_scan(input_arr, self._scratch, _first_index(input_arr), self.sorting_length)
