"""Tools for programs: writing geometry and grids to files."""

from octants.tools.ply import PLYWriter
from octants.tools.vtk import write_vtk

__all__ = ["PLYWriter", "write_vtk"]
