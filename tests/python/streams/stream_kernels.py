"""What the tests of streams share: the ways in which a program is begun, kernels, and their arrays.

Tests are named by the numbers of the requirements they hold (S1, S2, ...).
"""

import ctypes

import numpy as np
import other_library

import octants as qd

MODES = {
    "in order": {},
    "streams": {"cpu_streams": True},
    "schedule 1": {"cpu_streams": True, "cpu_stream_schedule": "seed:1"},
    "schedule 2": {"cpu_streams": True, "cpu_stream_schedule": "seed:2"},
    "separate memory": {"cpu_separate_memory": True, "cpu_stream_schedule": "seed:3"},
}

Ints = qd.types.ndarray(dtype=qd.i32, ndim=1)
n = 1000
# Steps of `slow`: some tens of milliseconds.
LONG = 20_000_000


def ints(size: int = n) -> qd.Ndarray:
    return qd.ndarray(qd.i32, shape=size)


def peek(x: qd.Ndarray) -> int:
    """The first element as it is in memory now: waits for nothing."""
    library = other_library.beside(x)
    if not library.has_streams:
        return ctypes.c_int32.from_address(x.buffer.ptr).value
    # Closing it waits for everything: not before the value is there.
    values = library.read(x.buffer.ptr, np.dtype(np.int32), (1,), (4,), library.stream().handle)
    library.close()
    return int(values[0])


def unknown_handle(handle: int) -> str:
    """What is said of a number that is not a stream's."""
    if qd.cfg.arch == qd.cpu:
        return f"no stream of this program has the handle {handle}: on the CPU only its own streams have one"
    return f"{handle} is not the handle of a {'HIP' if qd.cfg.arch == qd.amdgpu else 'CUDA'} stream"


@qd.kernel
def fill(x: Ints, value: qd.i32):
    for i in x:
        x[i] = value


@qd.kernel
def add(x: Ints, y: Ints, value: qd.i32):
    for i in x:
        y[i] = x[i] + value


@qd.kernel
def slow(x: Ints, value: qd.i32, rounds: qd.i32):
    qd.loop_config(serialize=True)
    for _ in range(1):
        s = value
        for _step in range(rounds):
            s = (s ^ (s >> 7)) * 1664525 + _step
        x[0] = value
        x[1] = s


@qd.kernel
def check(limit: qd.i32):
    for i in range(10):
        assert i < limit


@qd.kernel
def total(x: Ints) -> qd.i32:
    s = 0
    for i in x:
        s += x[i]
    return s


@qd.kernel
def both(x: Ints, y: Ints, value: qd.i32):
    with qd.stream_parallel():
        for i in x:
            x[i] = value
        for i in x:
            x[i] += 1
    with qd.stream_parallel():
        for i in y:
            y[i] = 2 * value
