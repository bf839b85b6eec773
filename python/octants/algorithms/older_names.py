"""Two older algorithms called from Python, which forward to `launch.sort` and `launch.inclusive_scan`."""

from __future__ import annotations

import warnings
from typing import Any

from octants.algorithms import launch
from octants.types import i32

__all__ = ["PrefixSumExecutor", "parallel_sort"]


def parallel_sort(keys: Any, values: Any = None) -> None:
    """Sorts a one-dimensional field in ascending order, in place, and `values` along with it. Prefer `launch.sort`."""
    warnings.warn(
        "parallel_sort is deprecated: use `qd.algorithms.launch.sort`, or `qd.algorithms.sort` in a kernel",
        DeprecationWarning,
        stacklevel=2,
    )
    launch.sort(keys, values)


class PrefixSumExecutor:
    """Inclusive prefix sums of i32 arrays of one length, in place. Prefer `launch.inclusive_scan`."""

    def __init__(self, length: int) -> None:
        warnings.warn(
            "PrefixSumExecutor is deprecated: use `qd.algorithms.launch.inclusive_scan`, or in a kernel "
            "`qd.algorithms.inclusive_scan_add` or `exclusive_scan_add`",
            DeprecationWarning,
            stacklevel=2,
        )
        self.sorting_length = length

    def run(self, input_arr: Any) -> None:
        """Computes the inclusive prefix sum in place. Raises `RuntimeError` for other element types."""
        if input_arr.dtype != i32:
            raise RuntimeError("Only qd.i32 type is supported for prefix sum.")
        launch.inclusive_scan(input_arr, input_arr, n=self.sorting_length)
