"""The algorithms as calls from Python: each launches a kernel on a stream, with scratch memory of its own.

Arrays are one-dimensional fields, ndarrays, or arrays of other libraries. `n`, where it is given, says how many
elements count, from the first one on: an integer, or a one-element array of integers, which the device reads when it
gets there. `qd_stream` is the stream, the current one if it is None. Nothing waits for the device, except where an
array is one of numpy's: then the call returns when it holds the result. Scratch memory is given back after the work
that uses it, so these calls are not for a stream that another library captures into a graph: the graph would run
without its scratch memory. Kernels that call the functions of `qd.algorithms` with scratch memory of their own may be
captured.
"""

from octants.algorithms.launch.compaction import reduce_by_key_add, run_length_encode, select, unique
from octants.algorithms.launch.folds import exclusive_scan, histogram, inclusive_scan, reduce
from octants.algorithms.launch.sorts import sort, sort_segments, top_k

__all__ = [
    "exclusive_scan",
    "histogram",
    "inclusive_scan",
    "reduce",
    "reduce_by_key_add",
    "run_length_encode",
    "select",
    "sort",
    "sort_segments",
    "top_k",
    "unique",
]
