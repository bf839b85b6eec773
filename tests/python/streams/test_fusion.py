"""Fusion of repeated launches (`concurrency="auto+fuse"`): which launches are fused, and that results do not change."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd

N = 1000
SEEDS = int(os.environ.get("OCTANTS_TEST_SEEDS", "20"))
ROUNDS = 6

Floats = qd.types.ndarray(dtype=qd.f32, ndim=1)
Ints = qd.types.ndarray(dtype=qd.i32, ndim=1)
Matrix = qd.types.ndarray(dtype=qd.f32, ndim=2)
Vectors = qd.types.ndarray(dtype=qd.math.vec3, ndim=1)


@qd.kernel
def scale(x: Floats, y: Floats, k: qd.f32):
    for i in x:
        y[i] = x[i] * k + 1.0


@qd.kernel
def mix(x: Floats, y: Floats, z: Floats):
    for i in x:
        z[i] = x[i] - y[i] * 0.25


@qd.kernel
def accumulate(x: Floats, y: Floats):
    for i in x:
        y[i] += x[i]


@qd.kernel
def limit(x: Floats, most: qd.f32):
    for i in x:
        if x[i] > most:
            x[i] = most - x[i] * 0.5
        elif x[i] < -most:
            x[i] = -most


@qd.kernel
def powers(x: Floats, y: Floats):
    for i in x:
        p = x[i]
        for _ in range(3):
            p = p * x[i] * 0.125
        y[i] = qd.sqrt(qd.abs(p)) / (1.0 + qd.abs(x[i]))


@qd.kernel
def count(x: Floats, n: Ints, k: qd.i32):
    for i in x:
        n[i] = n[i] * k + qd.cast(x[i] * 8.0, qd.i32) % 17


@qd.kernel
def from_count(n: Ints, x: Floats):
    for i in n:
        x[i] = n[i] % 13 * 0.5


@qd.kernel
def smooth(x: Floats, y: Floats):
    for i in range(1, N - 1):
        y[i] = x[i - 1] * 0.25 + x[i + 1] * 0.25


@qd.kernel
def part(x: Floats, begin: qd.i32, end: qd.i32):
    for i in range(begin, end):
        x[i] = x[i] * 0.5


@qd.kernel
def two_loops(x: Floats, y: Floats):
    for i in x:
        y[i] = x[i] * 0.5
    for i in x:
        x[i] = y[i] + 2.0


@qd.kernel
def add_up(n: Ints, total: Ints):
    for i in n:
        total[1] += n[i] % 5


@qd.kernel
def find_top(x: Floats, top: Floats):
    for i in x:
        qd.atomic_max(top[2], x[i] * 0.5)


Launch = tuple[Any, tuple[Any, ...]]


def launches_of(pick: random.Random, floats: int, ints: int) -> list[Launch]:
    """A random sequence of kernels, with arguments that may be the same array: `("f", 1)` is one of floats."""
    launches: list[Launch] = []
    for _ in range(pick.randrange(2, 9)):
        x, y, z = (("f", pick.randrange(floats)) for _ in range(3))
        n, k = ("n", pick.randrange(ints)), pick.choice([0.5, -0.75, 0.25])
        # A stencil in place would race.
        other = ("f", pick.choice([array for array in range(floats) if array != x[1]]))
        kinds: list[Launch] = [
            (scale, (x, y, k)),
            (scale, (x, y, k)),
            (mix, (x, y, z)),
            (mix, (x, y, z)),
            (accumulate, (x, y)),
            (limit, (x, 3.0)),
            (powers, (x, y)),
            (count, (x, n, pick.choice([2, 3]))),
            (from_count, (n, x)),
            (smooth, (x, other)),
            (part, (x, *sorted(pick.sample([0, 10, N], 2)))),
            (two_loops, (x, y)),
            (add_up, (n, ("n", ints - 1 - n[1]))),
            (find_top, (x, other)),
        ]
        launches.append(pick.choice(kinds))
    return launches


def run(
    seed: int, deviates: bool, temporaries: int = 0, **options: Any
) -> tuple[list[bytes], qd.ConcurrencyReport | None]:
    """The contents of the arrays after a random program, and its report. Each round allocates temporary arrays."""
    qd.init(arch=qd.cpu, cpu_streams=True, **options)
    pick = random.Random(seed)
    floats, ints = [qd.ndarray(qd.f32, shape=N) for _ in range(4)], [qd.ndarray(qd.i32, shape=N) for _ in range(2)]
    values = np.random.default_rng(seed)
    for array in floats:
        array.from_numpy(values.normal(size=N).astype(np.float32))
    for array in ints:
        array.from_numpy(values.integers(-9, 9, size=N).astype(np.int32))
    launches = launches_of(pick, 4 + temporaries, 2)
    seen, kept = [], []

    def make_round() -> None:
        all_floats = floats + [qd.ndarray(qd.f32, shape=N) for _ in range(temporaries)]
        for kernel, arguments in launches:
            arrays = {"f": all_floats, "n": ints}
            kernel(*(arrays[a[0]][a[1]] if isinstance(a, tuple) else a for a in arguments))
            if deviates and pick.random() < 0.05:
                seen.append(np.float32(pick.choice(all_floats)[pick.randrange(N)]).tobytes())
            if deviates and pick.random() < 0.03:
                scale(floats[1], floats[2], 0.5)
        if deviates and pick.random() < 0.2:
            kept.extend(all_floats[4:])

    for _ in range(ROUNDS + 2):
        make_round()
        if seed % 2:
            qd.sync()
    report = qd.concurrency_report() if options.get("concurrency") else None
    return seen + [array.to_numpy().tobytes() for array in [*floats, *ints, *kept]], report


def fused(report: qd.ConcurrencyReport | None) -> list[tuple[str, ...]]:
    assert report is not None
    return [of.kernels for of in report.fusions if not of.refusal]


@pytest.mark.parametrize("fast_math", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_programs_give_the_same_bits(seed: int, fast_math: bool) -> None:
    deviates = seed % 3 == 0
    wanted, _ = run(seed, deviates, fast_math=fast_math)
    found, _ = run(seed, deviates, fast_math=fast_math, concurrency="auto+fuse")
    assert found == wanted


@pytest.mark.parametrize("fast_math", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_programs_with_temporaries_give_the_same_bits(seed: int, fast_math: bool) -> None:
    deviates = seed % 3 == 0
    wanted, _ = run(seed, deviates, 3, fast_math=fast_math)
    found, _ = run(seed, deviates, 3, fast_math=fast_math, concurrency="auto+fuse")
    assert found == wanted


def test_temporaries_of_random_programs_are_removed() -> None:
    reports = [run(seed, False, 3, fast_math=False, concurrency="auto+fuse")[1] for seed in range(40)]
    assert sum(any(of.removed for of in report.fusions) for report in reports if report) >= 2


def test_random_programs_are_fused() -> None:
    numbers = [len(fused(run(seed, False, fast_math=False, concurrency="auto+fuse")[1])) for seed in range(8)]
    assert sum(number > 0 for number in numbers) >= 6


def arrays(count: int, dtype: Any = qd.f32, shape: Any = N) -> list[Any]:
    return [qd.ndarray(dtype, shape=shape) for _ in range(count)]


def repeat(*launches: Callable[[], Any], rounds: int = ROUNDS) -> qd.ConcurrencyReport:
    qd.sync()
    qd.concurrency_report()
    for _ in range(rounds):
        for launch in launches:
            launch()
        qd.sync()
    return qd.concurrency_report()


def start(**options: Any) -> None:
    qd.init(arch=qd.cpu, cpu_streams=True, concurrency="auto+fuse", **options)


def refusals(report: qd.ConcurrencyReport) -> str:
    assert fused(report) == []
    return "; ".join(of.refusal for of in report.fusions)


def test_a_chain_of_launches_becomes_one_loop() -> None:
    start()
    x, y, z = arrays(3)
    x.fill(1.0)
    report = repeat(
        lambda: scale(x, y, 0.5), lambda: accumulate(y, z), lambda: limit(z, 3.0), lambda: mix(y, z, x), rounds=8
    )
    assert fused(report) == [("scale", "accumulate", "limit", "mix")]
    assert report.replays == 5
    assert "fused: scale, accumulate, limit, mix" in str(report)
    [launch] = [launch for launch in report.launches if launch.replay is not None]
    assert launch.kernel == "scale+accumulate+limit+mix"


def test_launches_before_and_after_other_ones_are_fused() -> None:
    """The launch in between conflicts with neither."""
    start()
    x, y, a, b = arrays(4)
    report = repeat(lambda: scale(x, y, 0.5), lambda: smooth(a, b), lambda: accumulate(y, x))
    assert fused(report) == [("scale", "accumulate")]
    # Here it does.
    report = repeat(lambda: scale(x, y, 0.5), lambda: smooth(y, b), lambda: accumulate(b, x))
    assert fused(report) == []


def test_loops_of_one_kernel_are_fused() -> None:
    start()
    x, y, z = arrays(3)
    x.fill(8.0)
    assert fused(repeat(lambda: two_loops(x, y))) == [("two_loops",)]
    # Each round takes half of the distance to 4.
    assert x[5] == 4.0 + 4.0 * 0.5**ROUNDS
    assert fused(repeat(lambda: two_loops(x, y), lambda: scale(y, z, 0.5))) == [("two_loops", "scale")]


def test_fields_and_vectors_are_fused() -> None:
    start(fast_math=False)
    f, g = qd.field(qd.f32, shape=(20, 30)), qd.field(qd.f32, shape=(20, 30))
    v, w = qd.Vector.field(3, qd.f32, shape=(20, 30)), qd.ndarray(qd.math.vec3, shape=600)
    m = qd.ndarray(qd.f32, shape=(20, 30))

    @qd.kernel
    def set_all():
        for i, j in f:
            f[i, j] = i + j * 0.5
            v[i, j] = qd.Vector([f[i, j], 1.0, 2.0])

    @qd.kernel
    def use(a: Matrix):
        for i, j in a:
            g[i, j] = f[i, j] + v[i, j].y
            v[i, j].z += g[i, j]
            a[i, j] = v[i, j].norm()

    @qd.kernel
    def move(b: Vectors):
        for i in b:
            b[i] += qd.Vector([1.0, 2.0, 3.0])

    @qd.kernel
    def turn(b: Vectors):
        for i in range(600):
            b[i] = qd.Vector([b[i].y, b[i].x, -b[i].z])

    report = repeat(set_all, lambda: use(m))
    assert fused(report) == [("set_all", "use")]
    i, j = np.indices((20, 30))
    values = (i + j * 0.5).astype(np.float32)
    np.testing.assert_array_equal(g.to_numpy(), values + 1)
    np.testing.assert_allclose(m.to_numpy(), np.sqrt(values**2 + 1 + (values + 3) ** 2), rtol=1e-6)
    assert fused(repeat(lambda: move(w), lambda: turn(w))) == [("move", "turn")]


def with_temporary(x: Any, y: Any, kept: list[Any] | None = None) -> None:
    t = qd.ndarray(qd.f32, shape=N)
    scale(x, t, 0.5)
    mix(t, x, y)
    if kept is not None:
        kept.append(t)


@pytest.mark.parametrize("waits", [False, True])
def test_temporaries_are_not_stored(waits: bool) -> None:
    start()
    x, y = arrays(2)
    x.fill(8.0)
    qd.sync()
    qd.concurrency_report()
    for _ in range(8):
        with_temporary(x, y)
        if waits:
            qd.sync()
    qd.sync()
    report = qd.concurrency_report()
    assert fused(report) == [("scale", "mix")]
    # The name in the first kernel.
    assert report.fusions[0].removed == ("y",)
    assert report.replays == 5
    assert "fused: scale, mix; not stored: y" in str(report)
    assert (y.to_numpy() == 5.0 - 2.0).all()


def test_temporaries_that_are_kept_are_stored() -> None:
    start()
    x, y = arrays(2)
    x.fill(8.0)
    kept: list[Any] = []
    for n in range(12):
        with_temporary(x, y, kept if n in (5, 9) else None)
    assert qd.concurrency_report().replays > 0
    assert [t[N - 1] for t in kept] == [5.0, 5.0]
    assert (y.to_numpy() == 3.0).all()


def test_temporaries_that_other_launches_read_are_stored() -> None:
    start(fast_math=False)
    x, y, z = arrays(3)
    x.fill(8.0)

    def step() -> None:
        t = qd.ndarray(qd.f32, shape=N)
        scale(x, t, 0.5)
        mix(t, x, y)
        smooth(t, z)

    for _ in range(8):
        step()
    report = qd.concurrency_report()
    assert report.replays == 0
    assert "needed outside of one fused loop" in report.fusions[-1].refusal
    assert (z[5], y[5]) == (2.5, 3.0)


def test_a_temporary_that_is_read_first_holds_zeros() -> None:
    start()
    x = qd.ndarray(qd.f32, shape=N)
    x.fill(8.0)

    def step() -> None:
        t = qd.ndarray(qd.f32, shape=N)
        accumulate(x, t)
        scale(t, x, 0.5)

    for _ in range(8):
        step()
    # Each round takes half of the distance to 2.
    assert x[0] == 2.0 + 6.0 * 0.5**8


def test_loops_over_other_iterations_are_not_fused() -> None:
    start()
    x, y = arrays(2)
    short = qd.ndarray(qd.f32, shape=N - 1)
    report = repeat(lambda: scale(x, y, 0.5), lambda: limit(short, 2.0))
    assert "different iterations" in refusals(report)
    report = repeat(lambda: part(x, 0, 10), lambda: part(x, 0, 11))
    assert "different iterations" in refusals(report)
    assert fused(repeat(lambda: part(x, 0, N), lambda: scale(x, y, 0.5))) == [("part", "scale")]


def test_loops_that_read_neighbors_are_not_fused() -> None:
    start(fast_math=False)
    x, y, z = arrays(3)

    @qd.kernel
    def double(x: Floats):
        for i in range(1, N - 1):
            x[i] = x[i] * 2.0

    assert "not only at the element" in refusals(repeat(lambda: double(x), lambda: smooth(x, y)))
    assert "not only at the element" in refusals(repeat(lambda: smooth(x, y), lambda: double(x)))
    # Both only read the array with neighbors.
    assert fused(repeat(lambda: smooth(x, y), lambda: smooth(x, z))) == [("smooth", "smooth")]


def test_other_parts_of_an_array_are_not_fused() -> None:
    start()
    whole = qd.ndarray(qd.f32, shape=2 * N)
    whole.from_numpy(np.arange(2 * N, dtype=np.float32))
    first, later = whole[0:N], whole[5 : N + 5]
    report = repeat(lambda: scale(first, first, 0.5), lambda: limit(later, 2.0))
    assert "different parts of the same memory" in refusals(report)


Total = qd.types.ndarray(dtype=qd.i32, ndim=0)


def test_folds_whose_order_does_not_matter_are_fused() -> None:
    start()
    n, m = arrays(2, qd.i32)
    x, y = arrays(2)
    total, least = qd.ndarray(qd.i32, shape=()), qd.field(qd.f32, shape=())
    n.from_numpy(np.arange(N, dtype=np.int32))
    x.from_numpy(np.linspace(3.0, -2.0, N, dtype=np.float32))

    @qd.kernel
    def double(n: Ints, m: Ints):
        for i in n:
            m[i] = n[i] * 2

    @qd.kernel
    def count_into(m: Ints, total: Total):
        for i in m:
            total[None] += m[i]

    @qd.kernel
    def find_minimum(y: Floats):
        for i in y:
            qd.atomic_min(least[None], y[i])

    @qd.kernel
    def use(m: Ints, total: Total):
        for i in m:
            m[i] = m[i] % 7 + total[None]

    report = repeat(lambda: double(n, m), lambda: count_into(m, total))
    assert fused(report) == [("double", "count_into")]
    assert total[None] == ROUNDS * N * (N - 1)
    least[None] = 10.0
    report = repeat(lambda: scale(x, y, 0.5), lambda: find_minimum(y))
    assert fused(report) == [("scale", "find_minimum")]
    report = repeat(lambda: find_minimum(y), lambda: double(n, m), lambda: count_into(m, total))
    assert fused(report) == [("find_minimum", "double", "count_into")]
    assert (total[None], least[None]) == (2 * ROUNDS * N * (N - 1), 0.0)
    # Later loops that use the result are separate.
    report = repeat(lambda: double(n, m), lambda: count_into(m, total), lambda: use(m, total))
    assert fused(report) == [("double", "count_into")]


def test_effects_besides_memory_are_not_fused() -> None:
    start()
    x, y, z = arrays(3)
    n = qd.ndarray(qd.i32, shape=N)

    @qd.kernel
    def draw(x: Floats):
        for i in x:
            x[i] = qd.random()

    @qd.kernel
    def order(x: Floats, n: Ints):
        for i in x:
            x[i] = qd.atomic_add(n[0], 1) * 0.5

    @qd.kernel
    def total(x: Floats, y: Floats):
        for i in x:
            y[0] += x[i]

    @qd.kernel
    def scatter(n: Ints, y: Floats):
        for i in n:
            y[n[i] % 8] += 0.5

    @qd.kernel
    def serial(x: Floats):
        x[0] = 3.0
        for i in x:
            x[i] = x[i] * 0.5

    @qd.kernel
    def slow(x: Floats):
        qd.loop_config(block_dim=64)
        for i in x:
            x[i] = x[i] * 0.5

    @qd.kernel
    def skip(x: Floats):
        for i in x:
            if x[i] < 1.0:
                continue
            x[i] = x[i] * 0.5

    # Random numbers keep a launch on the default stream.
    assert repeat(lambda: draw(x), lambda: scale(x, y, 0.5)).fusions == ()
    assert "old value of an atomic" in refusals(repeat(lambda: order(x, n), lambda: scale(x, y, 0.5)))
    assert refusals(repeat(lambda: total(x, y), lambda: scale(x, y, 0.5))) != ""
    report = repeat(lambda: scale(x, z, 0.5), lambda: scatter(n, y))
    assert "several iterations may add to a float of `y`" in refusals(report)
    assert "outside of parallel loops" in refusals(repeat(lambda: serial(x), lambda: scale(x, y, 0.5)))
    assert "different options" in refusals(repeat(lambda: slow(x), lambda: scale(x, y, 0.5)))
    report = repeat(lambda: skip(x), lambda: scale(x, y, 0.5))
    assert "continue" in refusals(report) or fused(report)


def test_fast_math_refuses_roundings_that_depend_on_other_code() -> None:
    start()
    x, y = arrays(2)

    @qd.kernel
    def three(x: Floats, y: Floats):
        for i in x:
            y[i] = x[i] + y[i] + 0.5 * x[i]

    assert "multiplies several floats" in refusals(repeat(lambda: scale(x, y, 0.5), lambda: powers(y, x)))
    assert "adds several floats" in refusals(repeat(lambda: scale(x, y, 0.5), lambda: three(x, y)))
    assert "two loops add" in refusals(repeat(lambda: accumulate(x, y), lambda: accumulate(x, y)))
    start(fast_math=False)
    x, y = arrays(2)
    assert fused(repeat(lambda: scale(x, y, 0.5), lambda: powers(y, x))) == [("scale", "powers")]
    assert fused(repeat(lambda: scale(x, y, 0.5), lambda: three(x, y))) == [("scale", "three")]
    assert fused(repeat(lambda: accumulate(x, y), lambda: accumulate(x, y))) == [("accumulate", "accumulate")]


@pytest.mark.on_cpu
def test_fast_math_refuses_divisions_of_vectors() -> None:
    start()
    x, y = arrays(2)

    @qd.kernel
    def divide(x: Floats, y: Floats):
        for i in x:
            y[i] = 1.0 / x[i]

    assert "divides floats" in refusals(repeat(lambda: scale(x, y, 0.5), lambda: divide(y, x)))


def test_a_block_enables_fusion() -> None:
    qd.init(arch=qd.cpu, cpu_streams=True)
    x, y = arrays(2)
    for _ in range(ROUNDS):
        with qd.concurrent():
            scale(x, y, 0.5)
            limit(y, 3.0)
    assert qd.concurrency_report().fusions == ()

    @qd.kernel
    def half(x: Floats):
        for i in x:
            x[i] = x[i] * 0.5

    for _ in range(ROUNDS):
        with qd.concurrent(fuse=True):
            half(x)
            half(y)
    assert fused(qd.concurrency_report()) == [("half", "half")]
    # These were compiled without.
    for _ in range(ROUNDS):
        with qd.concurrent(fuse=True):
            scale(x, y, 0.5)
            limit(y, 3.0)
    assert "before fusion was enabled" in refusals(qd.concurrency_report())
