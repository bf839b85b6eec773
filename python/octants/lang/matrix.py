"""Vectors, matrices and their types under their path in Quadrants."""

from octants.fields import MatrixField
from octants.matrix import Matrix, Vector
from octants.ndarrays import MatrixNdarray, VectorNdarray
from octants.types import MatrixType, VectorType

__all__ = ["Matrix", "MatrixField", "MatrixNdarray", "MatrixType", "Vector", "VectorNdarray", "VectorType"]
