"""Kernels that are declared to depend on their arguments alone, and do not."""

import octants as qd

x = qd.field(qd.f32, shape=4)
scale = 3
thing = qd.opaque(n=3)


@qd.func
def uses_a_global(a):
    return a + scale  #~ ERROR [PURE.VIOLATION] kernel `in_a_function` is declared to depend on its arguments alone #~ AT scale


@qd.kernel(fastcache=True)
def a_number() -> qd.i32:
    return scale  #~ ERROR but uses `scale` of the scope around it #~ AT scale #~ HINT pass `scale` as an argument


@qd.kernel(fastcache=True)
def a_field():
    x[0] = 1.0  #~ ERROR but uses `x` of the scope around it #~ AT x


@qd.kernel(fastcache=True)
def an_attribute() -> qd.i32:
    return thing.n  #~ ERROR but uses attribute `n` of an object of the scope around it #~ AT thing.n


@qd.kernel(fastcache=True)
def in_a_function() -> qd.i32:
    return uses_a_global(1)
