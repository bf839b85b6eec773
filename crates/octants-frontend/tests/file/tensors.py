"""Vectors and matrices: construction, components, methods."""

import octants as qd

vec2 = qd.types.vector(2, qd.f32)
vec3 = qd.types.vector(3, qd.f32)
mat23 = qd.types.matrix(2, 3, qd.f32)
mat2 = qd.types.matrix(2, 2, qd.f32)
gravity = qd.Vector([0.0, -9.8])
table = qd.Matrix([[1, 2], [3, 4]])


@qd.func
def tensor_method_doubled(m, by=2):
    return m * by


@qd.kernel
def construct(a: qd.f32, b: vec2):
    u = qd.Vector([a, 1, 2])
    m = qd.Matrix([[1, 2], [3, 4]], qd.f32)
    w = vec3(a, b)
    z = vec3(0.0)
    k = mat2([[a, 0.0], [0.0, a]])
    r = qd.Matrix([b, b])
    print(u, m, w, z, k, r)


@qd.kernel
def swizzles(a: vec3) -> vec3:
    b = a.zyx
    c = a.xy + a.rg
    b.xz = c
    b.y = a.z
    return b + a.xxx


@qd.kernel
def products(m: mat23, v: vec3, s: mat2) -> vec2:
    return m @ v + s @ vec2(1.0) * 2 + vec2(1.0) @ s


@qd.kernel
def methods(v: vec3, w: vec3, m: mat2) -> qd.f32:
    a = v.dot(w) + v.norm() + v.norm_sqr() + v.norm(1e-3)
    b = v.cross(w).sum() + v.normalized().max() + v.min() + v.norm_inv()
    c = v.outer_product(w).trace() + m.transpose()[0, 1] + m.trace()
    d = (v > w).any() + (v == w).all() + v.n + m.m + len(v)
    e = v.cast(qd.i32).sum() + m.doubled()[0, 0] + m.doubled(by=3)[1, 1]
    return a + b + c + d + e


@qd.kernel
def components(m: mat2, i: qd.i32, j: qd.i32) -> qd.f32:
    k = m
    k[i, j] = 1.0
    k[0, j] += 2.0
    u = m[0, :]
    u[i] = 3.0
    u.fill(2.0)
    return k[1, 1] + m[i, 1] + u[j]


@qd.kernel
def constants(i: qd.i32) -> qd.f32:
    g = gravity
    g.x = 1.0
    return g.y + gravity[1] + table[1, 0] + table[i, 0] + (gravity * 2).x


@qd.kernel
def broadcast(v: vec3, a: qd.i32) -> vec3:
    u = v
    u = 1
    u += a
    return v * a + u / 2 - [1.0, 2.0, 3.0]


@qd.kernel
def elementwise(v: vec3) -> vec3:
    return qd.max(v, 0.0) + qd.sin(v) + qd.select(v > 0, v, -v) + abs(v) + qd.cast(v, qd.i32)


@qd.kernel
def shapes(a: qd.types.ndarray(mat23, 1)) -> qd.i32:
    return a.shape[0] + a[0].n * a.n + a.m + a[0].shape[1] + a[0].get_shape()[0]
