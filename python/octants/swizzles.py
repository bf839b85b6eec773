"""Swizzles: components of vectors by letters, as in `v.x` and `v.zyx`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

SWIZZLES = ("xyzw", "rgba", "stpq")


def swizzles() -> Iterator[tuple[str, tuple[int, ...]]]:
    """All swizzles of one to four components, such as `zyx`, with their component positions."""
    for letters in SWIZZLES:
        for count in range(1, 5):
            for name, places in zip(product(letters, repeat=count), product(range(4), repeat=count), strict=True):
                yield "".join(name), places
