"""Data: fields and arrays in all layouts, vectors, matrices and structs, loops over them."""

# mypy: ignore-errors
# Kernels are Python in form only.

from __future__ import annotations

import numpy as np

import octants as qd
from octants.selftest.registry import check, close, equal

Particle = qd.types.struct(place=qd.math.vec3, mass=qd.f32, tag=qd.i32)


@check()
def fields_and_their_layouts() -> None:
    """Dense fields over one to three axes, nested and with offsets."""
    plain = qd.field(qd.i32, shape=(5, 7, 11))
    nested, other = qd.field(qd.f32), qd.field(qd.f32)
    qd.root.dense(qd.ij, 4).dense(qd.ij, 8).place(nested, other)
    moved = qd.field(qd.i32, shape=(16,), offset=(-8,))

    @qd.kernel
    def fill():
        for i, j, k in plain:
            plain[i, j, k] = 100 * i + 10 * j + k
        for i, j in nested:
            nested[i, j] = i * 32 + j
            other[i, j] = nested[i, j] * 2
        for i in moved:
            moved[i] = i * i

    fill()
    i, j, k = np.indices((5, 7, 11))
    equal(plain.to_numpy(), 100 * i + 10 * j + k, "plain")
    i, j = np.indices((32, 32))
    equal(nested.to_numpy(), i * 32 + j, "nested")
    equal(other.to_numpy(), 2 * (i * 32 + j), "other")
    equal(moved.to_numpy(), np.arange(-8, 8) ** 2, "moved")


@check()
def arrays_of_the_device_and_of_the_host() -> None:
    """Ndarrays and numpy arrays, also strided ones, as arguments of one kernel."""

    @qd.kernel
    def add(
        x: qd.types.ndarray(dtype=qd.f32, ndim=2),
        y: qd.types.ndarray(dtype=qd.f32, ndim=2),
        out: qd.types.ndarray(dtype=qd.f32, ndim=2),
    ):
        for i, j in out:
            out[i, j] = x[i, j] + 2 * y[i, j]

    rng = np.random.default_rng(1)
    a, b = rng.random((33, 65), dtype=np.float32), rng.random((65, 66), dtype=np.float32)
    x, out = qd.ndarray(qd.f32, shape=(33, 65)), np.zeros((33, 65), dtype=np.float32)
    x.from_numpy(a)
    add(x, b.T[::2], out)
    close(out, a + 2 * b.T[::2].astype(np.float64), 1e-6, what="out")
    add(x, out, x)
    close(x.to_numpy(), a + 2 * out.astype(np.float64), 1e-6, what="x")


@check()
def large_arrays_in_wide_steps() -> None:
    """Vectorized accesses: aligned and unaligned arrays of a million elements, with a remainder."""

    @qd.kernel
    def scale(x: qd.types.ndarray(dtype=qd.f32, ndim=1), y: qd.types.ndarray(dtype=qd.f32, ndim=1)):
        for i in x:
            y[i] = 3 * x[i] + 1

    for n in (1 << 20, (1 << 20) + 3):
        x = np.arange(n, dtype=np.float32)
        for start in (0, 1):
            y = np.zeros(n, dtype=np.float32)
            scale(x[start:], y[start:])
            equal(y[start:], 3 * x[start:] + 1, "y")


@check()
def vectors_and_matrices() -> None:
    """Products, norms and inverses of vectors and matrices, and fields of them."""
    n = 64
    matrices = qd.Matrix.field(3, 3, dtype=qd.f64, shape=n)
    vectors = qd.Vector.field(3, dtype=qd.f64, shape=n)
    results = qd.Vector.field(3, dtype=qd.f64, shape=n)

    @qd.kernel
    def solve():
        for i in vectors:
            results[i] = matrices[i].inverse() @ vectors[i] + vectors[i].norm() * qd.Vector([1.0, 0.0, 0.0])

    rng = np.random.default_rng(2)
    m, v = rng.random((n, 3, 3)) + 2 * np.eye(3), rng.random((n, 3))
    matrices.from_numpy(m)
    vectors.from_numpy(v)
    solve()
    want = np.linalg.solve(m, v[..., None])[..., 0]
    want[:, 0] += np.linalg.norm(v, axis=1)
    close(results.to_numpy(), want, 1e-9, 1e-9, "results")


@check()
def structs() -> None:
    """Fields of structs, and structs as values."""
    particles = Particle.field(shape=100)

    @qd.func
    def moved(p: Particle, by: qd.f32):
        p.place += by * p.mass
        return p

    @qd.kernel
    def make():
        for i in particles:
            p = Particle(place=qd.math.vec3(i, 2 * i, 3 * i), mass=0.5, tag=i)
            particles[i] = moved(p, 4.0)

    make()
    got = particles.to_numpy()
    i = np.arange(100)
    equal(got["place"], np.stack([i, 2 * i, 3 * i], axis=1) + 2.0, "place")
    equal(got["mass"], np.full(100, 0.5), "mass")
    equal(got["tag"], i, "tag")


@check()
def loops_branches_and_functions() -> None:
    """Control flow of several kinds, with serial tasks between parallel ones."""
    n = 200
    steps, total = qd.field(qd.i32, shape=n), qd.field(qd.i32, shape=())

    @qd.func
    def collatz(start: qd.i32) -> qd.i32:
        value, count = start, 0
        while value != 1:
            value = value // 2 if value % 2 == 0 else 3 * value + 1
            count += 1
            if count > 1000:
                break
        return count

    @qd.kernel
    def run() -> qd.i32:
        for i in range(1, n):
            steps[i] = collatz(i)
        total[None] = 7
        for i in range(n):
            for j in range(10):
                if j % 3 == 0:
                    continue
                steps[i] += j
        return total[None] + steps[27]

    def by_python(value: int) -> int:
        count = 0
        while value != 1:
            value = value // 2 if value % 2 == 0 else 3 * value + 1
            count += 1
        return count

    rest = sum(j for j in range(10) if j % 3)
    result = run()
    equal(steps.to_numpy(), [rest] + [by_python(i) + rest for i in range(1, n)], "steps")
    equal(result, 7 + by_python(27) + rest, "result")
