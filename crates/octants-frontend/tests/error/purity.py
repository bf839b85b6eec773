"""Kernels that are declared to depend on their arguments alone, and do not."""

import octants as qd

x = qd.field(qd.f32, shape=4)
scale = 3
thing = qd.opaque(n=3)


@qd.func
def uses_a_global(a):
    return a + scale  #~ ERROR [PURE.VIOLATION] kernel `in_a_function` may depend only on its arguments #~ AT scale


@qd.kernel(fastcache=True)
def a_number() -> qd.i32:
    return scale  #~ ERROR but it uses `scale` from an outer scope #~ AT scale #~ HINT pass `scale` as an argument


@qd.kernel(fastcache=True)
def a_field():
    x[0] = 1.0  #~ ERROR but it uses `x` from an outer scope #~ AT x


@qd.kernel(fastcache=True)
def an_attribute() -> qd.i32:
    return thing.n  #~ ERROR but it uses the attribute `n` of an object from an outer scope #~ AT thing.n


@qd.kernel(fastcache=True)
def in_a_function() -> qd.i32:
    return uses_a_global(1)
