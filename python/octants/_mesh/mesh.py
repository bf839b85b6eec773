"""Meshes of a program: `qd.Mesh`, and instances with their elements."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from octants import _octants
from octants._fields.snode_trees import require_program
from octants._language.python_scope import only_in_python
from octants._mesh.connectivity import from_elements
from octants._mesh.elements import MeshElementField, check_name
from octants._mesh.metadata import KINDS, MeshMetadata
from octants._mesh.patches import read_patches
from octants.exceptions import OctantsRuntimeError
from octants.layouts import Layout

__all__ = ["Mesh", "MeshBuilder", "MeshElement", "MeshInstance"]


class MeshInstance:
    """A mesh in the memory of the current device. The elements of each kind take attributes.

    Made by `qd.Mesh.create(metadata)`.
    """

    @only_in_python
    def __init__(self, metadata: MeshMetadata) -> None:
        if not isinstance(metadata, MeshMetadata):
            raise TypeError(
                f"a mesh needs the metadata that qd.Mesh.load_meta() returns, not {type(metadata).__name__}"
            )
        require_program()
        self._metadata = metadata
        self._serial = _octants.program_serial()
        self._kinds = tuple(
            MeshElementField(self, order, metadata._numberings.get(order)) for order in range(len(KINDS))
        )
        self.verts, self.edges, self.faces, self.cells = self._kinds
        self.patcher = metadata.patcher
        """The entry `patcher` of the metadata."""

    @property
    def num_patches(self) -> int:
        """Number of patches."""
        return self._metadata.num_patches

    @only_in_python
    def get_position_as_numpy(self) -> np.ndarray[Any, Any]:
        """The vertex positions in the metadata, an array of f64 of shape (vertices, 3).

        Raises `OctantsRuntimeError` if the metadata has no positions.
        """
        return self._metadata._positions_of_vertices()

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {kind}" for kind, count in self._metadata.num_elements.items())
        return f"<qd.MeshInstance: {counts}>"


class MeshElement:
    """The elements of one kind in a `MeshBuilder`, and their attributes."""

    def __init__(self) -> None:
        self.layout = Layout.SOA
        self._placed: list[tuple[dict[str, Any], bool, bool]] = []

    def _set_soa(self, is_soa: bool = True) -> None:
        self.layout = Layout.SOA if is_soa else Layout.AOS

    def _set_aos(self, is_aos: bool = True) -> None:
        self.layout = Layout.AOS if is_aos else Layout.SOA

    SOA = property(fset=_set_soa, doc="Set to `True` for an array for each attribute.")
    AOS = property(fset=_set_aos, doc="Set to `True` for attributes that are interleaved in memory.")

    def place(self, members: Mapping[str, Any], reorder: bool = False, needs_grad: bool = False) -> None:
        """Declares attributes of each mesh that is built. Takes the arguments of `MeshElementField.place`.

        Raises `OctantsSyntaxError` for a name that is taken.
        """
        for name in members:
            check_name(name, {name: None for names, _, _ in self._placed for name in names})
        self._placed.append((dict(members), reorder, needs_grad))

    def _place_in(self, elements: MeshElementField) -> None:
        for needs_grad in (False, True):
            for reorder in (False, True):
                members: dict[str, Any] = {}
                for names, is_reordered, has_grad in self._placed:
                    if (is_reordered, has_grad) == (reorder, needs_grad):
                        members |= names
                if members:
                    elements.place(members, reorder, needs_grad, self.layout)


class MeshBuilder:
    """Declares attributes before a mesh exists, and builds meshes with them."""

    def __init__(self) -> None:
        self.verts = MeshElement()
        self.edges = MeshElement()
        self.faces = MeshElement()
        self.cells = MeshElement()

    @only_in_python
    def build(self, metadata: MeshMetadata) -> MeshInstance:
        """A mesh with these attributes.

        Raises `OctantsRuntimeError` if the mesh lacks a kind of elements for which attributes are declared.
        """
        mesh = MeshInstance(metadata)
        for kind in KINDS:
            getattr(self, kind)._place_in(getattr(mesh, kind))
        return mesh


class Mesh:
    """Constructors of meshes and of their metadata. A mesh has vertices, edges, faces and cells, which kernels loop
    over.
    """

    @staticmethod
    @only_in_python
    def load_meta(filename: Any) -> MeshMetadata:
        """Reads metadata from a JSON file in the format of MeshTaichi.

        Raises `OctantsRuntimeError`, which says what is missing or inconsistent in the file.
        """
        try:
            data = json.loads(Path(filename).read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise OctantsRuntimeError(f"mesh metadata: {filename} is not a JSON file: {error}") from error
        return read_patches(data)

    @staticmethod
    @only_in_python
    def generate_meta(data: Mapping[str, Any]) -> MeshMetadata:
        """Metadata from a dict with the structure of the JSON file. Lists may be numpy arrays.

        Raises `OctantsRuntimeError`, which says what is missing or inconsistent.
        """
        return read_patches(data)

    @staticmethod
    @only_in_python
    def from_elements(
        vertices: Any, *, faces: Any = None, cells: Any = None, edges: Any = None, patch_size: int = 1024
    ) -> MeshMetadata:
        """Metadata of a mesh given by exactly one of: `faces`, the vertices of triangles, of shape (faces, 3); `cells`,
        the vertices of tetrahedra, of shape (cells, 4); `edges`, the vertices of edges, of shape (edges, 2).

        `vertices` are positions of shape (vertices, 3) or (vertices, 2). The elements of lower order and all relations
        are derived. Reordered attributes are stored in Morton order, divided into patches of `patch_size` vertices.

        Raises `OctantsRuntimeError` for arrays of other shapes, and for degenerate or duplicate elements.
        """
        return from_elements(vertices, faces, cells, edges, patch_size)

    @staticmethod
    @only_in_python
    def create(metadata: MeshMetadata) -> MeshInstance:
        """A mesh without attributes in the memory of the current device.

        Raises `OctantsRuntimeError` before `qd.init()`."""
        return MeshInstance(metadata)

    @staticmethod
    @only_in_python
    def _create_instance(metadata: MeshMetadata) -> MeshInstance:
        """Alias of `create` under Quadrants' name, which MeshTaichi's patcher calls."""
        return MeshInstance(metadata)
