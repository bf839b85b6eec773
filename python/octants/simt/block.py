"""Block operations: barriers, fences, shared memory, positions, reductions and scans."""

from __future__ import annotations

from octants._language.kernel_decorators import func
from octants.simt import block_folds, block_threads, radix_ranks
from octants.simt.block_folds import *  # noqa: F403
from octants.simt.block_threads import *  # noqa: F403
from octants.simt.old_names import warn_of_old_name
from octants.simt.radix_ranks import *  # noqa: F403

__all__ = ["mem_sync", *block_threads.__all__, *block_folds.__all__, *radix_ranks.__all__]


@func
def mem_sync() -> None:
    """Deprecated name of `mem_fence`."""
    warn_of_old_name("block.mem_sync", "block.mem_fence")
    block_threads.mem_fence()
