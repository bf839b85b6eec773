"""Scans of a subgroup: each thread gets the result of the values of the threads up to itself (`inclusive_*`) or before
itself (`exclusive_*`; the first thread gets the identity).

Functions whose names end in `_tiled` scan each tile of `2**log2_size` consecutive threads separately.
"""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from typing import Any

from octants._language.kernel_decorators import func
from octants._language.ops import max, min, one, static, zero
from octants.simt.identities import add, bit_and, bit_or, bit_xor, largest, multiply, smallest
from octants.simt.lanes import check_tile, invocation_id, log2_group_size, shuffle_up
from octants.types import template

__all__ = [
    "exclusive_add",
    "exclusive_add_tiled",
    "exclusive_and",
    "exclusive_and_tiled",
    "exclusive_max",
    "exclusive_max_tiled",
    "exclusive_min",
    "exclusive_min_tiled",
    "exclusive_mul",
    "exclusive_mul_tiled",
    "exclusive_or",
    "exclusive_or_tiled",
    "exclusive_xor",
    "exclusive_xor_tiled",
    "inclusive_add",
    "inclusive_add_tiled",
    "inclusive_and",
    "inclusive_and_tiled",
    "inclusive_max",
    "inclusive_max_tiled",
    "inclusive_min",
    "inclusive_min_tiled",
    "inclusive_mul",
    "inclusive_mul_tiled",
    "inclusive_or",
    "inclusive_or_tiled",
    "inclusive_xor",
    "inclusive_xor_tiled",
]


@func
def _inclusive_tiled(value: Any, op: template(), log2_size: template()) -> Any:
    check_tile(log2_size)
    lane = invocation_id() & static((1 << log2_size) - 1)
    result = value
    for k in static(range(log2_size)):
        other = shuffle_up(result, static(1 << k))
        if lane >= static(1 << k):
            result = op(other, result)
    return result


@func
def _exclusive_tiled(value: Any, op: template(), identity: Any, log2_size: template()) -> Any:
    result = shuffle_up(_inclusive_tiled(value, op, log2_size), 1)
    if invocation_id() & static((1 << log2_size) - 1) == 0:
        result = identity
    return result


@func
def inclusive_add_tiled(value: Any, log2_size: template()) -> Any:
    """The sum of the tile's threads up to this one."""
    return _inclusive_tiled(value, add, log2_size)


@func
def inclusive_add(value: Any) -> Any:
    """The sum of the subgroup's threads up to this one."""
    return inclusive_add_tiled(value, log2_group_size())


@func
def inclusive_mul_tiled(value: Any, log2_size: template()) -> Any:
    """The product of the tile's threads up to this one."""
    return _inclusive_tiled(value, multiply, log2_size)


@func
def inclusive_mul(value: Any) -> Any:
    """The product of the subgroup's threads up to this one."""
    return inclusive_mul_tiled(value, log2_group_size())


@func
def inclusive_min_tiled(value: Any, log2_size: template()) -> Any:
    """The smallest value of the tile's threads up to this one."""
    return _inclusive_tiled(value, min, log2_size)


@func
def inclusive_min(value: Any) -> Any:
    """The smallest value of the subgroup's threads up to this one."""
    return inclusive_min_tiled(value, log2_group_size())


@func
def inclusive_max_tiled(value: Any, log2_size: template()) -> Any:
    """The largest value of the tile's threads up to this one."""
    return _inclusive_tiled(value, max, log2_size)


@func
def inclusive_max(value: Any) -> Any:
    """The largest value of the subgroup's threads up to this one."""
    return inclusive_max_tiled(value, log2_group_size())


@func
def inclusive_and_tiled(value: Any, log2_size: template()) -> Any:
    """The common bits of the tile's threads up to this one."""
    return _inclusive_tiled(value, bit_and, log2_size)


@func
def inclusive_and(value: Any) -> Any:
    """The common bits of the subgroup's threads up to this one."""
    return inclusive_and_tiled(value, log2_group_size())


@func
def inclusive_or_tiled(value: Any, log2_size: template()) -> Any:
    """The merged bits of the tile's threads up to this one."""
    return _inclusive_tiled(value, bit_or, log2_size)


@func
def inclusive_or(value: Any) -> Any:
    """The merged bits of the subgroup's threads up to this one."""
    return inclusive_or_tiled(value, log2_group_size())


@func
def inclusive_xor_tiled(value: Any, log2_size: template()) -> Any:
    """The sum of bits without carries of the tile's threads up to this one."""
    return _inclusive_tiled(value, bit_xor, log2_size)


@func
def inclusive_xor(value: Any) -> Any:
    """The sum of bits without carries of the subgroup's threads up to this one."""
    return inclusive_xor_tiled(value, log2_group_size())


@func
def exclusive_add_tiled(value: Any, log2_size: template()) -> Any:
    """The sum of the tile's threads before this one."""
    return _exclusive_tiled(value, add, zero(value), log2_size)


@func
def exclusive_add(value: Any) -> Any:
    """The sum of the subgroup's threads before this one."""
    return exclusive_add_tiled(value, log2_group_size())


@func
def exclusive_mul_tiled(value: Any, log2_size: template()) -> Any:
    """The product of the tile's threads before this one."""
    return _exclusive_tiled(value, multiply, one(value), log2_size)


@func
def exclusive_mul(value: Any) -> Any:
    """The product of the subgroup's threads before this one."""
    return exclusive_mul_tiled(value, log2_group_size())


@func
def exclusive_min_tiled(value: Any, log2_size: template()) -> Any:
    """The smallest value of the tile's threads before this one."""
    return _exclusive_tiled(value, min, largest(value), log2_size)


@func
def exclusive_min(value: Any) -> Any:
    """The smallest value of the subgroup's threads before this one."""
    return exclusive_min_tiled(value, log2_group_size())


@func
def exclusive_max_tiled(value: Any, log2_size: template()) -> Any:
    """The largest value of the tile's threads before this one."""
    return _exclusive_tiled(value, max, smallest(value), log2_size)


@func
def exclusive_max(value: Any) -> Any:
    """The largest value of the subgroup's threads before this one."""
    return exclusive_max_tiled(value, log2_group_size())


@func
def exclusive_and_tiled(value: Any, log2_size: template()) -> Any:
    """The common bits of the tile's threads before this one."""
    return _exclusive_tiled(value, bit_and, ~zero(value), log2_size)


@func
def exclusive_and(value: Any) -> Any:
    """The common bits of the subgroup's threads before this one."""
    return exclusive_and_tiled(value, log2_group_size())


@func
def exclusive_or_tiled(value: Any, log2_size: template()) -> Any:
    """The merged bits of the tile's threads before this one."""
    return _exclusive_tiled(value, bit_or, zero(value), log2_size)


@func
def exclusive_or(value: Any) -> Any:
    """The merged bits of the subgroup's threads before this one."""
    return exclusive_or_tiled(value, log2_group_size())


@func
def exclusive_xor_tiled(value: Any, log2_size: template()) -> Any:
    """The sum of bits without carries of the tile's threads before this one."""
    return _exclusive_tiled(value, bit_xor, zero(value), log2_size)


@func
def exclusive_xor(value: Any) -> Any:
    """The sum of bits without carries of the subgroup's threads before this one."""
    return exclusive_xor_tiled(value, log2_group_size())
