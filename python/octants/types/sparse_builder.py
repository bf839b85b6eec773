"""The annotation of parameters that are builders of sparse matrices."""

from __future__ import annotations


def sparse_matrix_builder() -> type:
    """The annotation of a `qd.linalg.SparseMatrixBuilder`: in kernels `builder[i, j] += value` adds to an element."""
    # Sparse matrices are imported by programs that use them.
    from octants.linalg.sparse_matrix_builder import SparseMatrixBuilder

    return SparseMatrixBuilder
