"""Mesh metadata from triangles, tetrahedra or edges: all relations, computed on first use.

Vertices are sorted along a Morton curve through their positions, so that vertices near each other in space are near
each other in memory. A patch is a range of them. An edge, a face or a cell belongs to the patch of its first vertex in
this order, and is sorted by that vertex.
"""

from __future__ import annotations

from functools import cached_property
from itertools import combinations
from typing import Any, NoReturn

import numpy as np

from octants._mesh.metadata import Array, MeshMetadata, Numbering, Relation, offsets_of
from octants.exceptions import OctantsRuntimeError

__all__ = ["from_elements"]

# Corners of a cell's edges and faces, by their place in the cell. Seen from outside of a cell whose volume is positive,
# the corners of a face are in counterclockwise order. The face at place i is opposite to corner i.
_EDGES_OF_CELL = tuple(combinations(range(4), 2))
_FACES_OF_CELL = ((1, 2, 3), (0, 3, 2), (0, 1, 3), (0, 2, 1))
_EDGES_OF_FACE = ((0, 1), (1, 2), (2, 0))

_NAMES = {2: "edges", 3: "faces", 4: "cells"}


class _Connectivity:
    """The elements of all kinds, as tuples of vertices."""

    def __init__(self, num_verts: int, top: Array) -> None:
        self.num_verts = num_verts
        self.top_order = top.shape[1] - 1
        self.vertices: dict[int, Array] = {self.top_order: top}
        self.lower: dict[tuple[int, int], Array] = {}
        """By a pair of orders: for each element of the higher one, its elements of the lower one, in local order."""
        if self.top_order == 3:
            self._add(2, top[:, _FACES_OF_CELL], 3)
        if self.top_order >= 2:
            corners = top[:, _EDGES_OF_CELL if self.top_order == 3 else _EDGES_OF_FACE]
            self._add(1, np.sort(corners, axis=-1), self.top_order)
        if self.top_order == 3:
            self._find_edges_of_faces()
        for order, vertices in self.vertices.items():
            self.lower[order, 0] = vertices

    def _add(self, order: int, corners: Array, source: int) -> None:
        """Adds the elements of an order, found as corner sets of the elements of the order `source`. Equal sets are one
        element, with the corner order of its first appearance.
        """
        count, width = corners.shape[:2]
        flat = corners.reshape(count * width, -1)
        _, first, which = np.unique(np.sort(flat, axis=1), axis=0, return_index=True, return_inverse=True)
        self.vertices[order] = flat[first]
        self.lower[source, order] = which.reshape(count, width)

    def _find_edges_of_faces(self) -> None:
        ends = self.vertices[1]
        keys = ends[:, 0] * self.num_verts + ends[:, 1]
        order = np.argsort(keys)
        wanted = np.sort(self.vertices[2][:, _EDGES_OF_FACE], axis=-1)
        found = np.searchsorted(keys, wanted[..., 0] * self.num_verts + wanted[..., 1], sorter=order)
        self.lower[2, 1] = order[found]

    def count(self, order: int) -> int:
        return self.num_verts if order == 0 else len(self.vertices[order])

    def relation(self, source: int, target: int) -> Relation:
        if source > target:
            return Relation(self.lower[source, target])
        if source < target:
            return _inverse(self.lower[target, source], self.count(source))
        # Vertices are next to each other by an edge, other elements by one of the next lower order.
        if source == 0:
            return _next_to_each_other(self.vertices[1], self.num_verts)
        return _next_to_each_other(_rows_of(self.relation(source - 1, source)), self.count(source))


def _inverse(rows: Array, count: int) -> Relation:
    """For each of `count` elements, the rows that contain it, in order."""
    flat = rows.reshape(-1)
    order = np.argsort(flat, kind="stable")
    return Relation(order // rows.shape[1], offsets_of(np.bincount(flat, minlength=count)))


def _rows_of(relation: Relation) -> Array:
    """All pairs of different elements that are adjacent to a common element, one pair per row in ascending order."""
    assert relation.offsets is not None
    degrees = np.diff(relation.offsets)
    squares = offsets_of(degrees**2)
    which = np.repeat(np.arange(len(degrees)), degrees**2)
    place = np.arange(squares[-1]) - squares[which]
    first = relation.offsets[which] + place // degrees[which]
    second = relation.offsets[which] + place % degrees[which]
    pairs = np.stack([relation.indices[first], relation.indices[second]], axis=1)
    return np.asarray(pairs[pairs[:, 0] < pairs[:, 1]])


def _next_to_each_other(pairs: Array, count: int) -> Relation:
    """For each element, those paired with it, without duplicates and in order."""
    both = np.concatenate([pairs, pairs[:, ::-1]])
    keys = np.unique(both[:, 0] * count + both[:, 1])
    return Relation(keys % count, offsets_of(np.bincount(keys // count, minlength=count)))


class _MortonOrder:
    """The Morton order of the vertices, and the order of the other elements that follows from it."""

    def __init__(self, positions: Array, patch_size: int) -> None:
        low, high = positions.min(axis=0), positions.max(axis=0)
        extent = float((high - low).max()) or 1.0
        cells = np.clip((positions - low) / extent * (1 << 20), 0, (1 << 20) - 1).astype(np.int64)
        keys = np.zeros(len(positions), np.int64)
        for bit in range(20):
            for axis in range(3):
                keys |= ((cells[:, axis] >> bit) & 1) << (3 * bit + axis)
        self.positions = _ranks(keys)
        self.patch_size = patch_size

    @cached_property
    def num_patches(self) -> int:
        return -(-len(self.positions) // self.patch_size)

    def numbering(self, vertices: Array | None) -> Numbering:
        """The numbering of the vertices, or of elements with these vertices."""
        if vertices is None:
            first, positions = self.positions, self.positions
        else:
            first = self.positions[vertices].min(axis=1)
            positions = _ranks(first)
        return Numbering(len(first), positions, first // self.patch_size)


def _ranks(keys: Array) -> Array:
    ranks = np.empty(len(keys), np.int64)
    ranks[np.argsort(keys, kind="stable")] = np.arange(len(keys))
    return ranks


def from_elements(vertices: Any, faces: Any, cells: Any, edges: Any, patch_size: int) -> MeshMetadata:
    """The metadata of a mesh of triangles, tetrahedra or edges. `Mesh.from_elements` describes the arguments."""
    positions = np.asarray(vertices, dtype=np.float64)
    if positions.ndim != 2 or positions.shape[1] not in (2, 3) or len(positions) == 0:
        _wrong(f"`vertices` must have the shape (vertices, 3) or (vertices, 2), not {positions.shape}")
    if not np.isfinite(positions).all():
        _wrong("`vertices` must be finite numbers")
    positions = np.pad(positions, ((0, 0), (0, 3 - positions.shape[1])))
    given = {2: edges, 3: faces, 4: cells}
    wanted = [(width, value) for width, value in given.items() if value is not None]
    if len(wanted) != 1:
        _wrong("pass exactly one of `faces`, `cells` and `edges`: elements of lower order are derived from it")
    if isinstance(patch_size, bool) or not hasattr(patch_size, "__index__") or patch_size < 1:
        _wrong(f"`patch_size` must be a number of vertices, not {patch_size!r}")
    top = _corners(wanted[0][1], wanted[0][0], len(positions))
    connectivity = _Connectivity(len(positions), top)
    order = _MortonOrder(positions, int(patch_size))
    numberings = {0: order.numbering(None)}
    numberings |= {kind: order.numbering(vertices) for kind, vertices in connectivity.vertices.items()}
    kinds = range(connectivity.top_order + 1)
    relations = {(a, b): lambda a=a, b=b: connectivity.relation(a, b) for a in kinds for b in kinds}
    return MeshMetadata(order.num_patches, numberings, relations, {"x": positions})


def _corners(values: Any, width: int, num_verts: int) -> Array:
    name = _NAMES[width]
    found = np.asarray(values)
    if found.ndim != 2 or found.shape[1] != width or found.dtype.kind not in "iu" or len(found) == 0:
        _wrong(f"`{name}` must be integers of shape ({name}, {width}), not {found.dtype} of shape {found.shape}")
    found = found.astype(np.int64)
    if found.min() < 0 or found.max() >= num_verts:
        _wrong(f"`{name}` must contain vertex indices from 0 to {num_verts - 1}")
    in_order = np.sort(found, axis=1)
    if np.any(in_order[:, 1:] == in_order[:, :-1]):
        row = int(np.argmax(np.any(in_order[:, 1:] == in_order[:, :-1], axis=1)))
        _wrong(f"each row of `{name}` must have {width} different vertices: row {row} is {found[row].tolist()}")
    if len(np.unique(in_order, axis=0)) != len(found):
        _wrong(f"`{name}` must not contain two rows with the same vertices")
    return found


def _wrong(why: str) -> NoReturn:
    raise OctantsRuntimeError(f"qd.Mesh.from_elements: {why}")
