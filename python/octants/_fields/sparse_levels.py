"""Sparse levels: the activation state of the cells of `pointer`, `bitmasked` and `dynamic` levels.

A tree spans its full extent, as if each level were dense. The data is followed by an area for each sparse level:

- `state`: an i32 for each cell, zero if the cell is inactive; for a dynamic level, the length of each list.
- `cells` and `count`: the list of active cells that a loop over the level visits.
- `counts` and `starts`: scratch memory for building that list in parallel.

The data of an inactive cell is zero: memory starts as zero, a store activates its cell, and deactivating a cell clears
it. So loads need no check. The compiler inserts the activation (`lower/sparse_levels.rs`). It reads the levels of a
field from `_sparse_levels`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from octants import _octants
from octants._fields.fields import ScalarField, TensorField
from octants._fields.snode import Component
from octants._fields.snode_trees import root
from octants._fields.sparse_kernels import (
    MOST_LISTED,
    append,
    deactivate,
    deactivate_cells,
    empty_lists,
    fill_active,
    length,
    list_active_cells,
    write_active,
)
from octants.types.primitive import DataType, i32, i64

if TYPE_CHECKING:
    from octants._fields.snode import SNode
    from octants._fields.snode_trees import SNodeTree


class LevelField(ScalarField):
    """A field at a given offset of a tree's memory, outside the tree's levels: a view of its data, or metadata."""

    def __init__(
        self,
        tree: SNodeTree,
        dtype: DataType,
        place: _octants.Placement,
        name: str,
        levels: tuple[LevelOfField, ...] = (),
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
    """Number of indices of a cell; for a dynamic level, of an element."""
    capacity: int
    """Number of cells; for a dynamic level, the capacity of one list."""
    is_list: bool
    can_be_listed: bool
    """There is room for a list of active cells."""
    entry: DataType
    """The type of an entry of that list: i64 if the elements of all lists have numbers of more than 31 bits."""
    candidates: int
    """Activation states to inspect when active cells are listed; with `around`, cells of that level."""
    chunk: int
    """Candidates that one thread inspects."""
    around: LevelOfField | None
    """The sparse level above, whose active cells hold all active cells of this one."""
    inside: tuple[int, ...]
    """Extents of the states within a cell of `around`."""
    word_inside: LevelOfField = field(repr=False, init=False)
    """Maps the number of a cell of `around`, followed by indices along `inside`, to a state."""
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
    cells: _octants.Cells = field(repr=False)
    """The digits of the indices that make the position in `state`."""
    _octants_entity = "sparse_cells"

    @property
    def _sparse_levels(self) -> tuple[LevelOfField, ...]:
        return (self,)

    @property
    def _sparse(self) -> SparseLevel:
        return self.level


def _wide_room(area: _octants.Area, base: int) -> _octants.Placement | None:
    """Memory for a list of active elements at `base`, if the area has no room: the elements in all lists have numbers
    of more than 31 bits. Only on the CPU, where memory that is not written takes address space only.
    """
    if area.can_be_listed or _octants.device_processor() is not None:
        return None
    return _octants.Placement.of_array(base, (MOST_LISTED,), None, 8, 1)[0]


def _make_level(node: SNode, area: _octants.Area, room: _octants.Placement | None) -> SparseLevel:
    """A level with its area, and the memory of its list if that is elsewhere. The levels above have theirs."""
    above = _levels_of(node)

    def words(place: _octants.Placement, levels: tuple[LevelOfField, ...] = (), dtype: DataType = i32) -> LevelField:
        made = LevelField(node._tree, dtype, place, f"{node._kind} level", levels)
        made._is_metadata = True
        return made

    is_wide = room is not None
    level = SparseLevel(
        axes=area.axes,
        capacity=area.capacity,
        can_be_listed=area.can_be_listed or is_wide,
        entry=i64 if is_wide else i32,
        is_list=area.is_list,
        candidates=area.candidates,
        chunk=area.chunk,
        around=above[-1] if above else None,
        inside=area.inside,
        touch=words(area.state, above),
        state=words(area.state),
        flat_state=words(area.flat_state),
        cells=words(area.cells) if room is None else words(room, dtype=i64),
        counts=words(area.counts),
        starts=words(area.starts),
        count=words(area.count),
    )
    level.word_inside = LevelOfField(level, level.flat_state, area.word_inside)
    return level


def _add_views(level: SparseLevel, area: _octants.Area, nodes: dict[int, SNode]) -> None:
    """Finds the contents of the level's cells, after all levels have their areas."""
    for number, place, inner in area.views:
        node = nodes[number]
        assert node._dtype is not None, "a place has the type of what is placed"
        level.views.append(CellView(LevelField(node._tree, node._dtype, place, node._name), inner))
    level.nested += [NestedLevel(nodes[number], axes) for number, axes in area.nested]


def _levels_of(node: SNode) -> tuple[LevelOfField, ...]:
    """The sparse levels above a level or place, outermost first, and the level itself when it has its area."""
    made = {step._number: step._sparse for step in node._path_from_root()}
    found = []
    for cells in node._tree.levels.cell_indices(node._number):
        if (level := made[cells.level]) is not None:
            found.append(LevelOfField(level, level.flat_state, cells))
    return tuple(found)


class SparseSupport:
    """The interface of this module for trees of levels."""

    @staticmethod
    def make_levels(tree: SNodeTree, below: list[SNode], nbytes: int) -> int:
        """Makes the sparse levels of a tree that is laid out in `nbytes`, whose levels and places are `below`. Returns
        the bytes that the tree takes with them.
        """
        nodes = {node._number: node for node in below}
        made = []
        for area in tree.levels.areas():
            node = nodes[area.level]
            room = _wide_room(area, (nbytes + 7) // 8 * 8)
            if room is not None:
                nbytes = room.base + 8 * MOST_LISTED
            node._sparse = level = _make_level(node, area, room)
            made.append((level, area))
        for node in below:
            node._levels = _levels_of(node)
        for level, area in made:
            _add_views(level, area, nodes)
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
            number, element = of.cells.locate(index)
            state = of.state._memory()
            state.set((number,), 1 if element is None else max(state.get((number,)), element + 1))

    @staticmethod
    def activate_all(levels: tuple[LevelOfField, ...], qd_stream: Any) -> None:
        """Activates all cells. Called when the host writes all elements."""
        for of in levels:
            of.state.fill(of.level.capacity if of.level.is_list else 1, qd_stream)

    @staticmethod
    def fill(target: TensorField, element: Any, qd_stream: Any) -> None:
        """Sets the elements in active cells."""
        values = np.broadcast_to(element, target._element_shape).ravel()
        fill = fill_active(target._dtype)
        for part, value in zip(target._scalar_components(), values, strict=True):
            fill(part, value.item(), qd_stream=qd_stream)

    @staticmethod
    def write(target: TensorField, values: np.ndarray[Any, Any], qd_stream: Any) -> None:
        """Sets the elements in active cells from an array of the field's shape."""
        shape = target.shape
        write = write_active(target._dtype)
        for number, part in enumerate(target._scalar_components()):
            of_part = values.reshape((*shape, -1))[..., number]
            write(part, np.array(of_part, copy=None, order="C"), target._offset, qd_stream=qd_stream)


def deactivate_all_snodes() -> None:
    """Deactivates all cells of the sparse levels of all trees and clears their data."""
    root.deactivate_all()
