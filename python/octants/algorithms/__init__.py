"""Parallel algorithms on one-dimensional arrays: reductions, scans, sorts, selection, runs, histograms, top k.

Those in `launch` are called from Python and allocate their own scratch memory. All others except `parallel_sort` and
`PrefixSumExecutor` are called at the top level of a kernel, and take scratch memory from the caller, with the size
given by the matching `*_scratch_slots` function. Results do not depend on the schedule.

On a GPU, thread blocks process tiles of the input; on a CPU, threads process chunks. `tile_shapes` decides.
"""

from octants.algorithms import launch
from octants.algorithms.compaction import reduce_by_key_add, run_length_encode, select, unique
from octants.algorithms.histograms import histogram
from octants.algorithms.older_names import PrefixSumExecutor, parallel_sort
from octants.algorithms.radix_sort import sort, sort_descending
from octants.algorithms.reductions import (
    reduce,
    reduce_add,
    reduce_and,
    reduce_max,
    reduce_min,
    reduce_mul,
    reduce_or,
    reduce_xor,
)
from octants.algorithms.scans import (
    exclusive_scan,
    exclusive_scan_add,
    exclusive_scan_and,
    exclusive_scan_max,
    exclusive_scan_min,
    exclusive_scan_mul,
    exclusive_scan_or,
    exclusive_scan_xor,
    inclusive_scan,
    inclusive_scan_add,
    inclusive_scan_and,
    inclusive_scan_max,
    inclusive_scan_min,
    inclusive_scan_mul,
    inclusive_scan_or,
    inclusive_scan_xor,
)
from octants.algorithms.scratch_slots import (
    exclusive_scan_scratch_slots,
    reduce_by_key_scratch_slots,
    reduce_scratch_slots,
    select_scratch_slots,
    sort_scratch_slots,
)

__all__ = [
    "PrefixSumExecutor",
    "exclusive_scan",
    "exclusive_scan_add",
    "exclusive_scan_and",
    "exclusive_scan_max",
    "exclusive_scan_min",
    "exclusive_scan_mul",
    "exclusive_scan_or",
    "exclusive_scan_scratch_slots",
    "exclusive_scan_xor",
    "histogram",
    "inclusive_scan",
    "inclusive_scan_add",
    "inclusive_scan_and",
    "inclusive_scan_max",
    "inclusive_scan_min",
    "inclusive_scan_mul",
    "inclusive_scan_or",
    "inclusive_scan_xor",
    "launch",
    "parallel_sort",
    "reduce",
    "reduce_add",
    "reduce_and",
    "reduce_by_key_add",
    "reduce_by_key_scratch_slots",
    "reduce_max",
    "reduce_min",
    "reduce_mul",
    "reduce_or",
    "reduce_scratch_slots",
    "reduce_xor",
    "run_length_encode",
    "select",
    "select_scratch_slots",
    "sort",
    "sort_descending",
    "sort_scratch_slots",
    "unique",
]
