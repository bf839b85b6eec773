"""The group of ranks of the program, and collectives on numpy arrays that all backends share."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import itertools
import os
import sys
from typing import Any

import numpy as np

from octants import _octants
from octants._distributed.communicators import Alone, Communicator, Exchange, failed
from octants._distributed.device_blocks import current_block
from octants._distributed.launchers import Position, find_position
from octants._distributed.memory_ranges import range_of_numpy
from octants._distributed.nccl_choice import with_nccl
from octants.exceptions import OctantsDistributedError

__all__ = ["agree", "agree_on_steps", "broadcast_array", "gather_arrays", "join", "leave", "world"]

Array = np.ndarray[Any, Any]

_world: Communicator | None = None
_position = Position(0, 1, 0, "")
_agreed: set[str] = set()


def world() -> Communicator:
    """The communicator; before `qd.distributed.init()`, this process alone."""
    global _world
    block = current_block()
    if block is not None:
        return block
    if _world is None:
        if find_position().size > 1:
            raise OctantsDistributedError(
                f"this process was started by {find_position().launcher} as one of {find_position().size}: call "
                "qd.distributed.init() before splitting arrays"
            )
        _world = Alone(60.0)
    return _world


def position() -> Position:
    """The position of this process among the ranks."""
    return _position


def join(backend: str | None, timeout: float, group: Any = None) -> Communicator:
    """Makes this process one of the ranks that its launcher started."""
    global _world, _position
    if _world is not None and _world.size > 1:
        raise OctantsDistributedError("qd.distributed.init() was already called; call qd.distributed.finalize() first")
    if not timeout > 0:
        raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
    place = find_position()
    name = _default_backend(place) if backend in (None, "nccl") else backend
    if name == "mpi":
        made: Communicator = _load("mpi_communicator", "mpi4py").MpiCommunicator(timeout, group)
    elif name == "torch":
        made = _load("torch_communicator", "torch").TorchCommunicator(place, timeout)
    elif name == "none" and place.size == 1:
        made = Alone(timeout)
    else:
        alone = ", or 'none' for one process" if place.size == 1 else ""
        raise ValueError(f"backend must be 'nccl', 'mpi' or 'torch'{alone}, got {backend!r}")
    if backend in (None, "nccl"):
        made = with_nccl(made, required=backend == "nccl")
    _world, _position = made, place._replace(rank=made.rank, size=made.size)
    _agreed.clear()
    if made.size > 1:
        _choose_device(_position)
        made.barrier("qd.distributed.init()")
    return made


def leave() -> None:
    """Undoes `join`."""
    global _world
    if _world is not None:
        _world.close()
    _world = None


def _default_backend(place: Position) -> str:
    """An existing torch process group or torchrun means torch; other launchers are those of MPI."""
    if place.size == 1:
        return "none"
    if "torch" in sys.modules and sys.modules["torch"].distributed.is_initialized():
        return "torch"
    return "torch" if place.launcher == "torchrun" else "mpi"


def _load(module: str, library: str) -> Any:
    if importlib.util.find_spec(library) is None:
        raise OctantsDistributedError(f"qd.distributed needs {library}: pip install {library}")
    return importlib.import_module(f"octants._distributed.{module}")


def _choose_device(place: Position) -> None:
    """Makes the GPU with the number of the local rank visible, unless the user has set the variable."""
    if not _octants.is_initialized():
        os.environ.setdefault("OCTANTS_VISIBLE_DEVICES", str(place.local_rank))


def gather_arrays(part: Array, shapes: list[tuple[int, ...]], what: str) -> list[Array]:
    """Gathers one array per rank; their shapes must be known."""
    ranks = world()
    part = np.ascontiguousarray(part)
    parts = [part if rank == ranks.rank else np.empty(shape, part.dtype) for rank, shape in enumerate(shapes)]
    others = [rank for rank in range(ranks.size) if rank != ranks.rank]
    sends = [(rank, range_of_numpy(part)) for rank in others if part.size]
    receives = [(rank, range_of_numpy(parts[rank])) for rank in others if parts[rank].size]
    ranks.exchange(Exchange(sends, receives), what).wait()
    return parts


def broadcast_array(array: Array, source: int, what: str) -> None:
    """Sets a contiguous array to that of the rank `source`."""
    ranks = world()
    if not 0 <= source < ranks.size:
        raise ValueError(f"source must be a rank from 0 to {ranks.size - 1}, got {source}")
    memory = range_of_numpy(array)
    if ranks.rank == source:
        others = [(rank, memory) for rank in range(ranks.size) if rank != source]
        ranks.exchange(Exchange(others, []), what).wait()
    else:
        ranks.exchange(Exchange([], [(source, memory)]), what).wait()


def agree(text: str, what: str) -> None:
    """Raises on all ranks unless all pass the same text. Each text is exchanged once."""
    ranks = world()
    if ranks.size == 1 or ranks is current_block() or text in _agreed:
        return
    digest = np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)
    digests = gather_arrays(digest, [digest.shape] * ranks.size, what)
    differs = [rank for rank, other in enumerate(digests) if (other != digests[0]).any()]
    if differs:
        lengths = gather_arrays(np.array([len(text.encode())]), [(1,)] * ranks.size, what)
        texts = gather_arrays(np.frombuffer(text.encode(), np.uint8), [(int(n[0]),) for n in lengths], what)
        said = [bytes(t).decode() for t in texts]
        here, first = _first_difference(said[differs[0]], said[0])
        raise failed(ranks, what, f"rank {differs[0]} runs {here}, but rank 0 runs {first}")
    _agreed.add(text)


def agree_on_steps(steps: list[str]) -> None:
    """Raises on all ranks unless all launch graphs with the same exchanges, in the same order."""
    if steps:
        agree("\n".join(f"{step} as exchange {n} of a graph" for n, step in enumerate(steps, 1)), "launch of a graph")


def _first_difference(a: str, b: str) -> tuple[str, str]:
    """The first lines that differ."""
    lines = itertools.zip_longest(a.splitlines(), b.splitlines(), fillvalue="a graph without this exchange")
    return next((x, y) for x, y in lines if x != y)
