"""Moves rows of split arrays to other blocks: particles to the rank, or the device, that has their cells.

Each block has room for more rows than it uses. Rows that stay do not move; rows that arrive fill the unused ones. Only
rows that move are packed, transferred and unpacked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from octants import _octants
from octants._arrays.ndarrays import make_ndarray
from octants._distributed.communicators import Exchange, user_line
from octants._distributed.memory_ranges import range_of_numpy
from octants._distributed.row_kernels import put_rows, take_rows
from octants._distributed.split_ndarrays import SplitNdarray
from octants._distributed.split_structs import SplitStructField
from octants._distributed.world import agree, gather_arrays, world
from octants.exceptions import OctantsDistributedError
from octants.types.primitive import i32

__all__ = ["move_rows"]

Array = np.ndarray[Any, Any]
_WHAT = "move_rows()"


class _Block(NamedTuple):
    """A block of this process."""

    number: int
    owners: Array
    """The block that each row is to be in; negative for unused rows."""
    arrays: list[SplitNdarray]
    """What one rank or device has of the arrays."""

    def leaving(self, to: int) -> Array:
        """The rows that go to another block, in order."""
        return np.flatnonzero(self.owners == to)

    def free(self) -> Array:
        """The rows that are unused once others have left, in order."""
        return np.flatnonzero(self.owners != self.number)


def move_rows(owner: SplitNdarray, arrays: Sequence[SplitNdarray | SplitStructField]) -> None:
    """See `qd.distributed.move_rows`."""
    parts = [part for array in arrays for part in _flat(array)]
    _check(owner, parts)
    total = len(owner.blocks)
    described = [(array.shape, array.split, array.dtype_name, tuple(array.element_shape)) for array in parts]
    agree(f"{_WHAT} of {described}", _WHAT)
    blocks = [
        _Block(number, of_owner._own_rows(), [array._blocks_here()[place][1] for array in parts])
        for place, (number, of_owner) in enumerate(owner._blocks_here())
    ]
    counts = _counts(blocks, total)
    for to, room in enumerate(counts[:, total]):
        arriving = counts[:, to].sum()
        if arriving > room:
            raise OctantsDistributedError(
                f"{_WHAT} at {user_line()}: block {to} has room for {room} rows, but {arriving} are to be moved there: "
                "make the arrays longer"
            )
    if (wrong := int(counts[:, total + 1].max())) >= 0:
        raise OctantsDistributedError(
            f"{_WHAT} at {user_line()}: a row is to be moved to block {wrong}, but there are only {total} blocks"
        )
    if counts[:, :total].any():
        arrived = _transferred(blocks, counts)
        for block in blocks:
            _put(block, arrived[block.number])
    for block, (_, of_owner) in zip(blocks, owner._blocks_here(), strict=True):
        count, owners = counts[:, block.number].sum(), block.owners
        free = block.free()
        owners[free] = -1
        owners[free[:count]] = block.number
        of_owner._set_rows(owners)
    for array in (owner, *parts):
        array.forget_ghosts()


def _flat(array: Any) -> Iterator[SplitNdarray]:
    """The split arrays of an argument."""
    if isinstance(array, SplitStructField):
        for member in array.field_dict.values():
            yield from _flat(member)
    elif isinstance(array, SplitNdarray):
        yield array
    else:
        raise TypeError(f"{_WHAT} takes split arrays and split fields of structs, not {type(array).__name__}")


def _check(owner: Any, arrays: list[SplitNdarray]) -> None:
    if not isinstance(owner, SplitNdarray) or len(owner.shape) != 1 or owner.element_shape or owner.dtype.is_float:
        raise TypeError(f"{_WHAT}: the blocks of the rows must be a split array of integers with one axis")
    for array in arrays:
        if array is owner:
            raise ValueError(f"{_WHAT}: the blocks of the rows are updated, and are not among the arrays to move")
        if array.blocks != owner.blocks:
            raise ValueError(
                f"{_WHAT}: an array of shape {array.shape} has other rows than the blocks, of shape {owner.shape}"
            )


def _counts(blocks: list[_Block], total: int) -> Array:
    """For each block, how many rows go to each other one, then its room for arriving ones, and the largest number of a
    block that does not exist, or -1."""
    own = np.zeros((len(blocks), total + 2), np.int64)
    for row, block in zip(own, blocks, strict=True):
        used = block.owners[block.owners >= 0]
        row[:total] = np.bincount(used, minlength=total)[:total]
        row[block.number] = 0
        row[total] = len(block.free())
        row[total + 1] = used.max() if used.size and used.max() >= total else -1
    if len(blocks) == total:
        return own
    return np.concatenate(gather_arrays(own, [own.shape] * world().size, _WHAT))


def _transferred(blocks: list[_Block], counts: Array) -> dict[int, list[list[Array]]]:
    """For each block of this process the rows that arrive, by the block they come from and by array."""
    packed = {(block.number, to): _take(block, to) for block in blocks for to in range(len(counts))}
    here = {block.number for block in blocks}
    sends, receives = [], []
    for (_, to), rows in packed.items():
        sends += [(to, range_of_numpy(part)) for part in rows if part.size and to not in here]
    for block in blocks:
        for source in range(len(counts)):
            if source not in here:
                made = [np.empty((counts[source, block.number], _scalars(a)), a.dtype.numpy) for a in block.arrays]
                packed[source, block.number] = made
                receives += [(source, range_of_numpy(part)) for part in made if part.size]
    if len(here) < len(counts):
        world().exchange(Exchange(sends, receives), _WHAT).wait()
    return {to: [packed[source, to] for source in range(len(counts))] for to in here}


def _scalars(array: SplitNdarray) -> int:
    """The number of scalars of a row."""
    return math.prod(array._local.shape[1:]) * math.prod(array.element_shape)


def _on_host(array: SplitNdarray) -> Array | None:
    """The rows that a block owns as a table of scalars, if they are in the host's memory."""
    memory = array._range(*array.rows)
    if not memory.on_host:
        return None
    array._local.buffer.wait()
    return memory.numpy().reshape(-1, _scalars(array))


def _on_device(array: SplitNdarray) -> _octants.ElementView:
    """The same for kernels."""
    local, bytes_ = array._local, array.dtype.nbytes
    scalars = _scalars(array)
    first = local._offset_in_memory + array.halo * scalars * bytes_
    shape = [array.rows[1] - array.rows[0], scalars]
    return _octants.ElementView(local.buffer, array.dtype.name, first, shape, [scalars * bytes_, bytes_])


def _indices(rows: Array) -> Any:
    made = make_ndarray(i32, (len(rows),))
    made.from_numpy(rows.astype(np.int32))
    return made


def _take(block: _Block, to: int) -> list[Array]:
    """The rows that go to another block, of each array."""
    rows = block.leaving(to) if to != block.number else np.zeros(0, np.int64)
    if not len(rows):
        return [np.zeros((0, _scalars(array)), array.dtype.numpy) for array in block.arrays]
    taken = []
    for array in block.arrays:
        table = _on_host(array)
        if table is not None:
            taken.append(table[rows])
            continue
        with _octants.on_program(array._local._serial):
            made = make_ndarray(array.dtype, (len(rows), _scalars(array)))
            take_rows(array.dtype)(made, _on_device(array), _indices(rows))
            taken.append(np.ascontiguousarray(made.to_numpy()))
    return taken


def _put(block: _Block, arrived: list[list[Array]]) -> None:
    """Stores arriving rows in unused ones."""
    free = block.free()
    for place, array in enumerate(block.arrays):
        values = np.concatenate([rows[place] for rows in arrived])
        table = _on_host(array) if values.size else None
        if table is not None:
            table[free[: len(values)]] = values
        elif values.size:
            with _octants.on_program(array._local._serial):
                given = make_ndarray(array.dtype, values.shape)
                given.from_numpy(values)
                put_rows(array.dtype)(_on_device(array), given, _indices(free[: len(values)]))
