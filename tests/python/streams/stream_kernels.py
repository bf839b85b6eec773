"""The common part of the tests of streams: the modes of a program, kernels, and their arrays.

Tests are named by the numbers of the requirements that they check (S1, S2, ...).
"""

import ctypes
import functools
from typing import Any

import hip_standin
import numpy as np
import other_library
import pytest

import octants as qd
from octants.devices import list_devices

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
    # Closing it waits for all work, so the value must be read first.
    values = library.read(x.buffer.ptr, np.dtype(np.int32), (1,), (4,), library.stream().handle)
    library.close()
    return int(values[0])


def unknown_handle(handle: int) -> str:
    """The error for a number that is not the handle of a stream."""
    if qd.cfg.arch == qd.cpu:
        return f"no stream of this program has the handle {handle}: the CPU does not support other streams"
    if qd.cfg.arch == qd.vulkan:
        return f"{handle} is not the handle of a stream of this program: Vulkan does not support other streams"
    return f"{handle} is not the handle of a {'HIP' if qd.cfg.arch == qd.amdgpu else 'CUDA'} stream"


def has_schedules(config: pytest.Config) -> bool:
    """Whether tests run where `cpu_stream_schedule` has an effect."""
    arch = config.getoption("--arch")
    return arch.startswith("cpu") or arch in hip_standin.ARCHS


def seed_options(config: pytest.Config, seed: int) -> dict[str, Any]:
    """Options of a program with real streams, under the schedule of a seed if there are schedules."""
    return {"cpu_streams": True} | ({"cpu_stream_schedule": f"seed:{seed}"} if has_schedules(config) else {})


@qd.kernel
def fill(x: Ints, value: qd.i32):
    for i in x:
        x[i] = value


@qd.kernel
def add(x: Ints, y: Ints, value: qd.i32):
    for i in x:
        y[i] = x[i] + value


@qd.kernel
def run_slowly(x: Ints, value: qd.i32, rounds: qd.i32):
    qd.loop_config(serialize=True)
    for _ in range(1):
        s = value
        for _step in range(rounds):
            s = (s ^ (s >> 7)) * 1664525 + _step
        x[0] = value
        x[1] = s


# Rounds of a thread's loops. Mesa's lavapipe runs 65,535 at most.
FEW = 50_000


@qd.kernel
def run_slowly_in_threads(x: Ints, value: qd.i32, threads: qd.i32, rounds: qd.i32):
    for i in range(threads):
        s = value
        for _step in range(rounds):
            s = (s ^ (s >> 7)) * 1664525 + _step
        # The last thread is done when most of the others are.
        if i == threads - 1:
            x[0] = value
            x[1] = s


@functools.cache
def is_lavapipe(device: int) -> bool:
    """Whether a device of Vulkan is emulated by Mesa's lavapipe."""
    devices = [d for d in list_devices()[0] if d.arch == "vulkan"]
    return devices[device].name.startswith("llvmpipe")


def on_lavapipe() -> bool:
    """Whether the program runs on Mesa's lavapipe."""
    return qd.cfg.arch == qd.vulkan and is_lavapipe(qd.cfg.device or 0)


def slow(x: Ints, value: int, rounds: int, **options: Any) -> None:
    """Sets the first element, after many rounds of a loop."""
    if rounds > FEW and on_lavapipe():
        # Eight threads are one subgroup.
        run_slowly_in_threads(x, value, 8 * (rounds // FEW), FEW, **options)
    else:
        run_slowly(x, value, rounds, **options)


def skip_without_overlap() -> None:
    """Ends a test of concurrent streams if the device has a single in-order queue."""
    if on_lavapipe():
        pytest.skip("Mesa's lavapipe has one queue: its streams run one after the other")


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
