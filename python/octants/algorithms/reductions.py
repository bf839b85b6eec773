"""Reductions of an array to one value.

The order of combination depends only on the number of elements and the kind of machine: the same input gives the same
bits in each run.
"""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from typing import Any

from octants._language.kernel_decorators import func
from octants._language.ops import cast, loop_config, min, static
from octants.algorithms.element_types import identity
from octants.algorithms.scan_in_chunks import sum_chunks
from octants.algorithms.scans import OPERATORS, check, element
from octants.algorithms.scratch_words import save, saved
from octants.algorithms.tile_shapes import BLOCK, CHUNKS, REDUCTION_BLOCKS, items_of, runs_in_blocks
from octants.simt import block
from octants.types import i32, i64, template
from octants.types.values import Vector


@func
def _sum_tiles(
    source: template(), load: template(), n, first_tile: Any, dtype: template(), op: template(), identity
) -> Any:
    """The thread's partial result over every `REDUCTION_BLOCKS`-th tile, starting with tile `first`."""
    items = static(items_of(dtype))
    sums = Vector.zero(dtype, static(items))
    for k in static(range(items)):
        sums[k] = identity
    tile = first_tile
    tiles = cast((n + static(BLOCK * items - 1)) // static(BLOCK * items), i32)
    while tile < tiles:
        begin = cast(tile, i64) * static(BLOCK * items)
        left = cast(min(cast(n, i64) - begin, i64(static(BLOCK * items))), i32)
        at = begin + cast(block.thread_idx(), i64)
        if left == static(BLOCK * items):
            for k in static(range(items)):
                sums[k] = op(sums[k], load(source, at + static(k * BLOCK)))
        else:
            for k in static(range(items)):
                if static(k * BLOCK) < left - block.thread_idx():
                    sums[k] = op(sums[k], load(source, at + static(k * BLOCK)))
        tile += static(REDUCTION_BLOCKS)
    total = sums[0]
    for k in static(range(1, items)):
        total = op(total, sums[k])
    return total


@func(requires_top_level=True)
def reduce_in_blocks(
    source: template(),
    load: template(),
    out: template(),
    scratch: template(),
    n,
    dtype: template(),
    op: template(),
    identity,
) -> None:
    """Reduces to `out[0]`: a fixed number of blocks reduce strided tiles, then one block reduces their results."""
    loop_config(block_dim=static(BLOCK))
    for i in range(static(REDUCTION_BLOCKS * BLOCK)):
        total = _sum_tiles(source, load, n, i // static(BLOCK), dtype, op, identity)
        total = block.reduce(total, static(BLOCK), op, dtype)
        if block.thread_idx() == 0:
            save(scratch, i // static(BLOCK), total, dtype)
    loop_config(block_dim=static(BLOCK))
    for i in range(static(BLOCK)):
        total = saved(scratch, i, dtype)
        for k in static(range(1, REDUCTION_BLOCKS // BLOCK)):
            total = op(total, saved(scratch, i + static(k * BLOCK), dtype))
        total = block.reduce(total, static(BLOCK), op, dtype)
        if i == 0:
            out[0] = total


@func(requires_top_level=True)
def reduce_in_chunks(
    source: template(),
    load: template(),
    out: template(),
    scratch: template(),
    n,
    dtype: template(),
    op: template(),
    identity,
) -> None:
    """Reduces to `out[0]`: first each chunk, in parallel, then the results of the chunks."""
    sum_chunks(source, load, scratch, n, dtype, op, identity)
    for _ in range(1):
        total = dtype(identity)
        for chunk in range(static(CHUNKS)):
            total = op(total, saved(scratch, chunk, dtype))
        out[0] = total


@func(requires_top_level=True)
def _reduce(
    arr: template(), out: template(), scratch: template(), n, dtype: template(), op: template(), identity
) -> None:
    if static(runs_in_blocks()):
        reduce_in_blocks((arr,), element, out, scratch, n, dtype, op, identity)
    else:
        reduce_in_chunks((arr,), element, out, scratch, n, dtype, op, identity)


def _reduce_by(name: str) -> Any:
    @func(requires_top_level=True)
    def reduce_by(
        arr: template(), out: template(), scratch: template(), n, dtype: template(), log256_max_n: template()
    ) -> None:
        static(check(dtype, log256_max_n))
        neutral = dtype(static(identity(name, dtype)))
        _reduce(arr, out, scratch, n, dtype, static(OPERATORS[name]), neutral)

    reduce_by.__name__ = reduce_by.__qualname__ = f"reduce_{name}"
    reduce_by.__doc__ = f"""Sets `out[0]` to the `{name}` reduction of `arr[0:n]`; to the identity for `n == 0`.

    `scratch` has `reduce_scratch_slots(n, log256_max_n)` words, u32 or u64, at least as wide as `dtype`.
    Raises `NotImplementedError` unless `dtype` is a number of 8 to 64 bits, and `TypeError` for a bitwise operator on
    floats, when the kernel is compiled.
    """
    return reduce_by


reduce_add = _reduce_by("add")
reduce_mul = _reduce_by("mul")
reduce_min = _reduce_by("min")
reduce_max = _reduce_by("max")
reduce_and = _reduce_by("and")
reduce_or = _reduce_by("or")
reduce_xor = _reduce_by("xor")


@func(requires_top_level=True)
def reduce(
    arr: template(),
    out: template(),
    scratch: template(),
    n,
    dtype: template(),
    op: template(),
    identity,
    log256_max_n: template(),
) -> None:
    """Reduces `arr[0:n]` to `out[0]` by `op`, an associative and commutative `@qd.func` of two values with an
    `identity`.

    Other arguments and errors: see `reduce_add`.
    """
    static(check(dtype, log256_max_n))
    _reduce(arr, out, scratch, n, dtype, op, dtype(identity))
