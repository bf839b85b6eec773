"""Tools around programs: writing geometry to files."""

from octants.tools.ply import PLYWriter

__all__ = ["PLYWriter"]
