"""Sparse matrices: `SparseMatrix`.

The entries are in host memory, by columns. For a product with an ndarray, the rows are copied to the device and kept
there until the matrix changes. On a GPU the vendor's library multiplies, if there is one; otherwise a kernel does.
"""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np

from octants import _octants
from octants._arrays.ndarrays import Ndarray
from octants._arrays.ndarrays import ndarray as make_ndarray
from octants._fields.fields import TensorField
from octants._fields.snode_trees import require_program
from octants.exceptions import OctantsRuntimeError
from octants.linalg.device_rows import DeviceRows
from octants.types.primitive import BY_NAME, DataType, f32, resolve_dtype

__all__ = ["SparseMatrix", "extents", "real_type"]

_FORMATS = ("col_major", "row_major")


def real_type(dtype: Any, storage_format: str) -> DataType:
    """The element type; checks it and the storage format."""
    resolved = resolve_dtype(dtype)
    if resolved.name not in ("f32", "f64"):
        raise OctantsRuntimeError(f"Unsupported sparse matrix data type: {resolved}: the elements must be f32 or f64")
    if storage_format not in _FORMATS:
        raise OctantsRuntimeError(f"Unsupported storage format {storage_format!r}: one of {', '.join(_FORMATS)}")
    return resolved


def extents(n: Any, m: Any) -> tuple[int, int]:
    """Checked numbers of rows and columns. A square matrix if `m` is None."""
    given = (("rows", n), ("columns", n if m is None else m))
    for name, extent in given:
        if not isinstance(extent, (int, np.integer)):
            raise TypeError(f"the number of {name} of a sparse matrix must be an integer, not {extent!r}")
        if extent < 1:
            raise ValueError(f"the number of {name} of a sparse matrix must be positive, not {extent}")
    return int(given[0][1]), int(given[1][1])


class SparseMatrix:
    """A sparse matrix of `n` rows and `m` columns (square by default), initially zero.

    Elements are of `dtype`, `qd.f32` or `qd.f64`. `storage_format`, "col_major" or "row_major", is the order in which
    `mmwrite` writes the entries; products and solvers take either. `sm` is internal: a host matrix to take over.

    Raises `OctantsRuntimeError` for another type or format, and `TypeError` or `ValueError` for extents that are not
    positive integers.
    """

    def __init__(
        self,
        n: int | None = None,
        m: int | None = None,
        sm: Any = None,
        dtype: Any = f32,
        storage_format: str = "col_major",
    ) -> None:
        require_program()
        self._storage_format = storage_format
        self._rows: DeviceRows | None = None
        if sm is None:
            if n is None:
                raise OctantsRuntimeError("a sparse matrix needs its number of rows: qd.linalg.SparseMatrix(n, m)")
            sm = _octants.HostMatrix(*extents(n, m), real_type(dtype, storage_format).name)
        self.matrix: _octants.HostMatrix = sm

    # Description

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.matrix.shape[0]

    @property
    def m(self) -> int:
        """Number of columns."""
        return self.matrix.shape[1]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.matrix.shape

    @property
    def dtype(self) -> DataType:
        """The type of the elements."""
        return BY_NAME[self.matrix.dtype_name]

    def __str__(self) -> str:
        columns = self.matrix.by_columns()
        dense = np.zeros(self.shape)
        dense[columns[1], _numbers(columns[0])] = columns[2]
        texts = [[f"{value:.4g}" for value in row] for row in dense]
        width = max((len(text) for row in texts for text in row), default=0)
        return "\n".join("[" + ", ".join(text.rjust(width) for text in row) + "]" for row in texts)

    __repr__ = __str__

    # Elements

    def __getitem__(self, indices: tuple[int, int]) -> float:
        return self.matrix.get(*self._element(indices))

    def __setitem__(self, indices: tuple[int, int], value: float) -> None:
        self.matrix.set(*self._element(indices), value)
        self._rows = None

    def _element(self, indices: Any) -> tuple[int, int]:
        if not isinstance(indices, tuple) or len(indices) != 2:
            raise IndexError(f"an element of a sparse matrix has two indices, `A[i, j]`, not {indices!r}")
        return self._index(indices[0], 0), self._index(indices[1], 1)

    def _index(self, index: Any, axis: int) -> int:
        extent = self.shape[axis]
        if not isinstance(index, (int, np.integer)):
            raise TypeError(f"indices of a sparse matrix must be integers, not {index!r}")
        index = int(index)
        if not 0 <= index < extent:
            what = "column" if axis else "row"
            raise IndexError(f"{what} {index} is out of bounds for a sparse matrix of shape {self.shape}")
        return index

    def build_from_ndarray(self, ndarray: Ndarray) -> None:
        """Sets the matrix from triplets in an ndarray: consecutive row, column and value of each entry.

        The ndarray's elements are scalars, or vectors of three. Duplicate entries are summed. Raises
        `OctantsRuntimeError` unless the argument is an ndarray whose number of scalars is a multiple of three.
        """
        if not isinstance(ndarray, Ndarray):
            raise OctantsRuntimeError(
                "Sparse matrix only supports building from [qd.ndarray, qd.Vector.ndarray, qd.Matrix.ndarray], "
                f"not from {type(ndarray)}"
            )
        triplets = ndarray.to_numpy().ravel()
        if triplets.size % 3 != 0:
            raise OctantsRuntimeError(
                f"The number of ndarray elements must have a length that is divisible by 3, not {triplets.size}."
            )
        rows, columns = (np.ascontiguousarray(triplets[k::3], np.int64) for k in (0, 1))
        values = np.ascontiguousarray(triplets[2::3], self.dtype.numpy)
        self.matrix = _octants.HostMatrix.from_triplets(self.shape, rows, columns, values)
        self._rows = None

    def mmwrite(self, filename: str | PathLike[str]) -> None:
        """Writes the entries to a Matrix Market file, in the order of the storage format."""
        starts, rows, values = self.matrix.by_columns()
        columns = _numbers(starts)
        if self._storage_format == "row_major":
            order = np.lexsort((columns, rows))
            rows, columns, values = rows[order], columns[order], values[order]
        # All digits of an f32 and of an f64.
        digits = 9 if self.dtype.name == "f32" else 17
        with open(filename, "w") as file:
            file.write(f"%%MatrixMarket matrix coordinate real general\n%\n{self.n} {self.m} {len(values)}\n")
            for i, j, value in zip(rows.tolist(), columns.tolist(), values.tolist(), strict=True):
                file.write(f"{i + 1} {j + 1} {value:.{digits}g}\n")

    # Algebra

    def __iadd__(self, other: SparseMatrix) -> SparseMatrix:
        self.matrix, self._rows = self._same_shape(other).matrix.add(other.matrix), None
        return self

    def __add__(self, other: SparseMatrix) -> SparseMatrix:
        return self._made(self._same_shape(other).matrix.add(other.matrix))

    def __isub__(self, other: SparseMatrix) -> SparseMatrix:
        self.matrix, self._rows = self._same_shape(other).matrix.subtract(other.matrix), None
        return self

    def __sub__(self, other: SparseMatrix) -> SparseMatrix:
        return self._made(self._same_shape(other).matrix.subtract(other.matrix))

    def __neg__(self) -> SparseMatrix:
        return self._made(self.matrix.scale(-1.0))

    def __mul__(self, other: float | SparseMatrix) -> SparseMatrix:
        """Multiplies by a scalar, or element by element by a matrix of the same shape."""
        if isinstance(other, SparseMatrix):
            return self._made(self._same_shape(other).matrix.multiply_elements(other.matrix))
        if isinstance(other, (int, float, np.number)):
            return self._made(self.matrix.scale(float(other)))
        return NotImplemented

    def __rmul__(self, other: float) -> SparseMatrix:
        return self.__mul__(other)

    def transpose(self) -> SparseMatrix:
        """The transposed matrix."""
        return self._made(self.matrix.transpose())

    def __matmul__(self, other: Any) -> Any:
        """The product with another matrix or with a vector.

        For an ndarray, the result is an ndarray, computed on the device. For a field or a numpy array, it is a numpy
        array. Raises `OctantsRuntimeError` if an ndarray has the wrong number of elements, and for other objects;
        `AssertionError` if the extent of another operand does not match.
        """
        if isinstance(other, SparseMatrix):
            assert self.m == other.n, f"Dimension mismatch between sparse matrices {self.shape} and {other.shape}"
            self._same_type(other)
            return self._made(self.matrix.multiply(other.matrix))
        text = f"Dimension mismatch between sparse matrix {self.shape} and vector"
        if isinstance(other, Ndarray):
            if tuple(other.shape) != (self.m,):
                raise OctantsRuntimeError(f"{text} ({tuple(other.shape)})")
            result = make_ndarray(other.dtype, self.n)
            self._rows_on_device().multiply(other, result)
            return result
        if isinstance(other, (TensorField, np.ndarray)):
            assert tuple(other.shape) == (self.m,), f"{text} ({tuple(other.shape)})"
            x = other if isinstance(other, np.ndarray) else other.to_numpy()
            starts, rows, values = self.matrix.by_columns()
            weights = values * np.asarray(x, self.dtype.numpy)[_numbers(starts)]
            return np.bincount(rows, weights, self.n).astype(self.dtype.numpy)
        raise OctantsRuntimeError(
            f"Sparse matrix-matrix/vector multiplication does not support {type(other)} for now. Supported types are "
            "SparseMatrix, qd.field, qd.ndarray, and numpy ndarray."
        )

    def _made(self, matrix: _octants.HostMatrix) -> SparseMatrix:
        return SparseMatrix(sm=matrix, storage_format=self._storage_format)

    def _same_shape(self, other: SparseMatrix) -> SparseMatrix:
        if not isinstance(other, SparseMatrix):
            raise OctantsRuntimeError(
                f"a sparse matrix can only be combined with another sparse matrix, not with {type(other)}"
            )
        assert self.shape == other.shape, f"Dimension mismatch between sparse matrices {self.shape} and {other.shape}"
        self._same_type(other)
        return self

    def _same_type(self, other: SparseMatrix) -> None:
        if self.dtype != other.dtype:
            raise OctantsRuntimeError(
                f"sparse matrices of different types cannot be combined: {self.dtype} and {other.dtype}"
            )

    def _rows_on_device(self) -> DeviceRows:
        """The matrix on the device, copied there on first use."""
        if self._rows is None or not self._rows.alive:
            starts, columns, values = self.matrix.transpose().by_columns()
            self._rows = DeviceRows(self.shape, starts, columns, values, self.dtype)
        return self._rows


def _numbers(starts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The column of each entry, from the column offsets."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))
