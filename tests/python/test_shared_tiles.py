"""All-pairs loops and matrix products, which GPUs run in tiles: results for sizes with full and partial tiles."""

import numpy as np
import pytest

import octants as qd

A1 = qd.types.ndarray(dtype=qd.f32, ndim=1)
A2 = qd.types.ndarray(dtype=qd.f32, ndim=2)


@pytest.fixture(autouse=True)
def program() -> None:
    qd.init(arch=qd.cpu)


@qd.kernel
def forces(x: A1, y: A1, ax: A1, ay: A1):
    for i in range(x.shape[0]):
        px, py = x[i], y[i]
        sx, sy = 0.0, 0.0
        for j in range(x.shape[0]):
            if i != j:
                dx, dy = x[j] - px, y[j] - py
                inv = 1.0 / qd.sqrt(dx * dx + dy * dy + 1e-3)
                sx += dx * inv * inv * inv
                sy += dy * inv * inv * inv
        ax[i] = sx
        ay[i] = sy


@qd.kernel
def product(a: A2, b: A2, c: A2):
    for i, j in c:
        s = 0.0
        for k in range(a.shape[1]):
            s += a[i, k] * b[k, j]
        c[i, j] = s


@qd.kernel
def updated_product(a: A2, b: A2, c: A2):
    for i, j in qd.ndrange(a.shape[0], b.shape[0]):
        for k in range(a.shape[1]):
            c[i, j] += a[i, k] * b[j, k]


@pytest.mark.parametrize("n", [1, 33, 256, 700])
def test_all_pairs(n: int) -> None:
    rng = np.random.default_rng(n)
    x, y = (rng.random(n, dtype=np.float32) for _ in range(2))
    ax, ay = np.zeros(n, np.float32), np.zeros(n, np.float32)
    forces(x, y, ax, ay)
    dx, dy = x[None, :] - x[:, None], y[None, :] - y[:, None]
    inv = 1.0 / np.sqrt(dx * dx + dy * dy + 1e-3)
    np.testing.assert_allclose(ax, (dx * inv**3).sum(axis=1), rtol=2e-3, atol=0.2)
    np.testing.assert_allclose(ay, (dy * inv**3).sum(axis=1), rtol=2e-3, atol=0.2)


@pytest.mark.parametrize("shape", [(3, 5, 4), (517, 37, 899), (256, 40, 2049), (0, 40, 300), (517, 0, 899)])
def test_products(shape: tuple[int, int, int]) -> None:
    rows, steps, columns = shape
    rng = np.random.default_rng(rows + columns)
    a, b = rng.random((rows, steps), dtype=np.float32), rng.random((steps, columns), dtype=np.float32)
    c = np.full((rows, columns), 7.0, np.float32)
    product(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-6)
    updated_product(a, np.ascontiguousarray(b.T), c)
    np.testing.assert_allclose(c, 2 * (a @ b), rtol=1e-5, atol=1e-6)


def test_products_of_fields_of_doubles() -> None:
    n = 400
    a, b, c = (qd.field(qd.f64, shape=(n, n)) for _ in range(3))
    rng = np.random.default_rng(1)
    x, y = rng.random((n, n)), rng.random((n, n))
    a.from_numpy(x)
    b.from_numpy(y)

    @qd.kernel
    def multiply():
        for i, j in c:
            s = qd.f64(0.0)
            for k in range(n):
                s += a[i, k] * b[k, j]
            c[i, j] = s

    multiply()
    np.testing.assert_allclose(c.to_numpy(), x @ y, rtol=1e-12)
