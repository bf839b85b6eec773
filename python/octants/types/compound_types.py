"""Types of vectors, matrices and structs under their path in Quadrants."""

from octants.types import matrix, struct, vector

__all__ = ["matrix", "struct", "vector"]
