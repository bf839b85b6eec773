"""Tuples, unpacking, slices, comprehensions, dicts, starred arguments."""

import octants as qd

vec3 = qd.types.vector(3, qd.f32)
sizes = (2, 3)
named = {"a": 1, "b": 2}


@qd.kernel
def swap(a: qd.i32, b: qd.i32) -> qd.i32:
    x, y = a, b
    x, y = y, x
    (p, q), r = (x, y), 1
    return x - y + p + q + r


@qd.kernel
def unpack_vector(v: vec3) -> qd.f32:
    x, y, z = v
    return x + y * z


@qd.kernel
def sliced(v: vec3) -> qd.f32:
    u = qd.Vector([0.0, 0.0, 0.0])
    u[0:2] = v[1:3]
    w = v[::-1]
    u[1:] = [1.0, 2.0]
    return u[0] + w[0] + v[2]


@qd.kernel
def rows(m: qd.types.matrix(2, 3, qd.f32)) -> qd.f32:
    a = m[0, :]
    b = m[:, 1]
    c = m[1]
    return a.sum() + b.sum() + c[2]


@qd.kernel
def comprehended(v: vec3) -> qd.f32:
    doubled = [2 * v[i] for i in range(3)]
    even = qd.Vector([v[i] for i in range(3) if i % 2 == 0])
    pairs = [(i, j) for i in range(2) for j in range(i, 2)]
    return doubled[1] + even[1] + len(pairs)


@qd.kernel
def chained_assignment(a: qd.i32) -> qd.i32:
    x = y = a + 1
    x += 1
    return x * y


@qd.func
def three(a, b, c):
    return a + b * c


@qd.kernel
def starred(a: qd.i32) -> qd.i32:
    args = (a, 2)
    kw = {"c": 3}
    return three(*args, 1) + three(a, 2, **kw) + three(*sizes, a)


@qd.kernel
def dicts(a: qd.i32) -> qd.i32:
    d = {"x": a, "y": 2}
    return d["x"] + d["y"] + named["b"]


@qd.kernel
def lists_grow(a: qd.i32) -> qd.i32:
    items = []
    for i in qd.static(range(3)):
        items.append(a * i)
    return items[2] + len(items)


@qd.kernel
def dynamic_index(a: qd.i32, i: qd.i32) -> qd.i32:
    t = (a, 2, 3)
    return t[i]
