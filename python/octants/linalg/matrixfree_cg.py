"""The matrix-free solvers under their path in Quadrants."""

from octants.linalg.linear_operator import LinearOperator
from octants.linalg.matrix_free import MatrixFreeBICGSTAB, MatrixFreeCG

__all__ = ["LinearOperator", "MatrixFreeBICGSTAB", "MatrixFreeCG"]
