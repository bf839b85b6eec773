"""How the disk cache took part in a compilation, as a kernel reports it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CacheObservations", "FastcacheObservations"]


@dataclass
class FastcacheObservations:
    """How the folder took part when a kernel with `fastcache=True` was last compiled. A kernel has it as
    `kernel._primal.src_ll_cache_observations`."""

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
    """How the folder took part when a kernel without `fastcache=True` was last compiled. A kernel has it as
    `kernel._primal.fe_ll_cache_observations`."""

    cache_hit: bool = False
    """Its machine code was found there."""
