"""Arithmetic of the language's scalar types on Python numbers: integers wrap, floats round to their type.

An integer is a Python int in the range of its type, a truth value 0 or 1, a float a Python float that its type can
hold. `State` collects what makes results incomparable.
"""

import math
from collections.abc import Callable

import numpy as np

INTS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]
FLOATS = ["f16", "f32", "f64"]
NAMES = ["u1", *INTS, *FLOATS]
BITS = {name: int(name[1:]) for name in NAMES}
MASK = {name: (1 << BITS[name]) - 1 for name in NAMES}
LEAST = {name: -(1 << (BITS[name] - 1)) if name[0] == "i" else 0 for name in ["u1", *INTS]}
MOST = {name: LEAST[name] + MASK[name] for name in LEAST}
NUMPY = {"u1": np.dtype(np.bool_)}
NUMPY |= {n: np.dtype({"i": "int", "u": "uint", "f": "float"}[n[0]] + n[1:]) for n in NAMES[1:]}


class UnspecifiedError(Exception):
    """The program depends on unspecified behavior: it has no unique result."""


class State:
    """Events while a program ran."""

    def __init__(self) -> None:
        self.inexact = False
        """A float left the grid on which additions are exact in any order: the result under `fast_math` is not one number."""
        self.steps = 0
        self.iteration: int | None = None
        """The iteration of a parallel loop."""


def is_float(t: str) -> bool:
    return t[0] == "f"


def promote(a: str, b: str) -> str:
    if a == b:
        return a
    if is_float(a) != is_float(b):
        return a if is_float(a) else b
    if BITS[a] != BITS[b]:
        return a if BITS[a] > BITS[b] else b
    return a if a[0] == "u" else b


def wrap(t: str, v: int) -> int:
    v &= MASK[t]
    return v - MASK[t] - 1 if v > MOST[t] else v


def wrapper(t: str) -> Callable[[int], int]:
    mask, most, span = MASK[t], MOST[t], MASK[t] + 1
    if t[0] == "u":
        return lambda v: v & mask

    def signed(v: int) -> int:
        v &= mask
        return v - span if v > most else v

    return signed


def rounder(t: str) -> Callable[[float], float]:
    if t == "f64":
        return lambda v: v
    single, half = np.float32, np.float16
    if t == "f32":
        return lambda v: float(single(v))
    # The machine's arithmetic on halves is on singles.
    return lambda v: float(half(single(v)))


# On a grid of eighths (halves), far below the largest exact number, sums are exact in any order.
SCALE = {"f16": 2.0, "f32": 8.0, "f64": 8.0}
LARGEST = {"f16": 128.0, "f32": 65536.0, "f64": 2.0**40}


def on_grid(t: str, v: float) -> bool:
    return -LARGEST[t] <= v <= LARGEST[t] and (v * SCALE[t]).is_integer()


def checked(state: State, t: str) -> Callable[[float], float]:
    """Rounds, and records values that are not on the grid."""
    round_to, scale, largest = rounder(t), SCALE[t], LARGEST[t]

    def check(v: float) -> float:
        v = round_to(v)
        if not -largest <= v <= largest or not (v * scale).is_integer():
            state.inexact = True
        return v

    return check


def converter(state: State, a: str, b: str) -> Callable | None:
    """The conversion from one type to another; None if there is nothing to do."""
    if a == b:
        return None
    if is_float(b):
        check, bound = checked(state, b), 2**53
        round_once = NUMPY["f32" if b == "f16" else b].type

        def to_float(v):
            # Rounded once: through an f64, a long integer would be rounded twice.
            return check(float(v) if -bound < v < bound else float(round_once(v)))

        return check if is_float(a) else to_float
    if b == "u1":
        return lambda v: int(v != 0)
    if is_float(a):
        least, most = LEAST[b], MOST[b]

        def to_int(v):
            if not least - 1 < v < most + 1:
                raise UnspecifiedError(f"{v} as {b}")
            return int(v)

        return to_int
    if LEAST[b] <= LEAST[a] and MOST[a] <= MOST[b]:
        return None
    return wrapper(b)


def _c_quotient(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def binary(state: State, op: str, t: str) -> Callable:
    """An operation on two numbers of type `t`."""
    if is_float(t):
        return _float_binary(state, op, t)
    w, bits = wrapper(t), BITS[t]

    def divisor(b: int) -> int:
        if b == 0:
            raise UnspecifiedError("division by zero")
        return b

    def count(b: int) -> int:
        if not 0 <= b < bits:
            raise UnspecifiedError(f"shift of {t} by {b}")
        return b

    def power(a: int, b: int) -> int:
        if b < 0:
            raise UnspecifiedError("negative exponent")
        return w(pow(a, b, 1 << bits))

    return {
        "+": lambda a, b: w(a + b),
        "-": lambda a, b: w(a - b),
        "*": lambda a, b: w(a * b),
        "//": lambda a, b: w(a // divisor(b)),
        "%": lambda a, b: w(a % divisor(b)),
        "raw_div": lambda a, b: w(_c_quotient(a, divisor(b))),
        "raw_mod": lambda a, b: w(a - b * _c_quotient(a, divisor(b))),
        "**": power,
        "<<": lambda a, b: w(a << count(b)),
        ">>": lambda a, b: a >> count(b),
        "bit_shr": lambda a, b: w((a & MASK[t]) >> count(b)),
        "&": lambda a, b: a & b,
        "|": lambda a, b: a | b,
        "^": lambda a, b: a ^ b,
        "min": min,
        "max": max,
    }[op]


def _float_binary(state: State, op: str, t: str) -> Callable:
    check = checked(state, t)

    def divide(a: float, b: float) -> float:
        if b == 0:
            raise UnspecifiedError("division by zero")
        if math.frexp(b)[0] not in (0.5, -0.5):
            # Under `fast_math` it may be a product with the reciprocal.
            state.inexact = True
        return check(a / b)

    wide = rounder("f32" if t == "f16" else t)

    def floor_div(a: float, b: float) -> float:
        if b == 0 or not math.isfinite(a):
            raise UnspecifiedError("division by zero")
        q = wide(a / b)
        state.inexact |= math.frexp(b)[0] not in (0.5, -0.5)
        return check(float(math.floor(q)))

    def modulo(a: float, b: float) -> float:
        if b == 0 or not math.isfinite(a):
            raise UnspecifiedError("division by zero")
        state.inexact |= math.frexp(b)[0] not in (0.5, -0.5)
        return check(wide(a - wide(b * math.floor(wide(a / b)))))

    def least(a: float, b: float) -> float:
        return b if a != a or b < a else a

    def most(a: float, b: float) -> float:
        return b if a != a or b > a else a

    return {
        "+": lambda a, b: check(a + b),
        "-": lambda a, b: check(a - b),
        "*": lambda a, b: check(a * b),
        "/": divide,
        "//": floor_div,
        "%": modulo,
        "min": least,
        "max": most,
    }[op]


COMPARE = {
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b),
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
}


def bit_cast(a: str, b: str) -> Callable:
    def cast(v):
        if is_float(a) and (v == 0 or v != v):
            raise UnspecifiedError("the bits of a zero or a NaN")
        return np.asarray(v, NUMPY[a]).view(NUMPY[b]).item()

    return cast


def unary(state: State, op: str, t: str) -> tuple[str, Callable]:
    """The type of the result, and the function."""
    bits, mask = BITS[t], MASK[t]
    if is_float(t):
        check = checked(state, t)

        def root(v: float) -> float:
            if not v >= 0:
                raise UnspecifiedError("root of a negative number")
            state.inexact = True
            return check(math.sqrt(v))

        def whole(f: Callable) -> Callable:
            return lambda v: check(float(f(v))) if math.isfinite(v) else v

        functions = {
            "-": lambda v: -v,
            "abs": abs,
            "sqrt": root,
            "floor": whole(math.floor),
            "ceil": whole(math.ceil),
            "round": whole(lambda v: math.copysign(math.floor(abs(v) + 0.5), v)),
        }
        return t, functions[op]
    w = wrapper(t)
    if op == "~" and t == "u1":
        return t, lambda v: 1 - v
    if op in ("popcnt", "clz", "ffs"):
        counts = {
            "popcnt": lambda v: (v & mask).bit_count(),
            "clz": lambda v: bits - (v & mask).bit_length(),
            "ffs": lambda v: (v & -v & mask).bit_length(),
        }
        return "i32", counts[op]
    functions = {
        "-": lambda v: w(-v),
        "~": lambda v: w(~v),
        "abs": lambda v: w(abs(v)),
        "not": lambda v: int(v == 0),
    }
    return ("u1" if op == "not" else t), functions[op]
