"""Decompositions, eigenvalues, linear systems, inverses and determinants against numpy, degenerate matrices
included."""

import math

import numpy as np
import pytest

import octants as qd


@pytest.fixture(params=["f32", "f64"])
def fp(request):
    dtype = getattr(qd, request.param)
    qd.init(arch=qd.cpu, default_fp=dtype, log_level=qd.ERROR)
    yield dtype
    qd.reset()


def numpy_type(fp):
    return np.float32 if fp == qd.f32 else np.float64


def epsilon(fp):
    return float(np.finfo(numpy_type(fp)).eps)


def square_matrices(n, fp):
    rng = np.random.default_rng(n)
    out = [rng.standard_normal((n, n)) for _ in range(20)]
    out += [np.zeros((n, n)), np.eye(n), -np.eye(n), np.ones((n, n)), np.diag(np.arange(n) * 1.0)]
    out += [np.diag([1.0] * (n - 1) + [-1.0]), rng.standard_normal((n, n)) * 1e-15, rng.standard_normal((n, n)) * 1e15]
    for noise in (0.0, 1e-3, 1e-8):
        a = rng.standard_normal((n, n))
        a[:, -1] = a[:, 0] + noise * rng.standard_normal(n)
        out.append(a)
    out.append(np.outer(rng.standard_normal(n), rng.standard_normal(n)))
    q, _ = np.linalg.qr(rng.standard_normal((n, n)))
    r, _ = np.linalg.qr(rng.standard_normal((n, n)))
    out += [q, q @ np.diag([2.0] + [2.0001] * (n - 1)) @ r, q @ np.diag([1.0] + [1e-6] * (n - 1)) @ r]
    return np.array(out).astype(numpy_type(fp))


def field_of(matrices, fp):
    field = qd.Matrix.field(*matrices.shape[1:], dtype=fp, shape=len(matrices))
    field.from_numpy(matrices)
    return field


def empty_like(a):
    return qd.Matrix.field(a.n, a.m, dtype=a.dtype, shape=a.shape)


def doubles(field):
    return field.to_numpy().astype(np.float64)


def small(error, matrices, fp, ulps=60):
    """`error` within `ulps` roundings of the largest component of each matrix."""
    size = np.abs(matrices.astype(np.float64)).reshape(len(matrices), -1).max(axis=1)
    size[size == 0] = 1.0
    worst = np.abs(error).reshape(len(matrices), -1).max(axis=1) / size
    assert np.isfinite(worst).all()
    assert (worst <= ulps * epsilon(fp)).all(), worst.max() / epsilon(fp)


def orthogonal(q, fp):
    n = q.shape[-1]
    np.testing.assert_allclose(q @ q.transpose(0, 2, 1), np.broadcast_to(np.eye(n), q.shape), atol=60 * epsilon(fp))


@pytest.mark.parametrize("n", [2, 3])
def test_svd(fp, n):
    matrices = square_matrices(n, fp)
    a = field_of(matrices, fp)
    u, s, v = empty_like(a), empty_like(a), empty_like(a)

    @qd.kernel
    def run():
        for i in a:
            u[i], s[i], v[i] = qd.svd(a[i], fp)

    run()
    u, s, v = doubles(u), doubles(s), doubles(v)
    orthogonal(u, fp)
    orthogonal(v, fp)
    small(u @ s @ v.transpose(0, 2, 1) - matrices, matrices, fp)
    values = np.array([np.diag(x) for x in s])
    small(s - np.array([np.diag(x) for x in values]), matrices, fp, ulps=0)
    small(np.abs(values) - np.linalg.svd(matrices.astype(np.float64))[1], matrices, fp)
    small(np.maximum(0, np.diff(values, axis=1)), matrices, fp)
    if n == 3:
        np.testing.assert_allclose(np.linalg.det(u), 1.0, atol=60 * epsilon(fp))
        np.testing.assert_allclose(np.linalg.det(v), 1.0, atol=60 * epsilon(fp))
    else:
        assert (values >= 0).all()


@pytest.mark.parametrize("n", [2, 3])
def test_factors_of_matrices_of_rank_one_are_orthogonal(n, fp):
    """The rotations leave only rounding errors in the second column, which may be parallel to the first one."""
    rng = np.random.default_rng(1)
    factors = np.concatenate([rng.integers(-4, 5, (1000, 2, n)), rng.standard_normal((1000, 2, n)), np.ones((1, 2, n))])
    matrices = (factors[:, 0, :, None] * factors[:, 1, None, :]).astype(numpy_type(fp))
    a = field_of(matrices, fp)
    u, s, v, r, p = (empty_like(a) for _ in range(5))

    @qd.kernel
    def decompose():
        for i in a:
            u[i], s[i], v[i] = qd.svd(a[i], fp)
            r[i], p[i] = qd.polar_decompose(a[i], fp)

    decompose()
    u, s, v, r, p = doubles(u), doubles(s), doubles(v), doubles(r), doubles(p)
    for q in (u, v, r):
        orthogonal(q, fp)
    small(u @ s @ v.transpose(0, 2, 1) - matrices, matrices, fp)
    small(r @ p - matrices, matrices, fp)


@pytest.mark.parametrize("n", [2, 3])
def test_repeated_decomposition_does_not_shrink(n, fp):
    """As simulators of snow do in each step, on a matrix that is hardly deformed."""
    steps = 2000
    matrices = np.stack([np.eye(n), np.diag([1.01, 0.99, 1.0][:n]), 0.7 * np.eye(n)]).astype(numpy_type(fp))
    a = field_of(matrices, fp)

    @qd.kernel
    def decompose():
        for i in a:
            for _ in range(steps):
                U, S, V = qd.svd(a[i])
                a[i] = U @ S @ V.transpose()

    decompose()
    change = np.linalg.det(doubles(a)) / np.linalg.det(matrices.astype(np.float64)) - 1.0
    # A few roundings each way, and not one in each step. Devices estimate roots and quotients of f32.
    assert np.abs(change).max() < (100 if qd.cfg.arch == qd.cpu else 4 * steps) * epsilon(fp)


@pytest.mark.parametrize("n", [2, 3])
def test_nearly_diagonal_matrices_keep_their_axes(n, fp):
    noise = np.random.default_rng(n).uniform(-0.25, 0.25, (20, n, n)) * epsilon(fp)
    a = field_of((np.eye(n) + noise).astype(numpy_type(fp)), fp)
    v = empty_like(a)

    @qd.kernel
    def decompose():
        for i in a:
            U, S, V = qd.svd(a[i])
            v[i] = V

    decompose()
    # A turn by right angles at most, which sorts the values.
    assert set(np.abs(doubles(v)).ravel()) == {0.0, 1.0}


@pytest.mark.parametrize("n", [2, 3])
def test_polar_decomposition(fp, n):
    matrices = square_matrices(n, fp)
    a = field_of(matrices, fp)
    r, s = empty_like(a), empty_like(a)

    @qd.kernel
    def run():
        for i in a:
            r[i], s[i] = qd.polar_decompose(a[i])

    run()
    r, s = doubles(r), doubles(s)
    orthogonal(r, fp)
    small(r @ s - matrices, matrices, fp)
    small(s - s.transpose(0, 2, 1), matrices, fp)
    if n == 3:
        np.testing.assert_allclose(np.linalg.det(r), 1.0, atol=60 * epsilon(fp))
    else:
        small(np.minimum(0, np.linalg.eigvalsh(s)), matrices, fp)


@pytest.mark.parametrize("n", [2, 3, 4, 6])
def test_symmetric_eigenvalues_and_nearest_spd(fp, n):
    matrices = square_matrices(n, fp)
    matrices = ((matrices + matrices.transpose(0, 2, 1)) / 2).astype(numpy_type(fp))
    a = field_of(matrices, fp)
    values = qd.Vector.field(n, dtype=fp, shape=len(matrices))
    vectors, nearest = empty_like(a), empty_like(a)

    @qd.kernel
    def run():
        for i in a:
            values[i], vectors[i] = qd.sym_eig(a[i], fp)

    run()
    w, q = doubles(values), doubles(vectors)
    orthogonal(q, fp)
    small(q * w[:, None, :] @ q.transpose(0, 2, 1) - matrices, matrices, fp)
    expected, basis = np.linalg.eigh(matrices.astype(np.float64))
    small(w - expected, matrices, fp)
    assert (np.diff(w, axis=1) >= 0).all()

    if n >= 4:

        @qd.kernel
        def project():
            for i in a:
                nearest[i] = qd.make_spd(a[i], fp)

        project()
        want = basis * np.maximum(expected, 0)[:, None, :] @ basis.transpose(0, 2, 1)
        small(doubles(nearest) - want, matrices, fp)


def test_general_eigenvalues(fp):
    matrices = square_matrices(2, fp)
    a = field_of(matrices, fp)
    values = empty_like(a)
    vectors = qd.Matrix.field(4, 2, dtype=fp, shape=len(matrices))

    @qd.kernel
    def run():
        for i in a:
            values[i], vectors[i] = qd.eig(a[i])

    run()
    w, x = doubles(values), doubles(vectors)
    w = w[:, :, 0] + 1j * w[:, :, 1]
    x = x[:, 0::2] + 1j * x[:, 1::2]
    small(matrices.astype(np.float64) @ x - x * w[:, None, :], matrices, fp)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1.0, atol=60 * epsilon(fp))


@pytest.mark.parametrize("n", [2, 3])
def test_solve(fp, n):
    rng = np.random.default_rng(n)
    matrices = rng.standard_normal((40, n, n)).astype(numpy_type(fp))
    matrices[0, 0, 0] = 0.0
    right = rng.standard_normal((40, n)).astype(numpy_type(fp))
    a = field_of(matrices, fp)
    b, x = qd.Vector.field(n, dtype=fp, shape=40), qd.Vector.field(n, dtype=fp, shape=40)
    b.from_numpy(right)

    @qd.kernel
    def run():
        for i in a:
            x[i] = qd.solve(a[i], b[i])

    run()
    solution = doubles(x)
    residual = (matrices.astype(np.float64) @ solution[:, :, None])[:, :, 0] - right
    assert (np.abs(residual) <= 60 * epsilon(fp) * (1 + np.abs(solution).max(axis=1))[:, None]).all()


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_determinant(fp, n):
    rng = np.random.default_rng(n)
    matrices = rng.standard_normal((30, n, n)).astype(numpy_type(fp))
    a = field_of(matrices, fp)
    det = qd.field(fp, shape=30)

    @qd.kernel
    def run():
        for i in a:
            det[i] = a[i].determinant()

    run()
    np.testing.assert_allclose(det.to_numpy(), np.linalg.det(matrices.astype(np.float64)), atol=300 * epsilon(fp))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8])
def test_inverse(fp, n):
    rng = np.random.default_rng(n)
    matrices = rng.standard_normal((30, n, n)).astype(numpy_type(fp))
    matrices[0] = np.roll(np.eye(n), 1, axis=0)
    a = field_of(matrices, fp)
    inverse = empty_like(a)

    @qd.kernel
    def run():
        for i in a:
            inverse[i] = a[i].inverse()

    run()
    product = doubles(inverse).reshape(30, n, n) @ matrices
    condition = np.linalg.cond(matrices.astype(np.float64))[:, None, None]
    assert (np.abs(product - np.eye(n)) <= 30 * epsilon(fp) * condition).all()


def test_frobenius_inner_product(fp):
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((10, 2, 3)).astype(numpy_type(fp)) for _ in range(2))
    a, b = field_of(x, fp), field_of(y, fp)
    out = qd.field(fp, shape=10)

    @qd.kernel
    def run():
        for i in a:
            out[i] = a[i].frobenius_inner(b[i])

    run()
    np.testing.assert_allclose(out.to_numpy(), (x * y).sum(axis=(1, 2)), atol=30 * epsilon(fp))


def test_normal_random_numbers(fp):
    count = 100_000
    out = qd.field(fp, shape=count)

    @qd.kernel
    def run():
        for i in out:
            out[i] = qd.randn(fp)

    run()
    x = doubles(out)
    assert abs(x.mean()) < 0.02
    assert abs(x.std() - 1) < 0.02
    # The fraction within one standard deviation.
    assert abs((np.abs(x) < 1).mean() - math.erf(1 / math.sqrt(2))) < 0.01


def test_unsupported_sizes_are_compile_errors():
    qd.init(arch=qd.cpu, log_level=qd.ERROR)
    a = qd.Matrix.field(7, 7, dtype=qd.f32, shape=())

    @qd.kernel
    def eigenvalues():
        _ = qd.sym_eig(a[None])

    @qd.kernel
    def singular_values():
        _ = qd.svd(a[None])

    with pytest.raises(Exception, match="up to 6"):
        eigenvalues()
    with pytest.raises(Exception, match="SVD only supports"):
        singular_values()
    qd.reset()


def test_methods_may_be_called_on_the_class(fp):
    sizes = qd.Vector([5, 7])

    @qd.kernel
    def by_class(x: float) -> qd.types.vector(4, float):
        v = qd.Vector([x, 2.0, 3.0])
        m = qd.Matrix([[x, 1.0], [0.0, x]])
        least = qd.static(qd.Vector.min(sizes))
        return qd.Vector([qd.Vector.norm(v, eps=1.0), qd.Vector.dot(v, v), qd.Matrix.determinant(m), least])

    np.testing.assert_allclose(by_class(2.0).to_numpy(), [18**0.5, 17, 4, 5], rtol=1e-6)
