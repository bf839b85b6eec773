"""Square matrices with rows in the registers of a subgroup's threads: `Tile16x16`, `Tile32x32`.

Thread `i` of the subgroup holds row `i`; threads beyond the tile's rows take part, but hold no row.
"""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from functools import partial
from typing import Any

from octants._language.kernel_decorators import func
from octants._language.ops import max, min, sqrt, static, static_assert
from octants.simt.lanes import group_size, invocation_id, shuffle
from octants.types import template, vector
from octants.types.primitive import default_fp, resolve_dtype
from octants.types.struct_type import StructType

__all__ = ["Tile16x16", "Tile32x32", "TileType"]


@func
def _load3d(self: Any, array: template(), batch: template(), r0: Any, r1: Any, c0: Any, c1: Any) -> None:
    """Loads rows `r0` to `r1` and columns `c0` to `c1` of an array. Elements out of bounds keep their values."""
    static_assert(
        self.row.n <= group_size(), "a tile needs one thread of a subgroup per row: this device's subgroups are smaller"
    )
    row = r0 + invocation_id()
    end = min(c1, array.shape[static(len(array.shape) - 1)])
    if invocation_id() < self.row.n and row < r1 and row < array.shape[static(len(array.shape) - 2)]:
        for j in static(range(self.row.n)):
            if c0 + j < end:
                if static(batch is None):
                    self.row[j] = array[row, c0 + j]
                else:
                    self.row[j] = array[batch, row, c0 + j]


@func
def _store3d(self: Any, array: template(), batch: template(), r0: Any, r1: Any, c0: Any, c1: Any) -> None:
    """Stores to rows `r0` to `r1` and columns `c0` to `c1` of an array, as far as they are in bounds."""
    static_assert(
        self.row.n <= group_size(), "a tile needs one thread of a subgroup per row: this device's subgroups are smaller"
    )
    row = r0 + invocation_id()
    end = min(c1, array.shape[static(len(array.shape) - 1)])
    if invocation_id() < self.row.n and row < r1 and row < array.shape[static(len(array.shape) - 2)]:
        for j in static(range(self.row.n)):
            if c0 + j < end:
                if static(batch is None):
                    array[row, c0 + j] = self.row[j]
                else:
                    array[batch, row, c0 + j] = self.row[j]


@func
def _load(self: Any, array: template(), r0: Any, r1: Any, c0: Any, c1: Any) -> None:
    self._load3d(array, None, r0, r1, c0, c1)


@func
def _store(self: Any, array: template(), r0: Any, r1: Any, c0: Any, c1: Any) -> None:
    self._store3d(array, None, r0, r1, c0, c1)


@func
def _ger_sub(self: Any, a: Any, b: Any) -> None:
    """Rank-1 update: subtracts the outer product of two vectors, given by one component per thread."""
    for j in static(range(self.row.n)):
        self.row[j] -= a * shuffle(b, j)


@func
def _add_product(self: Any, a: template(), b: template()) -> None:
    """Adds the product of two tiles, whose elements are first converted to this tile's type."""
    static_assert(
        self.row.n <= group_size(), "a tile needs one thread of a subgroup per row: this device's subgroups are smaller"
    )
    factor, others = self.row[0], self.row
    for k in static(range(self.row.n)):
        factor = a.row[k]
        others = shuffle(b.row, k)
        self.row += factor * others


@func
def _subtract_product(self: Any, a: template(), b: template()) -> None:
    """Subtracts the product of two tiles, whose elements are first converted to this tile's type."""
    static_assert(
        self.row.n <= group_size(), "a tile needs one thread of a subgroup per row: this device's subgroups are smaller"
    )
    factor, others = self.row[0], self.row
    for k in static(range(self.row.n)):
        factor = a.row[k]
        others = shuffle(b.row, k)
        self.row -= factor * others


@func
def _eye_(self: Any) -> None:
    """Sets the tile to the identity."""
    for j in static(range(self.row.n)):
        self.row[j] = 0
        if invocation_id() == j:
            self.row[j] = 1


@func
def _cholesky_(self: Any, eps: Any) -> None:
    """Replaces the lower triangle of a symmetric positive definite tile by its Cholesky factor. Pivots are clamped to
    at least `eps`, which may differ between threads. The upper triangle is undefined afterwards.
    """
    lane = invocation_id()
    for k in static(range(self.row.n)):
        pivot = shuffle(sqrt(max(self.row[k], eps)), k)
        if lane == k:
            self.row[k] = pivot
        else:
            self.row[k] = self.row[k] / pivot
        column = self.row[k]
        for j in static(range(k + 1, self.row.n)):
            self.row[j] -= column * shuffle(column, j)


@func
def _solve_triangular_(self: Any, b: template(), lower: template() = True) -> None:
    """Replaces tile `b` by the solution `x` of `x @ transpose(self) == b`, for a lower triangular `self`."""
    static_assert(lower, "solve_triangular_() supports only lower triangles")
    static_assert(b.row.n == self.row.n, "solve_triangular_() takes a tile of the same size")
    for k in static(range(self.row.n)):
        column = self.row[k]
        solved = b.row[k] / shuffle(column, k)
        b.row[k] = solved
        for j in static(range(k + 1, self.row.n)):
            b.row[j] -= solved * shuffle(column, j)


_METHODS = {
    "_load": _load,
    "_store": _store,
    "_load3d": _load3d,
    "_store3d": _store3d,
    "_ger_sub": _ger_sub,
    "_add_product": _add_product,
    "_subtract_product": _subtract_product,
    "eye_": _eye_,
    "cholesky_": _cholesky_,
    "solve_triangular_": _solve_triangular_,
}


@func
def _zeros(tile: template(), dtype: template() = None) -> Any:
    return static(tile.of(dtype))()


@func
def _eye(tile: template(), dtype: template() = None) -> Any:
    made = static(tile.of(dtype))()
    made.eye_()
    return made


# Messages name the functions as users call them.
_zeros.__name__, _eye.__name__ = "zeros", "eye"


class TileType:
    """A tile type. In kernels, `zeros(dtype)` and `eye(dtype)` create tiles; the type defaults to that of float
    literals.

    A tile `t` has `t[:] = a[r0:r1, c0:c1]`, `a[r0:r1, c0:c1] = t` (also with an index before the rows), `t -=
    qd.outer(u, v)`, `t += a @ b` and `t -= a @ b`, `t.eye_()`, `t.cholesky_(eps)` and `t.solve_triangular_(b)`.
    """

    def __init__(self, size: int) -> None:
        self.SIZE = size
        self.zeros = partial(_zeros, self)
        self.eye = partial(_eye, self)
        self._types: dict[Any, StructType] = {}

    def of(self, dtype: Any = None) -> StructType:
        """The tile type with that scalar type."""
        dtype = default_fp() if dtype is None else resolve_dtype(dtype)
        if dtype not in self._types:
            made: Any = StructType({"row": vector(self.SIZE, dtype)}, _METHODS, repr(self))
            made.SIZE, made.zeros, made.eye = self.SIZE, partial(_zeros, self, dtype), partial(_eye, self, dtype)
            self._types[dtype] = made
        return self._types[dtype]

    def __repr__(self) -> str:
        return f"Tile{self.SIZE}x{self.SIZE}"


Tile16x16 = TileType(16)
Tile32x32 = TileType(32)
