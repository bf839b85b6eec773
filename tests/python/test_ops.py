"""Operators and functions of numbers on every scalar type, against numpy."""

import platform
from pathlib import Path

import kernel_operators as operators
import numpy as np
import pytest

import octants as qd

SIGNED = ["i8", "i16", "i32", "i64"]
UNSIGNED = ["u8", "u16", "u32", "u64"]
INTEGERS = SIGNED + UNSIGNED
FLOATS = ["f16", "f32", "f64"]
NUMPY = {"u1": np.bool_, "f16": np.float16, "f32": np.float32, "f64": np.float64}
NUMPY |= {f"i{n}": np.dtype(f"int{n}").type for n in (8, 16, 32, 64)}
NUMPY |= {f"u{n}": np.dtype(f"uint{n}").type for n in (8, 16, 32, 64)}
COUNT = 64


@pytest.fixture(autouse=True)
def session():
    # Exact types of arithmetic are checked, so nothing may be reassociated.
    qd.init(arch=qd.cpu, fast_math=False, log_level=qd.ERROR)
    yield
    qd.reset()


def numbers(name, seed, nonzero=False):
    rng = np.random.default_rng(seed)
    if name in FLOATS:
        x = rng.uniform(-8, 8, COUNT).astype(NUMPY[name])
        x[:4] = [1.5, -1.5, 2.5, 0.0]
        if nonzero:
            x[np.abs(x) < 0.125] = 0.5
        return x
    info = np.iinfo(NUMPY[name])
    x = rng.integers(info.min, info.max, COUNT, dtype=NUMPY[name], endpoint=True)
    x[: COUNT // 2] = rng.integers(max(info.min, -9), 10, COUNT // 2).astype(NUMPY[name])
    x[-2:] = [info.min, info.max]
    if nonzero:
        x[x == 0] = 3
    return x


def apply(op, out_type, *inputs):
    """`op` of each element of arrays `(type name, values)`, stored as `out_type`."""
    fields = []
    for name, values in inputs:
        field = qd.field(getattr(qd, name), shape=len(values))
        field.from_numpy(values)
        fields.append(field)
    out = qd.field(getattr(qd, out_type), shape=len(inputs[0][1]))

    if len(fields) == 1:
        (a,) = fields

        @qd.kernel
        def run():
            for i in out:
                out[i] = op(a[i])
    else:
        a, b = fields

        @qd.kernel
        def run():
            for i in out:
                out[i] = op(a[i], b[i])

    run()
    return out.to_numpy()


@qd.func
def _raw_mod(a, b):
    return qd.raw_mod(a, b)


@qd.func
def _bit_shr(a, b):
    return qd.bit_shr(a, b)


@qd.func
def _min(a, b):
    return min(a, b)


@qd.func
def _lt(a, b):
    return a < b


@qd.func
def _le(a, b):
    return a <= b


@qd.func
def _gt(a, b):
    return a > b


@qd.func
def _ge(a, b):
    return a >= b


@qd.func
def _eq(a, b):
    return a == b


@qd.func
def _ne(a, b):
    return a != b


@qd.func
def _neg(a):
    return -a


@qd.func
def _invert(a):
    return ~a


@qd.func
def _not(a):
    return not a


@qd.func
def _abs(a):
    return abs(a)


def wrapped(values, dtype):
    """Python integers modulo the range of an integer type."""
    bits = np.dtype(dtype).itemsize * 8
    return np.array([v % (1 << bits) for v in values], dtype=f"uint{bits}").view(dtype)


def c_quotient(a, b):
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    return wrapped([abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) for x, y in pairs], a.dtype)


def c_remainder(a, b):
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    return wrapped([abs(x) % abs(y) * (1 if x >= 0 else -1) for x, y in pairs], a.dtype)


BINARY = {"+": (operators.add, np.add), "-": (operators.sub, np.subtract), "*": (operators.mul, np.multiply)}
COMPARISONS = [(_lt, np.less), (_le, np.less_equal), (_gt, np.greater), (_ge, np.greater_equal)]
COMPARISONS += [(_eq, np.equal), (_ne, np.not_equal)]


@pytest.mark.parametrize("symbol", BINARY)
@pytest.mark.parametrize("name", INTEGERS + FLOATS)
def test_arithmetic(symbol, name):
    op, expected = BINARY[symbol]
    a, b = numbers(name, 1), numbers(name, 2)
    with np.errstate(over="ignore"):
        want = expected(a, b)
    got = apply(op, name, (name, a), (name, b))
    if name in INTEGERS:
        assert got.tolist() == want.tolist()
    else:
        np.testing.assert_allclose(got, want, rtol=2 * np.finfo(NUMPY[name]).eps)


@pytest.mark.parametrize("name", INTEGERS)
def test_integer_division(name):
    a, b = numbers(name, 3), numbers(name, 4, nonzero=True)
    if name in SIGNED:
        # The smallest number divided by -1 has no answer.
        b[a == np.iinfo(NUMPY[name]).min] = 7
    pair = ((name, a), (name, b))
    assert apply(operators.floordiv, name, *pair).tolist() == (a // b).tolist()
    assert apply(operators.modulo, name, *pair).tolist() == (a % b).tolist()
    assert apply(operators.raw_div, name, *pair).tolist() == c_quotient(a, b).tolist()
    assert apply(_raw_mod, name, *pair).tolist() == c_remainder(a, b).tolist()
    quotient = a.astype(np.float32) / b.astype(np.float32)
    np.testing.assert_allclose(apply(operators.divide, "f32", *pair), quotient, rtol=1e-6)


@pytest.mark.parametrize("name", FLOATS)
def test_float_division(name):
    a, b = numbers(name, 3), numbers(name, 4, nonzero=True)
    pair = ((name, a), (name, b))
    eps = np.finfo(NUMPY[name]).eps
    np.testing.assert_allclose(apply(operators.divide, name, *pair), a / b, rtol=2 * eps)
    np.testing.assert_allclose(apply(operators.floordiv, name, *pair), np.floor(a / b))
    # A rounding may move the remainder by one divisor.
    error = np.abs(apply(operators.modulo, name, *pair).astype(np.float64) - np.mod(a, b).astype(np.float64))
    assert (np.minimum(error, np.abs(np.abs(b.astype(np.float64)) - error)) <= 64 * eps).all()


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_c_style_remainder(name):
    a, b = numbers(name, 3), numbers(name, 4, nonzero=True)
    got = apply(_raw_mod, name, (name, a), (name, b))
    np.testing.assert_allclose(got, np.fmod(a, b), atol=8 * np.finfo(NUMPY[name]).eps)


@pytest.mark.parametrize("name", INTEGERS)
def test_bits(name):
    a, b = numbers(name, 5), numbers(name, 6)
    pair = ((name, a), (name, b))
    assert apply(operators.bit_and, name, *pair).tolist() == (a & b).tolist()
    assert apply(operators.bit_or, name, *pair).tolist() == (a | b).tolist()
    assert apply(operators.bit_xor, name, *pair).tolist() == (a ^ b).tolist()
    assert apply(_invert, name, (name, a)).tolist() == (~a).tolist()
    bits = a.dtype.itemsize * 8
    by = (np.arange(COUNT) % bits).astype(np.int32)
    shift = ((name, a), ("i32", by))
    assert apply(operators.shl, name, *shift).tolist() == (a << by.astype(a.dtype)).tolist()
    assert apply(operators.shr, name, *shift).tolist() == (a >> by.astype(a.dtype)).tolist()
    unsigned = a.view(f"uint{bits}")
    logical = (unsigned >> by.astype(unsigned.dtype)).view(a.dtype)
    assert apply(_bit_shr, name, *shift).tolist() == logical.tolist()


@pytest.mark.parametrize("name", ["i32", "u32", "i64", "u64"])
def test_bit_counts(name):
    a = numbers(name, 7)
    bits = a.dtype.itemsize * 8
    patterns = [int(x) for x in a.view(f"uint{bits}")]
    assert apply(qd.math.popcnt, "i32", (name, a)).tolist() == [x.bit_count() for x in patterns]
    assert apply(qd.math.ffs, "i32", (name, a)).tolist() == [(x & -x).bit_length() for x in patterns]
    nonzero = a != 0
    leading = apply(qd.math.clz, "i32", (name, a))
    assert leading[nonzero].tolist() == [bits - x.bit_length() for x in patterns if x]


@pytest.mark.parametrize("name", INTEGERS + FLOATS)
def test_unary_operators_and_extrema(name):
    a, b = numbers(name, 8), numbers(name, 9)
    with np.errstate(over="ignore"):
        assert apply(_neg, name, (name, a)).tolist() == (-a).tolist()
        assert apply(_abs, name, (name, a)).tolist() == np.abs(a).tolist()
    assert apply(_min, name, (name, a), (name, b)).tolist() == np.minimum(a, b).tolist()
    assert apply(operators.maximum, name, (name, a), (name, b)).tolist() == np.maximum(a, b).tolist()
    if name in INTEGERS:
        assert apply(_not, "i32", (name, a)).tolist() == (a == 0).astype(int).tolist()


@pytest.mark.parametrize("left, right", [("i32", "i32"), ("u64", "u64"), ("f32", "f32"), ("i8", "f64"), ("u16", "i64")])
def test_comparisons(left, right):
    a, b = numbers(left, 10), numbers(right, 11)
    b[:8] = np.abs(a[:8]).astype(b.dtype)
    for op, expected in COMPARISONS:
        got = apply(op, "i32", (left, a), (right, b))
        assert got.tolist() == expected(a, b).astype(int).tolist()


def test_comparisons_of_mixed_signs_are_unsigned():
    minus_one = np.array([-1], dtype=np.int32)
    one = np.array([1], dtype=np.uint32)
    assert apply(_lt, "i32", ("i32", minus_one), ("u32", one)).tolist() == [0]
    wide = np.array([1], dtype=np.int64)
    assert apply(_lt, "i32", ("i32", minus_one), ("i64", wide)).tolist() == [1]


def test_booleans_add_modulo_two():
    flags = np.array([0, 1, 0, 1], dtype=np.uint8)
    other = np.array([0, 0, 1, 1], dtype=np.uint8)
    a, b = qd.field(qd.u1, shape=4), qd.field(qd.u1, shape=4)
    for i in range(4):
        a[i], b[i] = bool(flags[i]), bool(other[i])
    out = qd.field(qd.i32, shape=(4, 3))

    @qd.kernel
    def run():
        for i in a:
            out[i, 0] = a[i] + b[i]
            out[i, 1] = a[i] * b[i]
            out[i, 2] = qd.cast(a[i], qd.i32) + b[i]

    run()
    assert out.to_numpy().tolist() == [[0, 0, 0], [1, 0, 1], [1, 0, 1], [0, 1, 2]]


@pytest.mark.parametrize("base", ["i32", "i64", "u32", "f32", "f64"])
def test_powers(base):
    a = np.arange(-6, 7).astype(NUMPY[base]) if base not in UNSIGNED else np.arange(13).astype(NUMPY[base])
    for exponent in range(6):
        b = np.full(len(a), exponent, dtype=np.int32)
        np.testing.assert_allclose(apply(operators.power, base, (base, a), ("i32", b)), a**exponent, rtol=1e-6)
    if base in FLOATS:
        a[a == 0] = 0.5
        b = np.full(len(a), -3, dtype=np.int64)
        np.testing.assert_allclose(apply(operators.power, base, (base, a), ("i64", b)), a**-3.0, rtol=1e-6)
        positive = np.abs(a)
        b = np.linspace(-2, 2, len(a)).astype(NUMPY[base])
        np.testing.assert_allclose(apply(operators.power, base, (base, positive), (base, b)), positive**b, rtol=1e-5)


def test_constant_powers():
    x = np.linspace(-2, 2, 9).astype(np.float32)
    whole = np.arange(-4, 5).astype(np.int32)

    @qd.func
    def polynomial(v):
        return v**3 - 2 * v**2 + v**1 + v**0

    @qd.func
    def inverse_square(v):
        return v**-2

    @qd.func
    def square(v):
        return v**2.0

    np.testing.assert_allclose(apply(polynomial, "f32", ("f32", x)), x**3 - 2 * x**2 + x + 1, atol=1e-5)
    assert apply(polynomial, "i32", ("i32", whole)).tolist() == (whole**3 - 2 * whole**2 + whole + 1).tolist()
    nonzero = x[x != 0]
    np.testing.assert_allclose(apply(inverse_square, "f32", ("f32", nonzero)), nonzero**-2.0, rtol=1e-6)
    np.testing.assert_allclose(apply(square, "f32", ("f32", x)), x * x, rtol=1e-6)


FUNCTIONS = [
    ("sin", np.sin, -8, 8),
    ("cos", np.cos, -8, 8),
    ("tan", np.tan, -1.4, 1.4),
    ("asin", np.arcsin, -1, 1),
    ("acos", np.arccos, -1, 1),
    ("tanh", np.tanh, -5, 5),
    ("exp", np.exp, -5, 5),
    ("log", np.log, 0.01, 50),
    ("sqrt", np.sqrt, 0, 50),
    ("rsqrt", lambda x: 1 / np.sqrt(x), 0.01, 50),
]


@pytest.mark.parametrize("name, expected, low, high", FUNCTIONS, ids=[f[0] for f in FUNCTIONS])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_functions(name, expected, low, high, dtype):
    x = np.linspace(low, high, 101).astype(NUMPY[dtype])
    want = expected(x.astype(np.float64))
    tol = 4e-6 if dtype == "f32" else 1e-13
    np.testing.assert_allclose(apply(getattr(qd, name), dtype, (dtype, x)), want, rtol=tol, atol=tol)


def test_quotients_with_overflowing_reciprocals():
    x = qd.field(qd.f16, shape=3)

    @qd.kernel
    def divide():
        x[1] = x[0] / x[2]
        x[0] = (x[0] + x[0]) / x[2]

    x.from_numpy(np.array([2.0**-10, 0.0, 2.0**-17], np.float16))
    divide()
    assert x.to_numpy().tolist()[:2] == [256.0, 128.0]


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_large_angles(name):
    x = np.concatenate([np.linspace(-100, 100, 20001), np.linspace(-1e4, 1e4, 20001)]).astype(np.float32)
    want = getattr(np, name)(x.astype(np.float64))
    error = np.abs(apply(getattr(qd, name), "f32", ("f32", x)) - want)
    assert error.max() < 2.0**-21.5
    moderate = np.abs(x) <= 100
    assert (error[moderate] <= 4 * np.spacing(np.abs(want[moderate]).astype(np.float32))).all()


@pytest.mark.parametrize("name", ["exp", "log", "sqrt"])
def test_functions_of_integers_are_floats(name):
    x = np.arange(1, 12, dtype=np.int32)
    np.testing.assert_allclose(apply(getattr(qd, name), "f32", ("i32", x)), getattr(np, name)(x), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_atan2(dtype):
    y, x = numbers(dtype, 12), numbers(dtype, 13)
    np.testing.assert_allclose(apply(qd.atan2, dtype, (dtype, y), (dtype, x)), np.arctan2(y, x), rtol=1e-5)
    whole = np.array([2, -3, 0], dtype=np.int32)
    got = apply(qd.atan2, "f32", ("i32", whole), ("i32", np.array([1, 1, -1], dtype=np.int32)))
    np.testing.assert_allclose(got, np.arctan2([2, -3, 0], [1, 1, -1]), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_rounding(dtype):
    x = np.array([-2.5, -1.5, -0.5, -0.2, 0.0, 0.5, 1.5, 2.5, 2.7, 1e6 + 0.25]).astype(NUMPY[dtype])

    @qd.func
    def floor_to_integer(v):
        return qd.floor(v, qd.i32)

    assert apply(qd.floor, dtype, (dtype, x)).tolist() == np.floor(x).tolist()
    assert apply(qd.ceil, dtype, (dtype, x)).tolist() == np.ceil(x).tolist()
    # Halves go away from zero.
    away = np.copysign(np.floor(np.abs(x) + 0.5), x)
    assert apply(qd.round, dtype, (dtype, x)).tolist() == away.tolist()
    assert apply(floor_to_integer, "i32", (dtype, x)).tolist() == np.floor(x).astype(int).tolist()


@pytest.mark.parametrize("name", ["floor", "ceil", "round"])
def test_rounding_refuses_integers(name):
    with pytest.raises(TypeError, match=f"'{name}' takes real inputs only"):
        apply(getattr(qd, name), "f32", ("i32", np.arange(3, dtype=np.int32)))


def test_bits_and_conditions_refuse_floats():
    x = np.ones(3, dtype=np.float32)
    for op in (_invert, _not, qd.math.popcnt, qd.math.ffs):
        with pytest.raises(TypeError, match="takes integral inputs only"):
            apply(op, "i32", ("f32", x))

    @qd.func
    def condition(v):
        result = 0
        if v:
            result = 1
        return result

    with pytest.raises(TypeError, match="conditions must be an integer"):
        apply(condition, "i32", ("f32", x))


@pytest.mark.parametrize("source", ["u1", *INTEGERS, *FLOATS])
def test_casts(source):
    if source == "u1":
        x = np.array([0, 1], dtype=np.bool_)
    elif source in FLOATS:
        x = np.array([0.0, 1.9, -1.9, 100.7, -0.5]).astype(NUMPY[source])
    else:
        x = numbers(source, 14)
    field = qd.field(getattr(qd, source), shape=len(x))
    field.from_numpy(x)
    for target in INTEGERS + FLOATS:
        out = qd.field(getattr(qd, target), shape=len(x))
        target_type = getattr(qd, target)

        @qd.kernel
        def run():
            for i in field:
                out[i] = qd.cast(field[i], target_type)

        run()
        with np.errstate(over="ignore"):
            if source in FLOATS and target in UNSIGNED:
                keep = x > -1
            else:
                keep = np.ones(len(x), dtype=bool)
            want = x.astype(NUMPY[target])
        assert out.to_numpy()[keep].tolist() == want[keep].tolist(), f"{source} -> {target}"


def has_avx512():
    """Whether the processor has instructions that convert floats to unsigned integers."""
    return " avx512f " in Path("/proc/cpuinfo").read_text()


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("number", [-5.5, 300.7, -3e9, 3e9, 1e10, 1e19, -1e30, 1e30, float("inf"), float("nan")])
def test_literals_are_cast_as_at_run_time(number, target):
    if not np.isfinite(number) or not np.iinfo(NUMPY[target]).min <= number <= np.iinfo(NUMPY[target]).max:
        folds_like_the_processor = platform.machine() == "x86_64" and (target not in UNSIGNED or not has_avx512())
        if qd.cfg.arch != qd.cpu or not folds_like_the_processor:
            pytest.skip("outside the type's range, processors differ")
    target_type = getattr(qd, target)
    out = qd.field(target_type, shape=2)

    @qd.kernel
    def cast(x: qd.f32):
        out[0] = qd.cast(number, target_type)
        out[1] = qd.cast(x, target_type)

    cast(number)
    assert out[0] == out[1]


@pytest.mark.parametrize(
    "source, target", [("f32", "u32"), ("u32", "f32"), ("f64", "i64"), ("i64", "u64"), ("f32", "i32")]
)
def test_bit_casts(source, target):
    x = numbers(source, 15)
    if source in INTEGERS and target in FLOATS:
        x = np.linspace(-3, 3, COUNT).astype(NUMPY[target]).view(NUMPY[source])
    target_type = getattr(qd, target)

    @qd.func
    def reread(v):
        return qd.bit_cast(v, target_type)

    assert apply(reread, target, (source, x)).tolist() == x.view(NUMPY[target]).tolist()


def test_select_and_logical_functions():
    a = np.array([0, 1, 5, 0], dtype=np.int32)
    b = np.array([7, 0, 2, 0], dtype=np.int32)

    @qd.func
    def either(x, y):
        return qd.select(x, x * 10, y)

    @qd.func
    def both(x, y):
        return x and y

    @qd.func
    def one(x, y):
        return x or y

    pair = (("i32", a), ("i32", b))
    assert apply(either, "i32", *pair).tolist() == [7, 10, 50, 0]
    assert apply(both, "i32", *pair).tolist() == [0, 0, 2, 0]
    assert apply(one, "i32", *pair).tolist() == [7, 1, 5, 0]


def test_extrema_of_many_operands_and_nan():
    x = np.array([1.0, np.nan, 3.0], dtype=np.float32)
    y = np.array([2.0, 2.0, np.nan], dtype=np.float32)

    @qd.func
    def largest(a, b):
        return qd.max(a, b)

    @qd.func
    def smallest_of_four(a, b):
        return qd.min(a, 5, b, a + b)

    assert apply(largest, "f32", ("f32", x), ("f32", y)).tolist() == [2.0, 2.0, 3.0]
    assert apply(smallest_of_four, "f32", ("f32", x[:1]), ("f32", y[:1])).tolist() == [1.0]


def test_keyword_arguments_are_matched_by_name():
    @qd.kernel
    def run(x: qd.f32, y: qd.f32, n: qd.i32, out: qd.types.ndarray(dtype=qd.f32, ndim=1)):
        out[0] = qd.pow(exponent=x, base=y)
        out[1] = qd.atan2(x2=x, x1=y)
        out[2] = qd.select(x2=x, cond=n > 0, x1=y)
        out[3] = qd.raw_mod(x2=n, x1=8)
        out[4] = qd.cast(dtype=qd.i32, obj=x)
        out[5] = qd.pow(exponent=2.0, base=3.0)
        out[6] = qd.sin(x=y)

    out = np.zeros(7, np.float32)
    run(2.5, 3.0, 5, out)
    np.testing.assert_allclose(out, [3.0**2.5, np.arctan2(3.0, 2.5), 3.0, 3.0, 2.0, 9.0, np.sin(3.0)], rtol=1e-5)
    assert qd.pow(exponent=2, base=3) == 9

    @qd.kernel
    def unknown(x: qd.f32) -> qd.f32:
        return qd.pow(x, power=2.0)

    @qd.kernel
    def twice(x: qd.f32) -> qd.f32:
        return qd.pow(x, base=2.0)

    @qd.kernel
    def missing(x: qd.f32) -> qd.f32:
        return qd.atan2(x2=x)

    for kernel, message in (
        (unknown, "`pow` has no parameter `power`"),
        (twice, "`pow` got multiple values for argument `base`"),
        (missing, "`atan2` is missing the argument `x1`"),
    ):
        with pytest.raises(qd.OctantsTypeError, match=message):
            kernel(1.0)


@pytest.mark.parametrize("divisor", [41, 61, 107, 122])
def test_exact_quotients_of_integers_are_exact_under_fast_math(divisor):
    qd.init(arch=qd.cpu, fast_math=True)
    n = 20_000
    found = qd.field(qd.i32, (6, n))

    @qd.kernel
    def divide(m: qd.i32, h: qd.f32):
        for i in range(n):
            found[0, i] = int(qd.floor(i / divisor))
            found[1, i] = int(qd.floor(i / m))

        for i in range(n):
            # Several divisions by one number, and of vectors.
            both = qd.floor(qd.Vector([i, 2 * i]) / m)
            found[2, i] = int(both[0])
            found[3, i] = int(both[1]) // 2 + int(float(i) / float(m)) - int(both[0])

        for i in range(n):
            found[4, i] = int(float(i) // h)
            found[5, i] = int((float(i) - float(i) % h) / h + 0.5)

    divide(divisor, divisor)
    whole = np.arange(n) // divisor
    twice = 2 * np.arange(n) // divisor // 2
    np.testing.assert_array_equal(found.to_numpy(), [whole, whole, whole, twice, whole, whole])
