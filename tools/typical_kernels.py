"""Compiles and runs kernels such as most programs have, once each; see `function_order.py`."""

from __future__ import annotations

import numpy as np

import octants as qd

qd.init(arch=qd.cpu)
N = 64
positions = qd.Vector.field(3, qd.f32, shape=N, needs_grad=True)
grid = qd.field(qd.f32, shape=(16, 16, 16))
counts = qd.field(qd.i32, shape=16)
loss = qd.field(qd.f32, shape=(), needs_grad=True)


@qd.func
def weight(distance):
    """A weight with a condition."""
    return qd.max(0.0, 1.0 - distance) ** 2 if distance < 1.0 else 0.0


@qd.kernel
def scale(values: qd.types.ndarray(dtype=qd.f32, ndim=2), factor: qd.f32) -> qd.f32:
    """A loop over a matrix, with a sum."""
    total = 0.0
    for i, j in values:
        values[i, j] = qd.sin(values[i, j]) * factor + i % 3
        total += values[i, j]
    return total


@qd.kernel
def attract():
    """All pairs of points."""
    for i in positions:
        force = qd.Vector([0.0, 0.0, 0.0])
        for j in range(N):
            if i != j:
                offset = positions[j] - positions[i]
                force += weight(offset.norm(1e-6)) * offset
        positions[i] += 1e-3 * force


@qd.kernel
def scatter():
    """Atomic additions to a grid."""
    for i in positions:
        cell = qd.floor(positions[i] * 16.0).cast(qd.i32) % 16
        for offset in qd.static(qd.grouped(qd.ndrange(2, 2, 2))):
            qd.atomic_add(grid[(cell + offset) % 16], qd.exp(-positions[i].dot(positions[i])))
        counts[cell.x] += 1


@qd.kernel
def relax(steps: qd.i32):
    """Serial loops with an exit."""
    qd.loop_config(serialize=True)
    for step in range(steps):
        k = 0
        while k < 15:
            if grid[k, k, step] > 0.5:
                break
            grid[k, k, step] = qd.sqrt(qd.abs(grid[k + 1, k, step])) // 0.25
            k += 1


@qd.kernel
def energy():
    """A sum, whose gradient is taken."""
    for i in positions:
        loss[None] += positions[i].norm_sqr() * qd.cos(positions[i].x)


positions.from_numpy(np.linspace(0, 1, 3 * N, dtype=np.float32).reshape(N, 3))
scale(np.ones((8, 8), dtype=np.float32), 2.0)
attract()
scatter()
relax(4)
with qd.ad.Tape(loss):
    energy()
positions.grad.to_numpy()
