"""The types of vectors and matrices of fixed size: `qd.types.vector(3, qd.f32)`.

A type object is callable in Python scope and builds a value; inside a kernel the compiler recognizes it by its marker.
Equal arguments give the same object, so types compare by identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

import numpy as np

from octants.exceptions import OctantsSyntaxError
from octants.types.primitive import PLAIN_NUMBERS, DataType, default_fp, default_ip, value_dtype
from octants.types.values import MANY_COMPONENTS, Matrix, Vector, tensor

if TYPE_CHECKING:
    from octants._arrays.ndarrays import MatrixNdarray, VectorNdarray
    from octants._fields.fields import MatrixField


class MatrixType:
    """An `n` by `m` matrix type. The scalar type may be `int` or `float`, which mean the program's default types at the
    time of use. `ndim`, the number of axes, is as in Quadrants.
    """

    _octants_entity = "tensor_type"
    ndim = 2

    def __init__(self, n: int, m: int, ndim: int, dtype: Any) -> None:
        if ndim != self.ndim:
            raise ValueError(f"{type(self).__name__} has {self.ndim} axes, but {ndim} were given")
        self.n = n
        self.m = m
        self._declared = dtype
        self._fixed = None if dtype in (None, int, float) else value_dtype(dtype)
        """The scalar type if it does not depend on the program's default types; else None."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, m), or (n,) for a vector."""
        return (self.n, self.m)

    @property
    def any_scalar(self) -> bool:
        """Created without a scalar type. A parameter of a `@qd.func`, and the elements of an array parameter, keep the
        scalar type of the argument.
        """
        return self._declared is None

    @property
    def dtype(self) -> DataType:
        """The scalar type of the components."""
        if self._fixed is not None:
            return self._fixed
        return default_ip() if self._declared is int else default_fp()

    @property
    def _stored(self) -> Any:
        """The type of the components in memory, possibly quantized."""
        return default_fp() if self._declared is None else self._declared

    def get_shape(self) -> tuple[int, ...]:
        """The same as `shape`."""
        return self.shape

    def to_string(self) -> str:
        """A readable name."""
        return f"MatrixType[{self.n},{self.m}, {self.dtype}]"

    def __repr__(self) -> str:
        return f"qd.types.matrix({self.n}, {self.m}, {_dtype_name(self._declared)})"

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return matrix, (self.n, self.m, self._declared)

    def __call__(self, *args: Any) -> Matrix:
        """A value of this type: from all components, from rows, from an array-like, or from one scalar for all
        components.
        """
        return self._value(args)

    def cast(self, value: Any) -> Matrix:
        """`value` converted to this type."""
        return self(value)

    def _value(self, args: tuple[Any, ...]) -> Matrix:
        dtype = self.dtype
        size = self.n * self.m
        flat = args if len(args) == size and PLAIN_NUMBERS.issuperset(map(type, args)) else self._flat(args, size)
        entries = components_array(flat, dtype).reshape(self.shape)
        return tensor(entries, dtype) if size > MANY_COMPONENTS else Matrix._around(entries, dtype)

    def _flat(self, args: tuple[Any, ...], size: int) -> list[Any]:
        """The scalars of all arguments, one per component."""
        if not args:
            raise OctantsSyntaxError(f"Custom type instances need to be created with an initial value: {self!r}")
        flat: list[Any] = []
        for arg in args:
            flat.extend(_scalars(arg))
        if len(flat) == 1 and size > 1 and np.ndim(_plain(args[0])) == 0:
            flat *= size
        if len(flat) != size:
            raise IndexError(f"{self!r} has {size} components, but {len(flat)} were given")
        return flat

    def field(self, **kwargs: Any) -> MatrixField:
        """A field of matrices. Takes the arguments of `qd.Matrix.field` after the element type."""
        return Matrix.field(self.n, self.m, dtype=self._stored, **kwargs)

    def ndarray(self, **kwargs: Any) -> MatrixNdarray | VectorNdarray:
        """An ndarray of matrices. Takes the arguments of `qd.Matrix.ndarray` after the element type."""
        return Matrix.ndarray(self.n, self.m, dtype=self._stored, **kwargs)


class VectorType(MatrixType):
    """A vector type of `n` components."""

    ndim = 1

    def __init__(self, n: int, dtype: Any) -> None:
        super().__init__(n, 1, 1, dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """(n,)."""
        return (self.n,)

    def to_string(self) -> str:
        """A readable name."""
        return f"VectorType[{self.n}, {self.dtype}]"

    def __repr__(self) -> str:
        return f"qd.types.vector({self.n}, {_dtype_name(self._declared)})"

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return vector, (self.n, self._declared)

    def __call__(self, *args: Any) -> Matrix:
        """A value of this type: from scalars and vectors with `n` components in total, or from one scalar for all
        components.
        """
        return self._value(args)

    def field(self, **kwargs: Any) -> MatrixField:
        """A field of vectors. Takes the arguments of `qd.Vector.field` after the element type."""
        return Vector.field(self.n, dtype=self._stored, **kwargs)

    def ndarray(self, **kwargs: Any) -> VectorNdarray:
        """An ndarray of vectors. Takes the arguments of `qd.Vector.ndarray` after the element type."""
        return Vector.ndarray(self.n, dtype=self._stored, **kwargs)


_interned: dict[tuple[Any, ...], MatrixType] = {}


class AnySize:
    """The annotation for array elements that are vectors or matrices of any size: `qd.types.vector()`,
    `qd.types.matrix()`.
    """

    def __init__(self, ndim: int) -> None:
        self.ndim = ndim

    def __repr__(self) -> str:
        return f"qd.types.{'vector' if self.ndim == 1 else 'matrix'}()"


class UnpackedVectorType:
    """A vector whose components are separate members of a `@qd.dataclass`: `vector(n, dtype, unpacked=True)`.

    It has no values: creating one raises an `OctantsSyntaxError`.
    """

    _octants_entity = "unpacked_vector"

    def __init__(self, n: int, dtype: Any) -> None:
        self.n = n
        self.dtype = dtype

    def __call__(self, *args: Any) -> NoReturn:
        """Raises: the type has no values."""
        self._refuse("instantiate")

    def cast(self, value: Any) -> NoReturn:
        """Raises: the type has no values."""
        self._refuse("instantiate")

    def field(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises: it cannot be the element type of a field."""
        self._refuse("create a field of")

    def ndarray(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises: it cannot be the element type of an ndarray."""
        self._refuse("create an ndarray of")

    def _refuse(self, what: str) -> NoReturn:
        raise OctantsSyntaxError(f"cannot {what} a vector declared with unpacked=True: {UNPACKED_USE}")

    def __repr__(self) -> str:
        return f"qd.types.vector({self.n}, {_dtype_name(self.dtype)}, unpacked=True)"


UNPACKED_USE = "use it only as the type of a @qd.dataclass member, or remove unpacked=True"


@overload
def vector(n: int, dtype: Any, unpacked: Literal[True]) -> UnpackedVectorType: ...
@overload
def vector(n: int, dtype: Any = None, unpacked: Literal[False] = False) -> VectorType: ...
@overload
def vector() -> AnySize: ...
def vector(
    n: int | None = None, dtype: Any = None, unpacked: bool = False
) -> VectorType | AnySize | UnpackedVectorType:
    """The type of vectors of `n` components. `dtype` defaults to the default float type.

    `unpacked` is for members of a `@qd.dataclass`: the components become `n` scalar members, indexed by a compile-time
    constant, `tile.r[i]`, and kept in separate registers.
    """
    if n is None:
        return AnySize(1)
    n = _size(n)
    _check_dtype(dtype)
    if unpacked:
        return UnpackedVectorType(n, dtype)
    key = (n, dtype)
    found = _interned.get(key)
    if found is None:
        found = _interned[key] = VectorType(n, dtype)
    assert isinstance(found, VectorType)
    return found


@overload
def matrix(n: int, m: int, dtype: Any = None) -> MatrixType: ...
@overload
def matrix() -> AnySize: ...
def matrix(n: int | None = None, m: int | None = None, dtype: Any = None) -> MatrixType | AnySize:
    """The type of `n` by `m` matrices. `dtype` defaults to the default float type."""
    if n is None or m is None:
        return AnySize(2)
    n, m = _size(n), _size(m)
    _check_dtype(dtype)
    key = (n, m, dtype, "matrix")
    found = _interned.get(key)
    if found is None:
        found = _interned[key] = MatrixType(n, m, 2, dtype)
    return found


def components_array(values: Sequence[Any], dtype: DataType) -> np.ndarray[Any, Any]:
    """Python scalars as a flat array of `dtype`: floats are truncated for an integer type, integers wrap around."""
    if not (dtype.is_float and PLAIN_NUMBERS.issuperset(map(type, values))):
        values = [dtype.convert(value) for value in values]
    return np.array(values, dtype.numpy)


def _check_dtype(dtype: Any) -> None:
    if dtype is not None:
        value_dtype(dtype)


def _size(value: Any) -> int:
    if isinstance(value, (bool, float, str)) or not hasattr(value, "__index__"):
        raise TypeError(f"the size of a vector or matrix type must be an integer, got {value!r}")
    size = int(value.__index__())
    if size < 1:
        raise ValueError(f"the size of a vector or matrix type must be at least 1, got {size}")
    return size


def _dtype_name(dtype: Any) -> str:
    if dtype is None:
        return "float"
    return dtype.__name__ if isinstance(dtype, type) else f"qd.{dtype}"


def _plain(value: Any) -> Any:
    return value.to_numpy() if hasattr(value, "to_numpy") else value


def _scalars(value: Any) -> Iterator[Any]:
    """The scalars in an argument, with nested sequences and tensors flattened in row-major order."""
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    if isinstance(value, np.ndarray):
        yield from value.ravel().tolist()
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _scalars(item)
    else:
        yield value
