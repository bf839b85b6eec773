"""Ranks of the keys of a block by one digit: a step of a radix sort."""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from typing import Any

from octants._language.kernel_decorators import func
from octants._language.ops import cast, popcnt, static, static_assert
from octants.simt.block_folds import exclusive_add
from octants.simt.block_threads import SharedArray, sync, thread_idx
from octants.simt.lanes import group_size, invocation_id
from octants.simt.votes import ballot
from octants.types import i32, template, u32, u64

__all__ = ["radix_rank_match_atomic_or"]


@func
def _count(mask: Any) -> Any:
    return cast(popcnt(mask), i32)


@func
def radix_rank_match_atomic_or(
    key: Any,
    block_dim: template(),
    radix_bits: template(),
    bit_start: template(),
    num_bits: template(),
    bins: template(),
    excl_prefix: template(),
) -> Any:
    """The position of the thread's key, u32, in the block's keys, stably sorted by the digit of `num_bits` bits from
    `bit_start`.

    The block has `1 << radix_bits` threads. `bins` and `excl_prefix` are shared i32 arrays of the same length: on
    return, the number of keys with each digit, and its exclusive prefix sum. Both may be read right after the call.
    """
    static_assert(block_dim == 1 << radix_bits, "the block needs one thread per digit: block_dim == 1 << radix_bits")
    static_assert(num_bits <= radix_bits, "num_bits must be at most radix_bits")
    groups = static(block_dim // group_size())
    # For each subgroup how many of its keys have a digit; then how many keys of the subgroups before have it.
    counts = SharedArray((static(block_dim // group_size()), block_dim), i32)
    thread = thread_idx()
    group = thread // group_size()
    digit = cast((cast(key, u32) >> u32(bit_start)) & u32(static((1 << num_bits) - 1)), i32)
    for k in range(groups):
        counts[k, thread] = 0
    sync()
    # The threads of the subgroup with the same digit.
    same = ~u64(0)
    for bit in static(range(num_bits)):
        is_set = (digit >> bit) & 1
        votes = ballot(is_set)
        if is_set == 0:
            votes = ~votes
        same = same & votes
    same = same & ballot(1)
    before = _count(same & ((u64(1) << cast(invocation_id(), u64)) - u64(1)))
    if before == 0:
        counts[group, digit] = _count(same)
    sync()
    total = 0
    for k in range(groups):
        count = counts[k, thread]
        counts[k, thread] = total
        total = total + count
    smaller = exclusive_add(total, block_dim, i32)
    bins[thread] = total
    excl_prefix[thread] = smaller
    sync()
    rank = excl_prefix[digit] + counts[group, digit] + before
    sync()
    return rank
