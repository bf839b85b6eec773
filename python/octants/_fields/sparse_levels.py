"""Sparse levels: the activation state of the cells of `pointer`, `bitmasked` and `dynamic` levels.

A tree spans its full extent, as if each level were dense. Behind the data lies an area for each sparse level:

- `state`: an i32 for each cell, zero if the cell is inactive; for a dynamic level, the length of each list.
- `cells` and `count`: the list of active cells that a loop over the level visits.
- `counts` and `starts`: scratch memory for building that list in parallel.

The data of an inactive cell is zero: memory starts as zero, a store activates its cell, and deactivating a cell clears
it. So loads need no check. The compiler inserts the activation (`lower/sparse_levels.rs`). It reads the levels of a
field from `_sparse_levels`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from octants._fields.fields import Field, MatrixField, ScalarField
from octants._fields.snode import Component, Placement
from octants._fields.snode_trees import SNodeTree, root
from octants._fields.sparse_kernels import (
    append,
    deactivate,
    deactivate_cells,
    empty_lists,
    fill_active,
    length,
    list_active_cells,
    write_active,
)
from octants.exceptions import OctantsRuntimeError
from octants.types.primitive import DataType, i32

if TYPE_CHECKING:
    from octants._fields.snode import SNode

KINDS = ("pointer", "bitmasked", "dynamic")
_LONGEST_CHUNK = 1024
_MOST_CELLS = 2**31 - 1


class LevelField(ScalarField):
    """A field at a given offset of a tree's memory, outside the tree's levels: a view of its data, or metadata."""

    def __init__(
        self, tree: SNodeTree, dtype: DataType, place: Placement, name: str, levels: tuple[LevelOfField, ...] = ()
    ) -> None:
        super().__init__(dtype, (), [Component(dtype, offset=(0,) * len(place.axes))], name)
        self._tree = tree
        self._placements = [place]
        self._levels = levels

    @property
    def _shape(self) -> tuple[int, ...]:
        return self._placed()[0].shape

    @property
    def _offset(self) -> tuple[int, ...]:
        return self._parts[0].offset

    @property
    def _root(self) -> SNodeTree:
        return self._tree

    @property
    def _sparse_levels(self) -> tuple[LevelOfField, ...]:
        return self._levels


@dataclass(eq=False)
class SparseLevel:
    """A sparse level whose tree has memory, as kernels see it."""

    axes: int
    """How many indices name a cell; of a dynamic level those of an element."""
    capacity: int
    """Cells of the level; of a dynamic level those of one list."""
    is_list: bool
    can_be_listed: bool
    """There is room for a list of active cells."""
    candidates: int
    """Activation states to inspect when active cells are listed; with `around`, cells of that level."""
    chunk: int
    """Candidates that one thread inspects."""
    around: LevelOfField | None
    """The sparse level above, whose active cells hold all active cells of this one."""
    first_inside: tuple[tuple[int, int], ...]
    """For each digit of a cell's number in `around`, innermost first: its extent, and its stride in numbers of
    states."""
    inside: tuple[tuple[int, int], ...]
    """Extent and stride of each axis of the states within a cell of `around`."""
    state: LevelField
    """An i32 for each cell, by its indices; for a dynamic level, the length of each list."""
    flat_state: LevelField
    """The same memory by the cell's number: the digits of its indices, outermost first."""
    cells: LevelField
    counts: LevelField
    starts: LevelField
    count: LevelField
    touch: LevelField
    """The same memory as `state`, where a store activates the levels above."""
    views: list[CellView] = field(default_factory=list, repr=False)
    """The components in a cell that lie below no further sparse level."""
    nested: list[NestedLevel] = field(default_factory=list, repr=False)
    """The next sparse levels within a cell."""
    list_active_cells = staticmethod(list_active_cells)
    append = staticmethod(append)
    deactivate = staticmethod(deactivate)
    length = staticmethod(length)


@dataclass(frozen=True, eq=False)
class CellView:
    """A field whose first axes are those of a cell. The others, of the extents `inner`, span the elements in the
    cell."""

    field: LevelField
    inner: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class NestedLevel:
    """The next sparse level within the cells of another one."""

    node: SNode
    axes: tuple[tuple[int, int], ...]
    """For each axis of its state: the axis of the outer cell's index, or -1, and the states along it per outer cell."""


@dataclass(frozen=True, eq=False)
class LevelOfField:
    """Maps the indices of a field to a cell of a sparse level above it."""

    level: SparseLevel
    state: LevelField
    """The `flat_state` of the level."""
    digits: tuple[tuple[int, int, int], ...]
    """The digits of the position in `state`: axis of the field, extent, weight. A digit is index // weight % extent."""
    list_digit: tuple[int, int, int] | None
    """For a dynamic level: the digit that numbers the elements of a list."""
    inner: tuple[tuple[int, int], ...]
    """Axis and extent of the elements below the cell."""

    @property
    def _sparse_levels(self) -> tuple[LevelOfField, ...]:
        return (self,)

    @property
    def _sparse(self) -> SparseLevel:
        return self.level


def _area_bytes(node: SNode) -> int:
    """Size of a sparse level's area, in bytes."""
    _, chunks = _chunks(_candidates(node))
    return 4 * (prod(_state_node(node).shape) + _listed_cells(node) + 2 * chunks + 1)


def _listed_cells(node: SNode) -> int:
    """Capacity of the list of active cells: all cells, or none if their numbers exceed 32 bits."""
    cells = prod(node.shape)
    return cells if cells <= _MOST_CELLS else 0


def _sparse_level_above(node: SNode) -> SNode | None:
    """The next sparse level above a level or place."""
    above = node._parent
    while above is not None and above._kind not in KINDS:
        above = above._parent
    return above


def _around(node: SNode) -> SNode | None:
    """The sparse level whose active cells contain a level's states; None if the states are inspected one by one."""
    held = _state_node(node)
    return held if held is not node and held._kind in KINDS else _sparse_level_above(held)


def _candidates(node: SNode) -> int:
    around = _around(node)
    return prod((_state_node(node) if around is None else around).shape)


def _chunks(candidates: int) -> tuple[int, int]:
    """Size and number of chunks. The size is a power of two near the square root: counting and summing take equal
    time."""
    chunk = min(_LONGEST_CHUNK, max(16, 1 << ((candidates.bit_length() + 1) // 2)))
    return chunk, -(-candidates // chunk)


def _state_node(node: SNode) -> SNode:
    """The level with one state per cell: the level itself, or the level above a dynamic one."""
    if node._kind != "dynamic":
        return node
    assert node._parent is not None, "a level that is not a root hangs under another one"
    return node._parent


def _make_level(node: SNode, base: int) -> SparseLevel:
    """The level, with its area at this byte of the tree's memory. The levels above have theirs."""
    tree, name = node._tree, f"{node._kind} level"
    if prod(node.shape) > _MOST_CELLS and node._kind != "dynamic":
        raise OctantsRuntimeError(f"a {name} may have 2^31 - 1 cells, and this one has {prod(node.shape)}")

    def area(extents: tuple[int, ...], levels: tuple[LevelOfField, ...] = (), move: bool = True) -> LevelField:
        nonlocal base
        stride, axes = 4, []
        for extent in reversed(extents):
            axes.append(((extent, stride),))
            stride *= extent
        made = LevelField(tree, i32, Placement(base, tuple(axes[::-1])), name, levels)
        made._is_metadata = True
        if move:
            base += 4 * prod(extents)
        return made

    shape, cells = _state_node(node).shape, _listed_cells(node)
    candidates = _candidates(node)
    chunk, chunks = _chunks(candidates)
    first_inside, inside = _within(node)
    above = _levels_of(node)
    return SparseLevel(
        axes=len(node.shape),
        capacity=node._sizes[0] if node._kind == "dynamic" else cells,
        can_be_listed=cells > 0,
        is_list=node._kind == "dynamic",
        candidates=candidates,
        chunk=chunk,
        around=above[-1] if above else None,
        first_inside=first_inside,
        inside=inside,
        touch=area(shape, above, move=False),
        state=area(shape, move=False),
        flat_state=area((prod(shape),)),
        cells=area((cells,)),
        counts=area((chunks,)),
        starts=area((chunks,)),
        count=area(()),
    )


def _within(node: SNode) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """`first_inside` and `inside` of a level."""
    around, held = _around(node), _state_node(node)
    if around is None:
        return (), ()
    outer = _extents(around)
    first, inside, step = [], [], 1
    for axis, extent in reversed(_extents(held).items()):
        each = extent // outer.get(axis, 1)
        if axis in outer:
            first.append((outer[axis], each * step))
        if each > 1:
            inside.append((each, step))
        step *= extent
    return tuple(first), tuple(inside[::-1])


def _extents(node: SNode) -> dict[int, int]:
    """The extents of a level's axes, in their order."""
    axes = sorted({axis for step in node._path_from_root() for axis in step._axes})
    return dict(zip(axes, node.shape, strict=True))


def _add_views(node: SNode) -> None:
    """Collects the views and nested levels of a level. All levels have their areas."""
    level = node._sparse
    assert level is not None, "a sparse level has its area when views are looked for"
    held = _state_node(node)
    outer = _extents(held)
    axes = list(outer)
    for below in _descendants(node):
        if _sparse_level_above(below) is not node:
            continue
        if below._kind == "place":
            level.views.append(_cell_view(held, below))
        elif below._sparse is not None:
            words = _extents(_state_node(below)).items()
            inside = ((axes.index(axis), n // outer[axis]) if axis in outer else (-1, n) for axis, n in words)
            level.nested.append(NestedLevel(below, tuple(inside)))


def _descendants(node: SNode) -> list[SNode]:
    found = []
    for child in node._get_children():
        found += [child, *_descendants(child)]
    return found


def _cell_view(node: SNode, place: SNode) -> CellView:
    """A component by the indices of the cell of `node` that holds it, and the digits below."""
    dtype, path = place._dtype, place._path_from_root()
    assert dtype is not None, "a place has the type of what is placed"
    at = path.index(node) + 1
    outer: dict[int, list[tuple[int, int]]] = {}
    inner: list[tuple[tuple[int, int], ...]] = []
    for number, step in enumerate(path):
        stride = step._cell_bytes * prod(step._sizes)
        for axis, extent in zip(step._axes, step._sizes, strict=True):
            stride //= extent
            if number < at:
                outer.setdefault(axis, []).append((extent, stride))
            else:
                inner.append(((extent, stride),))
    axes = tuple(tuple(outer[axis]) for axis in sorted(outer)) + tuple(inner)
    found = LevelField(node._tree, dtype, Placement(place.placement().base, axes), place._name)
    return CellView(found, tuple(digits[0][0] for digits in inner))


def _levels_of(node: SNode) -> tuple[LevelOfField, ...]:
    """The sparse levels above a level or place, outermost first, and the level itself when it has its area."""
    shape = _extents(node)
    axes = list(shape)
    found = []
    for step in node._path_from_root():
        level = step._sparse
        if level is None:
            continue
        held = _state_node(step)
        digits = []
        within: dict[int, int] = {}
        for axis, extent in _extents(held).items():
            digits.append((axes.index(axis), extent, shape[axis] // extent))
            within[axis] = extent
        list_digit = None
        if level.is_list:
            axis, extent = step._axes[0], step._sizes[0]
            within[axis] = within.get(axis, 1) * extent
            list_digit = (axes.index(axis), extent, shape[axis] // within[axis])
        inner = tuple((axes.index(axis), shape[axis] // within.get(axis, 1)) for axis in axes)
        found.append(LevelOfField(level, level.flat_state, tuple(digits), list_digit, inner))
    return tuple(found)


def _scalar_components(target: Field) -> list[ScalarField]:
    """A scalar field for each component of an element, in row-major order."""
    if isinstance(target, MatrixField):
        return [target.get_scalar_field(*index) for index in np.ndindex(target._element_shape)]
    assert isinstance(target, ScalarField), "the elements of a field are scalars, vectors or matrices"
    return [target]


class SparseSupport:
    """What trees of levels ask of this module."""

    @staticmethod
    def lay_out(top: SNode, nbytes: int) -> int:
        """Places an area for each sparse level behind the data. Returns the size of the tree in bytes."""
        nodes = _descendants(top)
        sparse = [node for node in nodes if node._kind in KINDS]
        for node in sparse:
            nbytes = -(-nbytes // 4) * 4
            node._sparse = _make_level(node, nbytes)
            nbytes += _area_bytes(node)
        if sparse:
            for node in nodes:
                node._levels = _levels_of(node)
            for node in sparse:
                _add_views(node)
        return nbytes

    @staticmethod
    def deactivate_below(node: SNode) -> None:
        """Deactivates all cells of the sparse levels from `node` downward and clears their data."""
        level = node._sparse
        if level is None:
            for child in node._get_children():
                SparseSupport.deactivate_below(child)
            return
        if level.is_list:
            empty_lists(node, level.state.shape)
        else:
            deactivate_cells(node)

    @staticmethod
    def activate(levels: tuple[LevelOfField, ...], index: tuple[int, ...]) -> None:
        """Activates the cells of an element that the host has written."""
        for of in levels:
            number = 0
            for axis, extent, weight in of.digits:
                number = number * extent + index[axis] // weight % extent
            if of.list_digit is None:
                of.state[number] = 1
            else:
                axis, extent, weight = of.list_digit
                of.state[number] = max(of.state[number], index[axis] // weight % extent + 1)

    @staticmethod
    def activate_all(levels: tuple[LevelOfField, ...], qd_stream: Any) -> None:
        """Activates all cells. Called when the host writes all elements."""
        for of in levels:
            of.state.fill(of.level.capacity if of.level.is_list else 1, qd_stream)

    @staticmethod
    def fill(target: Field, element: Any, qd_stream: Any) -> None:
        """Sets the elements in active cells."""
        values = np.broadcast_to(element, target._element_shape).ravel()
        fill = fill_active(target.dtype)
        for part, value in zip(_scalar_components(target), values, strict=True):
            fill(part, value.item(), qd_stream=qd_stream)

    @staticmethod
    def write(target: Field, values: np.ndarray[Any, Any], qd_stream: Any) -> None:
        """Sets the elements in active cells from an array of the field's shape."""
        shape = target.shape
        write = write_active(target.dtype)
        for number, part in enumerate(_scalar_components(target)):
            of_part = values.reshape((*shape, -1))[..., number]
            write(part, np.array(of_part, copy=None, order="C"), target._offset, qd_stream=qd_stream)


SNodeTree.sparse = SparseSupport()


def deactivate_all_snodes() -> None:
    """Deactivates all cells of the sparse levels of all trees and clears their data."""
    root.deactivate_all()
