"""Errors and warnings of reverse mode: reads and stores whose gradient would need overwritten values."""

import warnings

import numpy as np
import pytest
from gradient_fields import N

import octants as qd
from octants.algorithms.tile_shapes import runs_in_blocks


def test_an_index_from_an_atomic_is_refused(fields):
    x, y, n = fields

    @qd.kernel
    def compact():
        for i in x:
            at = qd.atomic_add(n[0], 1)
            y[at] = x[i]

    with pytest.raises(qd.OctantsCompilationError, match="the return value of an atomic operation on memory") as error:
        compact.grad()
    assert "qd.atomic_add(n[0], 1)" in str(error.value)


def test_a_random_number_is_refused_with_a_compilation_error(fields):
    x, y, _ = fields

    @qd.kernel
    def scatter():
        for i in x:
            y[i] = x[i] * qd.random()

    with pytest.raises(RuntimeError, match="RandStmt not supported") as error:
        scatter.grad()
    assert isinstance(error.value, qd.OctantsDerivativeError)
    assert isinstance(error.value, qd.OctantsCompilationError)


def test_an_element_that_a_function_was_given_is_shared_by_the_iterations_of_its_loop():
    n = 20000  # Enough iterations for threads to collide.
    x, y, z = (qd.field(qd.f64, shape=n, needs_grad=True) for _ in range(3))

    @qd.func
    def scale(factor: qd.template()):
        for i in z:
            z[i] = factor * x[i] + y[i]

    @qd.kernel
    def scale_by_one_of_them():
        scale(x[3])

    x.fill(1)
    z.grad.fill(1)
    scale_by_one_of_them.grad()
    expected = np.ones(n)
    expected[3] += n
    assert np.array_equal(x.grad.to_numpy(), expected)


def test_an_index_from_a_shared_variable_is_refused(fields):
    x, y, _ = fields

    @qd.kernel
    def compact():
        n = 0
        for i in x:
            at = qd.atomic_add(n, 1)
            y[at] += x[i]

    with pytest.raises(
        qd.OctantsCompilationError, match="on a variable that iterations share, which cannot be recomputed"
    ) as error:
        compact.grad()
    assert "qd.atomic_add(n, 1)" in str(error.value)


@pytest.mark.parametrize("name", ["mul", "exchange"])
def test_an_atomic_other_than_a_sum_is_refused(fields, name):
    _, y, _ = fields
    update = getattr(qd, f"atomic_{name}")

    @qd.kernel
    def overwrite():
        for _ in y:
            update(y[0], 0.5)

    with pytest.raises(qd.OctantsCompilationError, match=f"the atomic {name} of a value with a gradient"):
        overwrite.grad()


def test_a_compare_and_swap_is_refused(fields):
    x, y, _ = fields

    @qd.kernel
    def fill():
        for i in y:
            qd.atomic_cas(y[i], 0.0, x[i])

    with pytest.raises(qd.OctantsCompilationError, match="the compare-and-swap of a value with a gradient"):
        fill.grad()


def test_a_running_sum_of_a_parallel_loop_is_refused(fields):
    x, y, _ = fields

    @qd.kernel
    def of_a_field():
        for i in x:
            y[i] = qd.atomic_add(x[0], 2.0 * x[i])

    @qd.kernel
    def of_a_variable():
        total = 0.0
        for i in x:
            y[i] = qd.atomic_add(total, x[i])

    for kernel in [of_a_field, of_a_variable]:
        with pytest.raises(qd.OctantsCompilationError, match="the order in which iterations of a parallel loop add"):
            kernel.grad()


def test_unsupported_minima_and_maxima_are_refused(fields):
    x = qd.field(qd.f64, 4, needs_grad=True)
    m = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def in_several_steps():
        for i in x:
            qd.atomic_min(m[None], qd.sin(x[i]))

    @qd.kernel
    def of_a_variable():
        smallest = 1.0
        for i in x:
            smallest = min(smallest, x[i])
        m[None] = smallest

    @qd.kernel
    def what_was_there():
        for i in x:
            x[i] = qd.atomic_min(m[None], x[i])

    for kernel, text in [
        (in_several_steps, r"must find the value that was the minimum[\s\S]*write the values to a field"),
        (
            of_a_variable,
            r"the iterations of a parallel loop compute in the variable `smallest` [\s\S]*keep it in a field",
        ),
        (
            what_was_there,
            r"the return value of atomic_min\(\) cannot be differentiated[\s\S]*read the element in a separate kernel",
        ),
    ]:
        kernel()
        with pytest.raises(qd.OctantsCompilationError, match=text):
            kernel.grad()


def test_overwriting_a_value_that_the_gradient_reads_warns(fields):
    x, y, n = fields

    @qd.kernel
    def bad():
        for i in x:
            y[i] = x[i] * x[i]
            x[i] = 0.0

    @qd.kernel
    def fine():
        for i in x:
            x[i] = x[i] * 3.0 + y[i]

    with pytest.warns(
        UserWarning, match="the value of `.*` read here, but the same kernel overwrites it later"
    ) as found:
        bad.grad()
    assert found[0].filename == __file__
    x.grad.fill(1)
    fine.grad()
    assert (x.grad.to_numpy() == 3).all()


def test_a_later_loop_that_overwrites_a_needed_value_warns(fields):
    x, y, n = fields
    table = qd.field(qd.f64, shape=(N, 3), needs_grad=True)
    array = qd.ndarray(qd.f64, shape=N, needs_grad=True)

    @qd.kernel
    def same_range():
        for i in x:
            y[0] += x[i] ** 2
        for i in x:
            x[i] = 0.0

    @qd.kernel
    def same_ranges():
        for i in range(N):
            for j in range(3):
                y[i] += table[i, j] ** 2
        for i, j in table:
            table[i, j] *= 0.5

    @qd.kernel
    def of_an_array(a: qd.types.ndarray()):
        for i in a:
            y[i] += a[i] ** 2
        for i in a:
            a[i] += 1.0

    @qd.kernel
    def one_element():
        for i in x:
            y[i] += x[0] ** 2
        for _ in range(1):
            x[0] = 2.0

    @qd.kernel
    def under_a_condition():
        for i in x:
            y[0] += x[i] ** 2
        for i in x:
            if n[i] > 9:
                x[i] = 0.0

    @qd.kernel
    def elsewhere():
        for i in range(2):
            y[0] += x[i] ** 2
        for i in range(2):
            x[i + 2] = 0.0

    @qd.kernel
    def never():
        for i in range(4):
            y[0] += x[i] ** 2
        for i in range(n[0] * 0):
            x[i] = 0.0

    @qd.kernel
    def before():
        for i in x:
            x[i] = 1.0
        for i in x:
            y[0] += x[i] ** 2

    @qd.kernel
    def of_no_need():
        for i in x:
            y[0] += x[i] * 2.0
        for i in x:
            x[i] = 0.0

    for kernel, arguments in [(same_range, ()), (same_ranges, ()), (of_an_array, (array,)), (one_element, ())]:
        with pytest.warns(UserWarning, match="the value of `.*` read here, but the same kernel overwrites it later"):
            kernel.grad(*arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kernel in [under_a_condition, elsewhere, never, before, of_no_need]:
            kernel.grad()


def test_iterations_that_read_stores_of_others_are_refused(fields):
    x, y, n = fields

    @qd.kernel
    def bad():
        for i in range(1, N):
            y[i] = y[i - 1] + x[i]

    @qd.kernel
    def in_order():
        qd.loop_config(serialize=True)
        for i in range(1, N):
            y[i] = y[i - 1] + x[i]

    @qd.kernel
    def bad_but_for_the_first():
        for i in y:
            if i == 0:
                y[i] = x[i]
            else:
                y[i] = y[i - 1] + x[i]

    @qd.kernel
    def bad_but_for_what_is_left():
        for i in y:
            if i == 0:
                continue
            y[i] = y[i - 1] + x[i]

    for kernel in (bad, bad_but_for_the_first, bad_but_for_what_is_left):
        with pytest.raises(qd.OctantsCompilationError, match="Cross-iteration read-after-write of"):
            kernel.grad()
    y.grad.fill(0)
    y.grad[N - 1] = 1
    in_order.grad()
    assert (x.grad.to_numpy()[1:] == 1).all()


def test_iterations_may_read_elements_that_skipped_iterations_would_store():
    p = qd.field(qd.f64, shape=(N, N), needs_grad=True)
    p.from_numpy(np.random.default_rng(2).random((N, N)))

    @qd.kernel
    def relax(color: qd.i32):
        for i, j in qd.ndrange((1, N - 1), (1, N - 1)):
            if (i + j) % 2 == color:
                p[i, j] = 0.25 * (p[i + 1, j] + p[i - 1, j] + p[i, j + 1] + p[i, j - 1])

    @qd.kernel
    def relax_others():
        for i, j in qd.ndrange((1, N - 1), (1, N - 1)):
            if (i + j) % 2 == 0:
                continue
            p[i, j] = 0.25 * (p[i + 1, j] + p[i - 1, j] + p[i, j + 1] + p[i, j - 1])

    @qd.kernel
    def left_of_the_edge():
        for i, j in p:
            if 0 < i and i < N - 1:
                p[i, j] = p[i + 1, j]

    weights = np.cos(np.arange(N * N)).reshape(N, N)
    start = p.to_numpy()

    def loss(values):
        p.from_numpy(values)
        relax(0)
        relax_others()
        return (weights * p.to_numpy()).sum()

    # The kernels are linear.
    ones = np.eye(N * N).reshape(N * N, N, N)
    expected = np.array([loss(start + one) - loss(start) for one in ones]).reshape(N, N)
    p.grad.from_numpy(weights)
    relax_others.grad()
    relax.grad(0)
    assert np.allclose(p.grad.to_numpy(), expected)
    with pytest.raises(qd.OctantsCompilationError, match="Cross-iteration read-after-write of"):
        left_of_the_edge.grad()


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_storing_the_bits_of_a_float_warns(mode):
    x, total = (qd.field(qd.f64, shape=300, needs_grad=True, needs_dual=True) for _ in range(2))
    loss = qd.field(qd.f64, shape=(), needs_grad=True, needs_dual=True)
    scratch = qd.field(qd.u64, shape=1024)

    @qd.kernel
    def reduce():
        qd.algorithms.reduce_add(x, total, scratch, 300, qd.f64, 2)

    @qd.kernel
    def through_a_variable():
        for i in x:
            bits = qd.bit_cast(2.0 * x[i], qd.u64)
            bits ^= qd.u64(1)
            qd.atomic_max(scratch[0], bits)

    @qd.kernel
    def meant():
        for i in x:
            qd.atomic_max(scratch[0], qd.bit_cast(2.0 * qd.stop_grad(x[i]), qd.u64))
            loss[None] += x[i] * qd.bit_cast(qd.bit_cast(x[i], qd.u64), qd.f64)

    def differentiate(kernel):
        if mode == "reverse":
            kernel.grad()
        else:
            with qd.ad.FwdMode(loss, x, seed=[1.0] * 300):
                kernel()

    # Blocks of threads work together on GPUs, which has no derivatives at all.
    for kernel in [through_a_variable] if runs_in_blocks() else [reduce, through_a_variable]:
        with pytest.warns(UserWarning, match="bits of a value with a derivative are stored here as an integer"):
            differentiate(kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        differentiate(meant)
