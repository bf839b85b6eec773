"""Cache statistics of a compilation, as attributes of the kernel."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CacheObservations", "FastcacheObservations"]


@dataclass
class FastcacheObservations:
    """What the cache on disk contributed to the last compilation of a kernel with `fastcache=True`. Available as
    `kernel._primal.src_ll_cache_observations`.
    """

    cache_key_generated: bool = False
    """The entry was looked up."""
    cache_validated: bool = False
    """The entry was found, and nothing it depends on has changed."""
    cache_loaded: bool = False
    """The code was loaded from the entry."""
    cache_stored: bool = False
    """The kernel was compiled and stored."""


@dataclass
class CacheObservations:
    """What the cache on disk contributed to the last compilation of a kernel without `fastcache=True`. Available as
    `kernel._primal.fe_ll_cache_observations`.
    """

    cache_hit: bool = False
    """The machine code was found in the cache."""
