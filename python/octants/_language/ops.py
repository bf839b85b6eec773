"""Operations of the kernel language, by name. In kernels they are built in (`_octants_builtin` is the name). Called
from Python, those that make sense there work on numbers, numpy arrays, vectors and matrices; the others raise."""

from __future__ import annotations

import builtins
import inspect
import math
import struct
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from octants._language.python_scope import STAND_INS
from octants.exceptions import OctantsScopeError, OctantsTypeError
from octants.types.primitive import resolve_dtype
from octants.types.values import Matrix, elementwise

F = TypeVar("F", bound=Callable[..., Any])


def known_to_compiler(name: str) -> Callable[[F], F]:
    """Marks a function as a builtin that the compiler knows by `name`."""

    def mark(function: F) -> F:
        function._octants_builtin = name  # type: ignore[attr-defined]
        return function

    return mark


def _named(function: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return known_to_compiler(name)(function)


def _unary(name: str, doc: str, apply: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def op(x: Any) -> Any:
        return elementwise(apply, x)

    return _named(op, name, doc)


def _binary(name: str, doc: str, apply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def op(x1: Any, x2: Any) -> Any:
        return elementwise(apply, x1, x2)

    return _named(op, name, doc)


def _rounding(name: str, doc: str, apply: Callable[[Any], Any]) -> Callable[..., Any]:
    def op(x: Any, dtype: Any = None) -> Any:
        rounded = elementwise(apply, x)
        return rounded if dtype is None else cast(rounded, dtype)

    return _named(op, name, doc)


def kernel_only(name: str, doc: str, like: Callable[..., Any], path: str | None = None) -> Callable[..., Any]:
    """A builtin known to the compiler by `name`, with the parameters of `like`. Called from Python it raises, unless
    kernels run as Python. `path`: the name in messages, if different.
    """
    shown = path or name
    signature = inspect.signature(like)

    def op(*args: Any, **kwargs: Any) -> Any:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"qd.{shown}{signature}: {error}") from None
        if name in STAND_INS:
            return STAND_INS[name](*args, **kwargs)
        raise OctantsScopeError(f"qd.{shown}() can only be called in kernels and @qd.func functions, not from Python")

    op.__signature__ = signature  # type: ignore[attr-defined]
    return _named(op, name, doc)


def _scalarwise(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Extends a Python function of scalars to arrays."""
    over_arrays = np.vectorize(apply)
    return lambda *args: over_arrays(*args) if any(np.ndim(arg) for arg in args) else apply(*args)


sin = _unary("sin", "Sine of an angle in radians.", np.sin)
cos = _unary("cos", "Cosine of an angle in radians.", np.cos)
tan = _unary("tan", "Tangent of an angle in radians.", np.tan)
asin = _unary("asin", "Arc sine, within -pi/2 and pi/2.", np.arcsin)
acos = _unary("acos", "Arc cosine, within 0 and pi.", np.arccos)
tanh = _unary("tanh", "Hyperbolic tangent.", np.tanh)
exp = _unary("exp", "e to the power of x.", np.exp)
log = _unary("log", "Natural logarithm.", np.log)
sqrt = _unary("sqrt", "Square root.", np.sqrt)
rsqrt = _unary("rsqrt", "The reciprocal of the square root.", lambda x: 1.0 / np.sqrt(x))
abs = _unary("abs", "Absolute value.", builtins.abs)
neg = _unary("neg", "The negative.", lambda x: -x)
sgn = _unary("sgn", "The sign: -1, 0 or 1.", np.sign)
logical_not = _unary("logical_not", "1 if x is 0, else 0.", np.logical_not)
bit_not = _unary("bit_not", "All bits flipped.", lambda x: ~x)

floor = _rounding("floor", "The largest integer not above x, as a float or converted to `dtype`.", np.floor)
ceil = _rounding("ceil", "The smallest integer not below x, as a float or converted to `dtype`.", np.ceil)
round = _rounding("round", "The nearest integer, ties to even, as a float or converted to `dtype`.", np.round)


@known_to_compiler("pow")
def pow(base: Any, exponent: Any) -> Any:
    """`base` to the power of `exponent`. In kernels, an integer if both are integers."""
    return elementwise(lambda x1, x2: x1**x2, base, exponent)


atan2 = _binary("atan2", "The angle of the point (x2, x1), within -pi and pi.", np.arctan2)
mod = _binary("mod", "The remainder with the sign of the divisor.", lambda x1, x2: x1 % x2)
floordiv = _binary("floordiv", "The quotient rounded down.", lambda x1, x2: x1 // x2)
truediv = _binary("truediv", "The quotient as a float.", lambda x1, x2: x1 / x2)
logical_and = _binary("logical_and", "1 if both are nonzero, else 0.", np.logical_and)
logical_or = _binary("logical_or", "1 if either is nonzero, else 0.", np.logical_or)


@_scalarwise
def _raw_div(x1: Any, x2: Any) -> Any:
    if isinstance(x1, (float, np.floating)) or isinstance(x2, (float, np.floating)):
        return x1 / x2
    quotient = builtins.abs(int(x1)) // builtins.abs(int(x2))
    return quotient if (x1 < 0) == (x2 < 0) else -quotient


@_scalarwise
def _raw_mod(x1: Any, x2: Any) -> Any:
    if isinstance(x1, (float, np.floating)) or isinstance(x2, (float, np.floating)):
        return math.fmod(x1, x2)
    return x1 - x2 * _raw_div(x1, x2)


@_scalarwise
def _bit_shr(x1: Any, x2: Any) -> Any:
    # A Python integer counts as 32-bit here unless it needs more.
    value = int(x1)
    bits = 32 if -(1 << 31) <= value < 1 << 32 else 64
    return (value & ((1 << bits) - 1)) >> int(x2)


raw_div = _binary("raw_div", "The quotient as in C: integers are rounded toward zero.", _raw_div)
raw_mod = _binary("raw_mod", "The remainder as in C: with the sign of x1.", _raw_mod)
bit_shr = _binary("bit_shr", "Logical shift to the right.", _bit_shr)


def _width(x: Any) -> int:
    return (
        np.asarray(x).dtype.itemsize * 8 if isinstance(x, np.integer) else 32 if -(1 << 31) <= int(x) < 1 << 32 else 64
    )


def _mask(x: Any) -> int:
    return (1 << _width(x)) - 1


def _count_bits(x: Any) -> int:
    return (int(x) & _mask(x)).bit_count()


def _leading_zeros(x: Any) -> int:
    return _width(x) - (int(x) & _mask(x)).bit_length()


def _lowest_set(x: Any) -> int:
    return (int(x) & -int(x)).bit_length()


popcnt = _unary("popcnt", "Number of bits set.", _scalarwise(_count_bits))
clz = _unary("clz", "Number of leading zero bits.", _scalarwise(_leading_zeros))
ffs = _unary("ffs", "Position of the lowest set bit, starting at 1; 0 for 0.", _scalarwise(_lowest_set))


@known_to_compiler("frexp")
def frexp(x: Any) -> Any:
    """Mantissa and binary exponent. The magnitude of the mantissa is in [0.5, 1), or 0 if x is 0."""
    return np.frexp(x)


@known_to_compiler("max")
def max(*args: Any) -> Any:
    """The maximum of the arguments, component by component."""
    return _extremum(np.maximum, builtins.max, args)


@known_to_compiler("min")
def min(*args: Any) -> Any:
    """The minimum of the arguments, component by component."""
    return _extremum(np.minimum, builtins.min, args)


def _extremum(over_arrays: Callable[[Any, Any], Any], over_scalars: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    if not args:
        raise OctantsTypeError("min() and max() need at least one argument")
    if len(args) == 1:
        (values,) = args
        if isinstance(values, (int, float, np.generic)):
            return values
        return over_scalars(values.entries.ravel().tolist() if isinstance(values, Matrix) else values)
    if all(isinstance(arg, (int, float, np.generic)) for arg in args):
        result = over_scalars(*args)
        # As in kernels, a float among the arguments makes the result one.
        is_float = any(isinstance(arg, (float, np.floating)) for arg in args)
        return float(result) if is_float and isinstance(result, (int, np.integer)) else result
    result = args[0]
    for arg in args[1:]:
        result = elementwise(over_arrays, result, arg)
    return result


@known_to_compiler("select")
def select(cond: Any, x1: Any, x2: Any) -> Any:
    """x1 if the condition is not 0, else x2; component by component. Both are evaluated."""
    if not any(isinstance(arg, (Matrix, np.ndarray)) for arg in (cond, x1, x2)):
        return x1 if cond else x2
    return elementwise(np.where, cond, x1, x2)


ifte = select


@known_to_compiler("cast")
def cast(obj: Any, dtype: Any) -> Any:
    """The value, or each component of a vector or matrix, converted to another scalar type.

    From a float to an integer, the fraction is dropped; out-of-range values give a device-dependent result. From an
    integer to a narrower one, the low bits are kept.
    """
    to = resolve_dtype(dtype)
    if isinstance(obj, Matrix):
        return obj.cast(to)
    return obj.astype(to.numpy) if isinstance(obj, np.ndarray) else to.convert(obj)


@known_to_compiler("bit_cast")
def bit_cast(obj: Any, dtype: Any) -> Any:
    """The bits of the value reinterpreted as another scalar type. In kernels, a type of another size is an error."""
    to = resolve_dtype(dtype)
    if isinstance(obj, (np.generic, np.ndarray)):
        return obj.view(to.numpy)
    codes = {16: "e", 32: "f", 64: "d"}
    if isinstance(obj, float):
        bits = int.from_bytes(struct.pack("<" + codes[to.bits], obj), "little")
    else:
        bits = int(obj)
    if to.is_float:
        return struct.unpack("<" + codes[to.bits], (bits & ((1 << to.bits) - 1)).to_bytes(to.nbytes, "little"))[0]
    return to.convert(bits)


@known_to_compiler("zero")
def zero(x: Any) -> Any:
    """Zero of the type of x."""
    return elementwise(np.zeros_like, x) if isinstance(x, (Matrix, np.ndarray)) else type(x)(0)


@known_to_compiler("one")
def one(x: Any) -> Any:
    """One of the type of x."""
    return elementwise(np.ones_like, x) if isinstance(x, (Matrix, np.ndarray)) else type(x)(1)


@known_to_compiler("static")
def static(x: Any, *xs: Any) -> Any:
    """In a kernel: evaluates the argument at compile time; around the range of a loop, unrolls the loop. In Python: the
    argument.
    """
    return [x, *xs] if xs else x


@known_to_compiler("static_assert")
def static_assert(cond: Any, msg: Any = None) -> None:
    """An assertion checked when the kernel is compiled."""
    if not cond:
        raise AssertionError(*(() if msg is None else (msg,)))


@known_to_compiler("static_print")
def static_print(*args: Any, **kwargs: Any) -> None:
    """In a kernel: prints at compile time. In Python: prints."""
    print(*args, **kwargs)


@known_to_compiler("loop_config")
def loop_config(
    *,
    block_dim: int | None = None,
    serialize: bool = False,
    parallelize: int | None = None,
    bit_vectorize: bool = False,
    name: str | None = None,
) -> None:
    """Sets options of the next loop, at the top level of a kernel.

    `serialize` runs it in order, on one thread. `block_dim` is the number of threads per block on a GPU, and the number
    of iterations that a CPU thread takes at a time. `parallelize` is the maximum number of CPU threads. `name` names
    the loop in profiles. `bit_vectorize` makes a loop over a `quant_array` handle all
    elements of a word at once, if its body consists of assignments.
    """
    if "loop_config" in STAND_INS:
        return
    raise OctantsScopeError(
        "qd.loop_config() can only be used in a kernel, directly before the loop that it configures"
    )


@known_to_compiler("assume_in_range")
def assume_in_range(val: Any, base: Any, low: int, high: int) -> Any:
    """The value, which the caller guarantees to be at least `base + low` and less than `base + high`. Not checked."""
    return val


@known_to_compiler("stop_grad")
def stop_grad(x: Any) -> Any:
    """The value; gradients do not flow through it."""
    return x


@known_to_compiler("loop_unique")
def loop_unique(val: Any, covers: Any = None) -> Any:
    """The value, which the caller guarantees to differ between iterations of the loop."""
    return val


atomic_add = kernel_only("atomic_add", "x += y, atomically; returns the old x.", lambda x, y: None)
atomic_sub = kernel_only("atomic_sub", "x -= y, atomically; returns the old x.", lambda x, y: None)
atomic_mul = kernel_only("atomic_mul", "x *= y, atomically; returns the old x.", lambda x, y: None)
atomic_min = kernel_only("atomic_min", "x = min(x, y), atomically; returns the old x.", lambda x, y: None)
atomic_max = kernel_only("atomic_max", "x = max(x, y), atomically; returns the old x.", lambda x, y: None)
atomic_and = kernel_only("atomic_and", "x &= y, atomically; returns the old x.", lambda x, y: None)
atomic_or = kernel_only("atomic_or", "x |= y, atomically; returns the old x.", lambda x, y: None)
atomic_xor = kernel_only("atomic_xor", "x ^= y, atomically; returns the old x.", lambda x, y: None)
atomic_exchange = kernel_only("atomic_exchange", "x = y, atomically; returns the old x.", lambda x, y: None)
atomic_cas = kernel_only(
    "atomic_cas",
    "Compare and swap: sets x to `desired` if it equals `expected`, atomically; returns the old x.",
    lambda x, expected, desired: None,
)
random = kernel_only(
    "random",
    "A uniform random number of the given type (default: `default_fp`): a float in [0, 1), or any integer.",
    lambda dtype=float: None,
)
clock_counter = kernel_only(
    "clock_counter",
    "The clock counter of the processor that runs the thread, i64: the core's time stamp counter on a CPU, cycles of "
    "the multiprocessor on a GPU. Only differences within one thread are meaningful.",
    lambda: None,
)
grouped = kernel_only(
    "grouped", "Yields the indices of a loop over a field or an ndrange as one vector.", lambda x: None
)
get_addr = kernel_only(
    "get_addr",
    "`qd.get_addr(x, [i, j])`: the device address of an element of a field or array, u64.",
    lambda f, indices: None,
)
volatile_load = kernel_only(
    "volatile_load",
    "A volatile load, neither cached nor hoisted: for loops that wait for the writes of other threads.",
    lambda target: None,
)
flat_values = kernel_only(
    "flat_values", "The scalars of a scalar, vector, matrix, struct or list, flattened to a list.", lambda value: None
)
cell_is_active = kernel_only(
    "cell_is_active",
    "Whether the cell of a sparse level that contains an element is active; indices are zero-based.",
    lambda cells, index: None,
)
cell_number = kernel_only(
    "cell_number",
    "The index of the activation state of the sparse cell that contains an element; indices are zero-based.",
    lambda cells, index: None,
)
outer = kernel_only(
    "outer",
    "`outer(a, b)`: the outer product of two columns of a `qd.simt` tile, in `t -= outer(a, b)`.",
    lambda a, b: None,
)
block_local = kernel_only("block_local", "A hint: cache these fields in shared memory.", lambda *args: None)
cache_read_only = kernel_only("cache_read_only", "A hint: these fields are only read.", lambda *args: None)
mesh_local = kernel_only(
    "mesh_local",
    "A hint without effect: the next loop over mesh elements uses these fields often.",
    lambda *args: None,
)
mesh_patch_idx = kernel_only(
    "mesh_patch_idx",
    "In a loop over mesh elements, the patch that owns the current element.",
    lambda: None,
)
no_activate = kernel_only("no_activate", "A hint: writes to these sparse fields activate nothing.", lambda *args: None)
