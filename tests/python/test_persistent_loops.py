"""Data-dependent loops that one launch runs as a whole, its blocks waiting for one another: what a task writes, the
tasks of any block read afterwards. Devices that cannot do so run the same loops in another way."""

import hip_standin
import numpy as np
import pytest
from graph_arrays import A as I32
from graph_arrays import C as COUNTER
from graph_arrays import array
from graph_arrays import scalar as counter

import octants as qd

SIZES = (1, 64, 700, 8192, 8193, 12_000)
"""Of one block, and of several."""


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


@qd.kernel(graph=True)
def rotate(x: I32, y: I32, left: COUNTER):
    while qd.graph.do_while(left):
        for i in x:
            y[i] = x[(i + 1) % x.shape[0]]
        for i in y:
            x[y.shape[0] - 1 - i] = y[i] + left[()]
        left[()] -= 1


def rotated(x, rounds):
    for left in range(rounds, 0, -1):
        x = np.roll(x, -1)[::-1] + left
    return x


@pytest.mark.parametrize("size", SIZES)
def test_a_task_reads_what_all_blocks_wrote(size):
    for rounds in (1, 2, 3, 7, 40):
        x, y, left = array(range(size)), array([0] * size), counter(rounds)
        rotate(x, y, left)
        assert left[()] == 0
        assert (x.to_numpy() == rotated(np.arange(size), rounds)).all()


@pytest.mark.parametrize("size", [700, 12_000])
def test_sums_decide_about_the_end(size):
    @qd.kernel(graph=True)
    def grow(x: I32, total: COUNTER, rounds: COUNTER):
        while qd.graph.do_while(total[()] < 20 * x.shape[0]):
            total[()] = 0
            for i in x:
                x[i] += 1 + i % 2
            for i in x:
                total[()] += x[i]
            rounds[()] += 1

    x, total, rounds = array([0] * size), counter(0), counter(0)
    grow(x, total, rounds)
    expected, steps = np.zeros(size, int), 0
    while steps == 0 or expected.sum() < 20 * size:
        expected += 1 + np.arange(size) % 2
        steps += 1
    assert (x.to_numpy() == expected).all()
    assert (total[()], rounds[()]) == (expected.sum(), steps)


def test_serial_tasks_first_between_and_last():
    @qd.kernel(graph=True)
    def steps(x: I32, y: I32, log: I32, left: COUNTER):
        while qd.graph.do_while(left):
            log[0] += left[()]
            log[1] = log[0] * 2
            for i in x:
                x[i] += log[1]
            log[2] = x[0] + x[x.shape[0] - 1]
            for i in y:
                y[i] += log[2] + x[i]
            log[3] = y[y.shape[0] // 2]
            left[()] -= 1

    for size in (300, 10_000):
        x, y, log, left = array([0] * size), array([0] * size), array([0] * 4), counter(4)
        steps(x, y, log, left)
        a = b = total = 0
        for number in range(4, 0, -1):
            total += number
            a += 2 * total
            b += 2 * a + a
        assert x.to_numpy().tolist() == [a] * size
        assert y.to_numpy().tolist() == [b] * size
        assert log.to_numpy().tolist() == [total, 2 * total, 2 * a, b]


def test_loops_of_serial_tasks_only():
    @qd.kernel(graph=True)
    def halve(n: COUNTER, steps: COUNTER):
        while qd.graph.do_while(n[()] > 1):
            n[()] = n[()] // 2 if n[()] % 2 == 0 else 3 * n[()] + 1
            steps[()] += 1

    n, steps = counter(27), counter(0)
    halve(n, steps)
    assert (n[()], steps[()]) == (1, 111)


def test_more_loops_than_have_words():
    @qd.kernel(graph=True)
    def many(x: I32, left: I32):
        for number in qd.static(range(11)):
            while qd.graph.do_while(left[number] > 0):
                for i in x:
                    x[i] += number
                left[number] -= 1

    x, left = array([0] * 9000), array(range(2, 13))
    many(x, left)
    assert x.to_numpy().tolist() == [sum(n * (n + 2) for n in range(11))] * 9000
    assert left.to_numpy().tolist() == [0] * 11


def test_launches_after_one_another_and_beside_one_another():
    streams = [qd.create_stream() for _ in range(3)]
    sets = [(array(range(size)), array([0] * size), counter(0), size) for size in (300, 9000, 2500, 64)]
    for launch in range(20):
        rounds = 1 + launch * 5 % 11
        chosen = sets[launch % 4]
        x, y, left, size = chosen
        qd.sync()
        x.from_numpy(np.arange(size, dtype=np.int32))
        left.from_numpy(np.array(rounds, np.int32))
        others = [s for s in sets if s is not chosen]
        for (a, b, c, _), stream in zip(others, streams, strict=True):
            c.from_numpy(np.array(3, np.int32))
            rotate(a, b, c, qd_stream=stream)
        rotate(x, y, left)
        qd.sync()
        assert (x.to_numpy() == rotated(np.arange(size), rounds)).all()


def test_the_same_loop_with_arrays_of_other_sizes():
    for size in (9000, 10, 12_000, 2048, 200_000, 30):
        x, y, left = array(range(size)), array([0] * size), counter(3)
        rotate(x, y, left)
        assert (x.to_numpy() == rotated(np.arange(size), 3)).all()


def test_loops_in_a_loop_in_a_captured_graph():
    @qd.kernel(graph=True)
    def nested(x: I32, y: I32, outer: COUNTER, inner: COUNTER):
        while qd.graph.do_while(outer):
            inner[()] = outer[()] + 1
            while qd.graph.do_while(inner):
                for i in x:
                    y[i] = x[(i + 1) % x.shape[0]]
                for i in y:
                    x[i] = y[i] + 1
                inner[()] -= 1
            outer[()] -= 1

    x, y, outer, inner, last = array(range(9000)), array([0] * 9000), counter(3), counter(0), counter(2)
    with qd.graph.capture() as graph:
        nested(x, y, outer, inner)
        rotate(x, y, last)
    for rounds in (3, 1, 5):
        x.from_numpy(np.arange(9000, dtype=np.int32))
        outer.from_numpy(np.array(rounds, np.int32))
        last.from_numpy(np.array(rounds + 1, np.int32))
        graph.launch()
        inner_rounds = sum(range(2, rounds + 2))
        expected = rotated(np.roll(np.arange(9000), -inner_rounds) + inner_rounds, rounds + 1)
        assert (outer[()], last[()]) == (0, 0)
        assert (x.to_numpy() == expected).all()


def test_fields_and_a_failed_check_before():
    qd.init(arch=qd.cpu, debug=True)
    x, left = qd.field(qd.i32, shape=3000), qd.field(qd.i32, shape=())

    @qd.kernel(graph=True)
    def checked(limit: qd.i32):
        for i in x:
            assert i < limit
        while qd.graph.do_while(left[None]):
            for i in x:
                x[i] += 1
            left[None] -= 1

    left[None] = 4
    checked(3000)
    assert (x.to_numpy() == 4).all()
    left[None] = 2
    with pytest.raises(AssertionError):
        checked(10)


def test_one_launch_runs_a_loop(request):
    if request.config.getoption("--arch") not in hip_standin.ARCHS:
        pytest.skip("only the stand-in for HIP's library counts launches")
    launched = hip_standin.library().standin_resident_launches
    for size, rounds in ((300, 5), (9000, 30)):
        x, y, left = array(range(size)), array([0] * size), counter(rounds)
        before, resident = hip_standin.counts()["launches"], launched()
        rotate(x, y, left)
        qd.sync()
        assert (hip_standin.counts()["launches"] - before, launched() - resident) == (1, 1)
        assert (x.to_numpy() == rotated(np.arange(size), rounds)).all()
