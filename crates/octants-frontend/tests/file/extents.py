"""Axes of 2**31 elements and more, of which extents and indices of loops over them are i64; indices held inside an
array."""

import octants as qd

flat = qd.field(qd.u8, shape=2147483658)
moved = qd.field(qd.u8, shape=16, offset=2147483640)
tall = qd.field(qd.u8, shape=(3, 2147483658))
square = qd.field(qd.u8, shape=(65536, 65536))


@qd.kernel
def fields():
    for i in flat:
        flat[i] = 1
    for i in moved:
        moved[i] = 1
    for i, j in tall:
        tall[i, j] = 1
    for I in qd.grouped(tall):
        tall[I] = 2
    # No axis of its own is long.
    for i, j in square:
        square[i, j] = 1


@qd.kernel
def shapes() -> qd.i64:
    n = flat.shape[0]
    for i in range(flat.shape[0]):
        flat[i] = 1
    for i in range(1, n - 1):
        flat[i] = 2
    return n + square.shape[0]


@qd.kernel
def compile_time(a: qd.i32) -> qd.i32:
    b = a
    if qd.static(flat.shape[0] > 2147483647):
        b += 1
    return b


@qd.kernel
def arrays(long: qd.types.ndarray(qd.u8, 1, wide=True), short: qd.types.ndarray(qd.u8, 1)) -> qd.i64:
    for i in long:
        long[i] = 1
    for i in range(long.shape[0]):
        long[i] = short[i % short.shape[0]]
    for i in short:
        short[i] = 1
    long.fill(3)
    return long.shape[0]


@qd.kernel
def constants():
    for i in range(10):
        flat[i] = 1
    for i in range(2147483648):
        flat[i] = 1
    for i in range(-5, 2147483648):
        flat[i + 5] = 1


@qd.kernel
def clamped(a: qd.types.ndarray(qd.u8, 2, boundary="clamp"), i: qd.i32, j: qd.i64):
    a[i - 1, j] = a[i, 3]
