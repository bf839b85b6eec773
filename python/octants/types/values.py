"""Vectors and matrices as Python values: `qd.Vector([1, 2, 3])`, `qd.Matrix([[1, 2], [3, 4]])`.

A value holds a numpy array of one or two axes. An element read from a field or an ndarray is a copy. Assignments to
its components are also written back to the field or ndarray (`v[0].x = 1`). Inside kernels these names are built in,
and none of this code runs.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from octants._arrays.array_factories import factories
from octants._arrays.split_options import take_split
from octants._language.python_scope import only_in_python
from octants.exceptions import OctantsIndexError, OctantsRuntimeError, OctantsSyntaxError, OctantsTypeError
from octants.layouts import Layout
from octants.swizzles import SWIZZLES, swizzles
from octants.types.primitive import BY_NUMPY, PLAIN_NUMBERS, DataType, default_fp, default_ip, resolve_dtype, u1
from octants.types.template import Template

if TYPE_CHECKING:
    from octants._arrays.ndarrays import MatrixNdarray, VectorNdarray
    from octants._arrays.tensors import MatrixTensor, VectorTensor
    from octants._fields.fields import MatrixField

WriteBack = Callable[[Any, Any], None]

# More than the largest inverse that the library computes has, 12 x 12.
MANY_COMPONENTS = 144

_PLAIN = PLAIN_NUMBERS | {list, tuple}
"""Item types of the sequences that numpy converts to arrays without help."""


class Matrix:
    """A matrix (or, with one axis, a vector) of numbers."""

    __slots__ = ("_any_is_true", "_declared", "_write_back", "entries")
    __hash__ = object.__hash__
    # Operators of numpy arrays defer to those of this class. Functions of numpy convert vectors to arrays.
    __array_priority__ = 1000
    _octants_entity = "tensor"
    _octants_builtin = "Matrix"

    entries: np.ndarray[Any, Any]
    _declared: DataType | None
    _write_back: WriteBack | None
    _any_is_true: bool

    if TYPE_CHECKING:
        # The swizzles, which are properties.
        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    def __init__(self, arr: Any, dt: Any = None, **_: Any) -> None:
        declared = None if dt is None else resolve_dtype(dt)
        entries = _as_entries(arr, declared)
        if entries.size > MANY_COMPONENTS:
            warnings.warn(
                f"a vector or matrix of {entries.size} components: kernels keep all of them in registers and take "
                f"long to compile; use a field or an ndarray for more than {MANY_COMPONENTS}",
                UserWarning,
                stacklevel=2,
            )
        self.entries = entries
        self._declared = declared
        self._write_back = None
        self._any_is_true = False

    @staticmethod
    def _around(
        entries: np.ndarray[Any, Any], declared: DataType | None, write_back: WriteBack | None = None
    ) -> Matrix:
        """A vector or matrix that takes over `entries` without a copy. For an element of a field,
        `write_back(key, value)` stores each component that the user assigns.
        """
        made = _new(Vector if entries.ndim == 1 else Matrix)
        made.entries = entries
        made._declared = declared
        made._write_back = write_back
        made._any_is_true = False
        return made

    # Shape and conversion

    @property
    def n(self) -> int:
        """Number of rows, or components of a vector."""
        return self.entries.shape[0]

    @property
    def m(self) -> int:
        """Number of columns; 1 for a vector."""
        return self.entries.shape[1] if self.entries.ndim == 2 else 1

    @property
    def ndim(self) -> int:
        """2, or 1 for a vector."""
        return self.entries.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, m), or (n,) for a vector."""
        return self.entries.shape

    @property
    def dtype(self) -> DataType:
        """The scalar type that it has in a kernel: the one it was made with, or the session's default for its
        numbers."""
        if self._declared is not None:
            return self._declared
        kind = self.entries.dtype.kind
        return u1 if kind == "b" else default_fp() if kind == "f" else default_ip()

    def get_shape(self) -> tuple[int, ...]:
        """The same as `shape`."""
        return self.entries.shape

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """A copy as a numpy array."""
        return self.entries.copy()

    def to_list(self) -> list[Any]:
        """Nested lists of Python scalars."""
        return self.entries.tolist()

    tolist = to_list

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False and dtype is not None and np.dtype(dtype) != self.entries.dtype:
            raise ValueError("copy=False: converting to another type needs a copy")
        return np.array(self.entries, dtype=dtype, copy=copy is not False)

    def __copy__(self) -> Matrix:
        return type(self)(self.entries.copy(), self._declared)

    def __deepcopy__(self, memo: dict[int, Any]) -> Matrix:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return type(self), (self.entries.copy(), self._declared)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Any]:
        if self._write_back is not None:
            return iter(self.entries.tolist())
        return iter(list(self.entries) if self.entries.ndim == 1 else [list(row) for row in self.entries])

    def __bool__(self) -> bool:
        """A comparison is true when it holds for all components (`!=`: for any); any other value is true."""
        if self.entries.dtype != np.bool_:
            return True
        return bool(self.entries.any() if self._any_is_true else self.entries.all())

    def __repr__(self) -> str:
        return str(self.entries)

    # Components

    def __getitem__(self, key: Any) -> Any:
        entries = self.entries
        found = entries[key if type(key) is int and entries.ndim == 1 else self._key(key)]
        if self._write_back is not None and not isinstance(found, np.ndarray):
            return found.item()
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        entries = self.entries
        if type(key) is not int or entries.ndim != 1:
            key = self._key(key)
        if self._write_back is None:
            entries[key] = _operand(value)
            return
        if isinstance(value, float) and entries.dtype.kind != "f":
            raise TypeError(
                f"a component of type {entries.dtype} must be set to an integer, got {value!r}: use int(...)"
            )
        entries[key] = _operand(value)
        self._write_back(key, entries[key])

    def _key(self, key: Any) -> Any:
        if isinstance(key, Matrix):
            key = tuple(key.entries.tolist())
        if isinstance(key, (tuple, list)):
            key = tuple(key)
            if len(key) == 1:
                key = key[0]
        count = len(key) if isinstance(key, tuple) else 1
        if count != self.entries.ndim:
            raise OctantsIndexError(f"a value of shape {self.shape} needs {self.entries.ndim} indices, got {count}")
        return key

    def _check_swizzle(self, name: str, places: tuple[int, ...]) -> None:
        if self.entries.ndim != 1:
            raise OctantsSyntaxError(f".{name} is only for vectors, not for shape {self.shape}")
        if max(places) >= len(self.entries):
            letters = next(group for group in SWIZZLES if name[0] in group)
            raise OctantsSyntaxError(f"vec{self.n} only has attributes={tuple(letters[: self.n])}, got={tuple(name)}")

    # Operators

    def __add__(self, other: Any) -> Any:
        return _binary(operator.add, self, other)

    def __radd__(self, other: Any) -> Any:
        return _binary(operator.add, other, self)

    def __sub__(self, other: Any) -> Any:
        return _binary(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        return _binary(operator.sub, other, self)

    def __mul__(self, other: Any) -> Any:
        return _binary(operator.mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        return _binary(operator.mul, other, self)

    def __truediv__(self, other: Any) -> Any:
        return _binary(operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _binary(operator.truediv, other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _binary(operator.floordiv, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _binary(operator.floordiv, other, self)

    def __mod__(self, other: Any) -> Any:
        return _binary(operator.mod, self, other)

    def __rmod__(self, other: Any) -> Any:
        return _binary(operator.mod, other, self)

    def __pow__(self, other: Any) -> Any:
        return _binary(operator.pow, self, other)

    def __rpow__(self, other: Any) -> Any:
        return _binary(operator.pow, other, self)

    def __and__(self, other: Any) -> Any:
        return _binary(operator.and_, self, other)

    def __rand__(self, other: Any) -> Any:
        return _binary(operator.and_, other, self)

    def __or__(self, other: Any) -> Any:
        return _binary(operator.or_, self, other)

    def __ror__(self, other: Any) -> Any:
        return _binary(operator.or_, other, self)

    def __xor__(self, other: Any) -> Any:
        return _binary(operator.xor, self, other)

    def __rxor__(self, other: Any) -> Any:
        return _binary(operator.xor, other, self)

    def __lshift__(self, other: Any) -> Any:
        return _binary(operator.lshift, self, other)

    def __rlshift__(self, other: Any) -> Any:
        return _binary(operator.lshift, other, self)

    def __rshift__(self, other: Any) -> Any:
        return _binary(operator.rshift, self, other)

    def __rrshift__(self, other: Any) -> Any:
        return _binary(operator.rshift, other, self)

    def __lt__(self, other: Any) -> Any:
        return _binary(operator.lt, self, other)

    def __le__(self, other: Any) -> Any:
        return _binary(operator.le, self, other)

    def __gt__(self, other: Any) -> Any:
        return _binary(operator.gt, self, other)

    def __ge__(self, other: Any) -> Any:
        return _binary(operator.ge, self, other)

    def __eq__(self, other: Any) -> Any:
        return _binary(operator.eq, self, other) if _is_numeric(other) else NotImplemented

    def __ne__(self, other: Any) -> Any:
        if not _is_numeric(other):
            return NotImplemented
        result = _binary(operator.ne, self, other)
        result._any_is_true = True
        return result

    def __neg__(self) -> Matrix:
        return tensor(-self.entries)

    def __pos__(self) -> Matrix:
        return tensor(+self.entries)

    def __invert__(self) -> Matrix:
        return tensor(~self.entries)

    def __abs__(self) -> Matrix:
        return tensor(abs(self.entries))

    def __matmul__(self, other: Any) -> Any:
        return _product(self.entries, _factor(other))

    def __rmatmul__(self, other: Any) -> Any:
        return _product(_factor(other), self.entries)

    # Reductions and linear algebra

    def sum(self) -> Any:
        """Sum of all components."""
        return self.entries.sum()

    def max(self) -> Any:
        """Largest component."""
        return self.entries.max()

    def min(self) -> Any:
        """Smallest component."""
        return self.entries.min()

    def any(self) -> bool:
        """Whether a component is not zero."""
        return bool(self.entries.any())

    def all(self) -> bool:
        """Whether no component is zero."""
        return bool(self.entries.all())

    def norm_sqr(self) -> Any:
        """Sum of the squares of all components."""
        return (self.entries * self.entries).sum()

    def norm(self, eps: float = 0) -> Any:
        """Square root of `norm_sqr() + eps`."""
        return np.sqrt(self.norm_sqr() + eps)

    def norm_inv(self, eps: float = 0) -> Any:
        """1 over `norm(eps)`."""
        return 1 / np.sqrt(self.norm_sqr() + eps)

    def normalized(self, eps: float = 0) -> Matrix:
        """The vector divided by `norm() + eps`."""
        self._check_vector("normalized")
        return tensor(self.entries / (np.sqrt(self.norm_sqr()) + eps))

    def dot(self, other: Any) -> Any:
        """Inner product of two vectors."""
        self._check_vector("dot")
        return self.frobenius_inner(other)

    def frobenius_inner(self, other: Any) -> Any:
        """Sum of the products of the components at the same place."""
        operand = _operand(other)
        if np.shape(operand) != self.shape:
            raise ValueError(f"operands must have the same shape, got {self.shape} and {np.shape(operand)}")
        return (self.entries * operand).sum()

    def cross(self, other: Any) -> Any:
        """Cross product of two vectors of 3 components, or its one component for vectors of 2."""
        a, b = self.entries, _operand(other)
        if a.shape == b.shape == (2,):
            return a[0] * b[1] - a[1] * b[0]
        if a.shape == b.shape == (3,):
            return tensor(np.cross(a, b))
        raise OctantsTypeError(f"cross() needs two vectors of 2 or 3 components, got {a.shape} and {b.shape}")

    def outer_product(self, other: Any) -> Matrix:
        """The matrix of all products of a component here and one there."""
        return tensor(np.outer(self.entries, _operand(other)))

    def transpose(self) -> Matrix:
        """Rows of a matrix become columns."""
        if self.entries.ndim == 1:
            raise OctantsTypeError(
                "`transpose()` cannot apply to a vector. If you want something like `a @ b.transpose()`, write "
                "`a.outer_product(b)` instead."
            )
        return tensor(self.entries.T.copy())

    def trace(self) -> Any:
        """Sum of the diagonal of a square matrix."""
        return self._square("trace").trace()

    def determinant(self) -> Any:
        """Determinant of a square matrix."""
        return np.linalg.det(self._square("determinant"))

    def inverse(self) -> Matrix:
        """Inverse of a square matrix."""
        return tensor(np.linalg.inv(self._square("inverse")))

    def _square(self, what: str) -> np.ndarray[Any, Any]:
        if self.entries.ndim != 2 or self.n != self.m:
            raise OctantsTypeError(f"{what}() needs a square matrix, got shape {self.shape}")
        return self.entries

    def _check_vector(self, what: str) -> None:
        if self.entries.ndim != 1:
            raise OctantsTypeError(f"{what}() is only for vectors, not for shape {self.shape}")

    def cast(self, dtype: Any) -> Matrix:
        """The components converted to a scalar type."""
        return type(self)(self.entries, dtype)

    def fill(self, val: Any) -> None:
        """Sets every component."""
        for key in np.ndindex(self.entries.shape):
            self[key] = val

    # Constructors

    @staticmethod
    def zero(dt: Any, n: int, m: int | None = None) -> Matrix:
        """Zeros: a vector, or a matrix where `m` is given."""
        return _filled(0, dt, n, m)

    @staticmethod
    def one(dt: Any, n: int, m: int | None = None) -> Matrix:
        """Ones: a vector, or a matrix where `m` is given."""
        return _filled(1, dt, n, m)

    @staticmethod
    def unit(n: int, i: int, dt: Any = None) -> Matrix:
        """The vector with a one at place `i` and zeros elsewhere."""
        if not 0 <= i < n:
            raise OctantsIndexError(f"index {i} is out of range for a unit vector of {n} components")
        return Vector([int(place == i) for place in range(n)], int if dt is None else dt)

    @staticmethod
    def identity(dt: Any, n: int) -> Matrix:
        """Ones on the diagonal, zeros elsewhere."""
        return Matrix(np.eye(n), dt)

    # The next three are compiled when a kernel calls them with run-time values.

    @staticmethod
    def diag(dim: Template[int], val):
        """`val` on the diagonal, zeros elsewhere."""
        places = range(dim)  # type: ignore[call-overload]
        return Matrix([[val if i == j else 0 for j in places] for i in places])

    @staticmethod
    def rows(rows):
        """A matrix of the given rows."""
        return Matrix([[row[j] for j in range(len(row))] for row in rows])

    @staticmethod
    def cols(cols):
        """A matrix of the given columns."""
        return Matrix([[col[i] for col in cols] for i in range(len(cols[0]))])

    # Containers

    @classmethod
    @only_in_python
    def field(
        cls,
        n: int,
        m: int,
        dtype: Any,
        shape: Any = None,
        order: str | None = None,
        name: str = "",
        offset: Any = None,
        needs_grad: bool = False,
        needs_dual: bool = False,
        layout: Layout = Layout.AOS,
        ndim: int | None = None,
        device: Any = None,
        **kwargs: Any,
    ) -> MatrixField:
        """A field of `n` by `m` matrices; without `shape` it waits to be placed under `qd.root`.

        `split`, `halo` and `periodic` distribute its first axis over ranks: see `qd.field`.
        """
        element_shape = (n,) if ndim == 1 else (n, m)
        return factories.matrix_field(
            element_shape, dtype, shape=shape, order=order, name=name, offset=offset, needs_grad=needs_grad,
            needs_dual=needs_dual, layout=layout, device=device, split=take_split("qd.Matrix.field", kwargs),
        )  # fmt: skip

    @classmethod
    @only_in_python
    def ndarray(
        cls, n: int, m: int, dtype: Any, shape: Any, needs_grad: bool = False, device: Any = None, **kwargs: Any
    ) -> MatrixNdarray:
        """An ndarray of `n` by `m` matrices. `split`, `halo` and `periodic` split it over ranks: see `qd.ndarray`."""
        return factories.ndarray((n, m), dtype, shape, needs_grad, device, take_split("qd.Matrix.ndarray", kwargs))

    @classmethod
    def tensor(cls, n: int, m: int, dtype: Any, shape: Any, **kwargs: Any) -> MatrixTensor:
        """A tensor of `n` by `m` matrices on either backend: the keywords of `qd.tensor`."""
        return factories.tensor("qd.Matrix.tensor", (n, m), dtype, shape, kwargs)


class Vector(Matrix):
    """A vector of numbers."""

    __slots__ = ()
    __hash__ = object.__hash__
    _octants_builtin = "Vector"

    @classmethod
    @only_in_python
    def field(cls, n: int, dtype: Any, *args: Any, **kwargs: Any) -> MatrixField:  # type: ignore[override]
        """A field of vectors: the arguments of `qd.Matrix.field` without the number of columns."""
        return Matrix.field(n, 1, dtype, *args, **{"ndim": 1, **kwargs})

    @classmethod
    @only_in_python
    def ndarray(  # type: ignore[override]
        cls, n: int, dtype: Any, shape: Any, needs_grad: bool = False, device: Any = None, **kwargs: Any
    ) -> VectorNdarray:
        """An ndarray of vectors. `split`, `halo` and `periodic` distribute it over ranks: see `qd.ndarray`."""
        return factories.ndarray((n,), dtype, shape, needs_grad, device, take_split("qd.Vector.ndarray", kwargs))

    @classmethod
    def tensor(cls, n: int, dtype: Any, shape: Any, **kwargs: Any) -> VectorTensor:  # type: ignore[override]
        """A tensor of vectors on either backend: the keywords of `qd.tensor`."""
        return factories.tensor("qd.Vector.tensor", (n,), dtype, shape, kwargs)


# Kernels may call these of the class, too: `qd.Vector.normalized(v)`.
for _name in (
    *("sum", "max", "min", "any", "all", "norm", "norm_sqr", "norm_inv", "normalized", "dot", "cross"),
    *("outer_product", "transpose", "trace", "determinant", "inverse", "cast"),
):
    getattr(Matrix, _name)._octants_builtin = f"tensor.{_name}"

_new = object.__new__


def _letter(name: str, place: int) -> property:
    """A property for one component, as in `v.x`."""
    places = (place,)

    def get(vector: Matrix) -> Any:
        vector._check_swizzle(name, places)
        return vector.entries[place] if vector._write_back is None else vector.entries.item(place)

    def put(vector: Matrix, value: Any) -> None:
        vector._check_swizzle(name, places)
        vector[place] = value

    return property(get, put)


class _Letters:
    """A property for several components, as in `v.zyx`."""

    __slots__ = ("name", "places")

    def __init__(self, name: str, places: tuple[int, ...]) -> None:
        self.name = name
        self.places = places

    def __get__(self, vector: Matrix | None, owner: Any = None) -> Any:
        if vector is None:
            return self
        vector._check_swizzle(self.name, self.places)
        found, declared = vector.entries[_index_array(self.places)], vector._declared
        return Matrix._around(found if declared is None else _converted(found, declared), declared)

    def __set__(self, vector: Matrix, value: Any) -> None:
        vector._check_swizzle(self.name, self.places)
        values = list(value)
        if len(values) != len(self.places):
            raise OctantsRuntimeError(
                f"value len does not match the swizzle pattern={self.name}: got {len(values)} values"
            )
        for place, item in zip(self.places, values, strict=True):
            vector[place] = item


@cache
def _index_array(places: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.array(places)


for _name, _places in swizzles():
    setattr(Matrix, _name, _letter(_name, _places[0]) if len(_places) == 1 else _Letters(_name, _places))


def tensor(entries: np.ndarray[Any, Any], dt: Any = None) -> Matrix:
    """A `Vector` or `Matrix` with a copy of an array, depending on its number of axes."""
    return Vector(entries, dt) if entries.ndim == 1 else Matrix(entries, dt)


def elementwise(function: Callable[..., Any], *args: Any) -> Any:
    """`function` over components when an argument is a vector or matrix, else over the arguments themselves."""
    if any(isinstance(arg, Matrix) for arg in args):
        return tensor(np.asarray(function(*(_operand(arg) for arg in args))))
    try:
        return function(*args)
    except (AttributeError, TypeError):
        for arg in args:
            if not _is_numeric(arg):
                raise OctantsTypeError(
                    f"{type(arg).__name__} is no operand of mathematical functions in Python: use an element, or "
                    "`to_numpy()`"
                ) from None
        raise


def _binary(function: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    if not _is_numeric(a) or not _is_numeric(b):
        return NotImplemented
    return tensor(np.asarray(function(_operand(a), _operand(b))))


def _product(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> Any:
    if a.shape[-1] != b.shape[0]:
        raise OctantsTypeError(f"dimension mismatch between {a.shape} and {b.shape} for matrix multiplication")
    result = np.matmul(a, b)
    return tensor(result) if isinstance(result, np.ndarray) else result


def _is_numeric(value: Any) -> bool:
    return isinstance(value, (Matrix, np.ndarray, list, tuple, int, float, np.generic))


def _operand(value: Any) -> Any:
    if isinstance(value, Matrix):
        return value.entries
    return np.asarray(value) if isinstance(value, (list, tuple)) else value


def _factor(value: Any) -> Any:
    """An operand of `@`."""
    if not isinstance(value, (Matrix, np.ndarray, list, tuple)) or np.ndim(value) == 0:
        raise OctantsTypeError(f"@ multiplies only matrices and vectors, not {type(value).__name__}")
    return _operand(value)


def _filled(value: int, dt: Any, n: int, m: int | None) -> Matrix:
    return Vector(np.full(n, value), dt) if m is None else Matrix(np.full((n, m), value), dt)


def _as_entries(arr: Any, declared: DataType | None) -> np.ndarray[Any, Any]:
    """A new array of the components in `arr`."""
    if isinstance(arr, Matrix):
        arr = arr.entries
    if not isinstance(arr, (list, tuple, np.ndarray)):
        raise OctantsTypeError(
            f"a Matrix or Vector can only be initialized with an array-like object, not with {arr!r}"
        )
    if isinstance(arr, (list, tuple)) and not _PLAIN.issuperset(map(type, arr)):
        arr = [_operand(item) for item in arr]
    entries = np.array(arr)
    if entries.ndim != 1 and (entries.ndim != 2 or entries.size == 0):
        raise OctantsTypeError(
            f"a Matrix must have one or two axes and at least one component, got shape {entries.shape}"
        )
    if entries.dtype not in BY_NUMPY:
        raise OctantsTypeError(f"the components of a Vector or Matrix must be numbers, got {arr!r}")
    return entries if declared is None else _converted(entries, declared)


def _converted(entries: np.ndarray[Any, Any], declared: DataType) -> np.ndarray[Any, Any]:
    """Components converted to a scalar type: floats are truncated for an integer type."""
    if entries.dtype == declared.numpy:
        return entries
    if declared.kind in ("signed", "unsigned") and entries.dtype.kind == "f":
        return np.array([declared.convert(math.trunc(x)) for x in entries.ravel()], declared.numpy).reshape(
            entries.shape
        )
    return entries.astype(declared.numpy)
