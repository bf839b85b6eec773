"""Comparisons, chained ones, short circuit, conditional expressions."""

import octants as qd


@qd.kernel
def compare(a: qd.i32, b: qd.f32) -> qd.u1:
    return (a < 3) == (b >= a)


@qd.kernel
def chained(a: qd.i32, b: qd.i32, c: qd.i32) -> qd.u1:
    return 0 <= a < b != c


@qd.kernel
def chained_constants(a: qd.i32) -> qd.i32:
    x = 0
    if 1 < 2 < 3:
        x = a
    return x


@qd.kernel
def short_circuit(x: qd.types.ndarray(qd.i32, 1), i: qd.i32) -> qd.u1:
    return i >= 0 and x[i] > 0 and x[i] < 9


@qd.kernel
def either(x: qd.types.ndarray(qd.i32, 1), i: qd.i32) -> qd.i32:
    r = 0
    if i < 0 or x[i] == 0 or not i:
        r = 1
    return r


@qd.kernel
def constants_decide(a: qd.i32) -> qd.u1:
    return True and a > 0 or False


@qd.kernel
def conditional(a: qd.i32, b: qd.f32) -> qd.f32:
    return a if a > 0 else b


@qd.kernel
def nested_conditional(a: qd.i32) -> qd.i32:
    return 1 if a > 0 else -1 if a < 0 else 0


@qd.kernel
def static_conditional(a: qd.i32) -> qd.i32:
    n = qd.static(3)
    return a if qd.static(n > 2) else missing


@qd.kernel
def vectors(a: qd.types.vector(3, qd.f32), b: qd.types.vector(3, qd.f32)) -> qd.types.vector(3, qd.f32):
    return qd.select(a > b, a, b)


@qd.kernel
def walrus(a: qd.i32) -> qd.i32:
    b = (c := a + 1) * 2
    return b + c
