"""Sparse matrices and solvers of linear systems: `qd.linalg`.

A `SparseMatrix` is built from a `SparseMatrixBuilder` that kernels fill, or from triplets in an ndarray. Its algebra
runs on the host. Its direct solver (`SparseSolver`) runs on the host, or on an NVIDIA GPU if cuDSS is installed.
`SparseCG` and the matrix-free solvers (`MatrixFreeCG`, `MatrixFreeBICGSTAB`) run as kernels on the program's device. So
do products with vectors on the device, unless the GPU vendor's library computes them.
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
