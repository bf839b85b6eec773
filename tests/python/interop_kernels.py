"""Kernels that tests of arrays of other libraries share."""

import octants as qd


@qd.kernel
def add(x: qd.types.ndarray(), value: qd.f32):
    for I in qd.grouped(x):
        x[I] += value


@qd.kernel
def copy(y: qd.types.ndarray(), x: qd.types.ndarray()):
    for I in qd.grouped(y):
        y[I] = x[I]


@qd.kernel
def slow_ones(x: qd.types.ndarray(dtype=qd.f32, ndim=1), rounds: qd.i32):
    qd.loop_config(serialize=True)
    for _ in range(1):
        s = 1
        for k in range(rounds):
            s = (s * 1103515245 + k) & 0x7FFFFFFF
        for i in range(x.shape[0]):
            x[i] = 1.0 if s != 123456789 else 2.0
