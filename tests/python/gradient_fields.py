"""Fields for tests of gradients, and finite differences for comparison."""

import numpy as np

import octants as qd

N = 6


def numbers_and_loss() -> tuple[qd.ScalarField, qd.ScalarField]:
    """`N` numbers that differ from one another and from zero, and a loss."""
    x = qd.field(qd.f64, shape=N, needs_grad=True)
    x.from_numpy(np.linspace(0.4, 1.3, N))
    return x, qd.field(qd.f64, shape=(), needs_grad=True)


def numbers_results_and_lengths() -> tuple[qd.ScalarField, qd.ScalarField, qd.ScalarField]:
    """`N` numbers as above, `N` results, and `N` lengths of loops, in no order."""
    x = qd.field(qd.f64, shape=N, needs_grad=True)
    y = qd.field(qd.f64, shape=N, needs_grad=True)
    n = qd.field(qd.i32, shape=N)
    x.from_numpy(np.linspace(0.4, 1.3, N))
    n.from_numpy(np.array([0, 1, 3, 2, 5, 4], dtype=np.int32))
    return x, y, n


def check(kernel, x, y, *args, tolerance=1e-6):
    """Compares the gradient of a weighted sum of `y` with differences in `x`."""
    weights = np.cos(np.arange(y.to_numpy().size, dtype=np.float64)).reshape(y.to_numpy().shape)
    at = x.to_numpy()

    def loss(values):
        x.from_numpy(values)
        y.fill(0)
        kernel(*args)
        return float((y.to_numpy() * weights).sum())

    expected = np.zeros_like(at)
    for i in np.ndindex(at.shape):
        step = np.zeros_like(at)
        step[i] = 1e-6
        expected[i] = (loss(at + step) - loss(at - step)) / 2e-6
    loss(at)
    x.grad.fill(0)
    y.grad.from_numpy(weights)
    kernel.grad(*args)
    np.testing.assert_allclose(x.grad.to_numpy(), expected, rtol=tolerance, atol=tolerance)
