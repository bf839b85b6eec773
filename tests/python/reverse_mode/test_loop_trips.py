"""Gradients of loops whose iterations overwrite what their condition reads: trip counts come from the launch."""

from dataclasses import dataclass

import numpy as np
import pytest

import octants as qd

ARRAY = qd.types.ndarray(dtype=qd.f64, ndim=1, needs_grad=True)
SCALAR = qd.types.ndarray(dtype=qd.f64, ndim=0)
COUNTER = qd.types.ndarray(dtype=qd.i32, ndim=0)
N = 8


@pytest.fixture(autouse=True, params=["in order", "streams", "shuffled", "auto"])
def program(request):
    options = {"in order": {}, "streams": {"cpu_streams": True}, "auto": {"concurrency": "auto"}}
    shuffled = {"cpu_streams": True, "cpu_stream_schedule": "seed:7"}
    qd.init(arch=qd.cpu, default_fp=qd.f64, **options.get(request.param, shuffled))
    yield
    qd.reset()


@qd.kernel(graph=True)
def settle(x: ARRAY, y: ARRAY, change: SCALAR):
    """`y` approaches 2 x, until a step changes no element by more than 0.1."""
    while qd.graph.do_while(change[None] > 0.1):
        for _ in range(1):
            change[None] = 0.0
        for i in x:
            step = x[i] - 0.5 * y[i]
            y[i] += step
            qd.atomic_max(change[None], abs(step))


@qd.kernel
def total(y: ARRAY, loss: ARRAY):
    for i in y:
        loss[0] += y[i]


def arrays(scale):
    x, y = (qd.ndarray(qd.f64, N, needs_grad=True) for _ in range(2))
    x.from_numpy(scale * np.linspace(0.5, 1.0, N))
    return x, y, qd.ndarray(qd.f64, ())


def steps_of(scale):
    """The trip count of `settle`, and dy/dx."""
    y, step, rounds = 0.0, np.inf, 0
    while step > 0.1:
        step = scale - 0.5 * y
        y += step
        rounds += 1
    return rounds, 2 * (1 - 0.5**rounds)


def test_each_launch_on_a_tape_has_its_own_trip_counts():
    scales = 1.0, 8.0, 100.0
    assert len({steps_of(s)[0] for s in scales}) == 3
    sets = [arrays(s) for s in scales]
    loss = qd.ndarray(qd.f64, 1, needs_grad=True)
    for validation in (False, True):
        for x, y, change in sets:
            y.fill(0.0)
            for array in (x, y):
                array.grad.fill(0.0)
        with qd.ad.Tape(loss, validation=validation):
            for x, y, change in sets:
                settle(x, y, change)
                total(y, loss)
        for (x, _, change), scale in zip(sets, scales, strict=True):
            assert np.allclose(x.grad.to_numpy(), steps_of(scale)[1], rtol=1e-14)
            assert change[None] <= 0.1


def test_one_kernel_twice_on_the_same_arrays():
    x, y, change = arrays(50.0)
    loss = qd.ndarray(qd.f64, 1, needs_grad=True)

    @qd.kernel
    def double(y: ARRAY):
        for i in y:
            y[i] = y[i] * 4.0

    with qd.ad.Tape(loss):
        settle(x, y, change)
        double(y)
        settle(x, y, change)
        total(y, loss)
    first = steps_of(50.0)
    # The second launch starts from four times the value.
    value, step, rounds = 4 * 50.0 * first[1], np.inf, 0
    while step > 0.1:
        step = abs(50.0 - 0.5 * value)
        value += 50.0 - 0.5 * value
        rounds += 1
    expected = first[1] * 4 * 0.5**rounds + 2 * (1 - 0.5**rounds)
    assert np.allclose(x.grad.to_numpy(), expected, rtol=1e-12)


def test_a_manual_gradient_is_that_of_the_latest_launch_with_its_arguments():
    sets = {scale: arrays(scale) for scale in (1.0, 100.0)}
    for scale in (100.0, 1.0, 100.0):
        x, y, change = sets[scale]
        y.fill(0.0)
        settle(x, y, change)
    for scale, (x, y, change) in sets.items():
        y.grad.fill(1.0)
        settle.grad(x, y, change)
        assert np.allclose(x.grad.to_numpy(), steps_of(scale)[1])


def test_a_manual_gradient_needs_a_launch():
    x, y, change = arrays(1.0)
    with pytest.raises(RuntimeError, match="the gradient of kernel `settle` needs the trip counts of its loops"):
        settle.grad(x, y, change)
    settle(x, y, change)
    other, y2, change2 = arrays(1.0)
    with pytest.raises(RuntimeError, match="launch the kernel with these arguments before"):
        settle.grad(other, y2, change2)
    y.grad.fill(1.0)
    settle.grad(x, y, change)
    assert np.allclose(x.grad.to_numpy(), steps_of(1.0)[1])


def test_nested_loops():
    """An outer loop until convergence around an inner one."""

    @qd.kernel(graph=True)
    def solve(x: ARRAY, y: ARRAY, z: ARRAY, outer: SCALAR, inner: SCALAR, rounds: COUNTER):
        while qd.graph.do_while(outer[None] > 0.01):
            for i in y:
                y[i] = 0.0
            while qd.graph.do_while(inner[None] > 0.1 * outer[None] + 0.001):
                for _ in range(1):
                    inner[None] = 0.0
                for i in x:
                    step = x[i] - 0.5 * y[i]
                    y[i] += step
                    qd.atomic_max(inner[None], abs(step))
                    if i == 0:
                        rounds[None] += 1
            for _ in range(1):
                outer[None] = 0.0
            for i in x:
                step = 0.5 * (y[i] - z[i])
                z[i] += step
                qd.atomic_max(outer[None], abs(step))

    def by_hand(scale):
        z, outer, dz, count = 0.0, 0.0, 0.0, 0
        while True:
            y, dy, inner = 0.0, 0.0, None
            while inner is None or inner > 0.1 * outer + 0.001:
                step = scale - 0.5 * y
                y, dy, inner, count = y + step, dy + 1 - 0.5 * dy, abs(step), count + 1
            step = 0.5 * (y - z)
            z, dz, outer = z + step, dz + 0.5 * (dy - dz), abs(step)
            if outer <= 0.01:
                return dz, count

    x, y, change = arrays(1.0)
    x.fill(6.0)
    z, outer = qd.ndarray(qd.f64, N, needs_grad=True), qd.ndarray(qd.f64, ())
    rounds, loss = qd.ndarray(qd.i32, ()), qd.ndarray(qd.f64, 1, needs_grad=True)
    with qd.ad.Tape(loss):
        solve(x, y, z, outer, change, rounds)
        total(z, loss)
    expected, count = by_hand(6.0)
    assert rounds[None] == count
    assert np.allclose(x.grad.to_numpy(), expected, rtol=1e-12)


def test_loops_on_one_thread_and_of_fields():
    x, rest = (qd.field(qd.f64, (), needs_grad=True) for _ in range(2))

    @qd.kernel
    def shrink():
        while rest[None] > 0.1:
            x[None] = x[None] * 2.0
            rest[None] *= 0.5

    @qd.kernel(graph=True)
    def shrink_at_least_once():
        while qd.graph.do_while(rest[None] > 0.1):
            x[None] = x[None] * 2.0
            rest[None] *= 0.5

    for kernel, start, rounds in ((shrink, 1.0, 4), (shrink, 0.01, 0), (shrink_at_least_once, 0.01, 1)):
        x[None], rest[None] = 1.0, start
        kernel()
        assert x[None] == 2.0**rounds
        x.grad[None] = 1.0
        kernel.grad()
        assert x.grad[None] == 2.0**rounds


def test_captured_graphs():
    x, y, change = arrays(100.0)
    loss = qd.ndarray(qd.f64, 1, needs_grad=True)
    with qd.graph.capture() as g:
        y.fill(0.0)
        loss.fill(0.0)
        settle(x, y, change)
        total(y, loss)
    backwards = g.grad()
    values = np.linspace(0.5, 1.0, N)
    for scale in (100.0, 1.0, 20.0):
        x.from_numpy(scale * values)
        x.grad.fill(0.0)
        loss.grad.fill(1.0)
        g.launch()
        backwards.launch()
        assert np.allclose(x.grad.to_numpy(), steps_of(scale)[1])
    other = arrays(3.0)[0]
    g.update(x=other)
    loss.grad.fill(1.0)
    g.launch()
    g.grad().launch()
    assert np.allclose(other.grad.to_numpy(), steps_of(3.0)[1])


def test_a_tape_within_a_capture():
    x, y, change = arrays(100.0)
    loss = qd.ndarray(qd.f64, 1, needs_grad=True)
    with qd.graph.capture() as g:
        y.fill(0.0)
        with qd.ad.Tape(loss):
            settle(x, y, change)
            total(y, loss)
    for scale in (2.0, 70.0):
        x.from_numpy(scale * np.linspace(0.5, 1.0, N))
        for array in (x, y):
            array.grad.fill(0.0)
        g.launch()
        assert np.allclose(x.grad.to_numpy(), steps_of(scale)[1])


def test_members_of_dataclasses_and_sections():
    @dataclass(frozen=True)
    class State:
        x: ARRAY
        y: ARRAY
        change: SCALAR

    @qd.kernel(graph=True)
    def both(a: State, b: State):
        while qd.graph.do_while(a.change[None] + b.change[None] > 0.1):
            with qd.graph.parallel_context():
                with qd.graph.parallel():
                    for i in a.x:
                        step = a.x[i] - 0.5 * a.y[i]
                        a.y[i] += step
                        if i == N - 1:
                            a.change[None] = step
                with qd.graph.parallel():
                    for i in b.x:
                        step = b.x[i] - 0.5 * b.y[i]
                        b.y[i] += step
                        if i == N - 1:
                            b.change[None] = step

    a, b = (State(*arrays(scale)) for scale in (9.0, 30.0))
    loss = qd.ndarray(qd.f64, 1, needs_grad=True)
    for _ in range(3):
        for s in (a, b):
            s.y.fill(0.0)
            s.x.grad.fill(0.0)
            s.y.grad.fill(0.0)
        with qd.ad.Tape(loss):
            both(a, b)
            total(b.y, loss)
        rounds, change = 0, np.inf
        while change > 0.1:
            change = (9.0 + 30.0) * 0.5**rounds
            rounds += 1
        assert np.allclose(b.x.grad.to_numpy(), 2 * (1 - 0.5**rounds))


@qd.kernel(graph=True)
def double(x: ARRAY, rest: SCALAR):
    while qd.graph.do_while(rest[None] > 0.1):
        for i in x:
            x[i] = x[i] * 2.0
        for _ in range(1):
            rest[None] *= 0.5


def test_launches_on_streams():
    sets = [(qd.ndarray(qd.f64, N, needs_grad=True), qd.ndarray(qd.f64, ())) for _ in range(4)]
    loss = qd.ndarray(qd.f64, 1, needs_grad=True)
    with qd.create_stream() as s1, qd.create_stream() as s2:
        for k, (x, rest) in enumerate(sets):
            x.fill(1.0)
            rest.fill(2.0**k)
        qd.sync()
        with qd.ad.Tape(loss):
            for k, (x, rest) in enumerate(sets):
                double(x, rest, qd_stream=(s1, s2)[k % 2])
            qd.sync()
            for x, _ in sets:
                total(x, loss)
        for k, (x, _) in enumerate(sets):
            assert (x.grad.to_numpy() == 2.0 ** (4 + k)).all()


def test_loops_in_branches_and_after_checkpoints():
    @qd.kernel(graph=True)
    def branches(x: ARRAY, first: SCALAR, second: SCALAR, flag: COUNTER):
        if qd.graph.cond(flag):
            while qd.graph.do_while(first[None] > 0.1):
                for i in x:
                    x[i] = x[i] * 2.0
                for _ in range(1):
                    first[None] *= 0.5
        while qd.graph.do_while(second[None] > 0.1):
            for i in x:
                x[i] = x[i] * 3.0
            for _ in range(1):
                second[None] *= 0.25

    @qd.kernel(graph=True, checkpoints=True)
    def checkpoint(x: ARRAY, first: SCALAR, second: SCALAR, flag: COUNTER):
        while qd.graph.do_while(first[None] > 0.1):
            for i in x:
                x[i] = x[i] * 2.0
            for _ in range(1):
                first[None] *= 0.5
        with qd.graph.checkpoint(1, yield_on=flag):
            for i in x:
                x[i] = x[i] * 9.0

    x = qd.ndarray(qd.f64, N, needs_grad=True)
    first, second, flag = qd.ndarray(qd.f64, ()), qd.ndarray(qd.f64, ()), qd.ndarray(qd.i32, ())
    for kernel, chosen in ((branches, 0), (branches, 1), (branches, 0), (checkpoint, 0)):
        for array in (x, x.grad, first, second):
            array.fill(1.0)
        flag.fill(chosen)
        kernel(x, first, second, flag)
        kernel.grad(x, first, second, flag)
        expected = 9.0 * (2.0**4 if chosen or kernel is checkpoint else 1.0)
        assert (x.to_numpy() == expected).all()
        assert (x.grad.to_numpy() == expected).all()


def test_loops_with_several_exits_are_refused():
    @qd.kernel
    def halve(x: ARRAY, rest: ARRAY):
        while rest[0] > 0.1:
            if rest[1] > 3.0:
                break
            rest[0] *= 0.5
            rest[1] += 1.0
            x[0] += x[1] * 2

    x, rest = (qd.ndarray(qd.f64, 2, needs_grad=True) for _ in range(2))
    with pytest.raises(
        qd.OctantsCompilationError, match="cannot determine the number of iterations: it depends on.*`rest`"
    ):
        halve.grad(x, rest)


def test_loops_of_parallel_iterations_are_not_recorded():
    @qd.kernel
    def halve(x: ARRAY, rest: ARRAY):
        for i in x:
            while rest[i] > 0.1:
                rest[i] *= 0.5
                x[i] = x[i] * 2.0

    x, rest = (qd.ndarray(qd.f64, 2, needs_grad=True) for _ in range(2))
    with pytest.warns(UserWarning, match="the gradient will be wrong: the number of iterations depends on `rest`"):
        halve.grad(x, rest)
