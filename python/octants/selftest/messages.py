"""Messages of running kernels: printed text, failed assertions, out-of-bounds indices. Also random numbers."""

# mypy: ignore-errors
# Kernels are Python in form only.

from __future__ import annotations

import io
from contextlib import redirect_stdout

import numpy as np

import octants as qd
from octants.selftest.registry import check, close, equal, raises, require


@check()
def printed_text() -> None:
    """Every printed line arrives, with its values."""

    @qd.kernel
    def say(n: qd.i32):
        for i in range(n):
            print("line", i, "half", i * 0.5)

    text = io.StringIO()
    with redirect_stdout(text):
        say(20)
        qd.sync()
    numbers = sorted(int(line.split()[1]) for line in text.getvalue().splitlines() if line.startswith("line"))
    equal(numbers, range(20), "lines")


@check(debug=True)
def failed_assertions() -> None:
    """A failed assertion in one thread raises, with its values, and the next launch works again."""
    x = qd.field(qd.i32, shape=100)

    @qd.kernel
    def limited(limit: qd.i32):
        for i in x:
            assert i < limit, f"{i} is too large"
            x[i] = 1

    raises(lambda: limited(99), "99 is too large")
    limited(100)
    qd.sync()
    equal(x.to_numpy(), np.ones(100), "x")


@check(debug=True)
def indices_outside() -> None:
    """Debug mode detects indices out of bounds."""
    x = qd.field(qd.i32, shape=8)

    @qd.kernel
    def write(at: qd.i32):
        for i in range(1):
            x[at + i] = 1

    raises(lambda: write(8), "8")


def _draw(n: int) -> tuple[np.ndarray, np.ndarray]:
    uniform, normal = qd.field(qd.f32, shape=n), qd.field(qd.f32, shape=n)

    @qd.kernel
    def draw():
        for i in uniform:
            uniform[i] = qd.random()
            normal[i] = qd.randn()

    draw()
    return uniform.to_numpy(), normal.to_numpy()


@check(random_seed=7)
def random_numbers() -> None:
    """Uniform and normal random numbers have the right moments."""
    n = 200_000
    uniform, normal = _draw(n)
    require(0.0 <= uniform.min() < uniform.max() < 1.0, f"from {uniform.min()} to {uniform.max()}")
    close([uniform.mean(), uniform.std()], [0.5, 12**-0.5], 0.01, what="uniform")
    close([normal.mean(), normal.std()], [0.0, 1.0], 0.01, 0.01, what="normal")
    require(len(np.unique(uniform)) > 0.95 * n, "numbers repeat")
