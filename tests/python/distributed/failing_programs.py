"""Programs of several ranks that fail: `mpiexec -n 2 python failing_programs.py NAME FOLDER`."""

import os
import sys
import time

import numpy as np

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


def captured(_):
    """A graph would not exchange rows."""
    x, y = make(), make()
    with qd.graph.capture():
        shift(x, y)


def main():
    qd.distributed.init(timeout=3.0)
    qd.init(arch=qd.cpu)
    {p.__name__: p for p in (lost, lost_later, other_kernel, other_shape, captured)}[sys.argv[1]](qd.distributed.rank())
    print("no error")


if __name__ == "__main__":
    main()
