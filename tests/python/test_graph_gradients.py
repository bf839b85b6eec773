"""Gradients of kernels declared with `graph=True`: iterations run in reverse, their loops in parallel, and sections
concurrently."""

import numpy as np
import pytest

import octants as qd

HISTORY = qd.types.ndarray(dtype=qd.f64, ndim=2, needs_grad=True)
LOSS = qd.types.ndarray(dtype=qd.f64, ndim=1, needs_grad=True)
COUNTER = qd.types.ndarray(dtype=qd.i32, ndim=0)
ROUNDS, N = 4, 50


@pytest.fixture(autouse=True, params=["in order", "streams", "shuffled"])
def program(request):
    options = {"in order": {}, "streams": {"cpu_streams": True}}
    shuffled = {"cpu_streams": True, "cpu_stream_schedule": "seed:11"}
    qd.init(arch=qd.cpu, default_fp=qd.f64, **options.get(request.param, shuffled))
    yield
    qd.reset()


@qd.kernel(graph=True)
def nested(x: HISTORY, y: HISTORY, loss: LOSS, t: COUNTER, left: COUNTER, inner: COUNTER):
    while qd.graph.do_while(left):
        product = 0.0
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                for i in range(x.shape[1]):
                    x[t[None] + 1, i] = qd.sin(x[t[None], i]) * 1.5
            with qd.graph.parallel():
                for i in range(x.shape[1]):
                    y[t[None] + 1, i] = y[t[None], i] * 0.5 + x[t[None], i]
        for i in range(x.shape[1]):
            product += x[t[None] + 1, i] * y[t[None] + 1, i]
        inner[None] = t[None] + 1
        while qd.graph.do_while(inner):
            for i in range(x.shape[1]):
                loss[0] += product * x[t[None] + 1, i] * inner[None]
            inner[None] -= 1
        for _ in range(1):
            t[None] += 1
            left[None] -= 1
    for i in range(x.shape[1]):
        loss[0] += x[t[None], i]


def nested_in_numpy(x, y):
    loss = 0.0
    for k in range(ROUNDS):
        x, y = np.sin(x) * 1.5, y * 0.5 + x
        for j in range(k + 1, 0, -1):
            loss += (x * y).sum() * x.sum() * j
    return loss + x.sum()


def counters(*values):
    made = [qd.ndarray(qd.i32, ()) for _ in values]
    for counter, value in zip(made, values, strict=True):
        counter.fill(value)
    return made


def history(first):
    made = qd.ndarray(qd.f64, (ROUNDS + 1, N), needs_grad=True)
    values = np.zeros((ROUNDS + 1, N))
    values[0] = first
    made.from_numpy(values)
    return made


def slopes(function, x, h=1e-6):
    """Differences along some elements."""
    steps = [h * np.eye(N)[i] for i in range(0, N, 7)]
    return np.array([(function(x + step) - function(x - step)) / (2 * h) for step in steps])


def test_iterations_run_in_reverse():
    x0, y0 = np.linspace(0, 1, N), np.linspace(1, 2, N)
    x, y = history(x0), history(y0)
    loss = qd.ndarray(qd.f64, 1, needs_grad=True)
    t, left, inner = counters(0, ROUNDS, 0)
    for _ in range(2):
        t.fill(0)
        left.fill(ROUNDS)
        x.grad.fill(0)
        y.grad.fill(0)
        with qd.ad.Tape(loss):
            nested(x, y, loss, t, left, inner)
        assert (t[None], left[None], inner[None]) == (ROUNDS, 0, 0)
        assert np.isclose(loss[0], nested_in_numpy(x0, y0), rtol=1e-12)
        wanted = slopes(lambda v: nested_in_numpy(v, y0), x0)
        assert np.allclose(x.grad.to_numpy()[0, ::7], wanted, rtol=1e-6)
        assert np.allclose(y.grad.to_numpy()[0, ::7], slopes(lambda v: nested_in_numpy(x0, v), y0), rtol=1e-6)


def test_parallel_loops_of_iterations_are_tasks_of_the_gradient():
    x, y, loss = history(0), history(0), qd.ndarray(qd.f64, 1, needs_grad=True)
    text = qd.inspect(nested.grad, x, y, loss, *counters(0, 1, 0), emit="ir")
    graph = text[text.rindex("  graph {") :]
    assert graph.count("while ") == 2, "those that run backwards: those of the forward sweep only count"
    rounds = graph[graph.rindex("while ") :]
    assert "count argument" in rounds


def test_two_launches_with_shared_counters():
    @qd.kernel(graph=True)
    def grow(x: HISTORY, y: HISTORY, t: COUNTER, end: qd.i32):
        while qd.graph.do_while(t[None] < end):
            for i in range(x.shape[1]):
                x[t[None] + 1, i] = x[t[None], i] * y[0, i]
            for _ in range(1):
                t[None] += 1

    @qd.kernel
    def measure(x: HISTORY, loss: LOSS, at: qd.i32):
        for i in range(x.shape[1]):
            loss[0] += x[at, i]

    x0, y0 = np.linspace(1, 2, N), np.linspace(0.5, 1.5, N)
    loss = qd.ndarray(qd.f64, 1, needs_grad=True)
    gradients = []
    for on_streams in (False, True):
        x, y = history(x0), history(y0)
        (t,) = counters(0)
        streams = [qd.create_stream() for _ in range(2)] if on_streams else [qd.default_stream()] * 2
        with qd.ad.Tape(loss):
            grow(x, y, t, 2, qd_stream=streams[0])
            streams[1].wait(streams[0])
            grow(x, y, t, ROUNDS, qd_stream=streams[1])
            measure(x, loss, ROUNDS, qd_stream=streams[1])
        assert t[None] == ROUNDS
        gradients.append((x.grad.to_numpy()[0], y.grad.to_numpy()[0]))
    assert np.allclose(gradients[0][0], y0**ROUNDS)
    assert np.allclose(gradients[0][1], ROUNDS * x0 * y0 ** (ROUNDS - 1))
    assert np.allclose(gradients[0], gradients[1], rtol=1e-12)


@pytest.mark.parametrize("schedule", [103, 105, 109, 112])
def test_gradients_use_the_counters_of_their_launches(schedule):
    qd.init(arch=qd.cpu, cpu_streams=True, cpu_stream_schedule=f"seed:{schedule}", default_fp=qd.f64)
    test_two_launches_with_shared_counters()


def test_a_manual_gradient_uses_the_current_counters():
    @qd.kernel(graph=True)
    def power(x: LOSS, y: LOSS, left: COUNTER):
        while qd.graph.do_while(left):
            for i in x:
                y[i] += x[i] * x[i] * left[None]
            left[None] -= 1

    x, y = (qd.ndarray(qd.f64, N, needs_grad=True) for _ in range(2))
    x.from_numpy(np.arange(float(N)))
    y.grad.fill(1.0)
    (left,) = counters(3)
    power.grad(x, y, left)
    assert np.array_equal(x.grad.to_numpy(), 2 * np.arange(N) * (3 + 2 + 1))
    assert left[None] == 3


def test_forward_mode_supports_graph_loops():
    x = qd.field(qd.f64, (ROUNDS + 1, N), needs_dual=True)
    t = qd.field(qd.i32, ())

    @qd.kernel(graph=True)
    def square():
        while qd.graph.do_while(t[None] < ROUNDS):
            for i in range(N):
                x[t[None] + 1, i] = x[t[None], i] * x[t[None], i]
            for _ in range(1):
                t[None] += 1

    values = np.zeros((ROUNDS + 1, N))
    values[0] = np.linspace(0.9, 1.0, N)
    x.from_numpy(values)
    seed = np.zeros((ROUNDS + 1, N))
    seed[0] = 1.0
    with qd.ad.FwdMode(x, x, seed=list(seed.ravel())):
        square()
        found = x.dual.to_numpy()[ROUNDS]
    assert np.allclose(found, 2**ROUNDS * values[0] ** (2**ROUNDS - 1))


def test_a_manual_gradient_requires_a_reset_counter():
    @qd.kernel(graph=True)
    def powers(x: HISTORY, t: COUNTER, left: COUNTER):
        while qd.graph.do_while(left):
            for i in range(x.shape[1]):
                x[t[None] + 1, i] = 2.0 * x[t[None], i]
            t[None] += 1
            left[None] -= 1

    @qd.kernel(graph=True)
    def by_flag(x: HISTORY, t: COUNTER, going: COUNTER):
        while qd.graph.do_while(going):
            for i in range(x.shape[1]):
                x[t[None] + 1, i] = 2.0 * x[t[None], i]
            t[None] += 1
            going[None] = t[None] < ROUNDS

    x = history(np.ones(N))
    t, left = counters(0, ROUNDS)
    last = np.zeros((ROUNDS + 1, N))
    last[ROUNDS] = 1.0
    powers(x, t, left)
    x.grad.from_numpy(last)
    t.fill(0)

    def gradient():
        powers.grad(x, t, left)
        qd.sync()

    with pytest.raises(AssertionError, match="starts from its counter `left`, which is now 0"):
        gradient()
    for kernel, begin in ((powers, ROUNDS), (by_flag, 0)):
        t.fill(0)
        left.fill(begin)
        x.grad.from_numpy(last)
        kernel.grad(x, t, left)
        assert (x.grad.to_numpy()[0] == 2.0**ROUNDS).all()


@qd.kernel
def fifth(x: LOSS, loss: LOSS):
    loss[0] += x[4]


def test_serial_graph_loops_have_gradients():
    @qd.kernel(graph=True)
    def double(x: LOSS, t: COUNTER, left: COUNTER):
        while qd.graph.do_while(left):
            x[t[None] + 1] = x[t[None]] * 2.0
            t[None] += 1
            left[None] -= 1

    @qd.kernel(graph=True)
    def twice(x: LOSS, t: COUNTER, left: COUNTER):
        while qd.graph.do_while(left):
            for _ in qd.static(range(2)):
                x[t[None] + 1] = x[t[None]] * 2.0
                t[None] += 1
            left[None] -= 2

    for kernel in (double, twice):
        x = qd.ndarray(qd.f64, 6, needs_grad=True)
        x.fill(1.0)
        t, left = counters(0, 4)
        kernel(x, t, left)
        assert x.to_numpy().tolist() == [1.0, 2.0, 4.0, 8.0, 16.0, 1.0]
        for counter, value in ((t, 0), (left, 4)):
            counter.fill(value)
        x.grad[4] = 1.0
        kernel.grad(x, t, left)
        assert x.grad[0] == 16.0
        x.grad.fill(0.0)
        loss = qd.ndarray(qd.f64, 1, needs_grad=True)
        for counter, value in ((t, 0), (left, 4)):
            counter.fill(value)
        with qd.ad.Tape(loss):
            kernel(x, t, left)
            fifth(x, loss)
        assert x.grad[0] == 16.0
        assert (t[None], left[None]) == (4, 0)


def test_debug_mode_allows_launches_after_a_gradient():
    qd.init(arch=qd.cpu, default_fp=qd.f64, debug=True)

    @qd.kernel(graph=True)
    def powers(x: HISTORY, t: COUNTER, left: COUNTER):
        while qd.graph.do_while(left):
            for i in range(x.shape[1]):
                x[t[None] + 1, i] = 2.0 * x[t[None], i]
            t[None] += 1
            left[None] -= 1

    x = history(np.ones(N))
    loss = qd.ndarray(qd.f64, 1, needs_grad=True)

    @qd.kernel
    def first_of_last(x: HISTORY, loss: LOSS):
        loss[0] += x[ROUNDS, 0]

    t, left = counters(0, ROUNDS)
    with qd.ad.Tape(loss):
        powers(x, t, left)
        first_of_last(x, loss)
    assert x.grad.to_numpy()[0].tolist() == [2.0**ROUNDS] + [0] * (N - 1)
    for _ in range(2):
        t.fill(0)
        left.fill(ROUNDS)
        powers(x, t, left)
        qd.sync()
        assert (x.to_numpy()[ROUNDS] == 2.0**ROUNDS).all()
