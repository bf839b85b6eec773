"""Histograms: how many elements fall into each of some ranges of equal width."""

# mypy: ignore-errors
# Kernels are Python in form only: their annotations are values, and they assign to what no Python type describes.

from __future__ import annotations

from octants.kernel_decorators import func
from octants.ops import cast, min
from octants.types import f64, i32, template

__all__ = ["histogram"]


@func(requires_top_level=True)
def histogram(arr: template(), counts: template(), n, lower, upper) -> None:
    """Counts the elements of `arr[0:n]` in each of `counts.shape[0]` ranges of equal width from `lower` to `upper`.

    An element at the end of a range belongs to the next one, at `upper` to the last one; elements outside and NaNs are
    left out. Ranges are found in f64. `counts` is an array of integers, which is set to zero first.
    """
    for k in range(counts.shape[0]):
        counts[k] = 0
    for i in range(n):
        value = cast(arr[i], f64)
        if value >= lower and value <= upper:
            place = (value - lower) * (counts.shape[0] / (cast(upper, f64) - lower))
            counts[min(cast(place, i32), counts.shape[0] - 1)] += 1
