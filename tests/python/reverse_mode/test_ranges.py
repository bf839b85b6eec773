"""Gradients of loops whose bounds or trip counts are near the limits of the index type, or exceed them."""

import numpy as np
import pytest
from gradient_fields import N, check

import octants as qd


@pytest.fixture(scope="module", autouse=True)
def ranges_share_kernels(shared_kernels: None) -> None:
    """Bounds are arguments: one kernel has many ranges."""


@pytest.mark.parametrize("begin", [-(2**31), -2_000_000_000, -2, 3, 1_500_000_000, 2**31 - 1 - N])
@pytest.mark.parametrize("debug", [False, True])
def test_ranges_whose_bounds_sum_to_more_than_an_index_holds(begin: int, debug: bool, capfd):
    qd.init(arch=qd.cpu, default_fp=qd.f64, debug=debug)
    x = qd.field(qd.f64, shape=N, needs_grad=True)
    y = qd.field(qd.f64, shape=N, needs_grad=True)
    x.from_numpy(np.linspace(0.4, 1.3, N))

    @qd.kernel
    def in_order(first: qd.i32, end: qd.i32):
        for i in x:
            a = 1.0
            for k in range(first, end):
                a = a * qd.sin(x[k - first] + i)
                for j in range(k, end):
                    a = a * qd.cos(x[j - first]) + x[k - first] * x[end - 1 - j]
            for k, j in qd.ndrange((first, end), (first, end)):
                if k - first > 3:
                    break
                a = qd.sin(a * x[j - first] + x[k - first])
            for j, k in qd.ndrange((first, end), (first + 2, end)):
                a = qd.sin(a * x[j - first] + x[k - first])
            y[i] += a

    @qd.kernel
    def sums(first: qd.i32, end: qd.i32):
        for i in range(first, end):
            for k in range(i + 1, end):
                y[i - first] += x[i - first] * x[k - first]
            for k in range(first, i):
                y[i - first] += x[k - first] * x[k - first] * x[i - first]

    for kernel in (in_order, sums):
        check(kernel, x, y, begin, begin + N)
    assert "overflow" not in capfd.readouterr().out


def few_and_many_agree(compute, x, y):
    """Compares the gradients of ranges of 20 iterations and of more than 2^31. Few iterations add to `y`."""
    gradients = []
    for half in (10, 2**30 + 10):
        x.from_numpy(np.linspace(0.4, 1.3, N))
        x.grad.fill(0)
        y.grad[None] = 1
        compute.grad(-half, half)
        gradients.append(x.grad.to_numpy())
    assert gradients[0].any()
    np.testing.assert_array_equal(*gradients)


@pytest.mark.on_cpu
def test_a_range_with_more_iterations_than_an_index_holds():
    qd.init(arch=qd.cpu, default_fp=qd.f64, fast_math=False)
    x = qd.field(qd.f64, shape=N, needs_grad=True)
    y = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def compute(begin: qd.i32, end: qd.i32):
        for _ in range(1):
            for k in range(begin, end):
                if k < begin + 3:
                    y[None] += x[k - begin] ** 2
                elif k > end - 3:
                    y[None] += x[end - k] ** 3

    few_and_many_agree(compute, x, y)


@pytest.mark.on_cpu
def test_a_loop_with_break_after_more_iterations_than_an_index_holds():
    qd.init(arch=qd.cpu, default_fp=qd.f64, fast_math=False)
    x = qd.field(qd.f64, shape=N, needs_grad=True)
    y = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def compute(begin: qd.i32, end: qd.i32):
        for _ in range(1):
            for k in range(begin, 2**31 - 1):
                if k >= end:
                    break
                if k < begin + 3:
                    y[None] += x[k - begin] ** 2
                elif k > end - 3:
                    y[None] += x[end - k] ** 3

    few_and_many_agree(compute, x, y)


@pytest.mark.parametrize("begin", [-(2**63), -(2**33), 2**62, 2**63 - 1 - N])
def test_ranges_of_64_bits(fields, begin: int):
    x, y, _ = fields

    @qd.kernel
    def compute(first: qd.i64, end: qd.i64):
        for i in x:
            a = 1.0
            for k in range(first, end):
                for j in range(k, end):
                    a = a * qd.cos(x[j - first] + i) + x[k - first] * x[end - 1 - j]
            y[i] += a

    check(compute, x, y, begin, begin + N)
