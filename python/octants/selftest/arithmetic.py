"""Arithmetic: integers and floats of all widths, conversions, math functions."""

# mypy: ignore-errors
# Kernels are Python in form only.

from __future__ import annotations

import numpy as np

import octants as qd
from octants.selftest.registry import check, close, equal

N = 1000


def _integers(kind: type[np.integer]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    info = np.iinfo(kind)
    a = rng.integers(info.min, info.max, N, dtype=kind, endpoint=True)
    b = rng.integers(info.min, info.max, N, dtype=kind, endpoint=True)
    b[b == 0] = 3
    # The one quotient that does not fit.
    b[b == kind(-1).astype(kind) if info.min < 0 else False] = 7
    return a, b


def _check_integers(of: object, kind: type[np.integer]) -> None:
    array = qd.types.ndarray(dtype=of, ndim=1)

    @qd.kernel
    def compute(a: array, b: array, out: qd.types.ndarray(dtype=of, ndim=2)):
        for i in a:
            out[0, i] = a[i] + b[i]
            out[1, i] = a[i] * b[i]
            out[2, i] = a[i] // b[i]
            out[3, i] = a[i] % b[i]
            out[4, i] = a[i] & b[i]
            out[5, i] = a[i] ^ b[i]
            out[6, i] = qd.max(a[i], b[i])
            out[7, i] = qd.select(a[i] < b[i], a[i], b[i])

    a, b = _integers(kind)
    out = np.zeros((8, N), dtype=kind)
    compute(a, b, out)
    with np.errstate(over="ignore"):
        want = [a + b, a * b, a // b, a % b, a & b, a ^ b, np.maximum(a, b), np.where(a < b, a, b)]
    names = ["a + b", "a * b", "a // b", "a % b", "a & b", "a ^ b", "max(a, b)", "select"]
    for row, values, name in zip(out, want, names, strict=True):
        equal(row, values, f"{np.dtype(kind).name} {name}")


@check()
def integers_of_32_and_64_bits() -> None:
    """Arithmetic wraps, division rounds down."""
    _check_integers(qd.i32, np.int32)
    _check_integers(qd.u32, np.uint32)
    _check_integers(qd.i64, np.int64)
    _check_integers(qd.u64, np.uint64)


@check()
def integers_of_8_and_16_bits() -> None:
    """Loads, stores and conversions of small integers."""

    @qd.kernel
    def widen(
        a: qd.types.ndarray(dtype=qd.i8, ndim=1),
        b: qd.types.ndarray(dtype=qd.u16, ndim=1),
        out: qd.types.ndarray(dtype=qd.i32, ndim=1),
        back: qd.types.ndarray(dtype=qd.i8, ndim=1),
    ):
        for i in a:
            wide = qd.cast(a[i], qd.i32) * 3 + qd.cast(b[i], qd.i32)
            out[i] = wide
            back[i] = qd.cast(wide, qd.i8)

    rng = np.random.default_rng(2)
    a = rng.integers(-128, 127, N, dtype=np.int8)
    b = rng.integers(0, 65535, N, dtype=np.uint16)
    out, back = np.zeros(N, dtype=np.int32), np.zeros(N, dtype=np.int8)
    widen(a, b, out, back)
    want = a.astype(np.int32) * 3 + b
    equal(out, want, "out")
    equal(back, want.astype(np.int8), "back")


def _check_floats(of: object, kind: type[np.floating], relative: float) -> None:
    array = qd.types.ndarray(dtype=of, ndim=1)

    @qd.kernel
    def compute(a: array, b: array, out: qd.types.ndarray(dtype=of, ndim=2)):
        for i in a:
            out[0, i] = a[i] + b[i]
            out[1, i] = a[i] * b[i]
            out[2, i] = a[i] / b[i]
            out[3, i] = qd.sqrt(b[i])
            out[4, i] = qd.min(a[i], b[i])
            out[5, i] = qd.floor(a[i])
            out[6, i] = -a[i]

    rng = np.random.default_rng(3)
    a, b = rng.uniform(-4, 4, N).astype(kind), rng.uniform(0.5, 4, N).astype(kind)
    out = np.zeros((7, N), dtype=kind)
    compute(a, b, out)
    x, y = a.astype(np.float64), b.astype(np.float64)
    want = [x + y, x * y, x / y, np.sqrt(y), np.minimum(x, y), np.floor(x), -x]
    names = ["a + b", "a * b", "a / b", "sqrt", "min", "floor", "-a"]
    for row, values, name in zip(out, want, names, strict=True):
        close(row, values, relative, relative, f"{np.dtype(kind).name} {name}")


@check()
def floats_of_32_and_64_bits() -> None:
    """Arithmetic and square roots."""
    _check_floats(qd.f32, np.float32, 4e-7)
    _check_floats(qd.f64, np.float64, 8e-16)


@check()
def floats_of_16_bits() -> None:
    """Arithmetic of half precision."""
    _check_floats(qd.f16, np.float16, 2e-3)


_FUNCTIONS = ("sin", "cos", "tan", "asin", "acos", "tanh", "exp", "log", "pow", "atan2")


def _check_mathematics(of: object, kind: type[np.floating], ulps: float) -> str:
    array = qd.types.ndarray(dtype=of, ndim=1)

    @qd.kernel
    def compute(a: array, b: array, out: qd.types.ndarray(dtype=of, ndim=2)):
        for i in a:
            out[0, i] = qd.sin(a[i])
            out[1, i] = qd.cos(a[i])
            out[2, i] = qd.tan(a[i] / 8)
            out[3, i] = qd.asin(a[i] / 8)
            out[4, i] = qd.acos(a[i] / 8)
            out[5, i] = qd.tanh(a[i])
            out[6, i] = qd.exp(a[i])
            out[7, i] = qd.log(b[i])
            out[8, i] = qd.pow(b[i], a[i])
            out[9, i] = qd.atan2(a[i], b[i])

    rng = np.random.default_rng(4)
    a, b = rng.uniform(-8, 8, N).astype(kind), rng.uniform(0.01, 100, N).astype(kind)
    out = np.zeros((10, N), dtype=kind)
    compute(a, b, out)
    x, y = a.astype(np.float64), b.astype(np.float64)
    want = [np.sin(x), np.cos(x), np.tan(x / 8), np.arcsin(x / 8), np.arccos(x / 8), np.tanh(x), np.exp(x), np.log(y)]
    want += [np.power(y, x), np.arctan2(x, y)]
    epsilon = float(np.finfo(kind).eps)
    worst = (0.0, "")
    for row, values, name in zip(out, want, _FUNCTIONS, strict=True):
        # For small results, the rounding error of the argument dominates.
        error = close(row, values, ulps * epsilon, ulps * epsilon, f"{np.dtype(kind).name} {name}")
        worst = max(worst, (error * ulps, name))
    return f"{np.dtype(kind).name}: at most {worst[0]:.1f} eps ({worst[1]})"


@check()
def mathematics_in_32_bits() -> str:
    """Math functions under fast_math: within a few units in the last place."""
    return _check_mathematics(qd.f32, np.float32, 64.0)


@check(fast_math=False)
def mathematics_in_32_bits_exactly() -> str:
    """Math functions without fast_math."""
    return _check_mathematics(qd.f32, np.float32, 32.0)


@check()
def mathematics_in_64_bits() -> str:
    """Math functions in double precision."""
    return _check_mathematics(qd.f64, np.float64, 64.0)


@check()
def conversions() -> None:
    """Between integers, floats and bits."""

    @qd.kernel
    def convert(
        a: qd.types.ndarray(dtype=qd.f32, ndim=1),
        whole: qd.types.ndarray(dtype=qd.i32, ndim=1),
        wide: qd.types.ndarray(dtype=qd.f64, ndim=1),
        bits: qd.types.ndarray(dtype=qd.u32, ndim=1),
    ):
        for i in a:
            whole[i] = qd.cast(a[i], qd.i32)
            wide[i] = qd.cast(a[i], qd.f64) * 2
            bits[i] = qd.bit_cast(a[i], qd.u32)

    a = np.random.default_rng(5).uniform(-1e6, 1e6, N).astype(np.float32)
    whole, wide, bits = np.zeros(N, dtype=np.int32), np.zeros(N), np.zeros(N, dtype=np.uint32)
    convert(a, whole, wide, bits)
    equal(whole, a.astype(np.int32), "whole")
    equal(wide, a.astype(np.float64) * 2, "wide")
    equal(bits, a.view(np.uint32), "bits")
