"""Fields that tests of gradients begin with."""

import numpy as np

import octants as qd

N = 6


def numbers_and_loss() -> tuple[qd.ScalarField, qd.ScalarField]:
    """`N` numbers that differ from one another and from zero, and a loss."""
    x = qd.field(qd.f64, shape=N, needs_grad=True)
    x.from_numpy(np.linspace(0.4, 1.3, N))
    return x, qd.field(qd.f64, shape=(), needs_grad=True)
