"""The elements of one kind of a mesh (`mesh.verts`): their attributes, and the tables that the compiler reads.

The user identifies elements by number. In memory they have positions: the number itself, or, once an attribute is
reordered, the index in patch order. Kernels work with positions. Fields, which are created when a kernel first needs
them, map positions to numbers, patches and relations; `crates/octants-frontend/src/lower/mesh_elements.rs` says what
each is for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from octants import _octants
from octants._fields.axes import axes
from octants._fields.fields import ScalarField
from octants._fields.make_field import field, make_scalar_field
from octants._fields.snode_trees import root
from octants._language.python_scope import STAND_INS, only_in_python
from octants._mesh.metadata import KINDS, Array, Numbering, letters
from octants._mesh.reordered_fields import reordered
from octants.exceptions import OctantsRuntimeError, OctantsScopeError, OctantsSyntaxError
from octants.layouts import Layout
from octants.types.primitive import i32
from octants.types.struct_type import StructType

if TYPE_CHECKING:
    from octants._mesh.mesh import MeshInstance

__all__ = ["MeshElementField", "check_name"]


class MeshElementField:
    """The elements of one kind of a mesh. Attributes are fields, accessed by name: `mesh.verts.x`."""

    _octants_entity = "mesh_elements"

    def __init__(self, mesh: MeshInstance, order: int, numbering: Numbering | None) -> None:
        self.mesh = mesh
        """The mesh of these elements."""
        self._kind = KINDS[order]
        self._element_order = order
        self._numbering = numbering
        self._is_reordered = False
        self._attributes = SimpleNamespace()
        self._ids: ScalarField | None = None
        self._positions: ScalarField | None = None
        self._tables_of_patches: dict[bool, ScalarField] = {}
        self._relations_by_order: dict[tuple[bool, ...], _Relations] = {}

    @only_in_python
    def place(
        self,
        members: Mapping[str, Any],
        reorder: bool = False,
        needs_grad: bool = False,
        layout: Layout = Layout.SOA,
    ) -> None:
        """Declares attributes: names, and the types of one element (`qd.f32`, `qd.types.vector(3, qd.f32)`, ...).

        With `reorder=True`, elements of a patch are adjacent in memory; Python and kernels still index the attribute by
        element number. With `needs_grad=True`, each attribute has a gradient. `layout` is `qd.Layout.SOA`, one array
        per attribute, or `qd.Layout.AOS`, which interleaves them.

        Raises `OctantsSyntaxError` for a name that is taken, and `OctantsRuntimeError` if the mesh has no such
        elements.
        """
        for name in members:
            check_name(name, vars(self._attributes))
        numbering = self._known()
        if reorder and any(isinstance(dtype, StructType) for dtype in members.values()):
            raise OctantsRuntimeError(
                "an attribute of a struct type cannot be reordered: place its members as separate attributes"
            )
        if not members:
            return
        with _octants.on_program(self.mesh._serial):
            made: dict[str, Any] = {
                name: field(dtype, shape=None, needs_grad=needs_grad, name=f"{self._kind}.{name}")
                if not isinstance(dtype, StructType)
                else dtype.field(shape=None, needs_grad=needs_grad, name=f"{self._kind}.{name}")
                for name, dtype in members.items()
            }
            groups = [list(made.values())] if layout == Layout.AOS else [[each] for each in made.values()]
            for group in groups:
                for fields in (group, [each.grad for each in group]) if needs_grad else (group,):
                    root.own_tree().dense(axes(0), numbering.count).place(*fields)
            if reorder:
                self._reorder(numbering)
                assert self._positions is not None
                positions, order = self._positions, numbering.positions
                made = {name: reordered(each, positions, order) for name, each in made.items()}
        vars(self._attributes).update(made)

    def _reorder(self, numbering: Numbering) -> None:
        if self._is_reordered:
            return
        ids = np.empty(numbering.count, np.int64)
        ids[numbering.positions] = np.arange(numbering.count)
        self._positions, self._ids = self._table(numbering.positions), self._table(ids)
        self._is_reordered = True

    def _table(self, values: Array) -> ScalarField:
        """A field of numbers that kernels read."""
        return _table(self.mesh, values)

    def _known(self) -> Numbering:
        if self._numbering is None or self._numbering.count == 0:
            raise OctantsRuntimeError(f"the mesh has no {self._kind}")
        return self._numbering

    @property
    def keys(self) -> list[str]:
        """The names of the attributes."""
        return list(vars(self._attributes))

    def get_member_field(self, key: str) -> Any:
        """The field of an attribute. Raises `KeyError` if no attribute has this name."""
        return vars(self._attributes)[key]

    @property
    def _members(self) -> list[Any]:
        return list(vars(self._attributes).values())

    @property
    def _items(self) -> Any:
        return vars(self._attributes).items()

    def __getattr__(self, name: str) -> Any:
        attributes = vars(self.__dict__.get("_attributes", SimpleNamespace()))
        if name in attributes:
            return attributes[name]
        raise AttributeError(f"`{self.__dict__.get('_kind', 'mesh elements')}` of this mesh has no attribute {name!r}")

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        if "mesh_elements" in STAND_INS:
            found: Iterator[Any] = STAND_INS["mesh_elements"](self)
            return found
        raise OctantsScopeError(
            f"`{self._kind}` of a mesh can only be looped over in a kernel; in Python, index the attributes"
        )

    def __repr__(self) -> str:
        return f"<{self._count} {self._kind} of a mesh: {', '.join(self.keys)}>"

    # Read by the compiler

    @property
    def _count(self) -> int:
        return 0 if self._numbering is None else self._numbering.count

    @property
    def _patches(self) -> ScalarField:
        """The patch number of the element at each position."""
        if self._is_reordered not in self._tables_of_patches:
            numbering = self._known()
            patches = numbering.patches
            if self._is_reordered:
                patches = np.empty_like(patches)
                patches[numbering.positions] = numbering.patches
            self._tables_of_patches[self._is_reordered] = self._table(patches)
        return self._tables_of_patches[self._is_reordered]

    @property
    def _relations(self) -> _Relations:
        """The relation tables of these elements, in terms of the current positions of all kinds."""
        orders = tuple(elements._is_reordered for elements in self.mesh._kinds)
        if orders not in self._relations_by_order:
            self._relations_by_order[orders] = _Relations(self)
        return self._relations_by_order[orders]


class _Relations:
    """The relation tables of the elements of one kind; attributes are named after the target kind."""

    def __init__(self, source: MeshElementField) -> None:
        self._source = source
        self._tables: dict[str, _Table] = {}

    @property
    def known(self) -> str:
        """The available relations, for messages."""
        return f"the metadata has {', '.join(self._source.mesh._metadata.relations) or 'no relations'}"

    def __getattr__(self, kind: str) -> _Table:
        if kind.startswith("_") or kind not in KINDS:
            raise AttributeError(kind)
        if kind not in self._tables:
            self._tables[kind] = self._make(KINDS.index(kind))
        return self._tables[kind]

    def _make(self, order: int) -> _Table:
        source = self._source
        mesh = source.mesh
        target = mesh._kinds[order]
        found = mesh._metadata._relation(source._element_order, order)
        if found is None:
            raise AttributeError(f"the mesh has no relation {letters(source._element_order, order)}")
        places = [elements._known().positions if elements._is_reordered else None for elements in (source, target)]
        return _Table(mesh, target, found.renumbered(*places))


class _Table:
    """A relation as fields, indexed by position."""

    def __init__(self, mesh: MeshInstance, to: MeshElementField, relation: Any) -> None:
        self.to = to
        self.width: int | None = relation.width
        self.indices = _table(mesh, relation.indices)
        self.offsets = None if relation.offsets is None else _table(mesh, relation.offsets)


def _table(mesh: MeshInstance, values: Array) -> ScalarField:
    with _octants.on_program(mesh._serial):
        # No field has no elements.
        made = make_scalar_field(i32, shape=values.shape if values.size else (1,))
        if values.size:
            made.from_numpy(values.astype(np.int32))
    return made


_RESERVED = (*KINDS, "id", "mesh")


def check_name(name: Any, taken: Mapping[str, Any]) -> None:
    """Raises `OctantsSyntaxError` unless this is a valid attribute name."""
    if not isinstance(name, str) or not name.isidentifier():
        raise OctantsSyntaxError(f"an attribute name must be an identifier, not {name!r}")
    if name in _RESERVED or hasattr(MeshElementField, name):
        raise OctantsSyntaxError(f"'{name}' cannot be used as an attribute name: mesh elements reserve it")
    if name in taken:
        raise OctantsSyntaxError(f"'{name}' is already used as an attribute name of these elements")
