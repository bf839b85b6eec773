"""Parallel algorithms over one-dimensional fields and ndarrays: reductions, scans, selection, sorting.

All but `parallel_sort` and `PrefixSumExecutor` are called at the top level of a kernel. They take their scratch memory from
the caller, who sizes it with the matching `*_scratch_slots` function.

Each works on `CHUNKS` contiguous chunks of the input: a chunk's partial result first, in parallel; then a short serial scan
over the chunks; then the chunks again, in parallel, with what stands before them. Results do not depend on the schedule.
"""

from octants.algorithms.chunks import (
    exclusive_scan_scratch_slots,
    reduce_by_key_scratch_slots,
    reduce_scratch_slots,
    select_scratch_slots,
    sort_scratch_slots,
)
from octants.algorithms.compaction import reduce_by_key_add, select
from octants.algorithms.host_side import PrefixSumExecutor, parallel_sort
from octants.algorithms.radix_sort import sort
from octants.algorithms.reductions import (
    exclusive_scan_add,
    exclusive_scan_max,
    exclusive_scan_min,
    reduce_add,
    reduce_max,
    reduce_min,
)

__all__ = [
    "PrefixSumExecutor",
    "exclusive_scan_add",
    "exclusive_scan_max",
    "exclusive_scan_min",
    "exclusive_scan_scratch_slots",
    "parallel_sort",
    "reduce_add",
    "reduce_by_key_add",
    "reduce_by_key_scratch_slots",
    "reduce_max",
    "reduce_min",
    "reduce_scratch_slots",
    "select",
    "select_scratch_slots",
    "sort",
    "sort_scratch_slots",
]
