"""Threads that update the same memory: atomics, reductions, histograms."""

# mypy: ignore-errors
# Kernels are Python in form only.

from __future__ import annotations

import numpy as np

import octants as qd
from octants.selftest.registry import check, close, equal, require

N = 100_000


@check()
def reductions_of_integers() -> None:
    """Sums, extrema and bitwise reductions, exactly."""

    @qd.kernel
    def reduce(x: qd.types.ndarray(dtype=qd.i32, ndim=1), out: qd.types.ndarray(dtype=qd.i64, ndim=1)):
        for i in x:
            out[0] += qd.cast(x[i], qd.i64)
            qd.atomic_min(out[1], qd.cast(x[i], qd.i64))
            qd.atomic_max(out[2], qd.cast(x[i], qd.i64))
            qd.atomic_or(out[3], qd.cast(x[i], qd.i64))
            qd.atomic_and(out[4], qd.cast(x[i], qd.i64))
            qd.atomic_xor(out[5], qd.cast(x[i], qd.i64))

    x = np.random.default_rng(1).integers(1, 1 << 30, N, dtype=np.int32)
    out = np.array([0, 1 << 40, -(1 << 40), 0, -1, 0])
    reduce(x, out)
    wide = x.astype(np.int64)
    want = [wide.sum(), x.min(), x.max(), np.bitwise_or.reduce(wide), np.bitwise_and.reduce(wide)]
    equal(out, [*want, np.bitwise_xor.reduce(wide)], "out")


def _check_float_sums(of: object, kind: type[np.floating], relative: float) -> None:
    @qd.kernel
    def reduce(x: qd.types.ndarray(dtype=of, ndim=1), out: qd.types.ndarray(dtype=of, ndim=1)):
        for i in x:
            out[0] += x[i]
            out[1] -= x[i]
            qd.atomic_min(out[2], x[i])
            qd.atomic_max(out[3], x[i])

    for n in (1, 33, 1000, N):
        x = np.random.default_rng(n).uniform(-1, 3, n).astype(kind)
        out = np.array([0, 0, 9, -9], dtype=kind)
        reduce(x, out)
        total = x.astype(np.float64).sum()
        name = np.dtype(kind).name
        close(out[:2], [total, -total], relative, relative, f"sum of {n} {name}")
        equal(out[2:], [x.min(), x.max()], f"extrema of {n} {name}")


@check()
def reductions_of_floats() -> None:
    """Sums and extrema of f32 and f64, of few and of many elements."""
    _check_float_sums(qd.f32, np.float32, 3e-5)
    _check_float_sums(qd.f64, np.float64, 1e-12)


@check()
def results_of_sums() -> None:
    """A local variable of a kernel that is summed up in parallel and returned."""

    @qd.kernel
    def norm(x: qd.types.ndarray(dtype=qd.f32, ndim=1)) -> qd.f32:
        total = 0.0
        for i in x:
            total += x[i] * x[i]
        return qd.sqrt(total)

    x = np.random.default_rng(2).random(N, dtype=np.float32)
    close(norm(x), np.linalg.norm(x.astype(np.float64)), 1e-5, what="norm")


@check()
def histograms() -> None:
    """Many threads update few elements, of fields and of arrays."""
    counts = qd.field(qd.i32, shape=256)

    @qd.kernel
    def count(x: qd.types.ndarray(dtype=qd.i32, ndim=1), bins: qd.types.ndarray(dtype=qd.i32, ndim=1)):
        for i in x:
            counts[x[i]] += 1
        for i in x:
            bins[x[i]] += 2

    x = np.minimum(np.random.default_rng(3).geometric(0.03, N), 255).astype(np.int32)
    bins = np.zeros(256, dtype=np.int32)
    count(x, bins)
    want = np.bincount(x, minlength=256)
    equal(counts.to_numpy(), want, "counts")
    equal(bins, 2 * want, "bins")


@check()
def scattered_floats() -> None:
    """Atomic adds of f32 and f64 from many threads."""

    @qd.kernel
    def scatter(
        x: qd.types.ndarray(dtype=qd.i32, ndim=1),
        a: qd.types.ndarray(dtype=qd.f32, ndim=1),
        b: qd.types.ndarray(dtype=qd.f64, ndim=1),
    ):
        for i in x:
            a[x[i]] += 0.5
            b[x[i]] += 0.25

    x = np.random.default_rng(4).integers(0, 5000, N, dtype=np.int32)
    a, b = np.zeros(5000, dtype=np.float32), np.zeros(5000)
    scatter(x, a, b)
    want = np.bincount(x, minlength=5000)
    equal(a, want * 0.5, "a")
    equal(b, want * 0.25, "b")


@check()
def atomics_give_old_values() -> None:
    """Atomics return old values: each thread gets a distinct number. Compare and swap."""
    taken, next_one = qd.field(qd.i32, shape=N), qd.field(qd.i32, shape=())
    winner = qd.field(qd.i32, shape=())

    @qd.kernel
    def take():
        winner[None] = -1
        for i in range(N):
            at = qd.atomic_add(next_one[None], 1)
            taken[at] += 1
            qd.atomic_cas(winner[None], -1, i)

    take()
    equal(taken.to_numpy(), np.ones(N), "taken")
    equal(next_one[None], N, "next_one")
    require(0 <= winner[None] < N, f"winner is {winner[None]}")
