"""`qd.graph.do_while`: the body runs at least once, and its loops are separate tasks in every iteration."""

import re
import threading

import numpy as np
import pytest
from graph_arrays import A as I32
from graph_arrays import C as COUNTER
from graph_arrays import array, graph_of
from graph_arrays import scalar as counter

import octants as qd

F64 = qd.types.ndarray(qd.f64, ndim=1)


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


@qd.kernel(graph=True)
def add_ones(x: I32, left: COUNTER):
    while qd.graph.do_while(left):
        for i in range(x.shape[0]):
            x[i] += 1
        left[()] = left[()] - 1


@pytest.mark.parametrize("rounds", [1, 2, 37])
def test_the_counter_determines_the_number_of_iterations(rounds):
    for host in (False, True):
        x = np.zeros(1000, np.int32) if host else array([0] * 1000)
        left = np.array(rounds, np.int32) if host else counter(rounds)
        add_ones(x, left)
        assert (x if host else x.to_numpy()).tolist() == [rounds] * 1000
        assert left[()] == 0


def test_one_iteration_runs_when_the_condition_never_holds():
    @qd.kernel(graph=True)
    def once(x: I32, left: COUNTER):
        while qd.graph.do_while(left):
            for i in x:
                x[i] += 1

    x = array([0] * 5)
    once(x, counter(0))
    assert x.to_numpy().tolist() == [1] * 5


def test_the_graph_has_a_loop_whose_tasks_are_parallel():
    x, left = array([0] * 8), counter(3)
    text = qd.inspect(add_ones, x, left, emit="ir")
    assert re.findall(r"task (\S+) (serial|parallel)", text) == [
        ("add_ones_0_range", "parallel"),
        ("add_ones_1_serial", "serial"),
    ]
    lines = re.sub(r" guarded \d+ frame\d+", "", graph_of(add_ones, x, left)).split("\n")
    assert [line.strip() for line in lines][:6] == [
        "graph {",
        "while @1 {",
        "launch add_ones_0_range count argument",
        "launch add_ones_1_serial count 1",
        "}",
        "}",
    ]


@pytest.mark.on_cpu
def test_iterations_run_concurrently_on_several_threads():
    """Each iteration waits for the other one, which a single thread would never start."""
    qd.init(arch=qd.cpu, cpu_max_num_threads=2)

    @qd.kernel(graph=True)
    def meet(here: I32, left: COUNTER):
        while qd.graph.do_while(left):
            qd.loop_config(block_dim=1, parallelize=2)
            for i in range(2):
                here[i] = left[()]
                tries = 0
                while qd.volatile_load(here[1 - i]) != left[()] and tries < 2_000_000_000:
                    tries += 1
                for _ in range(200_000):  # Enough work to justify a second thread.
                    here[i + 2] = (here[i + 2] * 5 + 1) % 1000
                here[i + 4] = qd.select(tries < 2_000_000_000, here[i + 4] + 1, -1_000_000)
            left[()] = left[()] - 1

    here = array([0] * 6)
    meet(here, counter(3))
    assert here.to_numpy()[4:].tolist() == [3, 3]


def test_nested_and_consecutive_loops_with_code_between_them():
    @qd.kernel(graph=True)
    def nested(x: I32, outer: COUNTER, inner: COUNTER, log: I32):
        for i in x:
            x[i] = 100
        while qd.graph.do_while(outer):
            inner[()] = 5
            while qd.graph.do_while(inner):
                for i in x:
                    x[i] += 1
                inner[()] = inner[()] - 1
            log[0] = log[0] * 10 + outer[()]
            outer[()] = outer[()] - 1
        for i in x:
            x[i] *= 2
        inner[()] = 2
        while qd.graph.do_while(inner):
            for i in x:
                x[i] -= 1
            inner[()] = inner[()] - 1

    x, log = array([0] * 77), array([0])
    nested(x, counter(3), counter(0), log)
    assert x.to_numpy().tolist() == [(100 + 15) * 2 - 2] * 77
    assert log[0] == 321
    assert graph_of(nested, x, counter(1), counter(1), log).count("while @") == 3


def test_variables_keep_their_values_between_iterations():
    @qd.kernel(graph=True)
    def sums(x: I32, out: I32, left: COUNTER):
        total = 0
        previous = 1
        while qd.graph.do_while(left):
            now = 0
            for i in x:
                now += x[i]
                total += 1
            out[0] += now * previous
            previous = now
            if left[()] == 2:
                previous = 7
            left[()] = left[()] - 1
        out[1] = total
        out[2] = previous

    x, out = array(range(100)), array([0] * 3)
    sums(x, out, counter(4))
    total = 4950
    # In the third round, with two left, `previous` becomes 7.
    assert out.to_numpy().tolist() == [total * 1 + 2 * total * total + total * 7, 400, total]


def test_a_loop_without_iterations_and_one_whose_length_changes():
    @qd.kernel(graph=True)
    def shrink(x: I32, n: I32, left: COUNTER):
        while qd.graph.do_while(left):
            for i in range(n[0]):
                x[i] += 1
            for i in range(n[1]):
                x[i] += 1000
            n[0] = n[0] - 2
            left[()] = left[()] - 1

    x, n = array([0] * 6), array([6, 0])
    shrink(x, n, counter(5))
    assert x.to_numpy().tolist() == [3, 3, 2, 2, 1, 1]


def test_loops_of_functions_are_tasks_too():
    @qd.func
    def add(x: I32, by: qd.i32):
        for i in range(x.shape[0]):
            x[i] += by

    @qd.kernel(graph=True)
    def run(x: I32, left: COUNTER):
        while qd.graph.do_while(left):
            add(x, 2)
            add(x, left[()])
            left[()] = left[()] - 1

    x = array([0] * 9)
    run(x, counter(3))
    assert x.to_numpy().tolist() == [6 + 6] * 9
    assert graph_of(run, x, counter(1)).count("_range") == 2


def test_break_and_return_make_the_loop_serial():
    @qd.kernel(graph=True)
    def leave(x: I32, left: COUNTER):
        while qd.graph.do_while(left):
            for i in x:
                x[i] += 1
            if x[0] == 3:
                break
            if x[0] == 2:
                continue
            left[()] = left[()] + 1

    x = array([0] * 4)
    leave(x, counter(1))
    assert x.to_numpy().tolist() == [3] * 4
    assert "while" not in graph_of(leave, x, counter(1))


def test_a_field_is_a_condition():
    left = qd.field(qd.i32, ())
    other = qd.field(qd.i32, 3)
    x = qd.field(qd.i32, 10)

    @qd.kernel(graph=True)
    def run():
        while qd.graph.do_while(left):
            for i in x:
                x[i] += other[1]
            left[None] -= 1

    left[None], other[1] = 4, 2
    run()
    assert x.to_numpy().tolist() == [8] * 10


def test_random_numbers_differ_between_iterations_and_repeat_with_a_seed():
    @qd.kernel(graph=True)
    def draw(out: qd.types.ndarray(qd.f64, ndim=2), left: COUNTER):
        while qd.graph.do_while(left):
            for i in range(out.shape[1]):
                out[left[()] - 1, i] = qd.random(qd.f64)
            left[()] = left[()] - 1

    def draws():
        qd.init(arch=qd.cpu, random_seed=5)
        out = qd.ndarray(qd.f64, (4, 100))
        draw(out, counter(4))
        return out.to_numpy()

    first = draws()
    assert len(np.unique(first)) == 400
    assert np.array_equal(first, draws())


def test_a_failed_check_ends_the_loop():
    qd.init(arch=qd.cpu, debug=True)

    @qd.kernel(graph=True)
    def run(x: I32, left: COUNTER):
        while qd.graph.do_while(left):
            for i in x:
                x[i] += 1
                assert x[i] < 3, "three"
            left[()] = left[()] + 1
        x[0] = 1000

    x, left = array([0] * 4), counter(1)
    with pytest.raises(AssertionError, match="three"):
        run(x, left)
    qd.sync()
    assert x.to_numpy().tolist() == [3] * 4
    assert left[()] == 3
    add_ones(x, left)
    assert x.to_numpy().tolist() == [6] * 4


@pytest.mark.parametrize("options", [{}, {"cpu_streams": True}, {"cpu_stream_schedule": "seed:3"}], ids=str)
def test_loops_on_separate_streams(options):
    qd.init(arch=qd.cpu, **options)
    arrays = [(array([0] * 500), counter(3 + k)) for k in range(3)]
    streams = [qd.create_stream() for _ in arrays]
    for (x, left), stream in zip(arrays, streams):
        with qd.stream_scope(stream):
            add_ones(x, left)
            left.fill(2)
            add_ones(x, left)
    qd.sync()
    for k, (x, left) in enumerate(arrays):
        assert x.to_numpy().tolist() == [3 + k + 2] * 500
        assert left[()] == 0


def test_threads_launch_at_once():
    qd.init(arch=qd.cpu, cpu_streams=True)
    arrays = [(array([0] * 300), counter(20)) for _ in range(4)]
    add_ones(array([0]), counter(1))

    def work(x, left):
        with qd.stream_scope(qd.create_stream()):
            add_ones(x, left)

    threads = [threading.Thread(target=work, args=pair) for pair in arrays]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    qd.sync()
    assert all(x.to_numpy().tolist() == [20] * 300 for x, _ in arrays)


def test_graph_sections_in_loops():
    @qd.kernel(graph=True)
    def run(a: I32, b: I32, left: COUNTER):
        while qd.graph.do_while(left):
            with qd.graph.parallel_context():
                with qd.graph.parallel():
                    for i in a:
                        a[i] += 1
                with qd.graph.parallel():
                    for i in b:
                        b[i] += 2
            for i in a:
                a[i] += b[i]
            left[()] = left[()] - 1

    a, b = array([0] * 10), array([0] * 10)
    run(a, b, counter(3))
    assert (a[3], b[3]) == (3 + 2 + 4 + 6, 6)


def test_a_kernel_that_is_differentiated_repeats_on_one_thread():
    x = qd.field(qd.f64, 4, needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)
    left = qd.field(qd.i32, ())

    @qd.kernel(graph=True)
    def run():
        while qd.graph.do_while(left):
            for i in x:
                loss[None] += x[i] * x[i]
            left[None] = left[None] - 1

    x.from_numpy(np.arange(4.0))
    left[None] = 2
    run()
    assert loss[None] == 2 * 14.0


N = 64


@qd.kernel(graph=True)
def conjugate_gradient(x: F64, r: F64, p: F64, q: F64, sums: F64, going: COUNTER, most: qd.i32):
    """Solves `A x = b` for the Laplacian of a grid of N by N; at the start `r` and `p` are `b`, and `x` is zero."""
    rr = qd.f64(0.0)
    for i in r:
        rr += r[i] * r[i]
    sums[0] = rr
    sums[1] = 0.0
    while qd.graph.do_while(going):
        pq = qd.f64(0.0)
        for row, column in qd.ndrange(N, N):
            at = row * N + column
            s = 4.0 * p[at]
            if row > 0:
                s -= p[at - N]
            if row < N - 1:
                s -= p[at + N]
            if column > 0:
                s -= p[at - 1]
            if column < N - 1:
                s -= p[at + 1]
            q[at] = s
            pq += p[at] * s
        alpha = rr / pq
        new = qd.f64(0.0)
        for i in x:
            x[i] += alpha * p[i]
            r[i] -= alpha * q[i]
            new += r[i] * r[i]
        beta = new / rr
        for i in p:
            p[i] = r[i] + beta * p[i]
        rr = new
        sums[1] += 1.0
        going[()] = 1 if new > 1e-20 * sums[0] and sums[1] < most else 0


def test_conjugate_gradients_until_the_residual_is_small():
    rng = np.random.default_rng(1)
    b = rng.standard_normal(N * N)
    x, r, p, q = (array(v, np.float64) for v in (0 * b, b, b, 0 * b))
    sums, going = array([0.0, 0.0], np.float64), counter(1)
    conjugate_gradient(x, r, p, q, sums, going, 1000)

    def laplace(v):
        v = v.reshape(N, N)
        out = 4 * v
        out[1:] -= v[:-1]
        out[:-1] -= v[1:]
        out[:, 1:] -= v[:, :-1]
        out[:, :-1] -= v[:, 1:]
        return out.ravel()

    # The same in numpy.
    y, rest, to, rounds = 0 * b, b.copy(), b.copy(), 0
    square = rest @ rest
    least = 1e-20 * square
    while square > least:
        image = laplace(to)
        alpha = square / (to @ image)
        y += alpha * to
        rest -= alpha * image
        square, before = rest @ rest, square
        to = rest + square / before * to
        rounds += 1
    assert np.allclose(laplace(x.to_numpy()), b, atol=1e-8)
    assert np.allclose(x.to_numpy(), y, atol=1e-8)
    assert abs(sums[1] - rounds) <= 2
    assert 50 < rounds < 300
    assert graph_of(conjugate_gradient, x, r, p, q, sums, going, 1000).count("while ") == 1


def test_an_endless_loop_is_stopped_with_its_condition_named():
    qd.init(arch=qd.cpu, graph_max_iterations=7)

    @qd.kernel(graph=True)
    def run(a: qd.types.ndarray(qd.i32, ndim=1), going: qd.types.ndarray(qd.i32, ndim=0)):
        while qd.graph.do_while(going):
            for i in a:
                a[i] += 1
            going[None] += 1 if a[0] > 5 else -1

    a, going = np.zeros(3, np.int32), np.array(6, np.int32)
    with pytest.raises(AssertionError, match=r"`going` is still 3 after 7 iterations, .*`graph_max_iterations`"):
        run(a, going)
    assert a.tolist() == [7, 7, 7]
    # A loop that ends in its last allowed iteration is not an error.
    a, going = np.zeros(3, np.int32), np.array(5, np.int32)
    run(a, going)
    assert (a.tolist(), int(going)) == ([5, 5, 5], 0)


def test_an_expression_is_evaluated_after_each_iteration():
    @qd.kernel(graph=True)
    def run(a: qd.types.ndarray(qd.f32, ndim=1), limit: qd.f32):
        while qd.graph.do_while(a[0] < limit):
            for i in a:
                a[i] *= 2.0

    a = np.array([1.0, 3.0], np.float32)
    run(a, 5.0)
    assert a.tolist() == [8.0, 24.0]
    run(a, 5.0)
    assert a.tolist() == [16.0, 48.0]


def test_a_condition_that_never_changes_is_refused():
    @qd.kernel(graph=True)
    def by_argument(x: I32, n: qd.i32):
        while qd.graph.do_while(n):
            for i in x:
                x[i] += 1

    @qd.kernel(graph=True)
    def by_shape(x: I32):
        while qd.graph.do_while(x.shape[0] - 3):
            for i in x:
                x[i] += 1

    @qd.kernel(graph=True)
    def by_variable(x: I32, n: qd.i32):
        left = n
        while qd.graph.do_while(left):
            for i in x:
                x[i] += 1
            left -= 1

    @qd.kernel(graph=True)
    def by_constant_variable(x: I32, n: qd.i32):
        left = 5 + n
        while qd.graph.do_while(left > 3):
            for i in x:
                x[i] += left

    x = array([1, 2])
    for kernel, args in ((by_argument, (x, 3)), (by_shape, (x,)), (by_constant_variable, (x, 3))):
        with pytest.raises(qd.QuadrantsSyntaxError, match="this condition never changes"):
            kernel(*args)
    by_variable(x, 3)
    assert x.to_numpy().tolist() == [4, 5]
