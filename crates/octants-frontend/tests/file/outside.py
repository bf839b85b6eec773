"""What kernels reach outside: objects, template arguments, dataclasses, captured arrays."""

import dataclasses

import octants as qd

captured = qd.ndarray(qd.f32, shape=4)
thing = qd.opaque(n=3, inner=qd.opaque(name="deep", xs=(1, 2)))
x = qd.field(qd.f32, shape=4)
y = qd.field(qd.f32, shape=8)


@qd.data_oriented
class Solver:
    n = 4
    grid = qd.Vector.field(2, qd.f32, shape=(4, 4))
    array = qd.ndarray(qd.i32, shape=2)

    @qd.func
    def at(self, i):
        return self.grid[i, 0].x * self.n

    @qd.kernel
    def step(self, dt: qd.f32) -> qd.f32:
        for i, j in self.grid:
            self.grid[i, j] *= dt
        return self.at(1) + self.array[0]


@dataclasses.dataclass
class Inner:
    w: qd.types.ndarray(qd.f32, 1)
    k: qd.i32


@dataclasses.dataclass
class State:
    a: qd.types.ndarray(qd.f32, 2)
    dt: qd.f32
    inner: Inner


@qd.func
def inside(s: State, i):
    return s.a[i, 0] * s.dt + s.inner.k


@qd.func
def early(s: State, i):
    if i > s.inner.k:
        return s.dt
    return s.a[i, 1] + s.inner.w[i]


@qd.kernel
def attributes(a: qd.i32) -> qd.i32:
    return a + thing.n + thing.inner.xs[1]


@qd.kernel
def captures() -> qd.f32:
    return captured[1]


@qd.kernel
def template_field(f: qd.template() = x, n: qd.Template = 3) -> qd.f32:
    return f[n] + f.shape[0]


@qd.kernel
def strided(a: qd.types.ndarray(qd.f32, 2, strided=True)) -> qd.f32:
    return a[1, 2]


@qd.kernel
def dataclass(s: State) -> qd.f32:
    r = 0.0
    for i in range(4):
        r += inside(s, i) + early(s, i)
    return r + s.inner.w[2]


@qd.kernel
def same_field_twice(f: qd.template() = x, g: qd.template() = x, h: qd.template() = y):
    for i in f:
        f[i] = g[i] + h[i]
