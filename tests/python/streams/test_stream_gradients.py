"""Gradients of launches on streams and of sections: under shuffled schedules, bitwise equal to those on one stream.
S20."""

import contextlib
import functools
import os
import random

import numpy as np
import pytest
from stream_kernels import has_schedules, seed_options

import octants as qd

A = qd.types.ndarray(dtype=qd.f32, ndim=1, needs_grad=True)
N = 37
PROGRAMS = 12
SEEDS = int(os.environ.get("OCTANTS_TEST_SEEDS", "20"))


@qd.kernel
def product(x: A, y: A, out: A):
    qd.loop_config(serialize=True)  # an element of a gradient is added to by several iterations
    for i in out:
        out[i] = qd.sin(x[i]) * y[(i * 5) % N] + 0.1 * x[(i + 1) % N]


@qd.kernel
def grow(x: A, out: A, k: qd.f32):
    for i in x:
        s = x[i]
        for _ in range(3):
            s = s * k + qd.cos(s)
        out[i] += s


@qd.kernel
def two(x: A, y: A, a: A, b: A):
    with qd.stream_parallel():
        for i in a:
            a[i] = x[i] * y[i]
        for i in a:
            a[i] += x[N - 1 - i] * 0.5
    with qd.stream_parallel():
        for i in b:
            b[i] = x[i] * 3.0 + qd.exp(-y[i])


@qd.kernel(graph=True)
def sections(x: A, y: A, a: A, b: A):
    with qd.graph.parallel_context():
        with qd.graph.parallel():
            for i in a:
                a[i] = x[i] * x[i]
        with qd.graph.parallel():
            qd.loop_config(serialize=True)
            for i in b:
                b[i] = y[i] * x[(i + 3) % N]
    for i in a:
        a[i] += b[i] * y[i]


@qd.kernel
def measure(x: A, loss: A):
    for i in x:
        loss[0] += x[i] * (i + 1)


@pytest.fixture
def seed(request):
    """A schedule, and arithmetic that does not depend on the thread that runs an iteration."""
    qd.init(arch=qd.cpu, fast_math=False, **seed_options(request.config, request.param))
    yield request.param
    qd.reset()


def array():
    return qd.ndarray(qd.f32, N, needs_grad=True)


class Program:
    """Launches on several streams. Each writes to its own arrays and reads any of the earlier ones."""

    def __init__(self, seed, streams):
        pick = random.Random(seed)
        self.arrays = [array() for _ in range(3)]
        self.loss = qd.ndarray(qd.f32, 1, needs_grad=True)
        self.acts = []
        for _ in range(pick.randrange(3, 12)):
            kind = pick.choice(["product", "product", "grow", "two", "sections"])
            x, y = (pick.randrange(len(self.arrays)) for _ in range(2))
            outs = [len(self.arrays) + n for n in range(1 if kind in ("product", "grow") else 2)]
            self.arrays += [array() for _ in outs]
            self.acts.append((kind, x, y, outs, pick.randrange(4), pick.random() < 0.5))
        self.used = {y: pick.randrange(4) for y in pick.sample(range(len(self.arrays)), 3)}
        for number, a in enumerate(self.arrays):
            a.from_numpy(np.linspace(-1, 1, N, dtype=np.float32) * (number + 1) if number < 3 else np.zeros(N, "f4"))
        self.streams = [None, *(qd.create_stream() for _ in range(3))] if streams else [None] * 4
        self.written = {}  # array -> the number of the stream that writes it
        self.lost = None

    def behind(self, number, s):
        """Makes a stream wait for the launch on another stream that wrote an array."""
        writer = self.written.get(number, 0)
        here, there = (self.streams[k] or qd.default_stream() for k in (s, writer))
        if here is not there and self.streams[1] is not None:
            here.wait(there)

    def launch(self, act):
        kind, x, y, outs, s, scoped = act
        for number in (x, y):
            self.behind(number, s)
        self.written.update(dict.fromkeys(outs, s))
        a, stream = self.arrays, self.streams[s]
        scope = qd.stream_scope(stream) if scoped and stream is not None else contextlib.nullcontext()
        options = {"qd_stream": stream} if not scoped and stream is not None else {}
        with scope:
            if kind == "product":
                product(a[x], a[y], a[outs[0]], **options)
            elif kind == "grow":
                grow(a[x], a[outs[0]], 0.5, **options)
            else:
                (two if kind == "two" else sections)(a[x], a[y], *(a[out] for out in outs), **options)

    def run(self):
        with qd.ad.Tape(self.loss):
            for act in self.acts:
                self.launch(act)
            for number in self.used:
                self.behind(number, 0)
                measure(self.arrays[number], self.loss)
        return [a.grad.to_numpy() for a in self.arrays]


@functools.cache
def serial_gradients(seed):
    qd.init(arch=qd.cpu, cpu_streams=True, fast_math=False)
    return Program(seed, streams=False).run()


@pytest.mark.parametrize("schedule", [None, *range(6)])
def test_s20_a_tape_over_streams_has_the_gradients_of_one_stream(schedule, request):
    if schedule is not None and not has_schedules(request.config):
        pytest.skip("this device has no schedules")
    for seed in range(PROGRAMS):
        options = {} if schedule is None else {"cpu_stream_schedule": f"seed:{schedule}"}
        expected = serial_gradients(seed)
        qd.init(arch=qd.cpu, cpu_streams=True, fast_math=False, **options)
        for number, (found, wanted) in enumerate(zip(Program(seed, streams=True).run(), expected, strict=True)):
            assert (found == wanted).all(), f"program {seed}, array {number}"
    qd.reset()


def test_s20_gradients_of_shared_reads_are_summed_in_order(seed):
    x, y, z, loss = array(), array(), array(), qd.ndarray(qd.f32, 1, needs_grad=True)
    x.from_numpy(np.linspace(0, 1, N, dtype=np.float32))
    with qd.create_stream() as a, qd.create_stream() as b, qd.ad.Tape(loss):
        product(x, x, y, qd_stream=a)
        product(x, x, z, qd_stream=b)
        measure(y, loss, qd_stream=a)
        b.wait(a)
        measure(z, loss, qd_stream=b)
    found = x.grad.to_numpy()
    x.grad.fill(0)
    for each in (y, z):
        each.grad.fill(0)
    with qd.ad.Tape(loss):
        product(x, x, y)
        product(x, x, z)
        measure(y, loss)
        measure(z, loss)
    assert (found == x.grad.to_numpy()).all()


def test_s20_manual_gradients_run_on_the_named_stream(seed):
    x, y = array(), array()
    x.from_numpy(np.arange(N, dtype=np.float32))
    y.grad.fill(1.0)
    with qd.create_stream() as s:
        grow.grad(x, y, 0.5, qd_stream=s)
        with qd.stream_scope(s):
            grow.grad(x, y, 0.5)
        s.synchronize()
    twice = x.grad.to_numpy()
    x.grad.fill(0)
    grow.grad(x, y, 0.5)
    once = x.grad.to_numpy()
    assert (twice == once + once).all()


def test_s20_forward_mode_on_streams(seed):
    x, y, z = (qd.field(qd.f32, N, needs_dual=True) for _ in range(3))

    @qd.kernel
    def square():
        for i in x:
            y[i] = x[i] * x[i]

    @qd.kernel
    def both():
        with qd.stream_parallel():
            for i in range(N // 2):
                z[i] = qd.sin(y[i])
        with qd.stream_parallel():
            for i in range(N // 2, N):
                z[i] = qd.cos(y[i])

    x.from_numpy(np.linspace(0, 1, N, dtype=np.float32))
    with qd.create_stream() as a, qd.create_stream() as b, qd.ad.FwdMode(z, x, seed=[1.0] * N):
        square(qd_stream=a)
        b.wait(a)
        with qd.stream_scope(b):
            both()
    values = x.to_numpy().astype(np.float64)
    outer = np.where(np.arange(N) < N // 2, np.cos(values**2), -np.sin(values**2))
    assert np.allclose(z.dual.to_numpy(), outer * 2 * values, rtol=1e-5)


def test_s20_a_tape_may_end_in_a_scope_and_outlive_its_streams(seed):
    x, y, loss = array(), array(), qd.ndarray(qd.f32, 1, needs_grad=True)
    x.fill(2.0)
    tape = qd.ad.Tape(loss)
    tape.__enter__()
    with qd.create_stream() as s:
        product(x, x, y, qd_stream=s)
    measure(y, loss)
    with qd.create_stream() as s, qd.stream_scope(s):
        tape.__exit__(None, None, None)
    found = x.grad.to_numpy()
    x.grad.fill(0)
    y.grad.fill(0)
    with qd.ad.Tape(loss):
        product(x, x, y)
        measure(y, loss)
    assert found.any()
    assert (found == x.grad.to_numpy()).all()


def test_s20_host_writes_between_launches_on_streams(seed):
    def gradients(stream):
        x, y, z, loss = array(), array(), array(), qd.ndarray(qd.f32, 1, needs_grad=True)
        x.fill(2.0)
        options = {} if stream is None else {"qd_stream": stream}
        with qd.ad.Tape(loss):
            product(x, x, y, **options)
            measure(y, loss, **options)
            y.fill(1.0)
            y[3] = 5.0
            product(y, x, z, **options)
            if stream is not None:
                qd.default_stream().wait(stream)
            measure(z, loss)
        return np.stack([x.grad.to_numpy(), y.grad.to_numpy()])

    with qd.create_stream() as s:
        found = gradients(s)
    assert found.any(axis=1).all()
    assert (found == gradients(None)).all()


def test_s20_sections_that_share_no_gradient_stay_sections(mode):
    if mode != "streams":
        return

    @qd.kernel
    def apart(x: A, y: A, a: A, b: A):
        with qd.stream_parallel():
            for i in a:
                a[i] = x[i] * x[i]
        with qd.stream_parallel():
            for i in b:
                b[i] = y[i] * y[i]

    arrays = [array() for _ in range(4)]

    def graph_of(kernel):
        return qd.inspect(kernel, *arrays, emit="ir").split("graph {")

    assert "parallel {" in graph_of(apart.grad)[1]
    assert "parallel {" in graph_of(two)[1]
    assert all("parallel {" not in part for part in graph_of(two.grad)[1:])
