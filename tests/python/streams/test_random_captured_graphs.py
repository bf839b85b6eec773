"""Random programs of launches, fills and copies on streams: capturing and launching twice equals running twice."""

import random

import numpy as np
import pytest

import octants as qd

A = qd.types.ndarray(dtype=qd.i32, ndim=1)
N = 300
PROGRAMS = 40


@qd.kernel
def add(x: A, y: A, k: qd.i32):
    for i in x:
        x[i] += k * y[i]


@qd.kernel
def reverse_add(x: A, y: A):
    for i in x:
        x[i] = x[i] * 3 + y[y.shape[0] - 1 - i]


@qd.kernel(graph=True)
def rounds(x: A, y: A, left: qd.types.ndarray(dtype=qd.i32, ndim=0)):
    while qd.graph.do_while(left):
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                for i in x:
                    x[i] += 7
            with qd.graph.parallel():
                for i in y:
                    y[i] -= x.shape[0]
        left[()] -= 1


class Program:
    """A sequence of operations on arrays and streams whose result does not depend on the schedule: each use of an array
    waits for the conflicting uses on other streams."""

    def __init__(self, seed, hosts):
        self.random = random.Random(seed)
        self.arrays = [qd.ndarray(qd.i32, N) for _ in range(4)]
        self.host = np.zeros(N, np.int32) if hosts else None
        self.left = qd.ndarray(qd.i32, ())
        self.streams = [qd.default_stream(), *(qd.create_stream() for _ in range(3))]
        self.events = [qd.create_event() for _ in range(3)]
        self.acts = [self.act() for _ in range(self.random.randrange(1, 15))]

    def act(self):
        pick = self.random
        kind = pick.choice(["add", "add", "reverse", "fill", "copy", "rounds", "new", "host"])
        x, y = pick.sample(range(4), 2)
        return kind, x, y, pick.randrange(-5, 6), pick.randrange(4), pick.randrange(3), pick.random() < 0.5

    def run(self):
        users = {}  # array -> the stream of its last use: one use at a time
        for kind, x, y, k, s, e, by_event in self.acts:
            if kind == "host" and self.host is None:
                continue
            stream = self.streams[s]
            for array in (x, y, "left"):
                before = users.get(array, self.streams[0])
                if before is not stream:
                    if by_event:
                        self.events[e].record(before)
                        self.events[e].wait(stream)
                    else:
                        stream.wait(before)
                users[array] = stream
            a, b = self.arrays[x], self.arrays[y]
            if kind == "add":
                add(a, b, k, qd_stream=stream)
            elif kind == "reverse":
                reverse_add(a, b, qd_stream=stream)
            elif kind == "fill":
                a.fill(k, qd_stream=stream)
            elif kind == "copy":
                a.copy_from(b, qd_stream=stream)
            elif kind == "host":
                add(a, self.host, k, qd_stream=stream)
                add(self.host, a, 1, qd_stream=stream)
            elif kind == "new":
                with qd.stream_scope(stream):
                    new = qd.ndarray(qd.i32, N)
                    add(new, b, k)
                    add(a, new, 1)
            else:
                self.left.fill(abs(k) + 1, qd_stream=stream)
                with qd.stream_scope(stream):
                    rounds(a, b, self.left)
        for stream in self.streams[1:]:
            self.streams[0].wait(stream)

    def begin(self):
        for number, array in enumerate(self.arrays):
            array.from_numpy(np.arange(N, dtype=np.int32) * (number + 1))
        if self.host is not None:
            self.host[:] = 5

    def end(self):
        qd.sync()
        hosts = [] if self.host is None else [self.host.copy()]
        return [array.to_numpy() for array in self.arrays] + hosts


@pytest.mark.parametrize("options", [{}, {"cpu_streams": True}, {"cpu_streams": True, "cpu_stream_schedule": "seed:5"}])
def test_captured_programs_give_the_results_of_direct_runs(options):
    for seed in range(PROGRAMS):
        qd.init(arch=qd.cpu, **options)
        program = Program(seed, hosts=seed % 4 == 0)
        program.begin()
        program.run()
        program.run()
        expected = program.end()
        with qd.graph.capture() as inner:
            program.run()
        graph = inner
        if seed % 3 == 0:
            with qd.graph.capture() as graph:
                inner.launch(program.streams[seed % 4])
                for stream in program.streams[1:]:
                    program.streams[0].wait(stream)
        program.begin()
        graph.launch()
        graph.launch(program.streams[seed % 2])
        for number, (found, wanted) in enumerate(zip(program.end(), expected, strict=True)):
            assert (found == wanted).all(), f"program {seed}, array {number}"
    qd.reset()
