"""Programs of several processes: `qd.distributed`.

    import octants as qd

    qd.distributed.init()  # rank and size come from torchrun, mpirun or srun
    qd.init(arch=qd.cpu)

    u = qd.field(qd.f32, shape=(512, 512), split=0)  # each rank has a block of rows

A kernel indexes a split array as if its process held all of it. Each rank runs the iterations that write its rows. If a
loop reads rows of other ranks, they are exchanged before the loop. Started as a single process, the program computes
the same results.

Functions here are collective unless stated otherwise: all ranks must call them, in the same order. If a rank does not
take part, the other ranks raise an `OctantsDistributedError` after the timeout.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from octants._arrays.shadow_buffers import shadow_buffer
from octants._distributed import saved_arrays, split_ndarrays
from octants._distributed import world as _world
from octants._distributed.array_ranges import check_memory, memory_of
from octants._distributed.communicators import Exchange
from octants._distributed.moved_rows import move_rows as _move_rows
from octants._distributed.split_ndarrays import SplitNdarray
from octants._distributed.split_structs import SplitStructField
from octants._language.kernel_decorators import func
from octants._language.ops import known_to_compiler
from octants._streams.host_steps import HostStep, capturing_graph, form_of
from octants._streams.streams import current_stream
from octants.exceptions import OctantsDistributedError, OctantsRuntimeError

__all__ = [
    "OctantsDistributedError",
    "SplitNdarray",
    "SplitStructField",
    "all_gather",
    "all_reduce",
    "assume_local",
    "barrier",
    "block_of_row",
    "broadcast",
    "finalize",
    "init",
    "is_initialized",
    "load",
    "local_rank",
    "move_rows",
    "rank",
    "recv",
    "rows_of_rank",
    "save",
    "send",
    "size",
]

_OPERATIONS = {
    "sum": "add",
    "product": "mul",
    "min": "min",
    "max": "max",
    "and": "and",
    "or": "or",
    "xor": "xor",
}


def init(backend: str | None = None, *, timeout: float = 60.0, group: Any = None) -> None:
    """Makes this process one of the ranks that its launcher started. Must be called before `qd.init()`.

    `backend` is `"mpi"` (mpi4py; host memory), `"torch"` (torch.distributed: gloo for host memory, NCCL for GPUs),
    `"nccl"` (nccl4py for the memory of NVIDIA GPUs, and one of these for host memory) or None: torch under torchrun or
    if the program has a process group, else MPI, with nccl4py if all ranks have it. `timeout`: seconds after which a
    rank that does not respond is an error. `group`: an mpi4py communicator instead of `MPI.COMM_WORLD`.

    Rank and size come from the environment variables of torchrun, Open MPI, MVAPICH, MPICH or Slurm. Without any, the
    program has one rank. A GPU program uses the GPU whose number is the local rank, unless `OCTANTS_VISIBLE_DEVICES` is
    set.

    Raises `OctantsDistributedError` if the library is missing or a rank does not start in time, and `ValueError` for an
    invalid backend or timeout.
    """
    _world.join(backend, timeout, group)


def finalize() -> None:
    """Leaves the group of ranks. Split arrays created before can no longer be used."""
    _world.leave()


def is_initialized() -> bool:
    """Whether `init` was called. Not collective."""
    return _world._world is not None


def rank() -> int:
    """The rank of this process, from 0; 0 before `init`. Not collective."""
    return _world.world().rank


def size() -> int:
    """The number of ranks; 1 before `init`. Not collective."""
    return _world.world().size


def local_rank() -> int:
    """The rank of this process among those on its host. Not collective."""
    return _world.position().local_rank


def barrier() -> None:
    """Returns once all ranks have called it. Does not wait for work on streams."""
    if not _captured("barrier", (), lambda _: barrier(), "barrier()", None):
        _world.world().barrier("barrier()")


@known_to_compiler("assume_local")
def assume_local(array: Any, row: Any) -> Any:
    """In a kernel: asserts that a row of a split array is one of this rank's rows or ghost rows, and returns it.

    `array[assume_local(array, row)]` can be read, or added to with `+=`, in a loop over the rows of any split array. A
    row elsewhere is clamped to the nearest local one, and is an error in debug mode. For an array that is not split,
    and in Python, returns the row unchanged. Not collective.
    """
    return row


def all_reduce(array: Any, op: str = "sum", *, qd_stream: Any = None) -> None:
    """Reduces a field, ndarray or numpy array over all ranks, element by element and in place.

    `op` is `"sum"`, `"product"`, `"min"`, `"max"`, and for integers `"and"`, `"or"`, `"xor"`. An ndarray in GPU memory
    is reduced on the stream; None means the default stream. The library determines the order in which ranks add floats.
    """
    if op not in _OPERATIONS:
        raise ValueError(f"op must be one of {', '.join(_OPERATIONS)}, got {op!r}")
    if isinstance(array, SplitNdarray):
        raise TypeError("all_reduce() needs an array that every rank holds in full, not a split array")
    said = f"all_reduce({op}) of"
    if _captured("all_reduce", (array,), lambda of, on: all_reduce(of, op, qd_stream=on), said, qd_stream):
        return
    stream = _stream(qd_stream)
    with memory_of(array, stream, writes=True) as memory:
        if memory.count:
            _world.agree(f"all_reduce({op}) of {memory.count} {memory.dtype}", "all_reduce()")
            _world.world().all_reduce(memory, _OPERATIONS[op], "all_reduce()", int(stream.handle))


def all_gather(array: Any) -> list[Any]:
    """The arrays of all ranks as numpy arrays, in rank order. The extents of their first axes may differ."""
    if capturing_graph() is not None:
        return _captured_gather(array)
    own = np.ascontiguousarray(array if isinstance(array, np.ndarray) else array.to_numpy())
    return _world.gather_arrays(own, _gathered_shapes(own.shape, own.dtype), "all_gather()")


def broadcast(array: Any, source: int = 0, *, qd_stream: Any = None) -> None:
    """Sets a field, ndarray or numpy array to the one of the rank `source`."""
    ranks = _world.world()
    if not 0 <= source < ranks.size:
        raise ValueError(f"source must be a rank from 0 to {ranks.size - 1}, got {source}")
    said = f"broadcast() from {source} of"
    if _captured("broadcast", (array,), lambda of, on: broadcast(of, source, qd_stream=on), said, qd_stream):
        return
    stream = _stream(qd_stream)
    with memory_of(array, stream, writes=ranks.rank != source) as memory:
        _world.agree(f"broadcast() of {memory.count} {memory.dtype} from {source}", "broadcast()")
        others = [(other, memory) for other in range(ranks.size) if other != source]
        sends, receives = (others, []) if ranks.rank == source else ([], [(source, memory)])
        ranks.exchange(Exchange(sends, receives), "broadcast()", int(stream.handle)).wait()


def send(array: Any, to: int, *, qd_stream: Any = None) -> None:
    """Sends the elements of a field, ndarray or numpy array to another rank, which must call `recv`. Involves these two
    ranks only.
    """
    _pass(array, to, True, qd_stream)


def recv(array: Any, source: int, *, qd_stream: Any = None) -> None:
    """Sets a field, ndarray or numpy array to the elements that another rank sends. Involves these two ranks only."""
    _pass(array, source, False, qd_stream)


def move_rows(owner: SplitNdarray, *arrays: SplitNdarray | SplitStructField) -> None:
    """Moves rows of split arrays to other blocks: particles to the rank or device that has their cells.

    `owner` is a split array of integers: for each row the number of the block that it is to be in, and a negative
    number for an unused row. Rows of all `arrays` move together, and fill unused rows of their new block; the others
    stay where they are. Afterwards, each used row of `owner` has the number of its own block, each other one -1.

    Raises `OctantsDistributedError` on all ranks, before anything is moved, if a block has too few unused rows.
    """
    _move_rows(owner, arrays)


@func
def block_of_row(row: int, extent: int, blocks: int) -> int:
    """The number of the block with a row, of an array with `extent` rows in `blocks` blocks: for kernels and Python.
    Not collective.
    """
    return ((row + 1) * blocks - 1) // extent


def save(folder: str | os.PathLike[str], **arrays: Any) -> None:
    """Writes arrays to a folder, one file per rank: `save("state", u=u, v=v)`.

    Each rank writes its rows of split arrays. Rank 0 writes other fields, ndarrays and numpy arrays. All ranks must see
    the same folder.
    """
    saved_arrays.save(folder, arrays)


def load(folder: str | os.PathLike[str], **arrays: Any) -> None:
    """Sets arrays from a folder that `save` wrote, on any number of ranks.

    Raises `OctantsDistributedError` if `save` did not finish, for names that the folder does not contain, and for
    arrays of other shapes or types.
    """
    saved_arrays.load(folder, arrays)


def rows_of_rank(extent: int, rank: int, size: int) -> tuple[int, int]:
    """The rows `[first, end)` that a rank owns, of `extent` rows: blocks whose lengths differ by at most one."""
    return split_ndarrays.rows_of_rank(extent, rank, size)


def _pass(array: Any, peer: int, sends: bool, qd_stream: Any) -> None:
    ranks = _world.world()
    what = "send()" if sends else "recv()"
    if not 0 <= peer < ranks.size or peer == ranks.rank:
        raise ValueError(f"{what}: the rank must be another one of the {ranks.size} ranks, got {peer}")
    if _captured(what[:-2], (array,), lambda of, on: _pass(of, peer, sends, on), None, qd_stream):
        return
    stream = _stream(qd_stream)
    with memory_of(array, stream, writes=not sends) as memory:
        message = [(peer, memory)]
        given, taken = (message, []) if sends else ([], message)
        ranks.exchange(Exchange(given, taken, collective=False), what, int(stream.handle)).wait()


def _stream(given: Any) -> Any:
    return current_stream() if given is None else given


def _captured(
    name: str, arrays: tuple[Any, ...], perform: Callable[..., None], collective: str | None, qd_stream: Any
) -> bool:
    """Makes an operation a step of the graph that this thread captures. Returns False if it captures none."""
    graph = capturing_graph()
    if graph is None:
        return False
    for array in arrays:
        check_memory(array)
    if _world.world().size > 1:
        if collective is not None and arrays:
            collective = f"{collective} {form_of(arrays[0])}"
        has_gradient = any(shadow_buffer(array, "grad") is not None for array in arrays)
        gradient = _refuse_gradient if has_gradient else None
        graph._note_host_step(HostStep(name, arrays, perform, collective, gradient), qd_stream)
    return True


def _captured_gather(array: Any) -> list[Any]:
    """The arrays of all ranks, which each launch of the captured graph sets."""
    check_memory(array)
    if isinstance(array, np.ndarray):
        shape, dtype = array.shape, array.dtype
    else:
        shape, dtype = (*array.shape, *array.element_shape), np.dtype(array.dtype.numpy)
    shapes = _gathered_shapes(shape, dtype)
    found = [np.zeros(shape, dtype) for shape in shapes]

    def gather(of: Any, _: Any) -> None:
        own = np.ascontiguousarray(of if isinstance(of, np.ndarray) else of.to_numpy())
        for to, part in zip(found, _world.gather_arrays(own, shapes, "all_gather()"), strict=True):
            to[...] = part

    said = f"all_gather() of {dtype}, {shape[1:]}"
    capturing_graph()._note_host_step(HostStep("all_gather", (array,), gather, said))
    return found


def _gathered_shapes(shape: tuple[int, ...], dtype: Any) -> list[tuple[int, ...]]:
    """The shapes of the arrays of all ranks, which differ in the extent of the first axis."""
    _world.agree(f"all_gather() of {shape[1:]} {dtype}, {len(shape)} axes", "all_gather()")
    size = _world.world().size
    if not shape:
        return [()] * size
    lengths = _world.gather_arrays(np.array([shape[0]]), [(1,)] * size, "all_gather()")
    return [(int(n[0]), *shape[1:]) for n in lengths]


def _refuse_gradient() -> None:
    raise OctantsRuntimeError(
        "a captured graph has no gradient if an array with a gradient is sent, received or reduced in one of its steps"
    )
