"""Programs of several ranks that fail: `mpiexec -n 2 python failing_programs.py NAME FOLDER`."""

import os
import sys
import time

import numpy as np
from mpi4py import MPI

import octants as qd

N = 24


def make(**options):
    return qd.ndarray(qd.f32, shape=(N,), split=0, **options)


@qd.kernel
def shift(x: qd.types.ndarray(), y: qd.types.ndarray()):
    for i in range(N - 1):
        y[i] = x[i + 1]


@qd.kernel
def shift_back(x: qd.types.ndarray(), y: qd.types.ndarray()):
    for i in range(1, N):
        y[i] = x[i - 1]


def lost(rank):
    """A rank ends before the others are done with it."""
    x, y = make(), make()
    if rank == 1:
        sys.stdout.flush()
        os._exit(0) if "quietly" in sys.argv else time.sleep(60)
    shift(x, y)


def lost_later(rank):
    """A rank ends after a few launches."""
    x, y = make(), make()
    shift(x, y)
    if rank == 1:
        sys.stdout.flush()
        time.sleep(60)
    x.fill(1.0)
    shift(x, y)


def other_kernel(rank):
    """Ranks launch different kernels."""
    x, y = make(), make()
    (shift if rank == 0 else shift_back)(x, y)


def other_shape(rank):
    """Ranks combine arrays of different sizes."""
    qd.distributed.all_reduce(np.zeros(3 + rank))


def known_kernels():
    """Two arrays on which the ranks have launched both kernels, as all know."""
    x, y = make(), make()
    shift(x, y)
    shift_back(x, y)
    return x, y


def other_graph(rank):
    """Ranks capture the same kernels in different orders."""
    x, y = known_kernels()
    with qd.graph.capture() as graph:
        for kernel in (shift, shift_back) if rank == 0 else (shift_back, shift):
            kernel(x, y)
    graph.launch()


def shorter_graph(rank):
    """A rank captures fewer launches."""
    x, y = known_kernels()
    with qd.graph.capture() as graph:
        shift(x, y)
        if rank == 0:
            shift_back(x, y)
    graph.launch()


def graph_for_kernel(rank):
    """A rank launches a graph, another one a kernel."""
    x, y = make(), make()
    shift(x, y)
    with qd.graph.capture() as graph:
        shift(x, y)
    if rank == 0:
        graph.launch()
    shift_back(x, y)


def lost_in_a_graph(rank):
    """A rank does not launch the graph again."""
    x, y = make(), make()
    with qd.graph.capture() as graph:
        x.fill(1.0)
        shift(x, y)
    graph.launch()
    if rank == 1:
        sys.stdout.flush()
        time.sleep(60)
    graph.launch()


PROGRAMS = (lost, lost_later, other_kernel, other_shape, other_graph, shorter_graph, graph_for_kernel, lost_in_a_graph)


def main():
    # On a busy machine, the processes may start further apart than the timeout.
    MPI.COMM_WORLD.Barrier()
    qd.distributed.init(timeout=3.0)
    qd.init(arch=qd.cpu)
    {program.__name__: program for program in PROGRAMS}[sys.argv[1]](qd.distributed.rank())
    print("no error")


if __name__ == "__main__":
    main()
