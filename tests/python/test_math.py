"""`qd.math` against numpy: GLSL functions, transforms, complex numbers, vector types."""

import cmath
import itertools
import math
import re

import numpy as np
import pytest

import octants as qd

PRECISIONS = ["f32", "f64"]


@pytest.fixture(params=PRECISIONS)
def fp(request):
    dtype = getattr(qd, request.param)
    qd.init(arch=qd.cpu, default_fp=dtype, log_level=qd.ERROR)
    yield dtype
    qd.reset()


def tolerance(fp):
    return 1e-5 if fp == qd.f32 else 1e-12


def close(actual, expected, fp):
    tol = tolerance(fp)
    np.testing.assert_allclose(np.asarray(actual, dtype=np.float64), expected, rtol=tol, atol=tol)


def on_vectors(op, n, fp, *inputs, n_out=None):
    """`op` of vectors of `n` components, one per row of the inputs; the result's rows have `n_out` (0: scalars)."""
    n_out = n if n_out is None else n_out
    count = len(inputs[0])
    fields = []
    for values in inputs:
        field = qd.Vector.field(n, dtype=fp, shape=count) if values.ndim == 2 else qd.field(fp, shape=count)
        field.from_numpy(values.astype(np.float32 if fp == qd.f32 else np.float64))
        fields.append(field)
    out = qd.Vector.field(n_out, dtype=fp, shape=count) if n_out else qd.field(fp, shape=count)

    if len(fields) == 1:
        (a,) = fields

        @qd.kernel
        def run():
            for i in out:
                out[i] = op(a[i])
    elif len(fields) == 2:
        a, b = fields

        @qd.kernel
        def run():
            for i in out:
                out[i] = op(a[i], b[i])
    else:
        a, b, c = fields

        @qd.kernel
        def run():
            for i in out:
                out[i] = op(a[i], b[i], c[i])

    run()
    return out.to_numpy()


def rows(*shape, seed=0, low=-3.0, high=3.0):
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32).astype(np.float64)


@pytest.mark.parametrize(
    "name, expected",
    [
        ("fract", lambda x: x - np.floor(x)),
        ("sign", np.sign),
        ("degrees", np.degrees),
        ("radians", np.radians),
    ],
)
def test_functions_of_one_number(fp, name, expected):
    x = rows(40, 3)
    x[0] = [0.0, 1.0, -1.0]
    close(on_vectors(getattr(qd.math, name), 3, fp, x), expected(x), fp)


def test_log2(fp):
    x = rows(40, 3, low=0.01)
    close(on_vectors(qd.math.log2, 3, fp, x), np.log2(x), fp)


@pytest.mark.parametrize(
    "name, expected",
    [
        ("mix", lambda x, y, a: x * (1 - a) + y * a),
        ("clamp", lambda x, y, a: np.minimum(np.maximum(x, y), a)),
    ],
)
def test_functions_of_three_numbers(fp, name, expected):
    x, y = rows(40, 2, seed=1), rows(40, 2, seed=2)
    a = y + rows(40, 2, seed=3, low=0.0)
    close(on_vectors(getattr(qd.math, name), 2, fp, x, y, a), expected(x, y, a), fp)


def test_step_mod_smoothstep(fp):
    x, y = rows(40, 2, seed=1), rows(40, 2, seed=2)
    close(on_vectors(qd.math.step, 2, fp, x, y), (y >= x).astype(float), fp)
    positive = np.abs(y) + 0.5
    close(on_vectors(qd.math.mod, 2, fp, x, positive), x - positive * np.floor(x / positive), fp)
    t = np.clip((y - x) / 2.0, 0, 1)
    close(on_vectors(qd.math.smoothstep, 2, fp, x, x + 2.0, y), t * t * (3 - 2 * t), fp)


def test_vector_functions(fp):
    a, b = rows(30, 3, seed=4), rows(30, 3, seed=5)
    norm = np.linalg.norm
    close(on_vectors(qd.math.length, 3, fp, a, n_out=0), norm(a, axis=1), fp)
    close(on_vectors(qd.math.distance, 3, fp, a, b, n_out=0), norm(a - b, axis=1), fp)
    close(on_vectors(qd.math.dot, 3, fp, a, b, n_out=0), (a * b).sum(axis=1), fp)
    close(on_vectors(qd.math.cross, 3, fp, a, b), np.cross(a, b), fp)
    unit_a, unit_b = a / norm(a, axis=1)[:, None], b / norm(b, axis=1)[:, None]
    close(on_vectors(qd.math.normalize, 3, fp, a), unit_a, fp)
    cosine = (a * unit_b).sum(axis=1)[:, None]
    close(on_vectors(qd.math.reflect, 3, fp, a, unit_b), a - 2 * cosine * unit_b, fp)


def test_refraction_obeys_snell(fp):
    norm = np.linalg.norm
    n = rows(60, 3, seed=6)
    n /= norm(n, axis=1)[:, None]
    x = rows(60, 3, seed=7)
    x /= norm(x, axis=1)[:, None]
    x *= -np.sign((x * n).sum(axis=1))[:, None]
    eta = rows(60, seed=8, low=0.5, high=1.8)
    out = on_vectors(qd.math.refract, 3, fp, x, n, eta)
    sine_in = norm(np.cross(x, n), axis=1)
    total = eta * sine_in > 1 + 1e-4
    passes = eta * sine_in < 1 - 1e-4
    assert total.any()
    assert passes.any()
    close(out[total], 0.0, fp)
    close(norm(np.cross(out, n), axis=1)[passes], (eta * sine_in)[passes], fp)
    close(norm(out, axis=1)[passes], 1.0, fp)


@pytest.mark.parametrize(
    "name, expected",
    [
        ("cmul", lambda a, b: a * b),
        ("cdiv", lambda a, b: a / b),
        ("cconj", lambda a: a.conjugate()),
        ("cinv", lambda a: 1 / a),
        ("csqrt", cmath.sqrt),
        ("cexp", cmath.exp),
        ("clog", cmath.log),
    ],
)
def test_complex_functions(fp, name, expected):
    a, b = rows(40, 2, seed=9), rows(40, 2, seed=10)
    a[:4] = [[2.0, 0.0], [-2.0, 0.0], [0.0, 2.0], [0.0, -2.0]]
    binary = name in ("cmul", "cdiv")
    inputs = (a, b) if binary else (a,)
    out = on_vectors(getattr(qd.math, name), 2, fp, *inputs)
    args = [[complex(*row) for row in values] for values in inputs]
    want = [expected(*z) for z in zip(*args, strict=True)]
    close(out, [[z.real, z.imag] for z in want], fp)


def test_complex_powers_and_roots_of_zero(fp):
    a = rows(20, 2, seed=11)
    n = rows(20, seed=12)
    out = on_vectors(qd.math.cpow, 2, fp, a, n)
    want = [complex(*z) ** e for z, e in zip(a, n, strict=True)]
    close(out, [[z.real, z.imag] for z in want], fp)
    zero = np.zeros((1, 2))
    close(on_vectors(qd.math.csqrt, 2, fp, zero), zero, fp)
    close(on_vectors(qd.math.cpow, 2, fp, zero, np.ones(1)), zero, fp)


def matrix_of(fp, n, make):
    out = qd.Matrix.field(n, n, dtype=fp, shape=())

    @qd.kernel
    def run():
        out[None] = make()

    run()
    return out.to_numpy()


def rotation(axis, angle):
    """Rodrigues' formula for column vectors."""
    x, y, z = np.asarray(axis) / np.linalg.norm(axis)
    k = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    out = np.eye(4)
    out[:3, :3] = np.eye(3) + math.sin(angle) * k + (1 - math.cos(angle)) * (k @ k)
    return out


def test_transforms(fp):
    @qd.func
    def translated():
        return qd.math.translate(1.0, 2.0, 3.0)

    @qd.func
    def scaled():
        return qd.math.scale(1.0, 2.0, 3.0)

    @qd.func
    def turned():
        return qd.math.rot_by_axis(qd.math.vec3(1.0, 2.0, -0.5), 0.7)

    @qd.func
    def euler():
        return qd.math.rot_yaw_pitch_roll(0.3, -0.4, 1.1)

    @qd.func
    def euler_in_other_order():
        return qd.math.rotation3d(-0.4, 1.1, 0.3)

    @qd.func
    def plane():
        return qd.math.rotation2d(0.6)

    @qd.func
    def identity():
        return qd.math.eye(4)

    moved = np.eye(4)
    moved[:3, 3] = [1, 2, 3]
    close(matrix_of(fp, 4, translated), moved, fp)
    close(matrix_of(fp, 4, scaled), np.diag([1, 2, 3, 1]), fp)
    # The rotations in space are for row vectors.
    close(matrix_of(fp, 4, turned), rotation([1.0, 2.0, -0.5], 0.7).T, fp)
    yaw, pitch, roll = rotation([0, 1, 0], 0.3), rotation([1, 0, 0], -0.4), rotation([0, 0, 1], 1.1)
    close(matrix_of(fp, 4, euler), (yaw @ pitch @ roll).T, fp)
    close(matrix_of(fp, 4, euler_in_other_order), (yaw @ pitch @ roll).T, fp)
    close(matrix_of(fp, 2, plane), rotation([0, 0, 1], 0.6)[:2, :2], fp)
    close(matrix_of(fp, 4, identity), np.eye(4), fp)


def test_vdir(fp):
    angles = rows(20, seed=13)
    out = on_vectors(qd.math.vdir, 2, fp, angles, n_out=2)
    close(out, np.stack([np.cos(angles), np.sin(angles)], axis=1), fp)


def test_sines_and_cosines_are_accurate_under_fast_math():
    qd.init(arch=qd.cpu, fast_math=True, log_level=qd.ERROR)
    n = 1 << 18
    x, sine, cosine, tangent = (qd.field(qd.f32, n) for _ in range(4))

    @qd.kernel
    def run():
        for i in x:
            sine[i], cosine[i], tangent[i] = qd.sin(x[i]), qd.cos(x[i]), qd.tan(x[i])

    # Evenly spaced arguments, small ones, and arguments near the functions' zeros, where single precision has more
    # numbers.
    near = np.arange(-60, 61)[:, None] * (np.pi / 2) + np.linspace(-1e-3, 1e-3, 501)
    small = np.geomspace(1e-30, 1.5, 1 << 16)
    evenly = np.linspace(-100, 100, n - near.size - small.size)
    values = np.concatenate([near.ravel(), small, evenly]).astype(np.float32)
    x.from_numpy(values)
    run()
    exact = values.astype(np.float64)
    ulp = 2.0**-23
    sines, cosines = sine.to_numpy(), cosine.to_numpy()
    if qd.cfg.arch == qd.cuda:
        # The hardware's functions, except for sines of small arguments.
        allowed = 2.0**-21 + 2.0**-22 * np.abs(exact)
        assert (np.abs(sines - np.sin(exact)) <= allowed).all()
        assert (np.abs(cosines - np.cos(exact)) <= allowed).all()
        np.testing.assert_allclose(
            sines[near.size :][: small.size], np.sin(exact)[near.size :][: small.size], rtol=2e-5
        )
    else:
        np.testing.assert_allclose(sines, np.sin(exact), rtol=4 * ulp, atol=1e-12)
        np.testing.assert_allclose(cosines, np.cos(exact), rtol=0, atol=2.0**-22)
    moderate = np.abs(np.cos(exact)) > 1e-2
    np.testing.assert_allclose(tangent.to_numpy()[moderate], np.tan(exact)[moderate], rtol=1e-5, atol=1e-12)
    qd.reset()


def test_nan_and_inf_are_detected_under_fast_math():
    qd.init(arch=qd.cpu, fast_math=True, log_level=qd.ERROR)
    x = qd.field(qd.f32, shape=6)
    out = qd.field(qd.i32, shape=(6, 2))
    x.from_numpy(np.array([0.0, 1.0, np.inf, -np.inf, np.nan, 3e38], dtype=np.float32))

    @qd.kernel
    def run():
        for i in x:
            out[i, 0] = qd.math.isnan(x[i])
            out[i, 1] = qd.math.isinf(x[i])

    run()
    assert out.to_numpy()[:, 0].tolist() == [0, 0, 0, 0, 1, 0]
    assert out.to_numpy()[:, 1].tolist() == [0, 0, 1, 1, 0, 0]
    qd.reset()


@pytest.mark.parametrize("fast_math", [True, False])
@pytest.mark.parametrize("dtype", [qd.f32, qd.f64])
@pytest.mark.parametrize("n", [1, 9])
def test_minima_and_maxima_ignore_nan(fast_math, dtype, n):
    qd.init(arch=qd.cpu, fast_math=fast_math, default_fp=dtype, log_level=qd.ERROR)
    x, y = qd.field(dtype, n), qd.field(dtype, n)
    out, index = qd.Vector.field(6, dtype, n), qd.field(qd.i32, n)
    x.fill(float("nan"))
    y.fill(2)

    @qd.kernel
    def run(last: int):
        for i in x:
            out[i][0] = qd.max(x[i], 0.0)
            out[i][1] = qd.max(0.0, x[i])
            out[i][2] = qd.min(x[i], y[i])
            out[i][3] = qd.min(y[i], x[i])
            out[i][4] = qd.math.clamp(x[i], 0.0, y[i])
            out[i][5] = qd.max(y[i], x[i], 3.0)
            index[i] = int(qd.math.clamp(qd.floor(qd.acos(y[i])), 0, last))

    run(179)
    assert out.to_numpy().tolist() == [[0, 0, 2, 2, 0, 3]] * n
    assert index.to_numpy().tolist() == [0] * n
    qd.reset()


def test_minima_and_maxima_of_floats_test_an_operand_on_x86():
    values = qd.types.ndarray(dtype=qd.f32, ndim=1)

    @qd.kernel
    def extrema(x: values, y: values) -> qd.f32:
        low = qd.min(x[0], y[0])
        return qd.max(low, x[1])

    qd.init(arch=qd.cpu)
    x, y = np.array([1, 3], np.float32), np.array([2, 0], np.float32)
    wide = qd.inspect(extrema, x, y, target="x86-64-v4", emit="llvm")
    assert "minimumnum" not in wide
    assert "maximumnum" not in wide
    assert wide.count("fcmp uno float") == 2
    # The test of the maximum does not wait for the minimum.
    loaded = set(re.findall(r"(%\w+) = load float", wide))
    assert set(re.findall(r"fcmp uno float (%\w+), ", wide)) <= loaded
    assert "fminnm" in qd.inspect(extrema, x, y, target="aarch64", emit="asm")
    for a, b, c in itertools.product([1.0, 2.0, np.nan], repeat=3):
        x[:], y[0] = [a, c], b
        assert np.array_equal(extrema(x, y), np.fmax(np.fmin(a, b), c), equal_nan=True)
    qd.reset()


def nth_set_bit(mask, base, offset):
    if offset == 0:
        return base if base < 32 and mask >> base & 1 else 0xFFFFFFFF
    above = range(base, 32) if offset > 0 else range(min(base, 31), -1, -1)
    places = [i for i in above if mask >> i & 1]
    return places[abs(offset) - 1] if abs(offset) <= len(places) else 0xFFFFFFFF


def test_find_nth_set_bit():
    qd.init(arch=qd.cpu, log_level=qd.ERROR)
    rng = np.random.default_rng(0)
    count = 400
    masks = rng.integers(0, 1 << 32, count, dtype=np.uint32) & rng.integers(0, 1 << 32, count, dtype=np.uint32)
    bases = rng.integers(0, 32, count, dtype=np.uint32)
    offsets = rng.integers(-12, 13, count, dtype=np.int32)
    masks[:3] = [0, 0xFFFFFFFF, 0x80000001]
    out = qd.field(qd.u32, shape=count)

    @qd.kernel
    def run(
        m: qd.types.ndarray(qd.u32, ndim=1), b: qd.types.ndarray(qd.u32, ndim=1), o: qd.types.ndarray(qd.i32, ndim=1)
    ):
        for i in out:
            out[i] = qd.math.fns(m[i], b[i], o[i])

    run(masks, bases, offsets)
    want = [nth_set_bit(int(m), int(b), int(o)) for m, b, o in zip(masks, bases, offsets, strict=True)]
    assert out.to_numpy().tolist() == want

    @qd.kernel
    def at_the_top_level(m: qd.u32, b: qd.u32, o: qd.i32) -> qd.u32:
        return qd.math.fns(m, b, o)

    for m, b, o in ((0xFFFFFFFF, 3, 9), (0xF0F0F0F0, 28, -7)):
        assert at_the_top_level(m, b, o) == nth_set_bit(m, b, o)
    qd.reset()


def test_vector_types_follow_the_default_types():
    qd.init(arch=qd.cpu, default_fp=qd.f64, default_ip=qd.i64, log_level=qd.ERROR)
    out = qd.field(qd.f64, shape=2)
    whole = qd.field(qd.u64, shape=2)

    @qd.kernel
    def run():
        a = qd.math.vec3(1.0 / 3.0, qd.math.vec2(0.1, 0.2))
        out[0] = a.x
        out[1] = a.z
        b = qd.math.uvec2(qd.u64(2**63 - 1))
        whole[0] = b.x
        whole[1] = qd.math.ivec2(1, 2).y

    run()
    assert out.to_numpy().tolist() == [1.0 / 3.0, 0.2]
    assert whole.to_numpy().tolist() == [2**63 - 1, 2]
    qd.reset()


def test_rounding_a_literal_to_a_type_is_rounding_and_then_conversion(fp) -> None:
    @qd.kernel
    def rounds() -> qd.types.vector(5, qd.i32):
        return qd.Vector(
            [
                qd.round(2.5, qd.i32),
                int(qd.round(2.5)),
                qd.round(3.5, dtype=qd.i32),
                qd.floor(-2.2, int),
                qd.ceil(2.2, qd.i64),
            ]
        )

    assert list(rounds()) == [2, 2, 4, -3, 3]


def test_large_doubles_are_rounded_to_whole_numbers():
    qd.init(arch=qd.cpu)
    values = np.array([0.6, 8388607.6, 16777217.6, 33554433.6, 1e9 + 0.6, -1e9 - 0.6, 2.0**52 + 1, -(2.0**60)])
    x, out = qd.field(qd.f64, shape=len(values)), qd.Vector.field(3, qd.f64, shape=len(values))
    x.from_numpy(values)

    @qd.kernel
    def whole_numbers():
        for i in x:
            out[i] = qd.Vector([qd.floor(x[i]), qd.ceil(x[i]), qd.round(x[i])])

    whole_numbers()
    away = np.trunc(values + np.where(np.abs(values) < 2.0**50, np.copysign(0.5, values), 0.0))
    wanted = np.stack([np.floor(values), np.ceil(values), away], axis=1)
    np.testing.assert_array_equal(out.to_numpy(), wanted)
