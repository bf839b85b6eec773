"""Split arrays in a folder: one file per rank. Any number of ranks can read them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from octants._distributed.communicators import user_line
from octants._distributed.split_ndarrays import SplitNdarray
from octants._distributed.world import agree, world
from octants.exceptions import OctantsDistributedError

__all__ = ["load", "save"]

_INDEX = "index.json"
_FORMAT = 1


def save(folder: str | os.PathLike[str], arrays: Mapping[str, Any]) -> None:
    """Writes arrays to a folder. Each rank writes its rows of split arrays; rank 0 writes the others."""
    ranks, place = world(), Path(folder)
    agree(f"save({sorted(arrays)})", "qd.distributed.save()")
    place.mkdir(parents=True, exist_ok=True)
    # An existing index names only complete files.
    if ranks.rank == 0:
        (place / _INDEX).unlink(missing_ok=True)
    ranks.barrier("qd.distributed.save()")
    own = {name: _rows(array) for name, array in arrays.items() if _is_split(array) or ranks.rank == 0}
    np.savez(place / _file_of(ranks.rank), allow_pickle=False, **own)
    ranks.barrier("qd.distributed.save()")
    if ranks.rank == 0:
        index = {
            "format": _FORMAT,
            "ranks": ranks.size,
            "arrays": {name: _described(array) for name, array in arrays.items()},
        }
        temporary = place / (_INDEX + ".new")
        temporary.write_text(json.dumps(index, indent=1))
        temporary.replace(place / _INDEX)
    ranks.barrier("qd.distributed.save()")


def load(folder: str | os.PathLike[str], arrays: Mapping[str, Any]) -> None:
    """Sets arrays from a folder. Shapes and types must match the saved ones."""
    place = Path(folder)
    try:
        index = json.loads((place / _INDEX).read_text())
    except (OSError, ValueError) as error:
        raise OctantsDistributedError(f"{place} contains no saved arrays ({error}), at {user_line()}") from error
    if index.get("format") != _FORMAT:
        raise OctantsDistributedError(f"{place} has an unknown format, {index.get('format')!r}")
    files = [np.load(place / _file_of(rank)) for rank in range(index["ranks"])]
    try:
        for name, array in arrays.items():
            saved = index["arrays"].get(name)
            if saved is None:
                raise OctantsDistributedError(f"{place} has no array {name!r}; it has {', '.join(index['arrays'])}")
            if saved != (wanted := _described(array)):
                raise OctantsDistributedError(
                    f"{place}: {name!r} was saved as {saved}, but the array to load into is {wanted}"
                )
            if _is_split(array):
                rows = _rows_of_files(files, name, array.rows)
                array.from_numpy(np.moveaxis(rows, 0, array.split), local=True)
            elif isinstance(array, np.ndarray):
                array[...] = files[0][name]
            else:
                array.from_numpy(files[0][name])
    finally:
        for file in files:
            file.close()


def _rows_of_files(files: list[Any], name: str, rows: tuple[int, int]) -> np.ndarray[Any, Any]:
    parts, first = [], 0
    for file in files:
        part = file[name]
        begin, end = max(rows[0], first), min(rows[1], first + len(part))
        if begin < end:
            parts.append(part[begin - first : end - first])
        first += len(part)
    empty = files[0][name][:0]
    return np.concatenate(parts) if parts else np.asarray(empty)


def _is_split(array: Any) -> bool:
    return isinstance(array, SplitNdarray)


def _rows(array: Any) -> np.ndarray[Any, Any]:
    if isinstance(array, SplitNdarray):
        return np.moveaxis(array.to_numpy(gather=False), array.split, 0)
    return np.asarray(array if isinstance(array, np.ndarray) else array.to_numpy())


def _described(array: Any) -> dict[str, Any]:
    if isinstance(array, np.ndarray):
        return {"shape": list(array.shape), "dtype": array.dtype.name, "split": False}
    element = tuple(getattr(array, "element_shape", ()) or ())
    if not element and not isinstance(array, SplitNdarray):
        shape: tuple[int, ...] = np.shape(array.to_numpy())
    else:
        shape = (*array.shape, *element)
    described = {"shape": list(shape), "dtype": str(array.dtype), "split": _is_split(array)}
    if isinstance(array, SplitNdarray) and array.split:
        described["axis"] = array.split
    return described


def _file_of(rank: int) -> str:
    return f"rank-{rank}.npz"
