"""The algorithms as calls from Python: each launches a kernel on a stream, with its own scratch memory.

Arrays are one-dimensional fields, ndarrays, or arrays of other libraries. The optional `n` is the number of elements
to process, from the first one on: an integer, or a one-element integer array, which the device reads when the kernel
runs. `qd_stream` is the stream, the current one if it is None. Calls do not wait for the device unless an argument is
a numpy array; then the call returns when the array holds the result. Scratch memory is freed after the work that uses
it. These calls therefore cannot be used on a stream that another library captures into a graph, since the graph would
run without its scratch memory. Kernels that call the functions of `qd.algorithms` with their own scratch memory can be
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
