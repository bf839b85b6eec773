"""Elements of meshes where kernels run as Python: an element reads and sets its attributes by its number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from octants._mesh.elements import MeshElementField
from octants._mesh.metadata import KINDS, Relation
from octants.exceptions import OctantsAttributeError, OctantsIndexError, OctantsSyntaxError

__all__ = ["loop_over", "patch_index"]

_patches: list[int] = []
"""The patches of the loops' current elements, innermost last."""


class Element:
    """An element of a mesh."""

    __slots__ = ("_elements", "id")
    _elements: MeshElementField
    id: int

    def __init__(self, elements: MeshElementField, number: int) -> None:
        object.__setattr__(self, "_elements", elements)
        object.__setattr__(self, "id", number)

    def __getattr__(self, name: str) -> Any:
        elements = self._elements
        if name not in KINDS:
            return getattr(elements, name)[self.id]
        mesh, order = elements.mesh, KINDS.index(name)
        relation = mesh._metadata._relation(elements._element_order, order)
        if relation is None:
            raise OctantsAttributeError(f"the mesh has no relation from `{elements._kind}` to `{name}`")
        return Neighbors(mesh._kinds[order], relation, self.id)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "id" or name in KINDS:
            raise OctantsSyntaxError(f"`{name}` of a mesh element cannot be assigned")
        getattr(self._elements, name)[self.id] = value


class Neighbors:
    """The elements of one kind that are adjacent to an element."""

    def __init__(self, elements: MeshElementField, relation: Relation, number: int) -> None:
        self._elements = elements
        self._row = relation.row(number)

    @property
    def size(self) -> int:
        """Number of neighbors."""
        return len(self._row)

    def __len__(self) -> int:
        return len(self._row)

    def __getitem__(self, index: int) -> Element:
        if not 0 <= index < len(self._row):
            raise OctantsIndexError(
                f"index {index} is out of bounds for a mesh relation with {len(self._row)} elements"
            )
        return Element(self._elements, int(self._row[index]))

    def __iter__(self) -> Iterator[Element]:
        return (Element(self._elements, int(number)) for number in self._row)


def loop_over(elements: MeshElementField) -> Iterator[Element]:
    """The elements of a kind, by number."""
    patches = elements._known().patches
    for number in range(len(elements)):
        _patches.append(int(patches[number]))
        try:
            yield Element(elements, number)
        finally:
            _patches.pop()


def patch_index() -> int:
    """The patch of the innermost loop's current element."""
    if not _patches:
        raise OctantsSyntaxError("qd.mesh_patch_idx() can only be called inside a loop over mesh elements")
    return _patches[-1]
