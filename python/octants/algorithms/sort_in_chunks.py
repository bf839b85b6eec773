"""One digit pass of a radix sort on a CPU: each chunk counts its digits, a serial scan computes the destination of
each digit of each chunk, and the chunks move their keys there in order."""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from octants._language.kernel_decorators import func
from octants._language.ops import static
from octants.algorithms.digits import digit_of
from octants.algorithms.scan_in_chunks import begin_of_chunk
from octants.algorithms.tile_shapes import CHUNKS, DIGITS
from octants.types import template

__all__ = ["sort_by_digit_in_chunks"]


@func(requires_top_level=True)
def sort_by_digit_in_chunks(
    source: template(),
    target: template(),
    source_values: template(),
    target_values: template(),
    scratch: template(),
    n,
    shift: template(),
    key_dtype: template(),
    has_values: template(),
    descending: template(),
) -> None:
    """Moves the keys to `target`, stably sorted by one digit."""
    for chunk in range(static(CHUNKS)):
        counts = chunk * static(DIGITS)
        for digit in range(static(DIGITS)):
            scratch[counts + digit] = static(scratch.dtype)(0)
        for i in range(begin_of_chunk(chunk, n), begin_of_chunk(chunk + 1, n)):
            slot = counts + digit_of(source[i], shift, key_dtype, descending)
            scratch[slot] = scratch[slot] + static(scratch.dtype)(1)
    for _ in range(1):
        total = static(scratch.dtype)(0)
        for digit in range(static(DIGITS)):
            for chunk in range(static(CHUNKS)):
                slot = chunk * static(DIGITS) + digit
                count = scratch[slot]
                scratch[slot] = total
                total += count
    for chunk in range(static(CHUNKS)):
        for i in range(begin_of_chunk(chunk, n), begin_of_chunk(chunk + 1, n)):
            key = source[i]
            slot = chunk * static(DIGITS) + digit_of(key, shift, key_dtype, descending)
            place = scratch[slot]
            scratch[slot] = place + static(scratch.dtype)(1)
            target[place] = key
            if static(has_values):
                target_values[place] = source_values[i]
