"""Data-dependent loops on devices that queue several iterations for each decision whether the loop ends: the iterations
after the last one must do nothing."""

import linecache
import random

import numpy as np
import pytest
from graph_arrays import A as I32
from graph_arrays import C as COUNTER
from graph_arrays import array, graph_of
from graph_arrays import scalar as counter

import octants as qd

SIZE = 300
ROUNDS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 24, 25, 26, 27, 31, 32, 90)


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


@qd.kernel(graph=True)
def count_in_the_middle(x: I32, y: I32, left: COUNTER):
    while qd.graph.do_while(left):
        for i in x:
            x[i] += 1
        left[()] -= 1
        for i in y:
            y[i] += x[i] + left[()]


@qd.kernel(graph=True)
def count_at_the_end(x: I32, y: I32, left: COUNTER):
    while qd.graph.do_while(left):
        for i in x:
            x[i] += 1
        for i in y:
            y[i] += x[i] + left[()] - 1
        left[()] -= 1


@qd.kernel(graph=True)
def count_in_a_parallel_loop(x: I32, y: I32, left: COUNTER):
    while qd.graph.do_while(left):
        for i in x:
            x[i] += 1
            if i == 0:
                left[()] -= 1
        for i in y:
            y[i] += x[i] + left[()]


@pytest.mark.parametrize("loop", [count_in_the_middle, count_at_the_end, count_in_a_parallel_loop])
def test_no_task_runs_after_the_last_iteration(loop):
    for rounds in ROUNDS:
        x, y, left = array([0] * SIZE), array([0] * SIZE), counter(rounds)
        loop(x, y, left)
        assert left[()] == 0
        assert x.to_numpy().tolist() == [rounds] * SIZE
        assert y.to_numpy().tolist() == [rounds * rounds] * SIZE


def test_a_launch_after_another_one_starts_anew():
    x, y = array([0] * SIZE), array([0] * SIZE)
    total = 0
    for rounds in (3, 1, 6, 1, 1, 2):
        count_at_the_end(x, y, counter(rounds))
        total += rounds
        assert x.to_numpy()[0] == total


def test_an_expression_is_the_condition():
    @qd.kernel(graph=True)
    def halve(x: qd.types.ndarray(qd.f32, ndim=1), rounds: COUNTER):
        while qd.graph.do_while(x[0] > 1.0):
            for i in x:
                x[i] *= 0.5
            rounds[()] += 1

    for power in range(1, 12):
        x, rounds = qd.ndarray(qd.f32, 64), counter(0)
        x.fill(2.0**power)
        halve(x, rounds)
        assert (x.to_numpy() == 1.0).all()
        assert rounds[()] == power


def test_loops_in_loops_and_beside_them():
    @qd.kernel(graph=True)
    def nested(x: I32, outer: COUNTER, inner: COUNTER, last: COUNTER):
        while qd.graph.do_while(outer):
            inner[()] = outer[()] + 1
            while qd.graph.do_while(inner):
                for i in x:
                    x[i] += 1
                inner[()] -= 1
            outer[()] -= 1
        while qd.graph.do_while(last):
            for i in x:
                x[i] += 1000
            last[()] -= 1

    for outer, last in ((1, 1), (2, 5), (5, 2), (9, 3)):
        x = array([0] * SIZE)
        nested(x, counter(outer), counter(0), counter(last))
        expected = sum(left + 1 for left in range(1, outer + 1)) + 1000 * last
        assert x.to_numpy().tolist() == [expected] * SIZE


def test_loops_in_concurrent_sections():
    @qd.kernel(graph=True)
    def both(x: I32, y: I32, a: COUNTER, b: COUNTER):
        with qd.graph.parallel_context(allow_nesting=True):
            with qd.graph.parallel():
                while qd.graph.do_while(a):
                    for i in x:
                        x[i] += 1
                    a[()] -= 1
            with qd.graph.parallel():
                while qd.graph.do_while(b):
                    for i in y:
                        y[i] += 1
                    b[()] -= 1

    for a, b in ((1, 9), (6, 2), (4, 4)):
        x, y = array([0] * SIZE), array([0] * SIZE)
        both(x, y, counter(a), counter(b))
        assert x.to_numpy().tolist() == [a] * SIZE
        assert y.to_numpy().tolist() == [b] * SIZE


def test_shared_memory_reductions_and_prints(capfd):
    @qd.kernel(graph=True)
    def sums(x: I32, total: COUNTER, left: COUNTER):
        while qd.graph.do_while(left):
            for i in x:
                total[()] += x[i]
            for _ in range(1):
                print("left", left[()])
            left[()] -= 1

    for rounds in (1, 3, 6):
        x, total = array(range(SIZE)), counter(0)
        sums(x, total, counter(rounds))
        qd.sync()
        assert total[()] == rounds * sum(range(SIZE))
        assert capfd.readouterr().out.split("\n")[:-1] == [f"left {k}" for k in range(rounds, 0, -1)]


def test_a_captured_graph():
    x, y, left = array([0] * SIZE), array([0] * SIZE), counter(5)
    with qd.graph.capture() as graph:
        count_at_the_end(x, y, left)
    for rounds in (5, 1, 2, 8):
        x.fill(0)
        y.fill(0)
        left.from_numpy(np.array(rounds, np.int32))
        graph.launch()
        assert x.to_numpy().tolist() == [rounds] * SIZE
        assert y.to_numpy().tolist() == [rounds * rounds] * SIZE


def test_arrays_that_change_between_launches_and_several_streams():
    streams = [qd.create_stream() for _ in range(3)]
    sets = [(array([0] * SIZE), array([0] * SIZE), counter(0)) for _ in range(4)]
    for launch in range(24):
        rounds = 1 + launch * 5 % 11
        (x, y, left), stream = sets[launch % 4], streams[launch % 3]
        qd.sync()
        x.fill(0)
        y.fill(0)
        left.from_numpy(np.array(rounds, np.int32))
        count_in_the_middle(x, y, left, qd_stream=stream)
        stream.synchronize()
        assert x.to_numpy().tolist() == [rounds] * SIZE
        assert y.to_numpy().tolist() == [rounds * rounds] * SIZE


def random_loop(seed: int) -> tuple[str, int]:
    """The text of a kernel with a loop of 1 to 9 tasks, and its number of arrays."""
    draw = random.Random(seed)
    arrays = draw.randint(1, 3)
    names = [f"x{n}" for n in range(arrays)]
    tasks = []
    for _ in range(draw.randint(1, 8)):
        to, source = draw.choice(names), draw.choice(names)
        if draw.random() < 0.2:
            tasks.append([f"{to}[{draw.randint(0, SIZE - 1)}] += {draw.randint(1, 9)}"])
        else:
            index = draw.choice(["i", f"{SIZE - 1} - i"]) if source != to else "i"
            extra = draw.choice(["", " + left[()]", f" * {draw.randint(2, 3)}"])
            tasks.append([f"for i in {to}:", f"    {to}[i] = ({to}[i] + {source}[{index}]{extra}) % 9973"])
    tasks.insert(draw.randint(0, len(tasks)), ["left[()] -= 1"])
    condition = draw.choice(["left", "left[()] > 0"])
    lines = [f"def loop({', '.join(f'{n}: I32' for n in names)}, left: COUNTER):"]
    lines += [f"    while qd.graph.do_while({condition}):"]
    lines += [f"        {line}" for task in tasks for line in task]
    return "\n".join(lines) + "\n", arrays


def defined(text: str, seed: int):
    """The function of a text, whose source Python finds."""
    name = f"<random loop {seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    names = {"qd": qd, "I32": I32, "COUNTER": COUNTER}
    exec(compile(text, name, "exec"), names)
    return names["loop"]


def in_plain_python(text: str, arrays: list[np.ndarray], rounds: int) -> list[np.ndarray]:
    """What the loop computes, iteration by iteration and element by element."""
    lines = [line[8:] for line in text.splitlines()[2:]]
    values = {f"x{n}": [int(v) for v in a] for n, a in enumerate(arrays)}
    left = {(): rounds}
    while True:
        at = 0
        while at < len(lines):
            head = lines[at]
            if head.startswith("for"):
                target = values[head.removeprefix("for i in ").rstrip(":")]
                code = compile(lines[at + 1].strip(), "<task>", "exec")
                for i in range(len(target)):
                    exec(code, {}, {**values, "left": left, "i": i})
                at += 2
            else:
                exec(head, {}, {**values, "left": left})
                at += 1
        if left[()] <= 0:
            return [np.array(v, np.int32) for v in values.values()]


@pytest.mark.parametrize("seed", range(12))
def test_random_loops(seed):
    text, arrays = random_loop(seed)
    loop = qd.kernel(graph=True)(defined(text, seed))
    draw = np.random.default_rng(seed)
    for rounds in (1, int(draw.integers(2, 5)), int(draw.integers(5, 12))):
        start = [draw.integers(0, 9973, SIZE).astype(np.int32) for _ in range(arrays)]
        given = [array(a.tolist()) for a in start]
        left = counter(rounds)
        loop(*given, left)
        expected = in_plain_python(text, start, rounds)
        assert left[()] == 0
        for a, b in zip(given, expected, strict=True):
            assert (a.to_numpy() == b).all(), text


def test_loops_that_need_each_decision_are_not_guarded():
    @qd.kernel(graph=True)
    def draw(x: qd.types.ndarray(qd.f32, ndim=1), left: COUNTER):
        while qd.graph.do_while(left):
            for i in x:
                x[i] += qd.random()
            left[()] -= 1

    x = qd.ndarray(qd.f32, 8)
    assert "guarded" not in graph_of(draw, x, counter(1))
