"""Launches on the default stream that run concurrently if their accesses do not conflict."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import octants as qd

N = 64
SEEDS = 12
Array = qd.types.ndarray(dtype=qd.i64, ndim=1)


@qd.kernel
def scale(x: Array, y: Array, k: qd.i64):
    for i in x:
        y[i] = x[i] * k + y[i] % 7


@qd.kernel
def shift(x: Array, y: Array, begin: qd.i32, end: qd.i32):
    for i in range(begin, end):
        y[i] = x[i] + i


@qd.kernel
def gather(x: Array, y: Array, z: Array):
    for i in x:
        z[i] = x[(i * 7) % N] - y[N - 1 - i] % 13


@qd.kernel
def total(x: Array) -> qd.i64:
    s = qd.i64(0)
    for i in x:
        s += x[i] % 1000
    return s


@qd.kernel
def chain(x: Array, y: Array, z: Array):
    """Loops, some of which are independent."""
    for i in x:
        y[i] = x[i] + 1
    for i in x:
        z[i] = x[i] * 3 % 1009
    for i in x:
        x[i] = y[i] - z[i]
    for i in x:
        y[i] = y[i] * 2 % 1013
    for i in x:
        z[i] += x[i] + y[i]


class Model:
    """The arrays of a program and their expected contents."""

    def __init__(self, count: int) -> None:
        self.arrays = [qd.ndarray(qd.i64, shape=N) for _ in range(count)]
        self.wanted = [np.arange(N, dtype=np.int64) * (k + 1) for k in range(count)]
        for array, wanted in zip(self.arrays, self.wanted, strict=True):
            array.from_numpy(wanted)

    def act(self, pick: random.Random) -> None:
        """Makes one random launch, or something else that the default stream or the host does."""
        a, b, c = pick.sample(range(len(self.arrays)), 3)
        (x, y, z), w, i = (self.arrays[a], self.arrays[b], self.arrays[c]), self.wanted, np.arange(N)
        action = pick.choice(["scale", "scale", "shift", "shift", "gather", "chain", "total", "fill", "read", "write"])
        if action == "scale":
            scale(x, y, a + 2)
            w[b] = w[a] * (a + 2) + w[b] % 7
        elif action == "shift":
            begin = pick.randrange(N)
            end = pick.randrange(begin, N + 1)
            shift(x, y, begin, end)
            w[b][begin:end] = w[a][begin:end] + i[begin:end]
        elif action == "gather":
            gather(x, y, z)
            w[c] = w[a][i * 7 % N] - w[b][N - 1 - i] % 13
        elif action == "chain":
            chain(x, y, z)
            first, second = w[a] + 1, w[a] * 3 % 1009
            w[a], w[b] = first - second, first * 2 % 1013
            w[c] = second + w[a] + w[b]
        elif action == "total":
            assert total(x) == (w[a] % 1000).sum()
        elif action == "fill":
            x.fill(b)
            w[a] = np.full(N, b, dtype=np.int64)
        elif action == "read":
            assert x[3] == w[a][3]
        else:
            x[5] = 17
            w[a][5] = 17
        # Numbers stay small, on the device as well.
        for index in (a, b, c):
            wrap(self.arrays[index])
            w[index] %= 1 << 20

    def check(self) -> None:
        for array, wanted in zip(self.arrays, self.wanted, strict=True):
            np.testing.assert_array_equal(array.to_numpy(), wanted)


@qd.kernel
def wrap(x: Array):
    for i in x:
        x[i] = x[i] % (1 << 20)


def run(seed: int, steps: int = 60) -> None:
    pick = random.Random(seed)
    model = Model(5)
    for _ in range(steps):
        model.act(pick)
    model.check()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_programs_give_the_results_of_the_default_stream(seed: int) -> None:
    qd.init(arch=qd.cpu, cpu_streams=True, cpu_stream_schedule=f"seed:{seed}", concurrency="auto")
    run(seed)
    report = qd.concurrency_report()
    assert report.lanes > 1


@pytest.mark.parametrize("seed", range(SEEDS))
def test_repeated_launch_sequences_give_the_results_of_the_default_stream(seed: int) -> None:
    qd.init(arch=qd.cpu, cpu_streams=True, cpu_stream_schedule=f"seed:{seed}", concurrency="auto")
    pick = random.Random(seed)
    model = Model(5)
    for _ in range(4):
        # The same actions repeatedly, now and then with another one between.
        of_round, rounds = pick.randrange(1 << 30), pick.randrange(3, 9)
        for _ in range(rounds):
            again = random.Random(of_round)
            for _ in range(6):
                model.act(again)
                if pick.random() < 0.02:
                    model.act(pick)
            if pick.random() < 0.1:
                model.check()
    model.check()


def test_repeated_launch_sequences_become_graphs() -> None:
    qd.init(arch=qd.cpu, cpu_streams=True, concurrency="auto")
    x, y, z = (qd.ndarray(qd.i64, shape=N) for _ in range(3))
    for _ in range(10):
        scale(x, y, 2)
        shift(x, z, 0, N)
        gather(y, z, x)
    assert qd.concurrency_report().replays == 7
    for _ in range(5):
        x.fill(3)
        scale(x, y, 2)
        shift(x, z, 0, N)
        gather(y, z, x)
        assert z[1] == 4
    assert qd.concurrency_report().replays == 12


def test_a_synchronous_device_infers_no_concurrency() -> None:
    qd.init(arch=qd.cpu, concurrency="auto")
    run(0)
    # A stream without a handle is not a real one. Other devices than the CPU have real streams.
    assert bool(qd.concurrency_report().launches) == bool(qd.create_stream().handle)


def independent(launch: Callable[[Any, Any, int], None]) -> qd.ConcurrencyReport:
    arrays = [qd.ndarray(qd.i64, shape=N) for _ in range(6)]
    qd.concurrency_report()
    for k in range(3):
        launch(arrays[2 * k], arrays[2 * k + 1], k)
    gather(arrays[1], arrays[3], arrays[5])
    return qd.concurrency_report()


def test_a_report_lists_concurrent_launches_and_conflicts() -> None:
    qd.init(arch=qd.cpu, cpu_streams=True)
    with qd.concurrent():
        report = independent(scale)
    assert [launch.kernel for launch in report.launches] == ["scale", "scale", "scale", "gather"]
    first = report.launches[0].number
    assert [launch.depends_on for launch in report.launches[:3]] == [(), (), ()]
    assert report.launches[3].depends_on == ((first + 2, "z"), (first + 1, "y"), (first, "x"))
    assert (report.lanes, report.depth) == (3, 2)
    assert "gather, after" in str(report)
    assert len({launch.lane for launch in report.launches[:3]}) == 3
    # Outside of the block, launches are in order, without a query.
    assert independent(scale).launches == ()


def test_disjoint_ranges_of_one_array_run_concurrently() -> None:
    qd.init(arch=qd.cpu, cpu_streams=True, concurrency="auto")
    x, y = (qd.ndarray(qd.i64, shape=N) for _ in range(2))
    qd.concurrency_report()
    shift(x, y, 0, 10)
    shift(x, y, 10, 20)
    shift(x, y, 5, 15)
    report = qd.concurrency_report()
    assert [len(launch.depends_on) for launch in report.launches] == [0, 0, 2]


def line_of(text: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_a_report_names_the_lines_of_code_from_the_cache(tmp_path: Path) -> None:
    """The first program compiles, the second finds the code."""
    for _ in range(2):
        qd.init(arch=qd.cpu, cpu_streams=True, concurrency="auto", offline_cache_file_path=str(tmp_path))
        x, y = (qd.ndarray(qd.i64, shape=N) for _ in range(2))
        qd.sync()
        qd.concurrency_report()
        shift(x, y, 0, 10)
        gather(y, y, x)
        at, there = line_of("z[i] = x[(i * 7) % N]"), line_of("y[i] = x[i] + i")
        reason = f"reads x[0:{N}] ({__file__}:{at}); shift writes y[0:10] ({__file__}:{there})"
        assert qd.concurrency_report().launches[1].reasons == (reason,)


def test_a_report_shows_the_first_graph_of_a_repeated_sequence() -> None:
    qd.init(arch=qd.cpu, cpu_streams=True, concurrency="auto")
    x, y, z = (qd.ndarray(qd.i64, shape=N) for _ in range(3))
    for _ in range(6):
        scale(x, y, 2)
        shift(x, z, 0, N)
        gather(y, z, x)
    report = qd.concurrency_report()
    assert report.replays == 3
    graph = [launch for launch in report.launches if launch.replay is not None]
    assert [(launch.kernel, launch.replay) for launch in graph] == [("scale", 1), ("shift", 1), ("gather", 1)]
    first = graph[0].number
    assert [launch.depends_on for launch in graph] == [(), (), ((first + 1, "y"), (first, "x"))]
    assert "reads x[" in graph[2].reasons[1]
    assert "shift writes y" in graph[2].reasons[0]
    assert f"{first:>8}" in str(report)
    assert "gather (graph 1)" in str(report)
    # The graph is after all launches before it.
    assert report.depth == 3 * 2 + 2
    assert "order of the default stream" in report.plot()
    assert qd.concurrency_report().launches == ()


def test_a_report_gives_reasons_and_draws_them(tmp_path: Path) -> None:
    qd.init(arch=qd.cpu, cpu_streams=True, concurrency="auto")
    x, y, z = (qd.ndarray(qd.i64, shape=N) for _ in range(3))
    qd.sync()
    qd.concurrency_report()
    shift(x, y, 0, 10)
    shift(x, y, 10, 20)
    shift(y, z, 5, 8)
    total(z)
    shift(x, z, 30, 40)
    report = qd.concurrency_report()
    at = f"{__file__}:{line_of('y[i] = x[i] + i')}"
    reason = f"reads x[5:8] ({at}); shift writes y[0:10] ({at})"
    assert [launch.reasons for launch in report.launches[:3]] == [(), (), (reason,)]
    assert reason in str(report)
    path = tmp_path / "drawings" / "report.svg"
    text = report.plot(path)
    assert path.read_text(encoding="utf-8") == text
    svg = "{http://www.w3.org/2000/svg}"
    root = ElementTree.fromstring(text)
    texts = [element.text or "" for element in root.iter(f"{svg}text")]
    assert texts.count("shift") == 4
    assert {"default stream", "lane 0", "lane 1"} <= set(texts)
    assert texts[-1] == "critical path: 4 of 5 steps"
    edges = [line.find(f"{svg}title").text for line in root.iter(f"{svg}line")]  # type: ignore[union-attr]
    assert f"shift waits for shift: {reason}" in edges
    # `total` is after all launches before it, and before the last one.
    assert sum("order of the default stream" in str(edge) for edge in edges) == 3
    with pytest.raises(ValueError, match=r"only be drawn as \.svg, not as 'report.png'"):
        report.plot(tmp_path / "report.png")


def conflicts(*launches: Callable[[], Any]) -> list[list[int]]:
    """For each launch the earlier ones that it conflicts with, by their positions."""
    qd.sync()
    qd.concurrency_report()
    for launch in launches:
        launch()
    made = qd.concurrency_report().launches
    first = made[0].number
    return [[n - first for n, _ in reversed(launch.depends_on) if n >= first] for launch in made]


def test_members_and_components_run_concurrently() -> None:
    qd.init(arch=qd.cpu, cpu_streams=True, concurrency="auto")
    particles = qd.types.struct(mass=qd.f32, speed=qd.types.vector(3, qd.f32), age=qd.f32).field(shape=N)
    array = qd.Vector.ndarray(3, qd.f32, shape=N)
    Vectors = qd.types.ndarray(dtype=qd.types.vector(3, qd.f32), ndim=1)

    @qd.kernel
    def grow() -> None:
        for i in particles:
            particles[i].mass += 1.0

    @qd.kernel
    def turn(axis: qd.template()) -> None:
        for i in particles:
            particles[i].speed[axis] = 2.0 * i + axis

    @qd.kernel
    def weigh() -> None:
        for i in particles:
            particles[i].age = particles[i].mass

    @qd.kernel
    def fill(x: Vectors, axis: qd.template()) -> None:
        for i in x:
            x[i][axis] = i - axis

    @qd.kernel
    def fill_by_number(x: Vectors, axis: qd.i32) -> None:
        for i in x:
            x[i][axis] += 0.5

    # `weigh` reads what `grow` writes.
    launches = [grow, lambda: turn(0), lambda: turn(1), weigh, grow, lambda: turn(1)]
    assert conflicts(*launches) == [[], [], [], [0], [3], [2]]
    assert particles.mass.to_numpy().tolist() == [2.0] * N
    assert particles.age.to_numpy().tolist() == [1.0] * N
    assert particles.speed.to_numpy()[7].tolist() == [14.0, 15.0, 0.0]
    launches = [
        lambda: fill(array, 0),
        lambda: fill(array, 2),
        lambda: fill_by_number(array, 1),
        lambda: fill(array, 1),
    ]
    assert conflicts(*launches) == [[], [], [0, 1], [2]]
    assert array.to_numpy()[5].tolist() == [5.0, 4.0, 3.0]


@qd.kernel
def of_color(x: qd.types.ndarray(dtype=qd.i64, ndim=2), color: qd.i32, k: qd.i64):
    for i, j in x:
        if (i + j) % 2 == color:
            x[i, j] = (x[i, j] * k + i) % 1009


@qd.kernel
def of_other_color(x: qd.types.ndarray(dtype=qd.i64, ndim=2), color: qd.i32, k: qd.i64):
    for i, j in x:
        if (i - j) & 1 == color:
            continue
        x[i, j] = (x[i, j] * k + j) % 1009


@qd.kernel
def every_second(x: qd.types.ndarray(dtype=qd.i64, ndim=2), color: qd.i32, k: qd.i64):
    for i, j in qd.ndrange(x.shape[0], x.shape[1] // 2):
        x[i, 2 * j + (i + color) % 2] += k


@qd.kernel
def of_block(x: qd.types.ndarray(dtype=qd.i64, ndim=2), rows: qd.i32, columns: qd.i32, k: qd.i64):
    for i, j in x:
        if i % 2 == rows and j % 4 == columns:
            x[i, j] -= k


def test_colors_of_a_stencil_run_concurrently() -> None:
    qd.init(arch=qd.cpu, cpu_streams=True, concurrency="auto")
    x = qd.ndarray(qd.i64, shape=(8, 8))
    assert conflicts(*[lambda c=c: of_color(x, c, 3) for c in (0, 1, 2, 3)]) == [[], [], [0], [1]]
    launches = [lambda: of_color(x, 0, 3), lambda: every_second(x, 1, 5), lambda: every_second(x, 0, 5)]
    assert conflicts(*launches) == [[], [], [0]]
    assert conflicts(*[lambda n=n: of_block(x, n // 4, n % 4, 1) for n in range(8)]) == [[]] * 8
    assert conflicts(lambda: of_other_color(x, 1, 3), lambda: of_color(x, 0, 3)) == [[], [0]]
    # If the color is not 0 or 1, no element is skipped.
    assert conflicts(lambda: of_other_color(x, 7, 3), lambda: of_color(x, 1, 3)) == [[], [0]]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_colors_and_components_give_the_results_of_the_default_stream(seed: int) -> None:
    qd.init(arch=qd.cpu, cpu_streams=True, cpu_stream_schedule=f"seed:{seed}", concurrency="auto")
    pick = random.Random(seed)
    x = qd.ndarray(qd.i64, shape=(8, 8))
    wanted = np.zeros((8, 8), np.int64)
    i, j = np.indices((8, 8))
    for _ in range(3):
        of_round, rounds = pick.randrange(1 << 30), pick.randrange(1, 7)
        for _ in range(rounds):
            again = random.Random(of_round)
            for _ in range(8):
                action, color, k = again.randrange(4), again.randrange(-1, 4), again.randrange(2, 9)
                if action == 0:
                    of_color(x, color, k)
                    chosen, then = (i + j) % 2 == color, (wanted * k + i) % 1009
                elif action == 1:
                    of_other_color(x, color, k)
                    chosen, then = (i - j) & 1 != color, (wanted * k + j) % 1009
                elif action == 2:
                    every_second(x, color, k)
                    chosen, then = (i + j) % 2 == color % 2, wanted + k
                else:
                    of_block(x, color % 2, color, k)
                    chosen, then = (i % 2 == color % 2) & (j % 4 == color), wanted - k
                wanted = np.where(chosen, then, wanted)
    np.testing.assert_array_equal(x.to_numpy(), wanted)


def test_a_kernel_excluded_from_concurrency_stays_in_order() -> None:
    qd.init(arch=qd.cpu, cpu_streams=True, concurrency="auto")

    @qd.kernel(concurrent=False)
    def ordered(x: Array, y: Array, k: qd.i64):
        for i in x:
            y[i] = x[i] * k

    report = independent(ordered)
    assert [launch.kernel for launch in report.launches] == ["gather"]


def test_kernels_that_return_a_value_stay_on_the_default_stream() -> None:
    qd.init(arch=qd.cpu, cpu_streams=True, concurrency="auto")
    x, y = (qd.ndarray(qd.i64, shape=N) for _ in range(2))
    x.fill(2)
    scale(x, y, 3)
    qd.concurrency_report()
    assert total(y) == 6 * N
    assert [launch.lane for launch in qd.concurrency_report().launches] == [None]


def test_events_and_other_streams_are_ordered_with_concurrent_launches() -> None:
    qd.init(arch=qd.cpu, cpu_streams=True, concurrency="auto")
    x, y = (qd.ndarray(qd.i64, shape=N) for _ in range(2))
    other = qd.create_stream()
    y_before = np.zeros(N, dtype=np.int64)
    for round_ in range(20):
        x.fill(round_)
        scale(x, y, 1)
        event = qd.create_event()
        event.record(qd.default_stream())
        event.wait(other)
        scale(y, x, 2, qd_stream=other)
        qd.default_stream().wait(other)
        wanted = np.full(N, round_, dtype=np.int64)
        before = wanted + y_before % 7
        shift(x, y, 0, 0)
        np.testing.assert_array_equal(y.to_numpy(), before)
        np.testing.assert_array_equal(x.to_numpy(), before * 2 + wanted % 7)
        y_before = before


def test_unknown_choices_are_refused() -> None:
    with pytest.raises(ValueError, match="`fast` is not one of off, auto"):
        qd.init(arch=qd.cpu, concurrency="fast")


def test_a_program_is_needed() -> None:
    qd.reset()
    with pytest.raises(RuntimeError), qd.concurrent():
        pass
