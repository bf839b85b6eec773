"""Debug mode changes what is checked, not what is computed."""

import numpy as np
import pytest

import octants as qd


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("dtype", [qd.i32, qd.i64, qd.f32])
def test_a_sum_over_a_parallel_loop(debug, dtype):
    qd.init(arch=qd.cpu, debug=debug)
    n = 100_000
    x = qd.field(dtype, shape=n)
    x.fill(1)

    @qd.kernel
    def total() -> dtype:
        s = qd.cast(0, dtype)
        for i in x:
            s += x[i]
        return s

    assert {total() for _ in range(200)} == {n}


def test_a_counter_under_a_condition():
    qd.init(arch=qd.cpu, debug=True)
    n = 50_000
    x = qd.field(qd.i32, shape=n)
    x.from_numpy(np.arange(n, dtype=np.int32))

    @qd.kernel
    def odd() -> qd.i32:
        count = 0
        for i in x:
            if x[i] % 2 == 1:
                count += 1
        return count

    assert {odd() for _ in range(200)} == {n // 2}


def test_a_gradient_reports_no_overflow_in_a_loop_that_does_not_run(capfd):
    qd.init(arch=qd.cpu, debug=True)
    x, y = [qd.field(qd.f32, shape=4, needs_grad=True) for _ in range(2)]
    large = qd.field(qd.i32, shape=4)
    large.fill(2_000_000_000)

    @qd.kernel
    def compute(n: qd.i32):
        for i in x:
            factor = large[i]
            for _ in range(n):
                y[i] += x[(factor * factor) % 4]

    compute(0)
    compute.grad(0)
    qd.sync()
    assert "overflow" not in capfd.readouterr().out
    compute(1)
    qd.sync()
    assert "Multiplication overflow" in capfd.readouterr().out
