"""The gradients of the program `gradients_of_rows`, by hand."""

import numpy as np


def check_gradients_of_rows(found):
    """Compares the program's results with the derivatives that numpy computes."""
    u, gain, x = found["u"], found["gain"], found["x"]
    v = np.zeros_like(u)
    v[1:-1] = u[1:-1] + gain * (u[:-2] - u[2:] ** 2)
    v[:-2] += 0.25 * u[1:-1] ** 2
    v[2:] += 0.5 * u[1:-1]
    v *= 1.5
    numbers = np.arange(len(x))[:, None]
    np.testing.assert_allclose(found["loss"], (v**3).sum() + (numbers[2:] * x[2:] * x[:-2]).sum(), rtol=1e-10)
    slope = 1.5 * 3 * v**2
    u_grad, x_grad = np.zeros_like(u), np.zeros_like(x)
    u_grad[1:-1] += slope[1:-1] + 0.5 * u[1:-1] * slope[:-2] + 0.5 * slope[2:]
    u_grad[:-2] += gain * slope[1:-1]
    u_grad[2:] -= 2 * gain * u[2:] * slope[1:-1]
    np.testing.assert_allclose(found["u_grad"], u_grad, rtol=1e-10, atol=1e-12)
    gain_grad = (slope[1:-1] * (u[:-2] - u[2:] ** 2)).sum(axis=0)
    np.testing.assert_allclose(found["gain_grad"], gain_grad, rtol=1e-10, atol=1e-12)
    x_grad[2:] += numbers[2:] * x[:-2]
    x_grad[:-2] += numbers[2:] * x[2:]
    np.testing.assert_allclose(found["x_grad"], x_grad, rtol=1e-10, atol=1e-12)
    n = len(u)
    # Row k is multiplied by rows k + 2 and k - 2.
    np.testing.assert_array_equal(found["a_grad"], [(k + 2) % n + (k - 2) % n for k in range(n)])
