"""Arrays an axis of which is split over ranks: each has a block of rows, and copies of adjacent rows (ghost rows). A
row is what has one index along that axis, the outermost one in memory.

Kernels index such an array as if this process had all of it. Its address in a launch is the address of row zero,
extrapolated if this process does not have that row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np

from octants import _octants
from octants._arrays.array_factories import factories
from octants._arrays.element_kernels import add_back
from octants._arrays.ndarrays import Ndarray, element_type_of, make_ndarray
from octants._arrays.split_options import SplitOptions
from octants._distributed.communicators import Message
from octants._distributed.device_blocks import current_block
from octants._distributed.memory_ranges import MemoryRange, range_of_buffer
from octants._distributed.world import broadcast_array, gather_arrays, world
from octants._streams.host_steps import HostStep, capturing_graph
from octants.exceptions import OctantsIndexError, OctantsRuntimeError
from octants.types.per_axis import per_axis
from octants.types.primitive import BY_NAME, DataType
from octants.types.tensor_types import MatrixType
from octants.types.values import Matrix

__all__ = ["SplitNdarray", "make_block", "rows_of_rank", "split_axis", "split_ndarray"]

Array = np.ndarray[Any, Any]


def rows_of_rank(extent: int, rank: int, size: int) -> tuple[int, int]:
    """The rows `[first, end)` of an axis that a rank owns: blocks whose lengths differ by at most one."""
    return extent * rank // size, extent * (rank + 1) // size


_AXES = {"x": 0, "i": 0, "y": 1, "j": 1, "z": 2, "k": 2}


def split_axis(split: int | str, axes: int) -> int:
    """The number of the axis that is split. Raises if the array has none with this number or name."""
    axis = _AXES.get(split) if isinstance(split, str) else split
    if isinstance(axis, bool) or not isinstance(axis, int) or not 0 <= axis < axes:
        raise ValueError(
            f"split={split!r}: must be the number of an axis, from 0 to {axes - 1}, or one of {', '.join(_AXES)}"
        )
    return axis


def split_ndarray(dtype: Any, shape: Any, split: SplitOptions, needs_grad: bool = False) -> SplitNdarray:
    """An array of zeros an axis of which is split over ranks. If it is periodic, the ghost rows at the ends of the
    array are copies of the rows at the opposite end. A gradient is split the same way.
    """
    _, halo, periodic = split
    if isinstance(halo, bool) or not isinstance(halo, int) or halo < 0:
        raise ValueError(f"halo must be a number of rows (an integer of at least 0), got {halo!r}")
    extents = per_axis(shape)
    if not extents:
        raise ValueError("a 0-dimensional array cannot be split")
    axis = split_axis(split.axis, len(extents))
    if current_block() is None and _octants.device_group():
        made: SplitNdarray = factories.devices_ndarray(dtype, extents, axis, halo, bool(periodic), needs_grad)
        return made
    return make_block(dtype, extents, axis, halo, bool(periodic), needs_grad)


def make_block(
    dtype: Any, extents: tuple[int, ...], axis: int, halo: int, periodic: bool, needs_grad: bool = False
) -> SplitNdarray:
    """The array as one rank has it: its block of rows and the ghost rows."""
    ranks = world()
    first, end = rows_of_rank(int(extents[axis]), ranks.rank, ranks.size)
    row = (*extents[:axis], *extents[axis + 1 :])
    local = make_ndarray(dtype, (max(1, end - first + 2 * halo), *row), needs_grad)
    made = _around(local, extents, axis, first - halo)
    made._setup(local, axis, (first, end), halo, periodic)
    if needs_grad:
        made.grad = _around(local.grad, extents, axis, first - halo)
        made.grad._setup(local.grad, axis, (first, end), halo, periodic)
    return made


def _around(local: Ndarray, extents: tuple[int, ...], axis: int, first_row: int) -> SplitNdarray:
    described = (local.dtype_name, tuple(local.element_shape), extents, local.needs_grad)
    return rows_outermost(SplitNdarray(*described, local, 0, first_row, axis), axis)


Split = TypeVar("Split", bound="SplitNdarray")


def rows_outermost(array: Split, axis: int) -> Split:
    """Declares that memory holds one row of an array after the other."""
    array._set_layout([axis, *(other for other in range(len(array.shape)) if other != axis)])
    return array


Rows = tuple[int, int]


class Messages(NamedTuple):
    """The messages that a rank exchanges with others to fill its ghost rows."""

    sends: list[Message]
    receives: list[Message]
    copies: list[tuple[MemoryRange, MemoryRange]]
    """Ghost rows, and the local rows that they copy: the opposite end of a periodic array."""


class GhostSums(NamedTuple):
    """How contributions in ghost rows reach the ranks that own these rows."""

    ghosts: list[MemoryRange]
    """The ghost rows, which start at zero."""
    sends: list[Message]
    receives: list[Message]
    sums: list[tuple[MemoryRange, MemoryRange]]
    """Local rows, and the received contributions to them."""


class SplitNdarray(_octants.Ndarray):
    """An array an axis of which is split over ranks. Made by `qd.ndarray(..., split=0)` and `qd.field(..., split=0)`.

    `shape` is that of the whole array. Methods are collective: all ranks call them, in the same order.
    """

    _octants_entity = "ndarray"

    grad: SplitNdarray | None = None
    """The gradient, which is split the same way; None without `needs_grad`."""
    dual = None

    def _setup(self, local: Ndarray, axis: int, rows: tuple[int, int], halo: int, periodic: bool) -> None:
        # An instance of a class with elements, which `Ndarray` lacks. Its first axis counts the rows.
        self._local: Any = local
        self._axis = axis
        self._rows = rows
        self._halo = halo
        self._periodic = periodic
        self._ranges: dict[tuple[int, int], MemoryRange] = {}
        self._ghost_sums: dict[tuple[int, int], GhostSums] = {}
        # Kernels read them at each launch, for `qd.distributed.assume_local`.
        self._first_local_row = max(0, rows[0] - halo)
        self._last_local_row = min(self._extent, rows[1] + halo) - 1

    @property
    def split(self) -> int:
        """The axis that is split."""
        return self._axis

    @property
    def _extent(self) -> int:
        """Number of rows of the whole array: its extent along the axis that is split."""
        return int(self.shape[self._axis])

    @property
    def rows(self) -> tuple[int, int]:
        """The rows `[first, end)` that this rank owns."""
        return self._rows

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """The rows `[first, end)` of each rank or device that the array is split over."""
        return tuple(self.block(rank) for rank in range(world().size))

    @property
    def halo(self) -> int:
        """Number of ghost rows on each side."""
        return self._halo

    @property
    def periodic(self) -> bool:
        """Whether the first row follows the last one."""
        return self._periodic

    @property
    def dtype(self) -> DataType:
        """The scalar type."""
        return BY_NAME[self.dtype_name]

    @property
    def element_type(self) -> DataType | MatrixType:
        """The type of an element."""
        return element_type_of(self.dtype, self.element_shape)

    def has_grad(self) -> bool:
        """Whether a gradient was allocated."""
        return self.grad is not None

    # What launches need

    def block(self, rank: int) -> tuple[int, int]:
        """The rows `[first, end)` that a rank owns."""
        return rows_of_rank(self._extent, rank, world().size)

    def forget_ghosts(self) -> None:
        """Invalidates the ghost rows, because the owners' rows are about to change."""
        self._forget_ghosts()

    def messages(self, before: int, after: int) -> Messages:
        """The messages that fill `before` and `after` ghost rows on each rank."""
        ranks = world()
        sends, receives, copies = [], [], []
        for rank in range(ranks.size):
            if rank == ranks.rank:
                copies = [
                    (self._range(*ghost), self._range(*own)) for ghost, own in self._needs(rank, rank, before, after)
                ]
                continue
            sends += [(rank, self._range(*own)) for _, own in self._needs(rank, ranks.rank, before, after)]
            receives += [(rank, self._range(*ghost)) for ghost, _ in self._needs(ranks.rank, rank, before, after)]
        return Messages(sends, receives, copies)

    def ghost_sums(self, before: int, after: int) -> GhostSums:
        """How contributions in `before` and `after` ghost rows of each rank reach their owners."""
        if (before, after) not in self._ghost_sums:
            self._ghost_sums[before, after] = self._make_ghost_sums(before, after)
        return self._ghost_sums[before, after]

    def _make_ghost_sums(self, before: int, after: int) -> GhostSums:
        me = world().rank
        others = [rank for rank in range(world().size) if rank != me]
        parts = [(rank, own) for rank in others for _, own in self._needs(rank, me, before, after)]
        incoming = make_ndarray(self.element_type, (max(1, sum(b - a for _, (a, b) in parts)), *self._local.shape[1:]))
        at = incoming._offset_in_memory
        receives, sums = [], []
        for rank, part in parts:
            own_rows = self._range(*part)
            arrived = range_of_buffer(incoming.buffer, at, own_rows.count, own_rows.dtype, incoming)
            receives.append((rank, arrived))
            sums.append((own_rows, arrived))
            at += own_rows.nbytes
        of_self = [(self._range(*own), self._range(*ghost)) for ghost, own in self._needs(me, me, before, after)]
        sends = [(rank, self._range(*ghost)) for rank in others for ghost, _ in self._needs(me, rank, before, after)]
        ghosts = [memory for _, memory in (*sends, *of_self)]
        return GhostSums(ghosts, sends, receives, sums + of_self)

    def _needs(self, reader: int, owner: int, before: int, after: int) -> list[tuple[Rows, Rows]]:
        """Pairs of row ranges: ghost rows of `reader`, and the rows of `owner` that they are copies of."""
        extent = self._extent
        first, end = self.block(reader)
        own_first, own_end = self.block(owner)
        # The distance of a ghost row from the row that it copies, in multiples of the array's length.
        around = -(-max(before, after) // extent) if self._periodic else 0
        parts = []
        for a, b in ((first - before, first), (end, end + after)):
            for shift in range(-around * extent, around * extent + 1, extent):
                low, high = max(a, own_first + shift), min(b, own_end + shift)
                if low < high:
                    parts.append(((low, high), (low - shift, high - shift)))
        return parts

    def _range(self, first: int, end: int) -> MemoryRange:
        """The memory of local rows, ghost rows included."""
        if (first, end) in self._ranges:
            return self._ranges[first, end]
        local = self._local
        row = math.prod(local.shape[1:]) * math.prod(local.element_shape)
        offset = (first - self._rows[0] + self._halo) * row * self.dtype.nbytes
        buffer = local.buffer
        dtype = np.dtype(self.dtype.numpy)
        made = range_of_buffer(buffer, local._offset_in_memory + offset, (end - first) * row, dtype)
        self._ranges[first, end] = made
        return made

    # Whole arrays

    def to_numpy(self, *, gather: bool = True) -> Array:
        """The whole array on each rank; with `gather=False`, the rows of this rank."""
        own = self._own_rows()
        if not gather:
            return np.moveaxis(own, 0, self._axis)
        ranks = world()
        blocks = [self.block(rank) for rank in range(ranks.size)]
        shapes = [(end - first, *own.shape[1:]) for first, end in blocks]
        rows = np.concatenate(gather_arrays(own, shapes, "to_numpy() of a split array"))
        return np.ascontiguousarray(np.moveaxis(rows, 0, self._axis))

    def from_numpy(self, array: Array, *, local: bool = False) -> None:
        """Sets the elements from the whole array; with `local=True`, from the rows of this rank."""
        first, end = self._rows
        expected = (*self.shape, *self.element_shape)
        if local:
            expected = (*expected[: self._axis], end - first, *expected[self._axis + 1 :])
        if tuple(np.shape(array)) != expected:
            raise ValueError(f"Mismatch shape: {expected} expected, but {np.shape(array)} provided")
        rows = np.moveaxis(np.asarray(array), self._axis, 0)
        self._set_rows(rows if local else rows[first:end])

    def fill(self, value: Any) -> None:
        """Sets all elements to a value."""
        gradient = self.grad
        clear = None if gradient is None else lambda: gradient.fill(0)
        if not self._is_captured("fill", (self,), lambda of, stream: of._fill(value, stream), clear):
            self._fill(value, None)

    def _fill(self, value: Any, stream: Any) -> None:
        self._local.fill(value, qd_stream=stream)
        self.forget_ghosts()

    def copy_from(self, other: SplitNdarray) -> None:
        """Sets the elements from another array that is split the same way."""
        if not isinstance(other, SplitNdarray) or other._form() != self._form():
            raise ValueError("copy_from() needs a split array of the same shape, axis and halo")
        if not self._captures_copy(other):
            self._copy(other, None)

    def _copy(self, other: SplitNdarray, stream: Any) -> None:
        self._local.copy_from(other._local, qd_stream=stream)
        self.forget_ghosts()

    def _form(self) -> tuple[Any, ...]:
        return self.shape, self._axis, self._halo

    def _captures_copy(self, other: SplitNdarray) -> bool:
        taken, added = self.grad, other.grad

        def gradient() -> None:
            assert taken is not None
            if added is None:
                taken.fill(0)
            else:
                taken._is_captured("gradient of copy", (taken, added), lambda to, of, _: to._add_back(of), None)

        copy = lambda to, source, stream: to._copy(source, stream)  # noqa: E731
        return self._is_captured("copy", (self, other), copy, None if taken is None else gradient)

    def _add_back(self, to: SplitNdarray) -> None:
        """The gradient of a copy: adds the elements to those of another array, and zeroes them."""
        for own, other in zip(self._locals(), to._locals(), strict=True):
            with _octants.on_program(own._serial):
                add_back(own, other)
        self.forget_ghosts()
        to.forget_ghosts()

    def _blocks_here(self) -> list[tuple[int, SplitNdarray]]:
        """The blocks of this process, with their numbers."""
        return [(world().rank, self)]

    def _locals(self) -> list[Any]:
        """The memory of this rank, or of each device."""
        return [self._local]

    def _is_captured(
        self, name: str, arrays: tuple[Any, ...], perform: Callable[..., None], gradient: Callable[[], None] | None
    ) -> bool:
        """Makes an operation a step of the graph that this thread captures. Each launch must invalidate the ghost rows,
        so the host takes part. Returns False if the thread captures none, or if the array has no ghost rows.
        """
        graph = capturing_graph()
        if graph is None or not self._has_ghosts():
            return False
        graph._note_host_step(HostStep(name, arrays, perform, gradient=gradient))
        return True

    def _has_ghosts(self) -> bool:
        return self._periodic or world().size > 1

    def __getitem__(self, key: Any) -> Any:
        self._refuse_in_capture()
        index = self._index(key)
        row = index[self._axis]
        rank = next(r for r in range(world().size) if self.block(r)[0] <= row < self.block(r)[1])
        value = np.zeros(tuple(self.element_shape), np.dtype(self.dtype.numpy))
        if rank == world().rank:
            element = self._local[self._in_memory(index)]
            value[...] = element.to_numpy() if self.element_shape else element
        broadcast_array(value, rank, "reading an element of a split array")
        if not self.element_shape:
            return value[()].item()

        def write_back(component: Any, number: Any) -> None:
            if rank == world().rank:
                self._local[self._in_memory(index)][component] = number
            self.forget_ghosts()

        return Matrix._around(value, self.dtype, write_back)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._refuse_in_capture()
        index = self._index(key)
        if self._rows[0] <= index[self._axis] < self._rows[1]:
            self._local[self._in_memory(index)] = value
        self.forget_ghosts()

    def __iter__(self) -> NoReturn:
        raise NotImplementedError("a split array can only be looped over in a kernel; in Python, loop over to_numpy()")

    def __repr__(self) -> str:
        return f"<qd.ndarray of shape {self.shape}, rows {self._rows[0]} to {self._rows[1]} on rank {world().rank}>"

    def _refuse_in_capture(self) -> None:
        """Raises on all ranks, not only on the one that has the element."""
        if _octants.capturing():
            raise OctantsRuntimeError(
                "an element of a split array cannot be accessed while this thread captures a graph: do this before the "
                "capture, or after the graph was launched"
            )

    def _own_rows(self) -> Array:
        first, end = self._rows
        rows: Array = self._local.to_numpy()[self._halo : self._halo + end - first]
        return rows

    def _set_rows(self, rows: Array) -> None:
        whole = self._local.to_numpy()
        whole[self._halo : self._halo + len(rows)] = rows
        self._local.from_numpy(whole)
        self.forget_ghosts()

    def _index(self, key: Any) -> tuple[int, ...]:
        index = tuple(key) if isinstance(key, (tuple, list)) else (key,)
        if len(index) != len(self.shape) or not all(hasattr(i, "__index__") for i in index):
            raise OctantsIndexError(f"a split array with {len(self.shape)} axes cannot be indexed with {key!r}")
        for i, extent in zip(index, self.shape, strict=True):
            if not 0 <= i < extent:
                raise OctantsIndexError(f"index {key!r} is out of bounds for an array of shape {self.shape}")
        return tuple(int(i) for i in index)

    def _in_memory(self, index: tuple[int, ...]) -> tuple[int, ...]:
        axis = self._axis
        return (index[axis] - self._rows[0] + self._halo, *index[:axis], *index[axis + 1 :])
