"""Calls in calls: dataclasses passed on, defaults, recursion of real functions, loops in functions."""

import dataclasses

import octants as qd

x = qd.field(qd.f32, shape=8)
n = qd.field(qd.i32, shape=())
vec3 = qd.types.vector(3, qd.f32)


@dataclasses.dataclass
class D:
    a: qd.types.ndarray(qd.f32, 1)
    k: qd.i32


@qd.func
def inner(d: D, i):
    if i > d.k:
        return d.a[i]
    return 0.0


@qd.func
def between(d: D, i):
    return inner(d, i) + d.k


@qd.func
def outer(d: D, i):
    if i > 2:
        return between(d, i) + inner(d, 3)
    return inner(d, i + 1)


@qd.kernel
def nested_dataclass(d: D) -> qd.f32:
    r = 0.0
    for i in range(4):
        r += outer(d, i) + inner(d, i)
    return r


@qd.real_func
def fact(k: qd.i32) -> qd.i32:
    if k < 2:
        return 1
    return k * fact(k - 1)


@qd.kernel
def recursion(a: qd.i32) -> qd.i32:
    return fact(a)


@qd.kernel
def spec(a: qd.f32):
    print(f"{a!r}")


@qd.kernel
def order(a: qd.i32) -> qd.i32:
    s = a
    t = (s, qd.atomic_add(s, 1))
    return t[0]


@qd.func
def many(a, b=1, c=vec3(1.0)):
    return c.x + b * a


@qd.kernel
def defaults(a: qd.f32) -> qd.f32:
    return many(a) + many(a, 2) + many(a, c=vec3(2.0))


@qd.func
def grad_like(f: qd.template(), g: qd.template()):
    for I in qd.grouped(f):
        f[I] = g[I] * 2


@qd.kernel
def calls_loop(v: qd.types.ndarray(qd.f32, 1), w: qd.types.ndarray(qd.f32, 1)):
    grad_like(v, w)
    grad_like(x, x)


@qd.kernel
def ternary_static(a: qd.i32) -> qd.i32:
    k = 3 if qd.static(True) else undefined
    return k + a


@qd.func
def rec_static(a, k: qd.template()):
    if qd.static(k == 0):
        return a
    else:
        return rec2(a, k - 1)


@qd.func
def rec2(a, k: qd.template()):
    return a * k


@qd.kernel
def u(a: qd.i32) -> qd.i32:
    return rec_static(a, 3)


@qd.kernel
def matrix_of_vectors(a: vec3, b: vec3) -> qd.types.matrix(2, 3, qd.f32):
    return qd.Matrix([a, b])


@qd.kernel
def print_sep(a: qd.i32):
    print(a, a, sep="")
    print(f"a{{}}={a:5d}")


@qd.kernel
def vec_any(a: vec3) -> qd.i32:
    r = 0
    if (a > 0).any() and not (a < 1).all():
        r = 1
    return r
