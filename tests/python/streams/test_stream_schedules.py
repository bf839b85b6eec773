"""Scenarios under adversarial schedules, which delay and shuffle work as far as the semantics allow; many seeds
each."""

import gc

import numpy as np
import pytest
from stream_kernels import MODES, Ints, add, both, check, fill, ints, peek, total

import octants as qd


@qd.kernel
def loops_of_computed_length(bound: Ints, x: Ints, y: Ints):
    with qd.stream_parallel():
        for i in range(bound[0] * 2):
            x[i] = 1
    with qd.stream_parallel():
        for i in range(bound[0] * 2 + 1):
            y[i] = 2


@qd.kernel
def extremes(x: Ints, out: Ints):
    low, high = 1000000, -1000000
    for i in x:
        qd.atomic_min(low, x[i])
        qd.atomic_max(high, x[i])
    for _ in range(1):
        out[0] = low
        out[1] = high


@qd.kernel
def draw(x: qd.types.ndarray(dtype=qd.f32, ndim=1)):
    for i in x:
        x[i] = qd.random()


def test_s16_many_host_arrays_in_flight(schedule):
    outs = [ints(20) for _ in range(6)]
    with qd.create_stream() as s1, qd.create_stream() as s2:
        for k, out in enumerate(outs):
            x = np.full(20, k, np.int32)
            add(x, out, 10, qd_stream=s1 if k % 2 else s2)
            x[:] = -1
        for k, out in enumerate(outs):
            assert (out.to_numpy() == k + 10).all()


def test_s17_one_kernel_on_two_streams(schedule):
    arrays = [ints(50) for _ in range(4)]
    streams = [qd.create_stream() for _ in arrays]
    for step in range(3):
        for k, (x, s) in enumerate(zip(arrays, streams, strict=True)):
            fill(x, 10 * k + step, qd_stream=s)
            add(x, x, 1000, qd_stream=s)
    for k, (x, s) in enumerate(zip(arrays, streams, strict=True)):
        assert total(x, qd_stream=s) == 50 * (10 * k + 2 + 1000)
    for s in streams:
        s.destroy()


def test_s12_s17_bounds_and_reductions_in_flight(schedule):
    s1, s2 = qd.create_stream(), qd.create_stream()
    x, y, bound = ints(64), ints(64), ints(1)
    data = [ints(64), ints(64)]
    out = [ints(2), ints(2)]
    for k, d in enumerate(data):
        d.from_numpy(np.arange(64, dtype=np.int32) * (k + 1) - 7)
    fill(bound, 10, qd_stream=s1)
    loops_of_computed_length(bound, x, y, qd_stream=s1)
    extremes(data[0], out[0], qd_stream=s1)
    extremes(data[1], out[1], qd_stream=s2)
    fill(bound, 3, qd_stream=s1)
    assert x.to_numpy().sum() == 20
    assert y.to_numpy().sum() == 42
    assert out[0].to_numpy().tolist() == [-7, 56]
    assert out[1].to_numpy().tolist() == [-7, 119]
    s1.destroy()
    s2.destroy()


def test_s17_random_numbers_do_not_depend_on_the_schedule(schedule):
    def run():
        a, b = qd.ndarray(qd.f32, shape=20), qd.ndarray(qd.f32, shape=20)
        with qd.create_stream() as s1, qd.create_stream() as s2:
            for _ in range(3):
                draw(a, qd_stream=s1)
                draw(b, qd_stream=s2)
            return a.to_numpy().tolist(), b.to_numpy().tolist()

    got = run()
    qd.init(arch=qd.cpu)
    assert got == run()


def test_s18_freeing_in_flight(schedule):
    kept = ints(40)
    with qd.create_stream() as s1, qd.create_stream() as s2:
        for value in range(6):
            temporary = ints(40)
            fill(temporary, value, qd_stream=s1)
            s2.wait(s1)
            add(temporary, kept, 100, qd_stream=s2)
            del temporary
            # Takes the memory again if it was given back too early.
            fill(ints(40), -1)
        assert (kept.to_numpy() == 105).all()


def test_s19_host_reads_are_never_stale(schedule):
    x, y = ints(30), ints(30)
    f = qd.field(qd.i32, shape=30)

    @qd.kernel
    def set_field(value: qd.i32):
        for i in f:
            f[i] = value

    with qd.create_stream() as s1, qd.create_stream() as s2:
        for value in range(1, 4):
            fill(x, value, qd_stream=s1)
            assert x[3] == value
            fill(y, value, qd_stream=s2)
            assert (y.to_numpy() == value).all()
            set_field(value, qd_stream=s2)
            assert f[3] == value
            assert total(x, qd_stream=s1) == 30 * value
            add(x, y, 0, qd_stream=s2)
            x.fill(-1)  # after the read above
            assert (y.to_numpy() == value).all()


def test_s21_errors_are_raised_once_on_their_stream(seed):
    qd.init(arch=qd.cpu, cpu_streams=True, cpu_stream_schedule=f"seed:{seed}", debug=True)
    x = ints(20)
    s1, s2 = qd.create_stream(), qd.create_stream()
    check(5, qd_stream=s1)
    fill(x, 1, qd_stream=s1)  # not run: its stream has failed
    fill(x, 2, qd_stream=s2)
    s2.synchronize()
    with pytest.raises(AssertionError, match=r"in kernel `check` at .*stream_kernels.py:\d+, on stream \d"):
        s1.synchronize()
    s1.synchronize()
    qd.sync()
    assert x[0] == 2
    check(5, qd_stream=s2)
    with pytest.raises(AssertionError):
        qd.sync()
    qd.sync()
    event = qd.create_event()
    check(5, qd_stream=s1)
    event.record(s1)
    with pytest.raises(AssertionError):
        event.synchronize()
    check(5, qd_stream=s1)
    with pytest.raises(AssertionError):
        s1.destroy()
    check(5, qd_stream=s2)
    del s2
    gc.collect()
    with pytest.raises(AssertionError):
        qd.sync()
    qd.sync()


def test_s5_s15_reset_with_work_queued(schedule):
    x, y = ints(40), ints(40)
    s = qd.create_stream()
    for value in range(4):
        both(x, y, value, qd_stream=s)
    del x, y
    qd.reset()
    assert not s.handle or repr(s)
    s.destroy()


def test_s5_destroy_with_work_queued(schedule):
    x, y = ints(40), ints(40)
    for value in range(3):
        s1, s2 = qd.create_stream(), qd.create_stream()
        fill(x, value, qd_stream=s1)
        both(y, x, value, qd_stream=s1)
        s2.wait(s1)
        add(x, y, 1, qd_stream=s2)
        s2.destroy()
        assert peek(y) == 2 * value + 1
        s1.destroy()


def test_s21_an_event_does_not_propagate_a_failure(seed):
    qd.init(arch=qd.cpu, cpu_streams=True, cpu_stream_schedule=f"seed:{seed}", debug=True)
    x = ints(20)
    with qd.create_stream() as s1, qd.create_stream() as s2, qd.create_event() as e:
        check(5, qd_stream=s1)
        e.record(s1)
        e.wait(s2)
        fill(x, 3, qd_stream=s2)
        s2.synchronize()
        assert x[0] == 3
        with pytest.raises(AssertionError, match="kernel `check`"):
            s1.synchronize()


@qd.kernel
def check_in_a_section(x: Ints, y: Ints, limit: qd.i32):
    with qd.stream_parallel():
        for i in x:
            assert i < limit, "too far"
    with qd.stream_parallel():
        for i in y:
            y[i] = limit


def test_s15_s21_a_section_fails(seed):
    qd.init(arch=qd.cpu, cpu_streams=True, cpu_stream_schedule=f"seed:{seed}", debug=True)
    x, y, z = ints(20), ints(20), ints(20)
    with qd.create_stream() as s1, qd.create_stream() as s2:
        check_in_a_section(x, y, 5, qd_stream=s1)
        check_in_a_section(x, z, 30, qd_stream=s2)
        fill(y, -1, qd_stream=s1)  # skipped
        s2.synchronize()
        assert (z.to_numpy() == 30).all()
        with pytest.raises(AssertionError, match="too far"):
            s1.synchronize()
        assert qd.stream_pool_stats()["in_use"] == 0
        check_in_a_section(x, y, 40, qd_stream=s1)
        assert (y.to_numpy() == 40).all()


def test_s17_results_of_launches_on_two_streams(schedule):
    arrays = [ints(30) for _ in range(3)]
    streams = [qd.create_stream() for _ in arrays]
    for step in range(3):
        for k, (x, s) in enumerate(zip(arrays, streams, strict=True)):
            fill(x, k + step, qd_stream=s)
        got = [total(x, qd_stream=s) for x, s in zip(arrays, streams, strict=True)]
        assert got == [30 * (k + step) for k in range(3)]


@qd.kernel
def take_tickets(x: Ints, counter: Ints):
    for i in x:
        x[i] = qd.atomic_add(counter[0], 1)


@pytest.mark.on_cpu
def test_s8_schedules_interleave_the_pieces_of_tasks():
    seen = set()
    for seed in range(12):
        qd.init(arch=qd.cpu, cpu_streams=True, cpu_stream_schedule=f"seed:{seed}")
        x, y, counter = ints(200), ints(200), ints(1)
        with qd.create_stream() as s1, qd.create_stream() as s2:
            take_tickets(x, counter, qd_stream=s1)
            take_tickets(y, counter, qd_stream=s2)
        a, b = x.to_numpy(), y.to_numpy()
        assert sorted([*a, *b]) == list(range(400))
        seen.add("one after the other" if a.max() < b.min() or b.max() < a.min() else "interleaved")
        seen.add("in order" if (np.diff(a) > 0).all() else "shuffled")
    qd.reset()
    assert seen == {"one after the other", "interleaved", "in order", "shuffled"}


def test_s21_an_error_is_raised_once(mode):
    qd.init(arch=qd.cpu, debug=True, **MODES[mode])

    def launch_and_wait(s):
        check(5, qd_stream=s)  # if work is in order, this call raises
        s.synchronize()

    with qd.create_stream() as s:
        with pytest.raises(AssertionError, match=r"in kernel `check` at .*stream_kernels.py:\d+"):
            launch_and_wait(s)
        s.synchronize()
        qd.sync()
        check(10, qd_stream=s)


def test_s21_debug_mode_waits_for_launches_on_the_default_stream(mode):
    qd.init(arch=qd.cpu, debug=True, **MODES[mode])
    default = qd.default_stream()
    for launch in [lambda: check(5), lambda: check(5, qd_stream=default)]:
        with pytest.raises(AssertionError, match=r"in kernel `check` at .*stream_kernels.py:\d+") as caught:
            launch()
        assert "on stream" not in str(caught.value)
        qd.sync()
    check(10)
    with qd.create_stream() as s, qd.stream_scope(s):
        if mode == "in order":
            return
        check(5)  # returns at once
        with pytest.raises(AssertionError, match="on stream"):
            s.synchronize()
