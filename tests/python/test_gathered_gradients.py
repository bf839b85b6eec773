"""Gradients that inner loops scatter: on GPUs, separate loops gather them if there are many elements."""

import numpy as np
import pytest

import octants as qd

# Enough elements for loops to gather them.
N = 520


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    yield
    qd.reset()


def is_gathered(kernel, *args):
    """Whether the gradient's code for a GPU has a separate loop for some sum."""
    return "gathered" in qd.inspect(kernel.grad, *args, target="gfx90a", emit="ir")


def numbers(*shape):
    return np.random.default_rng(7).random(shape)


def test_pairs_with_a_branch():
    x, w = (qd.field(qd.f64, shape=N, needs_grad=True) for _ in range(2))
    loss = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def energy():
        for i in x:
            for j in range(5, N):
                if i != j:
                    d = x[i] - x[j]
                    loss[None] += w[j] * d * d

    a, b = numbers(N), numbers(N) + 1.0
    x.from_numpy(a)
    w.from_numpy(b)
    loss.grad[None] = 2.0
    energy.grad()
    d = (a[:, None] - a[None, :])[:, 5:]
    by_i = (2 * 2.0 * b[5:] * d).sum(1)
    by_i[5:] -= (2 * 2.0 * b[5:] * d).sum(0)
    assert np.allclose(x.grad.to_numpy(), by_i)
    by_w = np.concatenate([np.zeros(5), (2.0 * d * d).sum(0)])
    assert np.allclose(w.grad.to_numpy(), by_w)
    assert is_gathered(energy)


def test_iterations_that_end_early_add_nothing_to_duals():
    x, y = (qd.field(qd.f64, shape=N, needs_dual=True) for _ in range(2))
    skipped = qd.field(qd.i32, shape=N)

    @qd.kernel
    def spread():
        for i in x:
            if skipped[i] == 1:
                continue
            for j in range(N):
                y[j] += x[i] * x[j]

    a, direction, ends = numbers(N), np.linspace(-1.0, 1.0, N), np.arange(N) % 3 != 0
    x.from_numpy(a)
    skipped.from_numpy(ends.astype(np.int32))
    with qd.ad.FwdMode(loss=y, param=x, seed=direction.tolist()):
        spread()
    assert np.allclose(y.dual.to_numpy(), direction[~ends].sum() * a + a[~ends].sum() * direction)


def test_each_pair_once():
    x = qd.field(qd.f64, shape=N, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def energy():
        for i in x:
            for j in range(i):
                loss[None] += x[i] * x[i] * x[j]

    a = numbers(N)
    x.from_numpy(a)
    loss.grad[None] = 1.0
    energy.grad()
    below = np.tril(np.ones((N, N)), -1)
    assert np.allclose(x.grad.to_numpy(), 2 * a * (below @ a) + below.T @ (a * a))
    assert is_gathered(energy)


@pytest.mark.parametrize("stores", [False, True], ids=["own", "stores"])
@pytest.mark.parametrize("first", ["0", "3", "i", "i + 1", "i - 2"])
@pytest.mark.parametrize("last", ["n", "i", "i + 1", "i + 2"])
def test_bounds_that_follow_the_index(first, last, stores):
    """`stores` resets elements that iterations of the gathering loop read from each other."""
    begin = {"0": (0, 0), "3": (0, 3), "i": (1, 0), "i + 1": (1, 1), "i - 2": (1, -2)}[first]
    end = {"n": (0, 0), "i": (1, 0), "i + 1": (1, 1), "i + 2": (1, 2)}[last]
    x, y, w = (qd.field(qd.f64, shape=N, needs_grad=True) for _ in range(3))
    n = N - 20

    @qd.kernel
    def add(n: qd.i32):
        for i in range(2, N - 2):
            s = 0.0
            for j in range(begin[0] * i + begin[1], end[0] * i + end[1] if qd.static(end[0]) else n):
                s += x[i] * w[j]
            if qd.static(stores):
                y[i] = s
            else:
                y[i] += s

    a, b, c = numbers(N), numbers(N)[::-1], numbers(N) + 1.0
    x.from_numpy(a)
    w.from_numpy(b)
    y.grad.from_numpy(c)
    add.grad(n)
    reached = np.zeros((N, N))
    for i in range(2, N - 2):
        reached[i, begin[0] * i + begin[1] : end[0] * i + end[1] if end[0] else n] = 1.0
    assert np.allclose(w.grad.to_numpy(), reached.T @ (a * c))
    assert np.allclose(x.grad.to_numpy(), c * (reached @ b))
    assert np.array_equal(y.grad.to_numpy() == 0.0, [stores and 2 <= i < N - 2 for i in range(N)])
    assert is_gathered(add, n)


@pytest.mark.parametrize("inner", [3, 40])
def test_product_of_matrices(inner):
    rows, columns = 24, 32

    @qd.kernel
    def multiply(x: qd.types.ndarray(), w: qd.types.ndarray(), y: qd.types.ndarray()):
        for i, j in y:
            s = 0.0
            for k in range(x.shape[1]):
                s += x[i, k] * w[k, j]
            y[i, j] = s

    a, b, c = numbers(rows, inner), numbers(inner, columns), numbers(rows, columns)
    x, w, y = (qd.ndarray(qd.f64, m.shape, needs_grad=True) for m in (a, b, c))
    x.from_numpy(a)
    w.from_numpy(b)
    y.grad.from_numpy(c)
    multiply.grad(x, w, y)
    assert np.allclose(x.grad.to_numpy(), c @ b.T)
    assert np.allclose(w.grad.to_numpy(), a.T @ c)
    assert not y.grad.to_numpy().any()
    assert is_gathered(multiply, x, w, y)


def test_few_elements_are_not_gathered():
    x, w = qd.field(qd.f64, shape=N, needs_grad=True), qd.field(qd.f64, shape=4, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def mix():
        for i in x:
            for j in range(4):
                loss[None] += x[i] * w[j]

    a = numbers(N)
    x.from_numpy(a)
    loss.grad[None] = 1.0
    mix.grad()
    assert np.allclose(w.grad.to_numpy(), a.sum())
    assert not is_gathered(mix)
