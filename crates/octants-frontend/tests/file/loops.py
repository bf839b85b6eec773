"""Every kind of loop."""

import octants as qd

N = 4
x = qd.field(qd.f32, shape=(8, 4))
v = qd.Vector.field(2, qd.f32, shape=8)
moved = qd.field(qd.i32, shape=(4, 4), offset=(-2, 1))
zero_d = qd.field(qd.f32, shape=())


@qd.kernel
def ranges(n: qd.i32):
    for i in range(n):
        x[i, 0] = i
    for i in range(2, N):
        for j in range(i, n):
            x[i, j] = j


@qd.kernel
def ndrange(n: qd.i32):
    for i, j in qd.ndrange(n, (2, 4)):
        x[i, j] = i - j
    for i, j in qd.ndrange(3, range(1, 4)):
        x[i, j] = 0


@qd.kernel
def axes(n: qd.i32):
    for i, j, k in qd.ndrange(2, n, 4, axes=(2, 0, 1)):
        x[i, j] += k


@qd.kernel
def grouped(n: qd.i32):
    for I in qd.grouped(qd.ndrange(n, (1, 3))):
        x[I] = I[0] + I.y
    for I in qd.grouped(x):
        x[I] = I.sum()


@qd.kernel
def fields():
    for i, j in x:
        x[i, j] = i * j
    for i in v:
        v[i] = [i, 1]
    for i, j in moved:
        moved[i, j] = 1
    for I in qd.grouped(moved):
        moved[I] = 2
    for _ in qd.grouped(zero_d):
        zero_d[None] = 1


@qd.kernel
def arrays(a: qd.types.ndarray(qd.f32, 2), b: qd.types.ndarray(qd.types.vector(2, qd.f32), 1)):
    for i, j in a:
        a[i, j] = i
    for i in b:
        b[i].x = i
    for i in range(a.shape[0]):
        a[i, 0] = a.shape[1]


@qd.kernel
def static_loops(a: qd.i32) -> qd.i32:
    s = a
    for i in qd.static(range(3)):
        s += i
    for i, j in qd.static(qd.ndrange(2, 2)):
        if qd.static(i == j):
            continue
        s += i * 10 + j
    for i in qd.static(range(6, 0, -2)):
        if qd.static(i == 2):
            break
        s += i
    for i, w in qd.static(enumerate([3, 5])):
        s += i * w
    for I in qd.static(qd.grouped(qd.ndrange(2, 1))):
        s += I[0]
    for p, q in qd.static(zip((1, 2), (3, 4))):
        s += p * q
    return s


@qd.kernel
def configured(n: qd.i32):
    qd.loop_config(block_dim=128, name="first")
    for i in range(n):
        x[i, 0] = 1
    qd.loop_config(serialize=True)
    for i in range(n):
        if i > 3:
            break
        x[i, 1] = x[i, 0]
    qd.loop_config(parallelize=8)
    for i in range(n):
        x[i, 2] = 1


@qd.kernel
def serial_inside(n: qd.i32):
    if n > 0:
        for i in range(n):
            x[i, 0] = 1
            if i == 2:
                break
    for i in range(n):
        if i == 1:
            continue
        x[i, 1] = 1


@qd.kernel
def index_is_private(n: qd.i32) -> qd.i32:
    s = 0
    for i in range(n):
        s += i
    for i in range(n):
        s += 2 * i
    return s


@qd.kernel
def wide_bounds(n: qd.i64, m: qd.u64, few: qd.i32):
    for i in range(n):
        x[i, 0] = 0
    for i, j in qd.ndrange(few, (2, m)):
        x[i, j] = 0
    for I in qd.grouped(qd.ndrange(few, m)):
        x[I] = 0


@qd.kernel
def unsigned_bound(n: qd.u32):
    for i in range(n):  #~ WARN from u32 to i32
        x[i, 0] = 0


@qd.kernel
def lost_name(n: qd.i32):
    qd.loop_config(name="steps")
    for i in range(n):
        qd.loop_config(name="inner")
        for j in range(i):  #~ WARN the name `inner` of this loop has no effect
            x[i, j] = i
