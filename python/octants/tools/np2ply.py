"""The writer of PLY files under its path in Quadrants."""

from octants.tools.ply import PLYWriter

__all__ = ["PLYWriter"]
