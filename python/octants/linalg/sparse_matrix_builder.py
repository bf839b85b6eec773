"""Builders that accumulate the elements of a sparse matrix in kernels: `SparseMatrixBuilder`."""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

import dataclasses

import numpy as np

from octants import _octants
from octants._arrays.ndarrays import ndarray as make_ndarray
from octants._language.kernel_decorators import func
from octants._language.ops import atomic_add, cast, static
from octants.exceptions import OctantsRuntimeError
from octants.linalg.sparse_matrix import SparseMatrix, extents, real_type
from octants.types.annotations import ndarray
from octants.types.primitive import f32, i32

__all__ = ["SparseMatrixBuilder"]


@dataclasses.dataclass(init=False, eq=False, repr=False)
class SparseMatrixBuilder:
    """Collects up to `max_num_triplets` contributions to a matrix of `num_rows` rows and `num_cols` columns.

    A kernel takes it as a parameter annotated `qd.types.sparse_matrix_builder()` and writes `builder[i, j] += value` or
    `-= value`, from any number of threads. Contributions to the same element are summed. `build()` creates the matrix.
    Elements are of `dtype`, `qd.f32` or `qd.f64`; `storage_format` is that of `SparseMatrix`.

    Raises `OctantsRuntimeError` for another type or format, and `TypeError` or `ValueError` for extents that are not
    positive integers and for a negative capacity.
    """

    _triplet_count: ndarray(dtype=i32, ndim=1)
    _triplet_rows: ndarray(dtype=i32, ndim=1)
    _triplet_columns: ndarray(dtype=i32, ndim=1)
    _triplet_values: ndarray(ndim=1)

    def __init__(self, num_rows=None, num_cols=None, max_num_triplets=0, dtype=f32, storage_format="col_major") -> None:
        if num_rows is None:
            raise OctantsRuntimeError("a sparse matrix builder needs its number of rows: num_rows=")
        self.num_rows, self.num_cols = extents(num_rows, num_cols)
        if not isinstance(max_num_triplets, (int, np.integer)):
            raise TypeError(f"max_num_triplets must be an integer, not {max_num_triplets!r}")
        if max_num_triplets < 0:
            raise ValueError(f"max_num_triplets cannot be negative, got {max_num_triplets}")
        self.max_num_triplets = int(max_num_triplets)
        self.dtype = real_type(dtype, storage_format)
        self.storage_format = storage_format
        # Contributions beyond the capacity are counted, and reported by `build`.
        room = max(max_num_triplets, 1)
        self._triplet_count = make_ndarray(i32, 1)
        self._triplet_rows = make_ndarray(i32, room)
        self._triplet_columns = make_ndarray(i32, room)
        self._triplet_values = make_ndarray(self.dtype, room)

    @func
    def _add_element(self, i, j, value):
        # `|` rejects floats, which a store would truncate.
        row, column = i | 0, j | 0
        at = atomic_add(self._triplet_count[0], 1)
        if at < self._triplet_rows.shape[0]:
            self._triplet_rows[at] = row
            self._triplet_columns[at] = column
            self._triplet_values[at] = cast(value, static(self._triplet_values.dtype))

    def _triplets(self):
        """Rows, columns and values of the contributions."""
        count = self._triplet_count[0]
        if count > self.max_num_triplets:
            raise OctantsRuntimeError(
                f"{count} elements were added to a sparse matrix builder with room for {self.max_num_triplets}: "
                f"create it with max_num_triplets={count} or more"
            )
        arrays = self._triplet_rows, self._triplet_columns, self._triplet_values
        return tuple(array.to_numpy()[:count] for array in arrays)

    def print_triplets(self) -> None:
        """Prints the extents, the capacity and the contributions, in the order in which threads added them."""
        rows, columns, values = self._triplets()
        print(f"n={self.num_rows}, m={self.num_cols}, num_triplets={len(rows)} (max={self.max_num_triplets})")
        for i, j, value in zip(rows.tolist(), columns.tolist(), values.tolist(), strict=True):
            print(f"[{i}, {j}] = {value:g}")

    def build(self, dtype=None, _format="CSR") -> SparseMatrix:
        """Creates the matrix and empties the builder. The elements have the builder's type.

        Raises `OctantsRuntimeError` if the contributions exceeded the capacity, and `IndexError` if an element is
        outside the matrix.
        """
        rows, columns, values = self._triplets()
        shape = (self.num_rows, self.num_cols)
        made = _octants.HostMatrix.from_triplets(shape, rows.astype(np.int64), columns.astype(np.int64), values.copy())
        self._triplet_count.fill(0)
        return SparseMatrix(sm=made, storage_format=self.storage_format)
