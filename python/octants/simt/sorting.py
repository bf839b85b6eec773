"""A sort within a subgroup: of key-value pairs, one pair per thread."""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from typing import Any

from octants._language.kernel_decorators import func
from octants._language.ops import static
from octants.simt.lanes import check_tile, invocation_id, log2_group_size, shuffle_xor
from octants.types import template

__all__ = ["bitonic_sort_kv", "bitonic_sort_kv_tiled"]


@func
def bitonic_sort_kv_tiled(key: Any, value: Any, log2_size: template()) -> Any:
    """Sorts the tile's pairs by key, then by value, in ascending order; returns the pair at this thread's position."""
    check_tile(log2_size)
    lane = invocation_id() & static((1 << log2_size) - 1)
    own_key = key
    own_value = value
    for stage in static(range(log2_size)):
        for step in static(range(stage + 1)):
            distance = static(1 << (stage - step))
            other_key = shuffle_xor(own_key, distance)
            other_value = shuffle_xor(own_value, distance)
            other_is_less = other_key < own_key or (other_key == own_key and other_value < own_value)
            own_is_less = own_key < other_key or (own_key == other_key and own_value < other_value)
            keeps_less = ((lane & distance) == 0) == ((lane & static(2 << stage)) == 0)
            takes = own_is_less
            if keeps_less:
                takes = other_is_less
            if takes:
                own_key = other_key
                own_value = other_value
    return own_key, own_value


@func
def bitonic_sort_kv(key: Any, value: Any) -> Any:
    """Sorts the subgroup's pairs by key, then by value, in ascending order; returns the pair at this thread's
    position.
    """
    sorted_key, sorted_value = bitonic_sort_kv_tiled(key, value, log2_group_size())
    return sorted_key, sorted_value
