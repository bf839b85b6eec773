"""The programs that `test_vulkan.py` runs under Vulkan's validation layers: memory, copies, streams, events, sections,
messages."""

import numpy as np

import octants as qd

Ints = qd.types.ndarray(qd.i32, 1)


@qd.kernel
def add(x: Ints, y: Ints, value: qd.i32):
    for i in x:
        y[i] = x[i] + value


@qd.kernel
def both(x: Ints, y: Ints, value: qd.i32):
    with qd.stream_parallel():
        for i in x:
            x[i] = value
    with qd.stream_parallel():
        for i in y:
            y[i] = 2 * value


@qd.kernel
def total(x: Ints) -> qd.i32:
    s = 0
    for i in x:
        s += x[i]
    return s


@qd.kernel
def check(limit: qd.i32):
    for i in range(10):
        assert i < limit


@qd.kernel
def say(x: Ints):
    for i in range(3):
        print("element", i, x[i])


@qd.kernel
def scatter(at: Ints, a: qd.types.ndarray(qd.i32, 1), b: qd.types.ndarray(qd.u32, 1), c: qd.types.ndarray(qd.f32, 1)):
    for i in at:
        a[at[i]] += 1
        b[at[i]] += qd.u32(2)
        c[at[i]] += 0.5


def run_sums():
    at = qd.ndarray(qd.i32, 100_000)
    at.from_numpy(np.arange(100_000, dtype=np.int32) % 1000)
    sums = [qd.ndarray(dtype, 1000) for dtype in (qd.i32, qd.u32, qd.f32)]
    scatter(at, *sums)
    for each, value in zip(sums, (100, 200, 50.0), strict=True):
        assert (each.to_numpy() == value).all()


def run_streams():
    x, y, z = (qd.ndarray(qd.i32, 1000) for _ in range(3))
    with qd.create_stream() as s1, qd.create_stream(priority=-1) as s2, qd.create_event(timing=True) as e:
        for value in range(5):
            x.from_numpy(np.full(1000, value, np.int32), qd_stream=s1)
            add(x, y, 10, qd_stream=s1)
            e.record(s1)
            e.wait(s2)
            add(y, z, 100, qd_stream=s2)
            s1.wait(s2)
        both(x, y, 7, qd_stream=s1)
        s1.synchronize()
        assert total(z) == 1000 * 114
        assert (y.to_numpy() == 14).all()


def run_memory():
    x = qd.field(qd.f32, shape=1 << 20)
    x.fill(2.0)
    x[5] = 3.0
    assert x.to_numpy().sum() == 2.0 * (1 << 20) + 1
    for size in (1, 1000, 1 << 24):
        a = qd.ndarray(qd.i32, size)
        a.fill(1)
        assert total(a) == size
        del a
    host = np.arange(1000, dtype=np.int32)
    add(host, host, 1)
    assert (host == np.arange(1, 1001)).all()


def run_messages():
    x = qd.ndarray(qd.i32, 3)
    say(x)
    qd.sync()
    reported = False
    try:
        check(5)
        qd.sync()
    except AssertionError:
        reported = True
    assert reported == qd.cfg.debug


for options in ({}, {"debug": True}, {"kernel_profiler": True}):
    qd.init(arch=qd.vulkan, enable_fallback=False, offline_cache=False, **options)
    run_sums()
    run_streams()
    run_memory()
    run_messages()
    qd.reset()
print("ran all programs")
