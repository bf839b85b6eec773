"""Matrix products that the threads of a subgroup compute together, on tensor cores if the device has them.

A `MatrixProduct` has three kinds of fragments, matrices of 16 x 16 elements in the registers of a subgroup: `a`, `b`
and the sums. `sums += a @ b` is the product. The position of each element depends on the device.
"""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from functools import partial
from typing import Any

from octants._language.kernel_decorators import func
from octants._language.ops import kernel_only, static, static_assert
from octants.exceptions import OctantsTypeError
from octants.simt.lanes import group_size
from octants.types import template, vector
from octants.types.primitive import f16, f32, f64, resolve_dtype
from octants.types.struct_type import StructType
from octants.types.values import Vector

__all__ = ["FragmentType", "MatrixProduct"]

_SIDE = 16

_fragment_index = kernel_only(
    "simt.fragment_index",
    "The row or column of one of this thread's components.",
    lambda kind, role, component, axis: None,
)
_product = kernel_only("simt.product", "`a @ b + c` for the components of three fragments.", lambda kind, a, b, c: None)


def _common_methods(kind: str, role: str, components: int) -> dict[str, Any]:
    """Load, store and fill methods of a fragment type."""

    @func
    def fill_(self: Any, value: Any) -> None:
        """Sets all elements to a value, which must be the same on all threads."""
        for i in static(range(components)):
            self.values[i] = value

    @func
    def load_(self: Any, array: template(), row: Any, column: Any) -> None:
        """Loads the 16 x 16 elements of an array that start at `[row, column]`. All must be in bounds."""
        self.values = Vector(
            [
                array[row + _fragment_index(kind, role, i, "row"), column + _fragment_index(kind, role, i, "column")]
                for i in static(range(components))
            ]
        )

    @func
    def load_transposed_(self: Any, array: template(), row: Any, column: Any) -> None:
        """Loads the transpose of the 16 x 16 elements that start at `[row, column]`. All must be in bounds."""
        self.values = Vector(
            [
                array[row + _fragment_index(kind, role, i, "column"), column + _fragment_index(kind, role, i, "row")]
                for i in static(range(components))
            ]
        )

    @func
    def store_(self: Any, array: template(), row: Any, column: Any) -> None:
        """Stores to the 16 x 16 elements of an array that start at `[row, column]`. All must be in bounds."""
        for i in static(range(components)):
            array[row + _fragment_index(kind, role, i, "row"), column + _fragment_index(kind, role, i, "column")] = (
                self.values[i]
            )

    @func
    def _load3d(self: Any, array: template(), batch: template(), r0: Any, r1: Any, c0: Any, c1: Any) -> None:
        """Loads rows `r0` to `r1` and columns `c0` to `c1` of an array. Elements out of bounds keep their values."""
        row_end = min(r1, array.shape[static(len(array.shape) - 2)])
        column_end = min(c1, array.shape[static(len(array.shape) - 1)])
        for i in static(range(components)):
            row = r0 + _fragment_index(kind, role, i, "row")
            column = c0 + _fragment_index(kind, role, i, "column")
            if row < row_end and column < column_end:
                if static(batch is None):
                    self.values[i] = array[row, column]
                else:
                    self.values[i] = array[batch, row, column]

    @func
    def _store3d(self: Any, array: template(), batch: template(), r0: Any, r1: Any, c0: Any, c1: Any) -> None:
        """Stores to rows `r0` to `r1` and columns `c0` to `c1` of an array, as far as they are in bounds."""
        row_end = min(r1, array.shape[static(len(array.shape) - 2)])
        column_end = min(c1, array.shape[static(len(array.shape) - 1)])
        for i in static(range(components)):
            row = r0 + _fragment_index(kind, role, i, "row")
            column = c0 + _fragment_index(kind, role, i, "column")
            if row < row_end and column < column_end:
                if static(batch is None):
                    array[row, column] = self.values[i]
                else:
                    array[batch, row, column] = self.values[i]

    @func
    def _load(self: Any, array: template(), r0: Any, r1: Any, c0: Any, c1: Any) -> None:
        self._load3d(array, None, r0, r1, c0, c1)

    @func
    def _store(self: Any, array: template(), r0: Any, r1: Any, c0: Any, c1: Any) -> None:
        self._store3d(array, None, r0, r1, c0, c1)

    @func
    def _mark(self: Any) -> None:
        pass

    return {
        "fill_": fill_,
        "load_": load_,
        "load_transposed_": load_transposed_,
        "store_": store_,
        "_load": _load,
        "_store": _store,
        "_load3d": _load3d,
        "_store3d": _store3d,
        _mark_of(kind, role): _mark,
    }


def _mark_of(kind: str, role: str) -> str:
    """The name of a method that identifies the kind of fragment."""
    return f"_is_{role}_of_{kind}"


def _methods_of_sums(kind: str) -> dict[str, Any]:
    """Adds products to accumulators, and subtracts them."""
    left_mark, right_mark = _mark_of(kind, "a"), _mark_of(kind, "b")
    message = "the operands must be an `a` and a `b` fragment of the same MatrixProduct as the accumulator"

    @func
    def _add_product(self: Any, a: template(), b: template()) -> None:
        static_assert(hasattr(a, left_mark) and hasattr(b, right_mark), message)
        self.values = _product(kind, a.values, b.values, self.values)

    @func
    def _subtract_product(self: Any, a: template(), b: template()) -> None:
        static_assert(hasattr(a, left_mark) and hasattr(b, right_mark), message)
        self.values = _product(kind, -a.values, b.values, self.values)

    return {"_add_product": _add_product, "_subtract_product": _subtract_product}


def _methods_of_operands() -> dict[str, Any]:
    """Rejects adding products to operands."""

    @func
    def refuse(self: Any, a: template(), b: template()) -> None:
        static_assert(False, "a product can only be added to or subtracted from a `sums` fragment of its MatrixProduct")

    return {"_add_product": refuse, "_subtract_product": refuse}


@func
def _zeros(fragment: template()) -> Any:
    return static(fragment._struct())()


class FragmentType:
    """A fragment type of a `MatrixProduct`: `a`, `b` or `sums`. In kernels, `zeros()` creates a fragment.

    A fragment `t` has `t.load_(array, row, column)`, `t.load_transposed_(array, row, column)` and `t.store_(array, row,
    column)` for 16 x 16 elements in bounds, `t[:] = array[r0:r1, c0:c1]` and `array[r0:r1, c0:c1] = t` with bounds
    checks, and `t.fill_(value)`. `t.values` is the vector of this thread's elements, for element-wise operations, which
    do not depend on the layout.
    """

    def __init__(self, name: str, kind: str, role: str, dtype: Any) -> None:
        self.dtype = dtype
        self._name, self._kind, self._role = name, kind, role
        self._types: dict[int, StructType] = {}
        self.zeros = partial(_zeros, self)

    def _struct(self) -> StructType:
        """The struct type for the subgroup size of the running program's device."""
        components = _SIDE * _SIDE // group_size()
        if components not in self._types:
            methods = _common_methods(self._kind, self._role, components)
            if self._role == "accumulator":
                methods |= _methods_of_sums(self._kind)
            else:
                methods |= _methods_of_operands()
            members = {"values": vector(components, self.dtype)}
            self._types[components] = StructType(members, methods, f"{self._name}, {components} per thread")
        return self._types[components]

    def __repr__(self) -> str:
        return self._name


class MatrixProduct:
    """Cooperative products of 16 x 16 matrices, computed by the threads of a subgroup.

    `dtype` is the type of the operands: f16, f32 or f64. Products of f16 accumulate in f32, others in their own type.
    `precision="tf32"` allows rounding f32 operands to tf32 (10 bits of mantissa) for tensor cores; devices without tf32
    do not round. By default f32 is never rounded.

    Blocks must be whole subgroups: `block_dim` is a multiple of `subgroup.group_size()`.
    """

    SIZE = _SIDE

    def __init__(self, dtype: Any, precision: str | None = None) -> None:
        dtype = resolve_dtype(dtype)
        kinds = {(f16, None): "f16", (f32, None): "f32", (f32, "tf32"): "tf32", (f64, None): "f64"}
        kind = kinds.get((dtype, precision))
        if kind is None:
            asked = f" with precision={precision!r}" if precision is not None else ""
            raise OctantsTypeError(
                f"MatrixProduct does not support {dtype}{asked}: use qd.f16, qd.f32 or qd.f64, or qd.f32 with "
                "precision='tf32'"
            )
        self.dtype, self.precision = dtype, precision
        given = f"{dtype}" if precision is None else f"{dtype}, precision={precision!r}"
        name = f"MatrixProduct({given})"
        self.a = FragmentType(f"{name}.a", kind, "a", dtype)
        self.b = FragmentType(f"{name}.b", kind, "b", dtype)
        self.sums = FragmentType(f"{name}.sums", kind, "accumulator", f64 if dtype == f64 else f32)
        self._name = name

    def __repr__(self) -> str:
        return self._name
