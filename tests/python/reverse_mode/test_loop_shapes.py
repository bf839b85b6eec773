"""Gradients of kernels by `kernel.grad`, for every shape of loop."""

import numpy as np
import pytest
from gradient_fields import N, check

import octants as qd


def test_a_sum_of_squares(fields):
    x, y, _ = fields

    @qd.kernel
    def compute():
        for i in x:
            y[0] += x[i] ** 2

    check(compute, x, y)


def test_loops_whose_length_is_read_from_a_field(fields):
    x, y, n = fields

    @qd.kernel
    def compute():
        for i in x:
            s = 1.0
            for j in range(n[i]):
                s = s * x[i] + x[j]
            y[i] = s

    check(compute, x, y)


def test_nested_and_triangular_loops(fields):
    x, y, n = fields

    @qd.kernel
    def compute():
        for i in x:
            s = x[i]
            for j in range(n[i]):
                t = s
                for k in range(j, n[j]):
                    t = qd.sin(t * x[k])
                    for _ in range(k // 2):
                        t = t * s
                s = t + 0.5 * s
            y[i] = s * s

    check(compute, x, y)


@pytest.mark.parametrize("kept", [1, 2])
def test_many_loops_in_a_row_that_keep_states(fields, kept):
    """More than whose positions in the store the compiler of the machine is to see."""
    x, y, n = fields

    @qd.kernel
    def compute():
        for i in x:
            s, at = x[i], 1
            for _ in qd.static(range(9)):
                for k in range(n[i]):
                    s = qd.sin(s) + 0.1 * x[k]
                    if qd.static(kept == 2):
                        s = s * x[at]
                        at = (5 * at + k) % N
                    for _ in range(k):
                        s = s * qd.cos(s) + x[k]
            y[i] = s

    check(compute, x, y)


def test_a_loop_whose_length_is_computed_by_a_function(fields):
    x, y, n = fields

    @qd.func
    def length(i):
        result = n[i] * 2 + 1
        if result > 7:
            result = 7
        return result

    @qd.kernel
    def compute():
        for i in x:
            s = x[i]
            for j in range(length(i)):
                s = qd.cos(s) * x[j % N]
            y[i] = s

    check(compute, x, y)


def test_while_loops_with_break_and_continue(fields):
    x, y, n = fields

    @qd.kernel
    def compute():
        for i in x:
            s = x[i]
            k = 0
            while s < 3.0:
                k += 1
                if k == 2:
                    continue
                if k > n[i] + 2:
                    break
                s = s * (1.0 + 0.3 * x[k % N])
            y[i] = s

    check(compute, x, y)


def test_a_function_that_returns_from_a_loop(fields):
    x, y, n = fields

    @qd.func
    def search(i: qd.i32, start: qd.f64) -> qd.f64:
        s = start
        for j in range(N):
            s = s * x[j] + 0.1
            if j >= n[i]:
                return s * s
        return s

    @qd.kernel
    def compute():
        for i in x:
            y[i] = search(i, x[i])

    check(compute, x, y)


def test_loop_carried_indices_and_branches(fields):
    x, y, n = fields

    @qd.kernel
    def compute():
        for i in x:
            p, q = 0, 1
            s = x[i]
            for _ in range(n[i] + 3):
                p, q = q, (p + q) % N
                if q % 2 == 0:
                    s = s * x[q]
                else:
                    s += qd.exp(-s) * x[p]
            y[i] = s

    check(compute, x, y)


def test_an_inner_loop_over_a_field(fields):
    x, y, _ = fields

    @qd.kernel
    def compute():
        for i in y:
            s = 1.0
            for j in x:
                s = s * (x[j] + 0.1 * i)
            y[i] = s

    check(compute, x, y)


def test_a_serialized_top_level_loop(fields):
    x, y, n = fields

    @qd.kernel
    def compute():
        s = 1.0
        qd.loop_config(serialize=True)
        for i in range(N):
            for j in range(n[i]):
                s = qd.sin(s * x[i]) + x[j]
            y[i] = s

    check(compute, x, y)


def test_variables_that_tasks_share(fields):
    x, y, _ = fields

    @qd.kernel
    def compute():
        total = 0.0
        for i in x:
            total += x[i] * x[i]
        scale = qd.sqrt(total)
        for i in x:
            y[i] = x[i] / scale
        scale = scale * total
        for i in x:
            y[i] += x[i] * scale

    check(compute, x, y)


def test_matrices(fields):
    a = qd.Matrix.field(2, 2, qd.f64, shape=N, needs_grad=True)
    y = qd.field(qd.f64, shape=N, needs_grad=True)
    a.from_numpy(np.random.default_rng(1).uniform(-0.6, 0.6, (N, 2, 2)))

    @qd.kernel
    def compute():
        for i in a:
            m = qd.Matrix([[1.0, 0.2], [0.1, 1.0]])
            for k in range(i):
                m = m @ a[k] + m
                m[0, k % 2] = m[1, 0] * m[0, 1]
            y[i] = m.determinant() + m.norm_sqr()

    check(compute, a, y)


def test_arrays_as_arguments():
    x = qd.ndarray(qd.f64, (N,), needs_grad=True)
    y = qd.ndarray(qd.f64, (N,), needs_grad=True)
    n = qd.ndarray(qd.i32, (N,))
    x.from_numpy(np.linspace(0.2, 0.9, N))
    n.from_numpy(np.arange(N, dtype=np.int32))

    @qd.kernel
    def compute(x: qd.types.NDArray, y: qd.types.NDArray, n: qd.types.NDArray, factor: qd.f64):
        for i in range(x.shape[0]):
            s = factor
            for j in range(n[i]):
                s = s * x[i] + qd.tanh(s)
            y[i] = s

    check(compute, x, y, x, y, n, 0.7)


def test_a_store_takes_its_gradient_and_clears_it(fields):
    x, y, _ = fields

    @qd.kernel
    def compute():
        for i in x:
            y[i] = 2.0 * x[i]

    y.grad.fill(1)
    compute.grad()
    assert (x.grad.to_numpy() == 2).all()
    assert (y.grad.to_numpy() == 0).all()


def test_values_without_gradients_are_skipped(fields):
    x, y, _ = fields
    w = qd.field(qd.f64, shape=N)
    w.fill(3)

    @qd.kernel
    def compute():
        for i in x:
            y[i] = w[i] * x[i]

    y.grad.fill(1)
    compute.grad()
    assert (x.grad.to_numpy() == 3).all()


def test_casts_to_integers_stop_gradients(fields):
    x, y, _ = fields

    @qd.kernel
    def compute():
        for i in x:
            y[i] = qd.cast(x[i] * 10, qd.i32) * 2.0 + x[i]

    y.grad.fill(1)
    compute.grad()
    assert (x.grad.to_numpy() == 1).all()


def test_results_do_not_depend_on_the_number_of_threads():
    found = []
    for threads in (1, 2, 7):
        qd.init(arch=qd.cpu, cpu_max_num_threads=threads, default_fp=qd.f64, fast_math=False)
        x = qd.field(qd.f64, shape=100, needs_grad=True)
        y = qd.field(qd.f64, shape=100, needs_grad=True)
        x.from_numpy(np.linspace(0.1, 0.9, 100))

        @qd.kernel
        def compute(x: qd.template(), y: qd.template()):
            for i in x:
                s = x[i]
                for _ in range(i % 13):
                    s = qd.sin(s) * x[i]
                y[i] = s

        y.grad.fill(1)
        compute.grad(x, y)
        found.append(x.grad.to_numpy())
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()


def test_the_gradient_store_is_bounded_and_reports_its_contents():
    qd.init(arch=qd.cpu, ad_store_bytes=4000)
    x = qd.field(qd.f32, shape=4, needs_grad=True)
    y = qd.field(qd.f32, shape=4, needs_grad=True)
    n = qd.field(qd.i32, shape=())

    @qd.kernel
    def compute():
        for i in x:
            speed = x[i]
            for _ in range(n[None]):
                speed = qd.sin(speed)
            y[i] = speed

    n[None] = 500
    y.grad.fill(1)
    compute.grad()
    n[None] = 16000
    # On GPUs every eighth state is kept.
    size = 64000 if qd.cfg.arch == qd.cpu else 8000
    message = rf"kernel `compute` needs {size} bytes per thread to store `speed` of the loop at .*:\d+"
    with pytest.raises(Exception, match=message):
        compute.grad()


def test_products_in_separate_elements(fields):
    x, y, n = fields

    @qd.kernel
    def scale():
        for i in x:
            y[i] += x[i] * x[i]
            y[i] *= 3.0 + n[i]
            for k in range(n[i]):
                y[i] *= 0.5 + k
            y[i] += x[i]

    check(scale, x, y)


def test_a_running_sum_in_order(fields):
    x, y, _ = fields

    @qd.kernel
    def prefix_sums():
        total = 0.0
        qd.loop_config(serialize=True)
        for i in range(N):
            y[i] = qd.atomic_add(total, x[i] * x[i])

    check(prefix_sums, x, y)


@pytest.mark.parametrize("op", ["min", "max"])
def test_extremes(fields, op):
    update = {"min": qd.atomic_min, "max": qd.atomic_max}[op]
    worst = np.inf if op == "min" else -np.inf
    x = qd.field(qd.f64, (4, 32), needs_grad=True)
    v = qd.Vector.field(3, qd.f64, 32, needs_grad=True)
    m = qd.field(qd.f64, 4, needs_grad=True)
    mv = qd.Vector.field(3, qd.f64, (), needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)
    random = np.random.default_rng(2)
    rows, vectors = random.normal(size=(4, 32)), random.normal(size=(32, 3))
    x.from_numpy(rows)
    v.from_numpy(vectors)

    @qd.kernel
    def find(sign: qd.f64):
        for i, j in x:
            update(m[i], x[i, j] * sign)
        for j in v:
            update(mv[None], v[j])

    @qd.kernel
    def weigh():
        for i in m:
            loss[None] += m[i] * (i + 1)
        loss[None] += mv[None].dot(qd.Vector([1.0, 2.0, 3.0]))

    before = np.array([worst, worst, -worst, worst])
    m.from_numpy(before)
    mv.fill(worst)
    with qd.ad.Tape(loss):
        find(-2.0)
        weigh()
    expected = np.zeros((4, 32))
    which = (rows if op == "max" else -rows).argmin(axis=1)
    for i in [0, 1, 3]:  # In row 2, the initial value already is the extreme.
        expected[i, which[i]] = -2.0 * (i + 1)
    np.testing.assert_array_equal(x.grad.to_numpy(), expected)
    np.testing.assert_array_equal(m.grad.to_numpy(), [0, 0, 3, 0])
    expected = np.zeros((32, 3))
    which = vectors.argmax(axis=0) if op == "max" else vectors.argmin(axis=0)
    expected[which, [0, 1, 2]] = [1, 2, 3]
    np.testing.assert_array_equal(v.grad.to_numpy(), expected)

    # Equals share nothing: one has it all.
    x.fill(0.5)
    m.fill(0.5)
    with qd.ad.Tape(loss):
        find(1.0)
        weigh()
    np.testing.assert_array_equal(np.sort(x.grad.to_numpy()), [[0] * 31 + [i + 1] for i in range(4)])


def test_a_clamped_value_at_the_bound_has_a_derivative(fields):
    y = qd.field(qd.f64, 5, needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def clamp():
        for i in y:
            loss[None] += qd.math.clamp(y[i], 1.0, 2.0)

    y.from_numpy(np.array([0.5, 1.0, 1.5, 2.0, 2.5]))
    with qd.ad.Tape(loss):
        clamp()
    assert y.grad.to_numpy().tolist() == [0, 1, 1, 1, 0]


def test_a_constant_may_be_the_extreme(fields):
    y = qd.field(qd.f64, 4, needs_grad=True)

    @qd.kernel
    def clamp():
        for i in y:
            qd.atomic_max(y[i], 0.0)

    y.from_numpy(np.array([-1.0, 2.0, -3.0, 4.0]))
    clamp()
    y.grad.fill(1.0)
    clamp.grad()
    assert y.grad.to_numpy().tolist() == [0, 1, 0, 1]


def test_kept_states_are_reported(fields):
    x, y, n = fields

    @qd.kernel
    def compute():
        for i in x:
            speed = x[i]
            for _ in range(n[i]):
                speed = qd.sin(speed)
            y[i] = speed

    shown = qd.inspect(compute.grad, emit="ir")
    assert shown.startswith("; keeps `speed` of the loop at ")
    every = "each iteration" if qd.cfg.arch == qd.cpu else "every 8 iterations"
    assert shown.splitlines()[0].endswith(f": 8 bytes for {every}")
    # For another machine, the store of that machine is shown.
    assert "8 bytes for each iteration" in qd.inspect(compute.grad, emit="ir", target="x86-64")
    assert "8 bytes for every 8 iterations" in qd.inspect(compute.grad, emit="ir", target="sm_90")


def test_a_loop_without_iterations_adds_nothing(fields):
    # An inner loop reads one element in all its iterations; if it has no iterations, the index may be invalid.
    x, y, n = fields
    where = qd.field(qd.i32, shape=N)
    where.from_numpy(np.array([2**31 - 1, 3, 3, 0, 1, 5], dtype=np.int32))

    @qd.kernel
    def compute():
        for i in y:
            k = where[i]
            for _ in range(n[i]):
                y[i] += x[k] ** 2

    check(compute, x, y)
    assert "sum of adjoints" in qd.inspect(compute.grad, emit="ir")


def test_values_that_depend_only_on_arguments_are_counted_once():
    qd.init(arch=qd.cpu, default_fp=qd.f64, kernel_profiler=True)
    x, y = (qd.field(qd.f64, shape=N, needs_grad=True) for _ in range(2))
    n = qd.field(qd.i32, shape=())

    @qd.kernel
    def by_argument(count: qd.i32):
        for i in x:
            a = x[i]
            for _ in range(count):
                a += 0.1 * qd.sin(a)
            y[i] += a

    @qd.kernel
    def by_memory():
        for i in x:
            a = x[i]
            for _ in range(n[None]):
                a += 0.1 * qd.sin(a)
            y[i] += a

    def gradient(count):
        x.grad.fill(0)
        y.grad.fill(1)
        n[None] = count
        by_argument.grad(count)
        once = x.grad.to_numpy()
        by_memory.grad()
        np.testing.assert_allclose(x.grad.to_numpy(), 2 * once)
        return once

    first = gradient(700)
    assert (gradient(900) != first).all()
    assert (gradient(700) == first).all()
    launches = {
        k: qd.profiler.query_kernel_profiler_info(f"{k}_grad_count").counter for k in ("by_argument", "by_memory")
    }
    assert launches == {"by_argument": 2, "by_memory": 3}
