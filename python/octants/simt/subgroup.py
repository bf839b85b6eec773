"""Operations of the threads of a subgroup, which run in lockstep and exchange values in registers.

All threads of the subgroup execute them together. Operations whose names end in `_tiled` take the binary logarithm of a
tile's size, a compile-time constant: they divide the subgroup into tiles of consecutive threads, and work on each tile
separately.
"""

from __future__ import annotations

from typing import Any

from octants._language.kernel_decorators import func
from octants.simt import lanes, reductions, scans, sorting, votes
from octants.simt.lanes import *  # noqa: F403
from octants.simt.old_names import warn_of_old_name
from octants.simt.reductions import *  # noqa: F403
from octants.simt.scans import *  # noqa: F403
from octants.simt.sorting import *  # noqa: F403
from octants.simt.votes import *  # noqa: F403

__all__ = ["ballot_full_subgroup", "barrier", "memory_barrier"]
__all__ += lanes.__all__ + votes.__all__ + reductions.__all__ + scans.__all__ + sorting.__all__


@func
def barrier() -> None:
    """Deprecated name of `sync`."""
    warn_of_old_name("subgroup.barrier", "subgroup.sync")
    lanes.sync()


@func
def memory_barrier() -> None:
    """Deprecated name of `mem_fence`."""
    warn_of_old_name("subgroup.memory_barrier", "subgroup.mem_fence")
    lanes.mem_fence()


@func
def ballot_full_subgroup(predicate: Any) -> Any:
    """Deprecated name of `ballot`."""
    warn_of_old_name("subgroup.ballot_full_subgroup", "subgroup.ballot")
    return votes.ballot(predicate)
