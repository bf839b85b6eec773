"""Meshes under their path in Quadrants, with the factories of builders that programs call."""

from octants._mesh.elements import MeshElementField
from octants._mesh.mesh import Mesh, MeshBuilder, MeshElement, MeshInstance
from octants._mesh.metadata import MeshMetadata
from octants._mesh.reordered_fields import ReorderedMatrixField as MeshReorderedMatrixFieldProxy
from octants._mesh.reordered_fields import ReorderedScalarField as MeshReorderedScalarFieldProxy

__all__ = [
    "Mesh",
    "MeshBuilder",
    "MeshElement",
    "MeshElementField",
    "MeshInstance",
    "MeshMetadata",
    "MeshReorderedMatrixFieldProxy",
    "MeshReorderedScalarFieldProxy",
]


def _TriMesh() -> MeshBuilder:  # noqa: N802
    """A builder of triangle meshes."""
    return MeshBuilder()


def _TetMesh() -> MeshBuilder:  # noqa: N802
    """A builder of tetrahedral meshes."""
    return MeshBuilder()
