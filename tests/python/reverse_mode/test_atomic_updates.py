"""Atomic updates of elements in reverse mode: their results, their old values, and refusals."""

import warnings

import numpy as np
import pytest
from gradient_fields import N, check

import octants as qd


@pytest.fixture
def fields():
    x = qd.field(qd.f64, shape=N, needs_grad=True, needs_dual=True)
    y = qd.field(qd.f64, shape=N, needs_grad=True, needs_dual=True)
    x.from_numpy(np.linspace(0.4, 1.3, N))
    return x, y


def assert_both_modes_agree_with_differences(kernel, x, y):
    """Compares the gradient with finite differences, and with the directional derivative of forward mode."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        at = x.to_numpy()
        check(kernel, x, y)
        weights, gradient = np.cos(np.arange(float(N))), x.grad.to_numpy()
    direction = np.sin(1.0 + np.arange(N))
    x.from_numpy(at)
    y.fill(0)
    with qd.ad.FwdMode(loss=y, param=x, seed=direction.tolist()):
        kernel()
    np.testing.assert_allclose(y.dual.to_numpy() @ weights, gradient @ direction, rtol=1e-12)


def test_products_in_a_loop_in_order(fields):
    x, y = fields

    @qd.kernel
    def each():
        qd.loop_config(serialize=True)
        for i in range(N):
            y[i] = x[i] ** 2
            y[i] *= 3.0
            y[i] /= 2.0

    @qd.kernel
    def neighbors():
        qd.loop_config(serialize=True)
        for i in range(N):
            y[i] += x[i] ** 2
            y[(i + 1) % N] *= 1.5
            if i % 2 == 0:
                for k in range(i):
                    y[k] *= 0.5 + k

    @qd.kernel
    def one_element():
        qd.loop_config(serialize=True)
        for i in range(N):
            y[0] += qd.sin(x[i])
            y[0] *= 1.0 + 0.1 * i
        y[1] = y[0]

    @qd.kernel
    def what_is_read():
        qd.loop_config(serialize=True)
        for i in range(N):
            x[i] *= 3.0
            y[i] = x[i] ** 2

    for kernel in (each, neighbors, one_element, what_is_read):
        assert_both_modes_agree_with_differences(kernel, *fields)


def test_products_outside_of_loops(fields):
    x, y = fields

    @qd.func
    def scale(i: qd.i32, by: qd.f64):
        y[i] *= by

    @qd.kernel
    def compute():
        y[0] = x[0] ** 2
        y[0] *= 3.0
        for i in range(1, N):
            y[i] = y[0] * 2.0 + x[i]
        y[2] *= 0.25
        if N > 3:
            qd.atomic_mul(y[3], 4.0)
        k = 0
        while k < 2:
            scale(k, 1.5)
            k += 1

    assert_both_modes_agree_with_differences(compute, x, y)


def test_products_in_a_single_iteration(fields):
    x, y = fields

    @qd.kernel
    def compute():
        for _ in range(1):
            for i in range(N):
                for k in range(3):
                    y[i] += x[i] ** 2
                    y[i] *= 3.0 - k
            y[N - 1] *= 0.5

    assert_both_modes_agree_with_differences(compute, x, y)


def test_products_of_vectors_in_order():
    x = qd.Vector.field(3, qd.f64, shape=4, needs_grad=True)
    y = qd.Vector.field(3, qd.f64, shape=4, needs_grad=True)
    x.from_numpy(np.linspace(0.4, 1.3, 12).reshape(4, 3))

    @qd.kernel
    def compute():
        qd.loop_config(serialize=True)
        for i in range(4):
            y[i] = x[i] * x[i]
            y[i] *= qd.Vector([1.0, 2.0, 3.0])
            y[i][1] *= 0.5

    check(compute, x, y)


def test_old_values_of_updates_may_be_used_linearly(fields):
    x, y = fields
    total = qd.field(qd.f64, shape=(), needs_grad=True, needs_dual=True)

    @qd.kernel
    def of_sums():
        total[None] = 0.0
        for _ in range(1):
            for i in range(N):
                y[i] = 2.0 * qd.atomic_add(total[None], x[i] ** 2)

    @qd.kernel
    def of_products():
        qd.loop_config(serialize=True)
        for i in range(N):
            y[i] = x[i] ** 2
            found = qd.atomic_mul(y[i], 3.0)
            y[(i + 1) % N] -= 2.0 * found

    @qd.kernel
    def of_exchanges():
        total[None] = 0.0
        qd.loop_config(serialize=True)
        for i in range(N):
            y[i] = 2.0 * qd.atomic_exchange(total[None], x[i] ** 2)

    @qd.kernel
    def of_elements_of_their_own():
        for i in x:
            y[i] = x[i] ** 2
            found = qd.atomic_mul(y[i], 3.0)
            y[i] += 5.0 * found

    for kernel in (of_sums, of_products, of_exchanges, of_elements_of_their_own):
        assert_both_modes_agree_with_differences(kernel, x, y)


def test_exchanges_are_stores(fields):
    x, y = fields

    @qd.kernel
    def compute():
        qd.loop_config(serialize=True)
        for i in range(N):
            y[i] = x[i]
            qd.atomic_exchange(y[i], x[i] ** 2)

    assert_both_modes_agree_with_differences(compute, x, y)


def test_old_values_of_updates_are_refused_when_the_gradient_needs_them(fields):
    x, y = fields
    total = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def of_sums():
        qd.loop_config(serialize=True)
        for i in range(N):
            found = qd.atomic_add(total[None], x[i])
            y[i] = qd.sin(found) * x[i]

    @qd.kernel
    def of_products():
        for _ in range(1):
            for i in range(N):
                found = qd.atomic_mul(total[None], 2.0)
                y[i] = found * found

    @qd.kernel
    def of_exchanges():
        found = qd.atomic_exchange(total[None], x[0])
        y[0] = found * x[1]

    for kernel, line in [(of_sums, "atomic_add"), (of_products, "atomic_mul"), (of_exchanges, "atomic_exchange")]:
        message = rf"found = qd.{line}(.|\n)*a value in memory that an atomic operation overwrote(.|\n)*`s = 0.0`"
        with pytest.raises(qd.OctantsCompilationError, match=message):
            kernel.grad()


def test_old_values_of_updates_of_variables_may_be_used_freely(fields):
    x, y = fields
    total = qd.field(qd.f64, shape=(), needs_grad=True, needs_dual=True)

    @qd.kernel
    def compute():
        s = 0.0
        qd.loop_config(serialize=True)
        for i in range(N):
            found = qd.atomic_add(s, x[i])
            y[i] = qd.sin(found) * x[i]
        total[None] = s

    assert_both_modes_agree_with_differences(compute, x, y)


def test_products_that_overwrite_a_needed_factor_warn_like_assignments(fields):
    x, y = fields

    @qd.kernel
    def updates():
        qd.loop_config(serialize=True)
        for i in range(N):
            y[i] *= x[i]

    @qd.kernel
    def assignments():
        qd.loop_config(serialize=True)
        for i in range(N):
            y[i] = y[i] * x[i]

    gradients = []
    for kernel in (updates, assignments):
        y.fill(2.0)
        x.grad.fill(0)
        y.grad.fill(1)
        with pytest.warns(UserWarning, match="the value of `y` read here, but the same kernel overwrites it later"):
            kernel.grad()
        gradients.append((x.grad.to_numpy(), y.grad.to_numpy()))
    np.testing.assert_array_equal(*gradients)


def test_shared_updates_are_refused_with_a_remedy(fields):
    x, y = fields

    @qd.kernel
    def products():
        for i in x:
            y[i // 2] *= x[i]

    @qd.kernel
    def exchanges():
        for i in x:
            qd.atomic_exchange(y[i // 2], x[i])

    @qd.kernel
    def found_products():
        for i in x:
            y[i] += qd.atomic_mul(y[i // 2], x[i])

    @qd.kernel
    def swaps():
        for i in x:
            qd.atomic_cas(y[i // 2], 0.0, x[i])

    for kernel, message, hint in [
        (
            products,
            "iterations of a parallel loop may share",
            r"write `x\[i\] = x\[i\] \* c` if iterations .*serialize=True",
        ),
        (
            exchanges,
            "iterations of a parallel loop may share",
            r"write `x\[i\] = c` if iterations .*serialize=True",
        ),
        (found_products, "the return value of atomic_mul", "read the element first"),
        (swaps, "compare-and-swap", "grad_replaced"),
    ]:
        with pytest.raises(qd.OctantsCompilationError, match=rf"{message}(.|\n)*cannot be differentiated(.|\n)*{hint}"):
            kernel.grad()


def test_validation_names_products_whose_factor_has_a_derivative():
    qd.init(arch=qd.cpu, default_fp=qd.f64, debug=True)
    x = qd.field(qd.f64, shape=N, needs_grad=True)
    y = qd.field(qd.f64, shape=N, needs_grad=True)
    n = qd.field(qd.i32, shape=N)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def by_numbers():
        factor = 3.0
        for i in y:
            y[i] = x[i]
            y[i] *= factor + n[i]
            loss[None] += y[i]

    @qd.kernel
    def by_what_has_a_gradient():
        for i in y:
            y[i] = x[i]
            factor = 2.0 * x[i]
            y[i] *= factor

    with qd.ad.Tape(loss, validation=True):
        by_numbers()
    np.testing.assert_array_equal(x.grad.to_numpy(), 3.0)
    line = by_what_has_a_gradient.fn.__code__.co_firstlineno + 5
    with (
        pytest.raises(AssertionError, match=rf"`y`\[\d\] is overwritten after line {line} has read it"),
        qd.ad.Tape(loss, validation=True),
    ):
        by_what_has_a_gradient()
