"""Swizzles: components of vectors by letters, as in `v.x` and `v.zyx`."""

from __future__ import annotations

SWIZZLES = ("xyzw", "rgba", "stpq")


def swizzle_places(name: str) -> tuple[int, ...] | None:
    """The component positions of a swizzle such as `zyx`; None if the name is not a swizzle."""
    if not 1 <= len(name) <= 4:
        return None
    for letters in SWIZZLES:
        places = tuple(letters.find(letter) for letter in name)
        if min(places) >= 0:
            return places
    return None
