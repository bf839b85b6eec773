"""How the disk cache took part in a compilation, as a kernel reports it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CacheObservations", "FastcacheObservations"]


@dataclass
class FastcacheObservations:
    """What the cache on disk contributed to the last compilation of a kernel with `fastcache=True`. Available as
    `kernel._primal.src_ll_cache_observations`.
    """

    cache_key_generated: bool = False
    """It was looked for."""
    cache_validated: bool = False
    """It was found, and all that it depends on is as it was."""
    cache_loaded: bool = False
    """Its code was taken from there."""
    cache_stored: bool = False
    """It was compiled, and stored."""


@dataclass
class CacheObservations:
    """What the cache on disk contributed to the last compilation of a kernel without `fastcache=True`. Available as
    `kernel._primal.fe_ll_cache_observations`.
    """

    cache_hit: bool = False
    """Its machine code was found there."""
