"""Sparse matrices and solvers of linear systems: `qd.linalg`.

A `SparseMatrix` is built by a `SparseMatrixBuilder` that kernels fill, or from triplets in an ndarray. Its algebra and
its direct solver (`SparseSolver`) run on the host. Products with vectors on the device, `SparseCG` and the matrix-free
solvers (`MatrixFreeCG`, `MatrixFreeBICGSTAB`) are kernels, and run on the program's device.
"""

from octants.linalg.linear_operator import LinearOperator
from octants.linalg.matrix_free import MatrixFreeBICGSTAB, MatrixFreeCG
from octants.linalg.sparse_cg import SparseCG
from octants.linalg.sparse_matrix import SparseMatrix
from octants.linalg.sparse_matrix_builder import SparseMatrixBuilder
from octants.linalg.sparse_solver import SparseSolver

__all__ = [
    "LinearOperator",
    "MatrixFreeBICGSTAB",
    "MatrixFreeCG",
    "SparseCG",
    "SparseMatrix",
    "SparseMatrixBuilder",
    "SparseSolver",
]
