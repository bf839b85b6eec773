"""`g.grad()`: the gradients of a captured graph, as another graph."""

import numpy as np
import pytest

import octants as qd

A = qd.types.ndarray(dtype=qd.f32, ndim=1, needs_grad=True)
N = 40


@qd.kernel
def product(x: A, y: A, out: A):
    for i in out:
        out[i] = qd.sin(x[i]) * y[i]


@qd.kernel
def grow(x: A, out: A, k: qd.f32):
    for i in x:
        out[i] += x[i] * x[i] * k


@qd.kernel
def repeated(x: A, out: A, n: qd.i32):
    for i in x:
        s = x[i]
        for _ in range(n):
            s = qd.sin(s) + 0.5
        out[i] = s


@qd.kernel
def measure(x: A, loss: A):
    for i in x:
        loss[0] += x[i] * (i + 1)


def array(value=None):
    made = qd.ndarray(qd.f32, N, needs_grad=True)
    if value is not None:
        made.from_numpy(np.linspace(value, value + 1, N, dtype=np.float32))
    return made


class Step:
    """Launches, fills and copies on two streams, with a graph within."""

    def __init__(self):
        self.x, self.y = array(0.5), array(1.0)
        self.parts = [array() for _ in range(5)]
        self.loss = qd.ndarray(qd.f32, 1, needs_grad=True)
        self.streams = [qd.default_stream(), qd.create_stream()]

    def run(self, inner=None):
        here, there = self.streams
        a, b, c, d, e = self.parts
        there.wait(here)
        for each in self.parts:
            each.fill(0.0)
        product(self.x, self.y, a)
        grow(self.x, b, 0.5, qd_stream=there)
        repeated(self.y, c, 6, qd_stream=there)
        here.wait(there)
        d.copy_from(b)
        grow(a, d, 2.0)
        if inner is None:
            grow(c, e, 1.5)
        else:
            inner()
        for each in (d, e, b):
            measure(each, self.loss)

    def all(self):
        return [self.x, self.y, *self.parts]

    def gradients(self):
        return np.stack([each.grad.to_numpy() for each in (self.x, self.y)])


@pytest.mark.parametrize("is_called", [False, True])
def test_a_gradient_graph_gives_the_gradients_of_a_tape(schedule, is_called):
    taped = Step()
    with qd.ad.Tape(taped.loss):
        taped.run()
    step = Step()
    with qd.graph.capture() as inner:
        grow(step.parts[2], step.parts[4], 1.5)
    with qd.graph.capture() as g:
        step.run(inner if is_called else inner.launch)
    backwards = g.grad()
    for _ in range(2):
        step.loss.fill(0.0)
        for each in step.all():
            each.grad.fill(0.0)
        step.loss.grad.fill(1.0)
        g.launch()
        backwards.launch()
        assert np.allclose(step.gradients(), taped.gradients(), rtol=1e-5)
    assert step.loss[0] == pytest.approx(taped.loss[0], rel=1e-5)


def test_arguments_of_gradients_are_updated_by_name(mode):
    x, y, other, loss = array(1.0), array(), array(2.0), qd.ndarray(qd.f32, 1, needs_grad=True)
    with qd.graph.capture() as g:
        grow(x, y, 1.0)
        measure(y, loss)
    backwards = g.grad()
    g.launch()
    loss.grad.fill(1.0)
    backwards(k=3.0)
    weights = np.arange(1, N + 1, dtype=np.float32)
    assert np.allclose(x.grad.to_numpy(), 2 * x.to_numpy() * 3.0 * weights, rtol=1e-5)
    with pytest.raises(TypeError, match="different values of `x`"):
        backwards.update(x=other)


def test_a_tape_within_a_capture_is_forward_and_backward_in_one_graph(mode):
    x, y, loss = array(1.0), array(), qd.ndarray(qd.f32, 1, needs_grad=True)
    with qd.graph.capture() as g:
        y.fill(0.0)
        x.grad.fill(0.0)
        y.grad.fill(0.0)
        with qd.ad.Tape(loss, clear_gradients=False):
            grow(x, y, 1.0)
            measure(y, loss)
    for _ in range(2):
        g.launch()
        weights = np.arange(1, N + 1, dtype=np.float32)
        assert np.allclose(x.grad.to_numpy(), 2 * x.to_numpy() * weights, rtol=1e-5)


def test_a_tape_within_a_capture_clears_gradients_that_have_no_memory_yet(mode):
    x, loss = qd.field(qd.f32, 8, needs_grad=True), qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def squares():
        for i in x:
            loss[None] += x[i] ** 2

    x.fill(3.0)
    with qd.graph.capture() as g, qd.ad.Tape(loss):
        squares()
    for value in (3.0, 4.0):
        x.fill(value)
        g.launch()
        assert x.grad[5] == 2 * value


@qd.kernel
def by_memory(x: A, y: A, count: qd.types.ndarray(dtype=qd.i32, ndim=1)):
    for i in x:
        s = x[i]
        for _ in range(count[i]):
            s = qd.sin(s) + 0.5
        y[i] = s


def test_each_launch_of_a_gradient_counts_the_values_to_store(schedule):
    x, y, loss = array(1.0), array(), qd.ndarray(qd.f32, 1, needs_grad=True)
    count = qd.ndarray(qd.i32, N)

    def run():
        by_memory(x, y, count)
        measure(y, loss)

    with qd.graph.capture() as g:
        run()
    backwards = g.grad()
    for most in (3, 50, 1):
        count.from_numpy(np.arange(N, dtype=np.int32) % most)
        for each in (x, y):
            each.grad.fill(0.0)
        with qd.ad.Tape(loss):
            run()
        taped = x.grad.to_numpy()
        for each in (x, y):
            each.grad.fill(0.0)
        loss.grad.fill(1.0)
        g.launch()
        backwards.launch()
        assert np.array_equal(x.grad.to_numpy(), taped)


History = qd.types.ndarray(dtype=qd.f32, ndim=2, needs_grad=True)
Counter = qd.types.ndarray(dtype=qd.i32, ndim=0)


@qd.kernel(graph=True)
def iterate(x: History, left: Counter, at: Counter):
    while qd.graph.do_while(left):
        for i in range(4):
            x[at[()] + 1, i] = x[at[()], i] * x[at[()], i] + 0.25
        at[()] += 1
        left[()] -= 1


@qd.kernel
def last(x: History, at: Counter, loss: A):
    for i in range(4):
        loss[0] += x[at[()], i]


class Iteration:
    """A data-dependent loop that keeps its states."""

    def __init__(self, rounds):
        self.x, self.loss = qd.ndarray(qd.f32, (12, 4), needs_grad=True), qd.ndarray(qd.f32, 1, needs_grad=True)
        self.left, self.at, self.rounds = qd.ndarray(qd.i32, ()), qd.ndarray(qd.i32, ()), rounds
        self.x.fill(0.5)

    def run(self):
        self.left.fill(self.rounds)
        self.at.fill(0)
        iterate(self.x, self.left, self.at)
        last(self.x, self.at, self.loss)

    def expected(self, rounds):
        value, slope = 0.5, 1.0
        for _ in range(rounds):
            value, slope = value * value + 0.25, slope * 2 * value
        return slope

    def gradient(self, backwards):
        self.x.grad.fill(0.0)
        self.loss.grad.fill(1.0)
        backwards.launch()
        return self.x.grad[0, 1]


def test_the_gradient_of_a_data_dependent_loop_runs_the_rounds_of_the_last_launch(schedule):
    step = Iteration(3)
    with qd.graph.capture() as g:
        step.run()
    backwards = g.grad()
    for _ in range(2):
        g.launch()
        # The counters of the forward run are saved, whatever becomes of them.
        step.left.fill(7)
        assert step.gradient(backwards) == pytest.approx(step.expected(3))
        assert step.left[()] == 7


def test_counters_are_saved_where_an_update_puts_them(mode):
    step = Iteration(3)
    other = qd.ndarray(qd.i32, ())
    with qd.graph.capture() as g:
        step.at.fill(0)
        iterate(step.x, step.left, step.at)
    backwards = g.grad()
    with pytest.raises(
        RuntimeError, match=r"replaces a loop counter of kernel `iterate_grad`.*call its `grad\(\)` again"
    ):
        backwards.update(left=other)
    for left, rounds in ((step.left, 2), (other, 5)):
        left.fill(rounds)
        g(left=left)
        backwards = g.grad()
        gradient = np.zeros((12, 4), np.float32)
        gradient[rounds] = 1.0
        step.x.grad.from_numpy(gradient)
        backwards.launch()
        assert step.x.grad[0, 1] == pytest.approx(step.expected(rounds))


def test_graphs_with_loops_within_graphs_have_a_gradient_if_launched_once(mode):
    step = Iteration(4)
    with qd.graph.capture() as inner:
        step.run()
    with qd.graph.capture() as outer:
        inner.launch()
    backwards = outer.grad()
    outer.launch()
    assert step.gradient(backwards) == pytest.approx(step.expected(4))
    with qd.graph.capture() as twice:
        inner.launch()
        inner.launch()
    with pytest.raises(RuntimeError, match="a graph with a data-dependent loop was launched in its capture more"):
        twice.grad()


def test_unsupported_gradients_of_graphs_are_refused(mode):
    x, y = array(1.0), array()
    with qd.graph.capture() as g:
        grow.grad(x, y, 1.0)
    with pytest.raises(RuntimeError, match="no gradient if a derivative is among its launches"):
        g.grad()
    with qd.graph.capture() as after:  # the failure has left no capture open
        grow(x, y, 1.0)
    after.launch()
