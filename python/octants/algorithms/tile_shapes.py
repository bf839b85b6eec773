"""The division of the input: into tiles for thread blocks, or into chunks where there are no thread blocks.

All machine-dependent sizes, and the choice between the two forms of each algorithm, are here.
"""

from __future__ import annotations

from typing import Any

from octants import _octants
from octants._program.runtime import current_config
from octants.algorithms.element_types import is_pair, width
from octants.architectures import arm64, x64
from octants.simt.lanes import group_size

CHUNKS = 64
"""Number of chunks of the input on a CPU: enough to keep its threads busy."""

BLOCK = 256
"""Threads per block of the other algorithms."""

SCAN_BLOCK = 128
"""Threads per block of a scan or a selection. Small blocks overlap the loads of one with the stores of another."""

REDUCTION_BLOCKS = 1024
"""Blocks of a reduction. The same on each device, so that floating-point sums are reproducible."""

GRID = 2048
"""Persistent blocks that take tiles in turn: at least as many as a GPU runs concurrently."""

SMALLEST_TILE = 2048
"""Elements of the smallest tile of a scan or a sort; scratch memory is sized for it."""

FAN_OUT = 32
"""Minimum subgroup size, and thus the minimum fan-out of the tree of sums."""

DIGIT_BITS = 8
DIGITS = 1 << DIGIT_BITS

_MOST_LEVELS = 4

# Bytes of shared memory per block, from which on several blocks with large tiles are resident at the same time.
_ROOM_FOR_BLOCKS = 96 << 10


def runs_in_blocks() -> bool:
    """Whether the algorithms use thread blocks with shared memory, instead of chunks of a parallel loop.

    Tiles need subgroups of at least 32 threads, which some Vulkan devices lack.
    """
    config = current_config()
    return config is not None and config.arch not in (x64, arm64) and group_size() >= FAN_OUT


def items_of_scan(dtype: Any) -> int:
    """Elements of `dtype` per thread in registers, for scans."""
    if is_pair(dtype):
        return 8
    return 20 if width(dtype) == 64 else 32


def adjacent_of_scan(dtype: Any) -> int:
    """Adjacent elements of `dtype` that a thread holds in a scan. The subgroup scans their sums, not each of them."""
    return 1 if width(dtype) == 64 else 4


def items_of_selection(dtype: Any) -> int:
    """Elements of `dtype` per thread in registers, for selections; at most 32, the bits of a mask."""
    return 16 if width(dtype) == 64 else 32


def items_of(dtype: Any) -> int:
    """Elements of `dtype` per thread in registers, for the other algorithms."""
    if is_pair(dtype):
        return 4
    return 8 if width(dtype) == 64 else 16


def items_of_pairs(key_dtype: Any, value_dtype: Any, has_values: bool) -> int:
    """Elements per thread for sorts. The keys and values of a tile are in shared memory.

    Larger tiles look back less often. They pay off while several blocks still fit.
    """
    items = min(items_of(key_dtype), items_of(value_dtype)) if has_values else items_of(key_dtype)
    return items * 7 // 4 if _octants.max_shared_bytes() >= _ROOM_FOR_BLOCKS else items


def check_capacity(log256_max_n: int | None) -> None:
    """Raises `ValueError` for a declared capacity that exceeds 32-bit indices."""
    if log256_max_n is not None and not 1 <= log256_max_n <= _MOST_LEVELS:
        raise ValueError(f"log256_max_n must be between 1 and {_MOST_LEVELS}, got {log256_max_n}")


def least_capacity(n: int) -> int:
    """The smallest `log256_max_n` that covers `n` elements; at least 1."""
    levels = 1
    while 256**levels < n:
        levels += 1
    return levels
