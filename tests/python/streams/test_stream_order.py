"""Concurrency and waits: S8, S11, S16, S19."""

import time

import numpy as np
import pytest
from stream_kernels import LONG, Ints, add, both, fill, ints, n, skip_without_overlap, slow, total

import octants as qd


def test_s8_streams_run_concurrently(real):
    x, y = ints(), ints()
    slow(x, 1, LONG)
    qd.sync()

    with qd.create_stream() as s1, qd.create_stream() as s2:
        marks = {s: [qd.create_event(timing=True) for _ in range(2)] for s in (s1, s2)}
        shares = []
        for _ in range(3):
            start = time.perf_counter()
            for s, z in ((s1, x), (s2, y)):
                marks[s][0].record(s)
                slow(z, 2, 5 * LONG, qd_stream=s)
                marks[s][1].record(s)
            queued = time.perf_counter() - start
            qd.sync()
            shares.append(queued / (time.perf_counter() - start))
        assert min(shares) < 0.2, "launches return before the work is done"
        skip_without_overlap()
        # Each begins before the other ends, however busy the machine is.
        assert marks[s1][0].elapsed_ms(marks[s2][1]) > 0
        assert marks[s2][0].elapsed_ms(marks[s1][1]) > 0
    assert x[0] == 2
    assert y[0] == 2


def test_s8_hundreds_of_interdependent_streams(real):
    x = ints()
    streams = [qd.create_stream() for _ in range(300)]
    fill(x, 0, qd_stream=streams[0])
    # The last are queued first: no order of service may get stuck.
    for before, after in zip(streams, streams[1:], strict=False):
        after.wait(before)
        add(x, x, 1, qd_stream=after)
    assert x[0] == 299
    for s in streams:
        s.destroy()


@qd.kernel
def triple(x: Ints):
    for i in x:
        x[i] = 3 * x[i] + 1


@qd.kernel
def mix(x: Ints, y: Ints):
    for i in y:
        y[i] = 5 * y[i] + x[i]


@pytest.mark.parametrize("seed", range(3))
def test_s16_each_of_many_streams_is_in_order(real, seed):
    # More streams than a device has queues. The updates are not atomic, and their order matters.
    rng = np.random.default_rng(seed)
    streams = [qd.create_stream() for _ in range(24)]
    arrays = [ints(1000) for _ in streams]
    expected = np.arange(24)
    for number, x in enumerate(arrays):
        x.fill(number)
    qd.sync()
    event, timed = qd.create_event(), qd.create_event(timing=True)
    for _ in range(500):
        a, b = rng.integers(0, 24, 2)
        what = rng.integers(0, 20)
        if what < 16:
            triple(arrays[a], qd_stream=streams[a])
            expected[a] = (3 * expected[a] + 1) % 2**32
        elif what == 16:
            streams[a].synchronize()
        elif what == 17:
            timed.record(streams[a])
        elif a != b:
            event.record(streams[a])
            event.wait(streams[b])
            mix(arrays[a], arrays[b], qd_stream=streams[b])
            expected[b] = (5 * expected[b] + expected[a]) % 2**32
            streams[a].wait(streams[b])
    for x, value in zip(arrays, expected, strict=True):
        assert (x.to_numpy().astype(np.uint32) == value).all()
    for s in streams:
        s.destroy()


def test_s11_work_around_sections_needs_no_event(mode):
    a, b = ints(), ints()
    with qd.create_stream() as s:
        for value in range(4):
            slow(a, value, 1000, qd_stream=s)
            both(a, b, value, qd_stream=s)
            add(b, a, 100, qd_stream=s)
        assert (a[0], b[0]) == (106, 6)


def test_s11_fork_and_join_need_no_event_and_no_host(real):
    a, b, c = ints(), ints(), ints()

    @qd.kernel
    def parallel(a: Ints, b: Ints, c: Ints):
        with qd.stream_parallel():
            for i in b:
                b[i] = a[i] + 1
        with qd.stream_parallel():
            for i in c:
                c[i] = a[i] + 2

    with qd.create_stream() as s:
        shares = []
        for value in range(6):
            start = time.perf_counter()
            slow(a, value, LONG, qd_stream=s)
            parallel(a, b, c, qd_stream=s)
            add(b, a, 10, qd_stream=s)
            queued = time.perf_counter() - start
            s.synchronize()
            whole = time.perf_counter() - start
            shares.append(queued / whole)
            assert (a[0], b[0], c[0]) == (value + 11, value + 1, value + 2)
        # On a busy machine this thread may be held up in most rounds.
        assert min(shares) < 0.2


def test_s16_host_arrays_hold_the_result_when_the_call_returns(mode):
    with qd.create_stream() as s:
        for value in range(3):
            x = np.zeros(n, np.int32)
            fill(x, value, qd_stream=s)
            assert (x == value).all()
        x = np.ones(n, np.int32)
        y = ints()
        add(x, y, 1, qd_stream=s)
        x[:] = 5  # the call has read it
        assert (y.to_numpy() == 2).all()


def test_s16_reading_host_arrays_does_not_block_the_call(real):
    a, b = ints(), ints()
    x = np.ones(n, np.int32)
    with qd.create_stream() as s:
        slow(a, 1, 1, qd_stream=s)
        # Compiled: a driver may wait for the device when it loads code.
        add(x, b, 1, qd_stream=s)
        add(x[::-2], b, 1, qd_stream=s)
        s.synchronize()
        slow(a, 2, 10 * LONG, qd_stream=s)
        add(x, b, 2, qd_stream=s)
        x[:] = 100
        add(x[::-2], b, 3, qd_stream=s)
        assert not s.query(), "the launches wait for nothing"
        del x
        assert (b.to_numpy()[: n // 2] == 103).all()
        assert (b.to_numpy()[n // 2 :] == 3).all()
        # A written array is waited for, and contains the result.
        y = np.zeros(n, np.int32)
        slow(a, 3, 3 * LONG, qd_stream=s)
        add(b, y, 1, qd_stream=s)
        assert y[0] == 104
        assert s.query()


def test_s19_a_read_waits_only_for_its_writer(real):
    skip_without_overlap()
    x, y = ints(), ints()
    with qd.create_stream() as s1, qd.create_stream() as s2:
        slow(y, 1, 1, qd_stream=s2)
        fill(x, 3, qd_stream=s1)
        qd.sync()
        slow(y, 2, 20 * LONG, qd_stream=s2)
        fill(x, 4, qd_stream=s1)
        assert x[0] == 4
        assert not s2.query(), "the other stream was not waited for"


def containers():
    """One of each kind of memory order, with values to import."""
    place = {"scalars": lambda: qd.field(qd.i32, shape=(5, 7)), "ndarray": lambda: qd.ndarray(qd.i32, shape=(5, 7))}
    place["vectors"] = lambda: qd.Vector.field(3, qd.i32, shape=(5, 7))
    place["vectors of ndarrays"] = lambda: qd.Vector.ndarray(3, qd.i32, shape=(5, 7))
    place["arrays of components"] = lambda: qd.Vector.field(3, qd.i32, shape=(5, 7), layout=qd.Layout.SOA)
    place["another order"] = lambda: qd.field(qd.i32, shape=(5, 7), order="ji")

    def between():
        a, b = qd.field(qd.i32), qd.field(qd.f64)
        qd.root.dense(qd.ij, (5, 7)).place(a, b)
        return a

    place["among others"] = between
    return place


@pytest.mark.parametrize("kind", list(containers()))
def test_s2_s16_fills_copies_and_imports_go_to_the_stream(mode, kind):
    a, b = containers()[kind](), containers()[kind]()
    shape = a.to_numpy().shape
    values = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    blocker = ints()
    with qd.create_stream() as s:
        a.fill(3, qd_stream=s)
        b.copy_from(a, qd_stream=s)
        assert (b.to_numpy() == 3).all()
        if len(shape) == 3:
            a.fill([4, 5, 6], qd_stream=s)
            assert (a.to_numpy() == [4, 5, 6]).all()
        slow(blocker, 1, 3 * LONG, qd_stream=s)
        a.from_numpy(values, qd_stream=s)
        b.copy_from(a, qd_stream=s)
        a.fill(9, qd_stream=s)
        if mode == "streams" and kind != "among others":
            # A noncontiguous array is imported by the host, which waits for the stream.
            assert not s.query()
        given = values.copy()
        values[...] = -1
        assert (b.to_numpy() == given).all()
        assert (a.to_numpy() == 9).all()
        b.copy_from(b, qd_stream=s)
        with qd.stream_scope(s):
            slow(blocker, 2, LONG)
            b.fill(8)
        assert (b.to_numpy() == 8).all()
        with pytest.raises(ValueError, match=r"[Ss]hape"):
            a.from_numpy(np.zeros(3, np.int32), qd_stream=s)
    assert (a.to_numpy() == 9).all()


def test_s2_s16_large_fills_and_copies(mode):
    x, y = qd.ndarray(qd.f64, shape=300_001), qd.ndarray(qd.f64, shape=300_001)
    with qd.create_stream() as s:
        x.fill(1.5, qd_stream=s)
        y.copy_from(x, qd_stream=s)
        x.from_numpy(np.arange(300_001, dtype=np.float64), qd_stream=s)
        assert (y.to_numpy() == 1.5).all()
        assert (x.to_numpy() == np.arange(300_001)).all()
        f = qd.ndarray(qd.f32, shape=300_001)
        f.copy_from(x, qd_stream=s)  # another type: the host converts
        assert f[7] == 7.0


def test_s18_memory_of_a_queued_fill_may_be_dropped(schedule):
    kept = ints(40)
    with qd.create_stream() as s:
        for value in range(4):
            temporary = ints(40)
            temporary.fill(value, qd_stream=s)
            kept.copy_from(temporary, qd_stream=s)
            del temporary
            ints(40).fill(-1)
        assert (kept.to_numpy() == 3).all()


def test_s16_views_of_host_arrays(mode):
    empty, z, d = np.zeros(0, np.int32), np.arange(20, dtype=np.int32), ints(20)
    with qd.create_stream() as s:
        add(empty, z, 1, qd_stream=s)
        add(empty, empty, 1, qd_stream=s)
        assert (z == np.arange(20)).all()
        assert total(z[::-3], qd_stream=s) == z[::-3].sum()
        add(z[::-1], d, 5, qd_stream=s)
        assert (d.to_numpy() == z[::-1] + 5).all()
        add(z[::2], z[1::2], 100, qd_stream=s)
        assert (z[1::2] == z[::2] + 100).all()
        assert (z[::2] == np.arange(0, 20, 2)).all()
