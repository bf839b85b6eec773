"""Instrumented launches: on streams, in captured graphs, in debug mode, and after a failed launch."""

import data_dependent
import numpy as np
import pytest
from data_dependent import N, array, doubled, ints, shuffled

import octants as qd

MODES = {
    "in order": {},
    "streams": {"cpu_streams": True},
    "schedule": {"cpu_stream_schedule": "seed:7"},
    "separate memory": {"cpu_separate_memory": True},
    "inferred": {"cpu_streams": True, "concurrency": "auto"},
    "debug": {"debug": True},
}


@pytest.fixture(params=MODES.values(), ids=MODES.keys())
def scatter(request):
    """A kernel that scatters, in each mode."""
    qd.init(arch=qd.cpu, check_races="full", **request.param)

    @qd.kernel
    def scatter(x: ints, at: ints):
        for i in range(at.shape[0]):
            x[at[i]] = i

    return scatter


def run(kernel, *args, **named):
    """Launches a kernel or graph and waits for it."""
    kernel(*args, **named)
    qd.sync()


def test_a_launch_after_a_failed_one_has_no_race(scatter):
    x, safe, unsafe = array(np.zeros(N)), array(shuffled()), array(doubled())
    for _ in range(3):
        with pytest.raises(qd.RaceError, match="race on `x` at index"):
            run(scatter, x, unsafe)
        for _ in range(3):
            run(scatter, x, safe)
    assert sorted(x.to_numpy()) == list(range(N))


def test_the_same_element_and_lines_are_reported_each_time(scatter):
    x, unsafe = array(np.zeros(N)), array(np.arange(N) // 2)
    found = set()
    for _ in range(10):
        with pytest.raises(qd.RaceError) as raised:
            run(scatter, x, unsafe)
        (race,) = raised.value.races
        found.add((race.index, race.first.line, race.second.line))
    assert len(found) == 1
    assert next(iter(found))[0] == (0,)


def test_launches_on_different_streams_are_distinguished(scatter):
    xs = [array(np.zeros(N)) for _ in range(4)]
    indices = [array(shuffled(seed)) for seed in range(4)]
    streams = [qd.create_stream() for _ in range(4)]
    for _ in range(5):
        for x, at, stream in zip(xs, indices, streams, strict=True):
            scatter(x, at, qd_stream=stream)
    qd.sync()
    with pytest.raises(qd.RaceError):
        run(scatter, xs[2], array(doubled()), qd_stream=streams[1])


def test_numpy_arrays_are_checked(scatter):
    x = np.zeros(N, np.int32)
    scatter(x, shuffled().astype(np.int32))
    qd.sync()
    with pytest.raises(qd.RaceError):
        run(scatter, x, doubled().astype(np.int32))


def test_one_array_with_two_names():
    qd.init(arch=qd.cpu, check_races="full")

    @qd.kernel
    def shift(x: ints, y: ints, at: ints):
        for i in range(at.shape[0]):
            y[i] = x[at[i]] + 1

    x, y, at = array(np.arange(N)), array(np.zeros(N)), array(np.roll(np.arange(N), 1))
    shift(x, y, at)
    with pytest.raises(qd.RaceError):
        run(shift, x, x, at)


def test_a_captured_graph_is_checked_at_each_launch():
    qd.init(arch=qd.cpu, check_races="full")

    @qd.kernel
    def scatter(x: ints, at: ints):
        for i in range(at.shape[0]):
            x[at[i]] = i

    x, at = array(np.zeros(N)), array(shuffled())
    scatter(x, at)
    with qd.graph.capture() as graph:
        scatter(x, at)
        scatter(x, at)
    for seed in range(20):
        at.from_numpy(shuffled(seed).astype(np.int32))
        graph.launch()
    qd.sync()
    at.from_numpy(doubled().astype(np.int32))
    with pytest.raises(qd.RaceError):
        run(graph.launch)


def test_epochs_wrap_after_many_launches():
    qd.init(arch=qd.cpu, check_races="full")

    @qd.kernel
    def scatter(x: ints, at: ints):
        for i in range(at.shape[0]):
            x[at[i]] = i
        for i in range(at.shape[0]):
            x[at[i]] = i + 1

    x, at, other = array(np.zeros(8)), array(shuffled(1, 8)), array(shuffled(2, 8))
    # Two for each launch, of the half million that there are.
    for _ in range(140_000):
        scatter(x, at)
        scatter(x, other)
    with pytest.raises(qd.RaceError):
        run(scatter, x, array(np.zeros(8)))


@pytest.mark.parametrize("program", ["scatter_through_an_index_array", "histogram_by_plain_sums"])
def test_races_are_reported_only_when_asked_for(program):
    qd.init(arch=qd.cpu)
    getattr(data_dependent, program)(True)
    qd.sync()
    qd.init(arch=qd.cpu, check_races="full")
    with pytest.raises(RuntimeError, match="race"):
        run(getattr(data_dependent, program), True)


def test_comparisons_of_launches_with_indices_from_memory_are_bounded():
    qd.init(arch=qd.cpu, check_races="static", cpu_streams=True)

    @qd.kernel
    def scatter(x: ints, at: ints, value: qd.i32):
        for i in at:
            x[at[i]] = value

    x, streams = array(np.zeros(N)), [qd.create_stream() for _ in range(2)]
    indices = [array(shuffled(seed)) for seed in range(2)]
    for value in range(400):
        for at, stream in zip(indices, streams, strict=True):
            scatter(x, at, value, qd_stream=stream)
    qd.sync()
    assert set(x.to_numpy()) == {399}


def test_fills_of_interleaved_fields_are_compared():
    qd.init(arch=qd.cpu, check_races="static", cpu_streams=True)
    x, y = qd.Vector.field(2, qd.f32), qd.field(qd.f32)
    qd.root.dense(qd.i, N).place(x, y)
    s1, s2 = qd.create_stream(), qd.create_stream()

    @qd.kernel
    def number():
        for i in x:
            x[i][0] = 1.0 * i

    number(qd_stream=s1)
    y.fill(0.5, qd_stream=s2)
    with pytest.raises(qd.RaceError, match="race on `x`") as raised:
        x.fill(0.5, qd_stream=s2)
    (race,) = raised.value.races
    assert race.first.launched_at.startswith(__file__)
    assert race.second.launched_at.startswith(__file__)
    s2.wait(s1)
    x.fill(0.5, qd_stream=s2)


def test_locals_private_to_an_iteration_do_not_race():
    qd.init(arch=qd.cpu, check_races="static")
    x, y, z = (qd.field(qd.f32, N) for _ in range(3))

    @qd.kernel
    def in_two_loops():
        now = 0.0
        for i in x:
            now = x[i] + i
            y[i] = now
        for i in x:
            now = x[i] - i
            z[i] = now

    @qd.kernel
    def read_before(n: qd.i32):
        now = x[0]
        if n > 0:
            now = 2.0
        y[0] = now
        for i in x:
            now = x[i] + i
            z[i] = now

    @qd.kernel
    def set_behind(n: qd.i32) -> qd.f32:
        now = 0.0
        for i in x:
            now = x[i] + i
            z[i] = now
        if n > 0:
            now = 5.0
        else:
            now = 6.0
        return now

    in_two_loops()
    read_before(1)
    assert set_behind(1) == 5
    assert (z.to_numpy() == np.arange(N)).all()


def test_components_and_scalar_views_are_distinguished():
    qd.init(arch=qd.cpu, check_races="static", cpu_streams=True)
    x = qd.Vector.field(2, qd.f32, shape=N)
    first, second = (x.get_scalar_field(i) for i in range(2))
    s1, s2 = qd.create_stream(), qd.create_stream()

    @qd.kernel
    def number_seconds():
        for i in x:
            x[i][1] = 1.0 * i

    number_seconds(qd_stream=s1)
    first.fill(0.5, qd_stream=s2)
    with pytest.raises(qd.RaceError):
        x.fill(0.5, qd_stream=s2)
    qd.sync()
    assert (first.to_numpy() == 0.5).all()
    assert (second.to_numpy() == np.arange(N)).all()


def test_flags_and_fences_order_writes_of_blocks():
    qd.init(arch=qd.cpu, check_races="full")
    data, flags, copies = (qd.field(qd.i32, 64) for _ in range(3))

    @qd.kernel
    def pass_on():
        qd.loop_config(block_dim=32)
        for i in range(64):
            data[i] = i + 1
            qd.simt.grid.mem_fence()
            qd.atomic_add(flags[i], 1)
            before = qd.max(i - 1, 0)
            if qd.atomic_add(flags[before], 0) > 0:
                qd.simt.grid.mem_fence()
                copies[i] = data[before]

    pass_on()
    assert (data.to_numpy() == np.arange(1, 65)).all()
