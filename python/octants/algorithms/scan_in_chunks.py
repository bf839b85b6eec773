"""A scan on a CPU: the sum of each chunk in parallel, then a short serial scan of these sums, then a parallel scan of
each chunk that starts from the sum before it."""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from typing import Any

from octants._language.kernel_decorators import func
from octants._language.ops import cast, min, static
from octants.algorithms.element_types import is_pair
from octants.algorithms.scratch_words import save, saved
from octants.algorithms.tile_shapes import CHUNKS
from octants.types import i64, template

__all__ = ["begin_of_chunk", "scan_in_chunks", "sum_chunks"]


@func
def begin_of_chunk(chunk: Any, n) -> Any:
    """Index of the first element of a chunk of `n` elements, i64."""
    length = (cast(n, i64) + static(CHUNKS - 1)) // static(CHUNKS)
    return min(chunk * length, cast(n, i64))


@func
def _as(identity, dtype: template()) -> Any:
    """The identity as a mutable value of its type."""
    if static(is_pair(dtype)):
        return identity
    else:
        return dtype(identity)


@func(requires_top_level=True)
def sum_chunks(
    source: template(),
    load: template(),
    scratch: template(),
    n,
    dtype: template(),
    op: template(),
    identity,
) -> None:
    """Writes the reduction of each chunk to scratch memory."""
    for chunk in range(static(CHUNKS)):
        total = _as(identity, dtype)
        for i in range(begin_of_chunk(chunk, n), begin_of_chunk(chunk + 1, n)):
            total = op(total, load(source, i))
        save(scratch, chunk, total, dtype)


@func(requires_top_level=True)
def scan_in_chunks(
    source: template(),
    load: template(),
    sink: template(),
    store: template(),
    scratch: template(),
    n,
    dtype: template(),
    op: template(),
    identity,
    inclusive: template(),
) -> None:
    """Calls `store(sink, i, result, value)` for each `i` below `n`. `value` is `load(source, i)`, of `dtype`. `result`
    is the reduction by `op` of the values up to it (`inclusive`) or before it.
    """
    sum_chunks(source, load, scratch, n, dtype, op, identity)
    for _ in range(1):
        total = _as(identity, dtype)
        for chunk in range(static(CHUNKS)):
            following = op(total, saved(scratch, chunk, dtype))
            save(scratch, chunk, total, dtype)
            total = following
    for chunk in range(static(CHUNKS)):
        total = saved(scratch, chunk, dtype)
        for i in range(begin_of_chunk(chunk, n), begin_of_chunk(chunk + 1, n)):
            value = load(source, i)
            following = op(total, value)
            if static(inclusive):
                store(sink, i, following, value)
            else:
                store(sink, i, total, value)
            total = following
