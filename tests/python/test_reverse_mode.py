"""Gradients of kernels: what `kernel.grad` adds to the gradients of what a kernel reads, for every shape of loop."""

import warnings

import numpy as np
import pytest

import octants as qd

N = 6


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    yield
    qd.reset()


@pytest.fixture
def fields():
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


@pytest.mark.parametrize("begin", [-(2**31), -2_000_000_000, -2, 3, 1_500_000_000, 2**31 - 1 - N])
@pytest.mark.parametrize("debug", [False, True])
def test_ranges_whose_bounds_add_up_to_more_than_a_number_holds(begin: int, debug: bool, capfd):
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


@pytest.mark.on_cpu
def test_a_range_of_more_iterations_than_a_number_holds():
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

    gradients = []
    for half in (10, 2**30 + 10):
        x.from_numpy(np.linspace(0.4, 1.3, N))
        x.grad.fill(0)
        y.grad[None] = 1
        compute.grad(-half, half)
        gradients.append(x.grad.to_numpy())
    np.testing.assert_array_equal(*gradients)


@pytest.mark.on_cpu
def test_a_loop_that_is_left_after_more_iterations_than_a_number_holds():
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

    gradients = []
    for half in (10, 2**30 + 10):
        x.from_numpy(np.linspace(0.4, 1.3, N))
        x.grad.fill(0)
        y.grad[None] = 1
        compute.grad(-half, half)
        gradients.append(x.grad.to_numpy())
    assert gradients[0].any()
    np.testing.assert_array_equal(*gradients)


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


def test_while_with_break_and_continue(fields):
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


def test_indices_and_branches_that_a_loop_carries_along(fields):
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


def test_a_loop_in_order_at_the_top(fields):
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


def test_what_has_no_gradient_is_left_out(fields):
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


def test_casts_to_integers_end_gradients(fields):
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


def test_the_store_is_bounded_and_says_what_it_keeps():
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
    message = rf"kernel `compute` needs {size} bytes for each thread, to keep `speed` of the loop at .*:\d+"
    with pytest.raises(Exception, match=message):
        compute.grad()


def test_a_position_from_an_atomic_is_refused(fields):
    x, y, n = fields

    @qd.kernel
    def compact():
        for i in x:
            at = qd.atomic_add(n[0], 1)
            y[at] = x[i]

    with pytest.raises(qd.OctantsCompilationError, match="what an atomic operation on memory returned") as error:
        compact.grad()
    assert "qd.atomic_add(n[0], 1)" in str(error.value)


def test_an_element_that_a_function_was_given_is_shared_by_the_iterations_of_its_loop():
    n = 20000  # Enough for threads to meet.
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


def test_a_position_from_a_variable_that_iterations_share_is_refused(fields):
    x, y, _ = fields

    @qd.kernel
    def compact():
        n = 0
        for i in x:
            at = qd.atomic_add(n, 1)
            y[at] += x[i]

    with pytest.raises(qd.OctantsCompilationError, match="on a variable that iterations share returned") as error:
        compact.grad()
    assert "qd.atomic_add(n, 1)" in str(error.value)


@pytest.mark.parametrize("name", ["mul", "exchange"])
def test_an_atomic_that_is_no_sum_is_refused_with_a_constant_too(fields, name):
    _, y, _ = fields
    update = getattr(qd, f"atomic_{name}")

    @qd.kernel
    def overwrite():
        for _ in y:
            update(y[0], 0.5)

    with pytest.raises(qd.OctantsCompilationError, match=f"the atomic {name} of a number with a gradient"):
        overwrite.grad()


def test_products_with_elements_of_their_own(fields):
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


def test_a_compare_and_swap_is_refused(fields):
    x, y, _ = fields

    @qd.kernel
    def fill():
        for i in y:
            qd.atomic_cas(y[i], 0.0, x[i])

    with pytest.raises(qd.OctantsCompilationError, match="the compare-and-swap of a number with a gradient"):
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
        with pytest.raises(qd.OctantsCompilationError, match="the order in which iterations of a parallel loop added"):
            kernel.grad()


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
    for i in [0, 1, 3]:  # In row 2 what was there before was the extreme already.
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


def test_at_a_bound_a_clamped_number_has_the_derivative(fields):
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


def test_extremes_that_cannot_be_told_are_refused(fields):
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
        (in_several_steps, r"looks for the number that was the minimum[\s\S]*write the numbers to a field"),
        (
            of_a_variable,
            r"the minimum that the iterations of a parallel loop leave in `smallest` [\s\S]*keep it in a field",
        ),
        (
            what_was_there,
            r"what atomic_min\(\) returned cannot be differentiated[\s\S]*read the element in a kernel of its own",
        ),
    ]:
        kernel()
        with pytest.raises(qd.OctantsCompilationError, match=text):
            kernel.grad()


def test_what_is_read_and_then_overwritten_is_a_warning(fields):
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

    with pytest.warns(UserWarning, match="what is read of `.*` here, and the same kernel overwrites it later") as found:
        bad.grad()
    assert found[0].filename == __file__
    x.grad.fill(1)
    fine.grad()
    assert (x.grad.to_numpy() == 3).all()


def test_what_a_later_loop_overwrites_for_certain_is_a_warning(fields):
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
        with pytest.warns(UserWarning, match="what is read of `.*` here, and the same kernel overwrites it later"):
            kernel.grad(*arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kernel in [under_a_condition, elsewhere, never, before, of_no_need]:
            kernel.grad()


def test_iterations_that_read_what_others_store_are_refused(fields):
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


def test_iterations_may_read_what_others_would_store_if_they_were_not_left_out():
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


def test_what_is_kept_is_shown(fields):
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
    # Shown for another machine it is what that one keeps.
    assert "8 bytes for each iteration" in qd.inspect(compute.grad, emit="ir", target="x86-64")
    assert "8 bytes for every 8 iterations" in qd.inspect(compute.grad, emit="ir", target="sm_90")


def test_a_loop_that_does_not_run_adds_to_nothing(fields):
    # An inner loop reads an element in all its iterations; where it has none, the index need not be one.
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


def test_what_depends_on_arguments_alone_is_counted_once():
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


@pytest.mark.parametrize("n", [1, 127, 128, 255, 256, 257, 1000])
@pytest.mark.parametrize("longest", [1, 5, 90])
def test_rows_of_any_length_in_any_order_have_their_own_gradients(n: int, longest: int) -> None:
    x, y = (qd.field(qd.f64, n, needs_grad=True) for _ in range(2))
    rate = qd.field(qd.f64, longest, needs_grad=True)
    length = qd.field(qd.i32, n)

    @qd.kernel
    def swing() -> None:
        for i in x:
            a = x[i]
            for k in range(length[i]):
                a = a + rate[k] * qd.sin(a)
            y[i] += a

    random = np.random.default_rng(n + longest)
    values, rates, seeds = random.random(n), random.random(longest), random.random(n)
    lengths = random.integers(0, longest + 1, n).astype(np.int32)
    x.from_numpy(values)
    rate.from_numpy(rates)
    length.from_numpy(lengths)
    y.grad.from_numpy(seeds)
    swing.grad()

    states, runs = [values], [k < lengths for k in range(longest)]
    for k in range(longest):
        states.append(np.where(runs[k], states[k] + rates[k] * np.sin(states[k]), states[k]))
    adjoint, of_rates = seeds.copy(), np.zeros(longest)
    for k in reversed(range(longest)):
        of_rates[k] = np.sum(np.where(runs[k], adjoint * np.sin(states[k]), 0.0))
        adjoint = np.where(runs[k], adjoint * (1.0 + rates[k] * np.cos(states[k])), adjoint)
    np.testing.assert_allclose(x.grad.to_numpy(), adjoint, rtol=1e-9)
    np.testing.assert_allclose(rate.grad.to_numpy(), of_rates, rtol=1e-9, atol=1e-12)
