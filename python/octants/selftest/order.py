"""Streams and events: concurrency and order."""

# mypy: ignore-errors
# Kernels are Python in form only.

from __future__ import annotations

import numpy as np

import octants as qd
from octants.selftest.registry import check, equal, require

N = 10_000
Ints = qd.types.ndarray(dtype=qd.i32, ndim=1)


@qd.kernel
def fill(x: Ints, value: qd.i32):
    """Sets all elements."""
    for i in x:
        x[i] = value


@qd.kernel
def add(x: Ints, y: Ints, value: qd.i32):
    """Adds one array to another."""
    for i in x:
        y[i] = x[i] + value


@qd.kernel
def slow(x: Ints, value: qd.i32):
    """Sets an element after a delay."""
    qd.loop_config(serialize=True)
    for _ in range(1):
        s = value
        # Mesa's lavapipe exits a thread's loops after 65,535 iterations.
        for k in range(50_000):
            for _step in qd.static(range(6)):
                s = (s ^ (s >> 7)) * 1664525 + k
        x[1] = s
        x[0] = value


def _ints() -> qd.Ndarray:
    return qd.ndarray(qd.i32, shape=N)


@check()
def work_of_a_stream_runs_in_order() -> None:
    """Chains of dependent kernels run in order, on several streams concurrently."""
    with qd.create_stream() as a, qd.create_stream() as b:
        arrays = [_ints(), _ints()]
        for x, s in zip(arrays, (a, b), strict=True):
            slow(x, 5, qd_stream=s)
            for _ in range(50):
                add(x, x, 1, qd_stream=s)
        for x in arrays:
            equal(x[0], 55, "x[0]")


@check()
def events_order_streams() -> None:
    """An event makes one stream wait for another."""
    with qd.create_stream() as a, qd.create_stream() as b, qd.create_event() as event:
        x, y = _ints(), _ints()
        for round_ in range(20):
            slow(x, round_, qd_stream=a)
            event.record(a)
            event.wait(b)
            add(x, y, 1, qd_stream=b)
            a.wait(b)
            b.synchronize()
            equal(y[0], round_ + 1, f"round {round_}")


@check()
def events_measure_time() -> str:
    """Two events measure the time between them."""
    with qd.create_stream() as s, qd.create_event(timing=True) as start, qd.create_event(timing=True) as end:
        x = _ints()
        fill(x, 1, qd_stream=s)
        start.record(s)
        for _ in range(10):
            slow(x, 1, qd_stream=s)
        end.record(s)
        elapsed = start.elapsed_ms(end)
        require(0.0 < elapsed < 60_000.0, f"{elapsed} ms for ten slow kernels")
        return f"ten slow kernels took {elapsed:.2f} ms"


@check()
def sections_side_by_side() -> None:
    """`stream_parallel` in a kernel, between other work of its stream."""

    @qd.kernel
    def both(x: Ints, y: Ints):
        with qd.stream_parallel():
            for i in x:
                x[i] += 1
            for i in x:
                x[i] *= 2
        with qd.stream_parallel():
            for i in y:
                y[i] += 5

    x, y = _ints(), _ints()
    with qd.create_stream() as s:
        slow(x, 3, qd_stream=s)
        fill(x, 10, qd_stream=s)
        fill(y, 20, qd_stream=s)
        for _ in range(5):
            both(x, y, qd_stream=s)
        add(x, y, 0, qd_stream=s)
    want = 10
    for _ in range(5):
        want = (want + 1) * 2
    equal(y.to_numpy(), np.full(N, want), "y")


@check()
def arrays_of_the_host_on_streams() -> None:
    """Host arrays are read when the launch is called, and written by the time the call returns."""
    host, result, x = np.arange(N, dtype=np.int32), np.zeros(N, dtype=np.int32), _ints()
    with qd.create_stream() as s:
        slow(x, 1, qd_stream=s)
        add(host, x, 1, qd_stream=s)
        host[:] = 0
        add(x, result, 1, qd_stream=s)
        equal(result, np.arange(N) + 2, "result")


@check()
def many_streams() -> None:
    """Thirty-two busy streams, and memory that is freed while in use."""
    streams = [qd.create_stream() for _ in range(32)]
    results = [_ints() for _ in streams]
    for k, (s, out) in enumerate(zip(streams, results, strict=True)):
        temporary = _ints()
        slow(temporary, 1, qd_stream=s)
        fill(temporary, k, qd_stream=s)
        add(temporary, out, 1, qd_stream=s)
        del temporary
    for k, (s, out) in enumerate(zip(streams, results, strict=True)):
        equal(out.to_numpy(), np.full(N, k + 1), f"stream {k}")
        s.destroy()
