"""Vectors, matrices and their types under their path in Quadrants."""

from octants._arrays.ndarrays import MatrixNdarray, VectorNdarray
from octants._fields.fields import MatrixField
from octants.types import MatrixType, VectorType
from octants.types.values import Matrix, Vector

__all__ = ["Matrix", "MatrixField", "MatrixNdarray", "MatrixType", "Vector", "VectorNdarray", "VectorType"]
