"""The number of words of scratch memory that each algorithm needs. The functions work in Python and in kernels."""

from __future__ import annotations

from octants.algorithms.scan_in_tiles import scan_words
from octants.algorithms.sort_in_tiles import sort_words
from octants.algorithms.tile_shapes import CHUNKS, DIGITS, REDUCTION_BLOCKS, check_capacity


def reduce_scratch_slots(n: int, log256_max_n: int | None = None) -> int:
    """Scratch slots for a reduction of `n` elements. Raises `ValueError` for a capacity above 4."""
    check_capacity(log256_max_n)
    return REDUCTION_BLOCKS


def exclusive_scan_scratch_slots(n: int, log256_max_n: int | None = None) -> int:
    """Scratch slots for an inclusive or exclusive scan of `n` elements; enough for a reduction too.

    Raises `ValueError` for a capacity above 4.
    """
    check_capacity(log256_max_n)
    return scan_words(n, 2) + REDUCTION_BLOCKS


def select_scratch_slots(n: int) -> int:
    """Scratch slots for `select` or `unique` with `n` elements."""
    return exclusive_scan_scratch_slots(n)


def reduce_by_key_scratch_slots(n: int) -> int:
    """Scratch slots for `reduce_by_key_add` or `run_length_encode` with `n` elements."""
    return scan_words(n, 16) + 4 * CHUNKS


def sort_scratch_slots(n: int, log256_max_n: int | None = None) -> int:
    """Scratch slots for `sort` with `n` elements. Raises `ValueError` for a capacity above 4."""
    check_capacity(log256_max_n)
    return sort_words(n) + CHUNKS * DIGITS
