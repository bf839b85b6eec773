"""Programs whose `stream_parallel` blocks or graph sections have data-dependent races, and their race-free twins."""

import warnings

import numpy as np
from data_dependent import N, array, floats, ints, shuffled

import octants as qd

PROGRAMS = []


def program(function):
    """Adds a program to the list. Ignores the compiler's warnings about unproved conflicts."""

    def quiet(races):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="(two|one) qd")
            function(races)

    quiet.__name__ = function.__name__
    quiet.__wrapped__ = function
    PROGRAMS.append(quiet)
    return quiet


def halves(races):
    """Indices into 2 N elements: the lower half, and the upper half, or one element too far down."""
    upper = shuffled(2) + N
    if races:
        upper[7] = 5
    return array(shuffled()), array(upper)


@program
def blocks_that_scatter(races):
    @qd.kernel
    def scatter(x: ints, a: ints, b: ints):
        with qd.stream_parallel():
            for i in range(a.shape[0]):
                x[a[i]] = i  # meets
        with qd.stream_parallel():
            for i in range(b.shape[0]):
                x[b[i]] = i + 100  # meets

    for _ in range(2):
        scatter(array(np.zeros(2 * N)), *halves(races))


@program
def block_that_reads_what_another_writes(races):
    @qd.kernel
    def gather(x: ints, y: ints, a: ints, b: ints):
        with qd.stream_parallel():
            for i in range(a.shape[0]):
                x[a[i]] = i  # meets
        with qd.stream_parallel():
            for i in range(b.shape[0]):
                y[i] = x[b[i]]  # meets

    gather(array(np.full(2 * N, -1)), array(np.zeros(N)), *halves(races))


@program
def block_of_two_loops_that_are_in_order(races):
    @qd.kernel
    def blocks(x: ints, y: ints, a: ints, b: ints):
        with qd.stream_parallel():
            for i in range(a.shape[0]):
                x[a[i]] = i
            for i in range(a.shape[0]):
                x[a[i]] = x[a[i]] + 7  # meets
        with qd.stream_parallel():
            for i in range(b.shape[0]):
                if b[i] < x.shape[0]:
                    y[i] = x[b[i]] + 1  # meets

    a, b = halves(races)
    if races:
        # The value that the first loop stores there is the one that it has.
        b.from_numpy(np.full(N, int(a.to_numpy()[0]), np.int32))
    blocks(array(np.zeros(2 * N)), array(np.zeros(N)), a, b)


@program
def atomic_sums_and_one_that_reads(races):
    @qd.kernel
    def sums(x: ints, y: ints, a: ints, b: ints):
        with qd.stream_parallel():
            for i in range(a.shape[0]):
                x[a[i] % 4] += 1  # meets
        with qd.stream_parallel():
            for i in range(b.shape[0]):
                x[b[i] % 4] += 1
        with qd.stream_parallel():
            for i in range(b.shape[0]):
                y[i] = x[b[i]]  # meets

    a, b = array(shuffled()), array(shuffled() + 4)
    sums(array(np.zeros(2 * N)), array(np.zeros(N)), a, a if races else b)


@program
def flags_that_all_set_alike(races):
    @qd.kernel
    def mark(x: ints, a: ints, b: ints, value: qd.i32):
        with qd.stream_parallel():
            for i in range(a.shape[0]):
                x[a[i]] = 1  # meets
        with qd.stream_parallel():
            for i in range(b.shape[0]):
                x[b[i]] = value  # meets

    mark(array(np.zeros(2 * N)), *halves(True), 2 if races else 1)


@program
def graph_sections_that_scatter(races):
    @qd.kernel(graph=True)
    def scatter(x: floats, a: ints, b: ints):
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                for i in range(a.shape[0]):
                    x[a[i]] = 0.5 * i  # meets
            with qd.graph.parallel():
                for i in range(b.shape[0]):
                    x[b[i]] = 0.25 * i - 8.0  # meets
        for i in range(x.shape[0]):
            x[i] = 2 * x[i]

    for _ in range(3):
        scatter(array(np.zeros(2 * N), qd.f32), *halves(races))


@program
def sections_in_rounds(races):
    @qd.kernel(graph=True)
    def rounds(x: ints, a: ints, b: ints, n: qd.types.ndarray(qd.i32, ndim=0)):
        while qd.graph.do_while(n):
            with qd.graph.parallel_context():
                with qd.graph.parallel():
                    for i in range(a.shape[0]):
                        x[(a[i] + n[()]) % (2 * N)] = i - n[()]  # meets
                with qd.graph.parallel():
                    for i in range(b.shape[0]):
                        x[(b[i] + n[()]) % (2 * N)] = i + 100  # meets
            for _ in range(1):
                n[()] -= 1

    n = qd.ndarray(qd.i32, ())
    n.fill(3)
    rounds(array(np.zeros(2 * N)), *halves(races), n)


@program
def fields_of_structs_in_blocks(races):
    Cell = qd.types.struct(mass=qd.f32, speed=qd.types.vector(2, qd.f32))
    cells = Cell.field(shape=(2 * N,))

    @qd.kernel
    def move(a: ints, b: ints):
        with qd.stream_parallel():
            for i in range(a.shape[0]):
                cells[a[i]].speed[0] = 1.0 * i  # meets
        with qd.stream_parallel():
            for i in range(b.shape[0]):
                cells[b[i]].speed[1] = 2.0
                cells[b[i]].speed[i * 0 + b[i] // N] = 3.0 + i  # meets

    move(*halves(races))
