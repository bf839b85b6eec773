"""The elements and relations of a mesh as numpy arrays: the common form of all sources of metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from octants.exceptions import OctantsRuntimeError

__all__ = ["KINDS", "WIDTHS", "MeshMetadata", "Numbering", "Relation", "letters"]

Array = np.ndarray[Any, Any]

KINDS = ("verts", "edges", "faces", "cells")
"""The kinds of elements, by order, which is their dimension."""

WIDTHS = {(1, 0): 2, (2, 0): 3, (2, 1): 3, (3, 0): 4, (3, 1): 6, (3, 2): 4}
"""Number of elements of a lower order per element: edges of a triangle, vertices of a tetrahedron."""


@dataclass(frozen=True)
class Numbering:
    """Order and patches of the elements of one kind."""

    count: int
    positions: Array
    """The position of each element in the memory of reordered attributes."""
    patches: Array
    """The patch that owns each element."""


@dataclass(frozen=True)
class Relation:
    """For each element of a source kind, the adjacent elements of a target kind, by number."""

    indices: Array
    """A row of `width` numbers for each element; or, with `offsets`, the concatenated numbers of all elements."""
    offsets: Array | None = None
    """Start of each element's numbers in `indices`, followed by the end."""

    @property
    def width(self) -> int | None:
        """Number of adjacent elements, if all elements have the same number; else None."""
        return None if self.offsets is not None else int(self.indices.shape[1])

    def row(self, element: int) -> Array:
        """The numbers of the elements adjacent to one element."""
        if self.offsets is None:
            return np.asarray(self.indices[element])
        return np.asarray(self.indices[self.offsets[element] : self.offsets[element + 1]])

    def renumbered(self, source: Array | None, target: Array | None) -> Relation:
        """The same relation in other numbers. `source` and `target` map old to new numbers; None keeps the old ones."""
        indices = self.indices if target is None else target[self.indices]
        if source is None:
            return Relation(indices, self.offsets)
        order = np.empty(len(source), np.int64)
        order[source] = np.arange(len(source))
        if self.offsets is None:
            return Relation(indices[order])
        counts = np.diff(self.offsets)[order]
        offsets = offsets_of(counts)
        first = np.repeat(self.offsets[:-1][order] - offsets[:-1], counts)
        return Relation(indices[np.arange(offsets[-1]) + first], offsets)


def offsets_of(counts: Array) -> Array:
    """The offsets of consecutive ranges of these lengths, followed by the end of the last one."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def letters(source: int, target: int) -> str:
    """The short name of a relation: `FV` for faces to vertices."""
    return f"{KINDS[source][0]}{KINDS[target][0]}".upper()


class MeshMetadata:
    """The elements of a mesh, their order in memory, and the relations between them.

    Made by `qd.Mesh.load_meta`, `qd.Mesh.generate_meta` and `qd.Mesh.from_elements`. Independent of the program: the
    same object may serve several meshes, before and after `qd.init`.
    """

    def __init__(
        self,
        num_patches: int,
        numberings: Mapping[int, Numbering],
        relations: Mapping[tuple[int, int], Callable[[], Relation]],
        attrs: Mapping[str, Array],
        patcher: Any = None,
    ) -> None:
        self.num_patches = num_patches
        """Number of patches."""
        self.attrs = dict(attrs)
        """Arrays from the source. `x`: the vertex positions, of shape (vertices, 3)."""
        self.patcher = patcher
        """The entry `patcher` of the source, if any."""
        self._numberings = dict(numberings)
        self._makers = dict(relations)
        self._relations: dict[tuple[int, int], Relation] = {}

    @property
    def num_elements(self) -> dict[str, int]:
        """Number of elements of each kind."""
        return {KINDS[order]: numbering.count for order, numbering in sorted(self._numberings.items())}

    @property
    def relations(self) -> list[str]:
        """The relations by their two letters: `FV` is faces to vertices."""
        return [letters(*orders) for orders in sorted(self._makers)]

    def _relation(self, source: int, target: int) -> Relation | None:
        """A relation, built on first use; None if there is no such relation."""
        orders = source, target
        if orders not in self._makers:
            return None
        if orders not in self._relations:
            self._relations[orders] = self._makers[orders]()
        return self._relations[orders]

    def _positions_of_vertices(self) -> Array:
        if "x" not in self.attrs:
            raise OctantsRuntimeError("the metadata of this mesh has no vertex positions: `x` is missing in `attrs`")
        return self.attrs["x"]
