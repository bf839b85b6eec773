"""Programs on split arrays, run by any number of ranks: `mpiexec -n 4 python split_programs.py NAME[,NAME...] FOLDER`,
or by one process on several devices: `python split_programs.py NAME FOLDER devices=4`.

Rank 0 writes what a program computed to `FOLDER/NAME.npz`.
"""

import sys
from pathlib import Path

import numpy as np

import octants as qd

N, M = 37, 11

# Particles of a rank, at most.
ROOM = 400


def heat(_):
    """A five-point stencil on two arrays by turns, with a maximum."""
    u = qd.field(qd.f32, shape=(N, M), split=0)
    v = qd.field(qd.f32, shape=(N, M), split=0)
    change = qd.field(qd.f32, shape=())

    @qd.kernel
    def start():
        for i, j in u:
            u[i, j] = qd.sin(0.3 * i) * qd.cos(0.5 * j) + i * j % 7

    @qd.kernel
    def step(a: qd.types.ndarray(qd.f32, ndim=2), b: qd.types.ndarray(qd.f32, ndim=2)):
        for i, j in qd.ndrange((1, N - 1), (1, M - 1)):
            b[i, j] = a[i, j] + 0.1 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1] - 4.0 * a[i, j])

    @qd.kernel
    def compare():
        for i, j in u:
            qd.atomic_max(change[None], abs(u[i, j] - v[i, j]))

    start()
    v.copy_from(u)
    for _ in range(10):
        step(u, v)
        step(v, u)
    compare()
    return {"u": u.to_numpy(), "v": v.to_numpy(), "change": change.to_numpy()}


def several_loops(_):
    """Loops of one kernel that read each other's rows, including a clamped one and one that runs only over rows."""
    a = qd.ndarray(qd.i32, shape=(N,), split=0)
    b = qd.ndarray(qd.i32, shape=(N,), split=0)
    c = qd.ndarray(qd.i64, shape=(N,), split=0)

    @qd.kernel
    def run(a: qd.types.ndarray(), b: qd.types.ndarray(), c: qd.types.ndarray()):
        for i in a:
            a[i] = i * i % 31
        for i in range(b.shape[0]):
            b[i] = a[qd.max(i - 1, 0)] + 10 * a[qd.min(i + 2, a.shape[0] - 1)]
        for i in range(2, N):
            c[i - 1] = qd.cast(b[i] - b[i - 2], qd.i64)
        for i in c:
            if i > 0:
                a[i] += b[i - 1]

    run(a, b, c)
    return {"a": a.to_numpy(), "b": b.to_numpy(), "c": c.to_numpy()}


def sums(_):
    """Reductions into fields, ndarrays and a histogram with nonzero initial contents."""
    x = qd.ndarray(qd.i32, shape=(N, M), split=0)
    total = qd.field(qd.i32, shape=())
    least = qd.field(qd.i32, shape=())
    bits = qd.field(qd.u32, shape=())
    counts = qd.ndarray(qd.i32, shape=(8,))
    columns = qd.field(qd.i64, shape=M)

    @qd.kernel
    def run(x: qd.types.ndarray(), counts: qd.types.ndarray()):
        for i, j in x:
            x[i, j] = (i * 13 + j * 7) % 29
        for i, j in x:
            total[None] += x[i, j]
            qd.atomic_min(least[None], x[i, j] - 100)
            qd.atomic_xor(bits[None], qd.cast(x[i, j], qd.u32) << 3)
        for i, j in x:
            counts[x[i, j] % 8] += 1
            columns[j] += qd.cast(x[i, j], qd.i64)

    total[None] = 1000
    least[None] = 5
    bits[None] = 7
    counts.fill(3)
    run(x, counts)
    run(x, counts)
    return {
        "total": total.to_numpy(),
        "least": least.to_numpy(),
        "bits": bits.to_numpy(),
        "counts": counts.to_numpy(),
        "columns": columns.to_numpy(),
    }


@qd.data_oriented
class Waves:
    """Vectors and matrices, reached through an object and a dataclass-like member."""

    def __init__(self):
        self.p = qd.field(qd.types.vector(3, qd.f64), shape=(N, M), split=0, halo=1)
        self.q = qd.field(qd.types.matrix(2, 2, qd.f32), shape=(N,), split=0, halo=1)

    @qd.kernel
    def step(self):
        for i, j in self.p:
            self.p[i, j] = qd.Vector([i + 0.5, j * 0.25, i * j * 1.0], dt=qd.f64)
        for i in range(1, N - 1):
            d = self.p[i + 1, 3] - self.p[i - 1, 2]
            self.q[i] = qd.Matrix([[d[0], d[1]], [d[2], 1.0]])


def resets(_):
    """Serial statements before and after a loop, which write memory that each rank has."""
    x = qd.ndarray(qd.i32, shape=(N,), split=0)
    total = qd.field(qd.i32, shape=())
    last = qd.field(qd.i32, shape=2)

    @qd.kernel
    def run(x: qd.types.ndarray(), start: qd.i32):
        total[None] = start
        for i in x:
            x[i] += i
            total[None] += x[i]
        last[1] = last[0]
        last[0] = total[None]

    run(x, 0)
    run(x, 1000)
    return {"x": x.to_numpy(), "last": last.to_numpy()}


def large(_):
    """Tasks that take so long that the interpreter is released, with messages, sums and periodic rows."""
    x = qd.ndarray(qd.i32, shape=(23, 30_000), split=0, halo=1, periodic=True)
    y = qd.ndarray(qd.i32, shape=(23, 30_000), split=0, halo=1, periodic=True)
    total = qd.field(qd.i64, shape=())

    @qd.kernel
    def step(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i, j in x:
            y[i, j] = (x[(i + 1) % 23, j] - 2 * x[(i - 1) % 23, j] + i + j) % 1000
        for i, j in y:
            total[None] += y[i, j]
            x[(i + 1) % 23, j] += y[i, j] % 3

    for _ in range(12):
        step(x, y)
        step(y, x)
    return {"x": x.to_numpy(), "y": y.to_numpy(), "total": total.to_numpy()}


def vectors(_):
    """Arrays of vectors and matrices in an object."""
    waves = Waves()
    waves.step()
    return {"p": waves.p.to_numpy(), "q": waves.q.to_numpy()}


def edges(_):
    """Iterations whose row is outside of the array, and clamped reads in addition to rows at another constant."""
    x = qd.ndarray(qd.i32, shape=(N,), split=0, halo=3)
    y = qd.ndarray(qd.i32, shape=(N,), split=0, halo=3)
    count = qd.field(qd.i32, shape=())

    @qd.kernel
    def run(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in x:
            x[i] = i * 3 % 17
        for i in range(-2, N + 3):
            count[None] += 1
            if 2 <= i < N:
                y[i - 2] = x[qd.min(i + 1, x.shape[0] - 1)] + 100 * x[qd.max(i - 3, 0)]

    run(x, y)
    return {"y": y.to_numpy(), "count": count.to_numpy()}


def scatters(_):
    """Sums into rows of neighbors: of several types, repeated, together with writes and reads, and read by a later
    loop."""
    x = qd.ndarray(qd.i32, shape=(N, M), split=0)
    y = qd.ndarray(qd.i32, shape=(N, M), split=0)
    wide = qd.field(qd.u64, shape=(N,), split=0, halo=3)
    force = qd.ndarray(qd.types.vector(2, qd.f32), shape=(N,), split=0)
    z = qd.ndarray(qd.i32, shape=(N, M), split=0)
    total = qd.field(qd.i32, shape=())

    @qd.kernel
    def run(x: qd.types.ndarray(), y: qd.types.ndarray(), z: qd.types.ndarray(), force: qd.types.ndarray()):
        for i, j in x:
            x[i, j] = (i * 13 + j * 7) % 29
        for i, j in x:
            if i + 1 < N:
                y[i + 1, j] += x[i, j] + x[qd.max(i - 2, 0), j]
            if i >= 1:
                y[i - 1, (j + 3) % M] -= 2 * x[i, j]
            qd.atomic_add(y[i, j], 5)
            total[None] += x[i, j]
        for i in range(N - 3):
            z[i, 0] = x[i, 1]
            wide[i + 3] += qd.cast(x[i, 2], qd.u64) << 33
            force[qd.min(i + 1, N - 1)] += qd.Vector([x[i, 3] * 0.5, 1.0])
            force[i] -= qd.Vector([x[i, 3] * 0.5, 1.0])
        for i, j in z:
            if 0 < i < N - 1:
                z[i, j] = y[i - 1, j] - y[i + 1, j]

    y.from_numpy(np.arange(N * M, dtype=np.int32).reshape(N, M))
    run(x, y, z, force)
    run(x, y, z, force)
    found = {"x": x, "y": y, "wide": wide, "force": force, "z": z, "total": total}
    return {name: array.to_numpy() for name, array in found.items()}


def row_sums(_):
    """Many iterations add to one row, their own or the next: threads have no copies of an array that is split."""
    x = qd.ndarray(qd.i32, shape=(N, 300), split=0)
    own = qd.ndarray(qd.i32, shape=(N,), split=0)
    following = qd.ndarray(qd.i32, shape=(N,), split=0)

    @qd.kernel
    def run(x: qd.types.ndarray(), own: qd.types.ndarray(), following: qd.types.ndarray()):
        for i, j in x:
            x[i, j] = i * j % 31
        for i, j in x:
            own[i] += x[i, j]
        for i, j in x:
            own[i] += 1
            if i + 1 < N:
                following[i + 1] += x[i, j]

    run(x, own, following)
    return {"own": own.to_numpy(), "following": following.to_numpy()}


def few_rows(_):
    """Fewer rows than ranks, so that ghost rows are those of ranks further away, and some ranks have none."""
    x = qd.ndarray(qd.i32, shape=(3,), split=0)
    y = qd.ndarray(qd.i32, shape=(3,), split=0)
    z = qd.ndarray(qd.i32, shape=(3,), split=0)

    @qd.kernel
    def run(x: qd.types.ndarray(), y: qd.types.ndarray(), z: qd.types.ndarray()):
        for i in range(-2, 3):
            if i >= 0:
                x[i] = i + 1
            if 0 <= i + 2 < 3:
                y[i + 2] += 10 * (i + 3)
        for i in x:
            if i + 2 < 3:
                y[i + 2] += 100 * x[i]
        for i in z:
            z[i] = y[qd.max(i - 2, 0)] + 1000 * y[qd.min(i + 2, 2)]

    run(x, y, z)
    return {"y": y.to_numpy(), "z": z.to_numpy()}


def float_scatter(_):
    """Sums of floats, whose order depends on the number of ranks."""
    x = qd.ndarray(qd.f64, shape=(N, M), split=0)
    y = qd.ndarray(qd.f32, shape=(N,), split=0, halo=1)
    x.from_numpy(np.random.default_rng(5).uniform(-1.0, 1.0, (N, M)))

    @qd.kernel
    def run(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i, j in qd.ndrange((1, N - 1), M):
            for d in qd.static(range(-1, 2)):
                y[i + d] += qd.cast(x[i, j] * (d + 2), qd.f32)

    run(x, y)
    return {"y": y.to_numpy()}


def gradients(_):
    """Gradients of parameters that all rows share: by a tape, through neighbors' rows, and manually."""
    x = qd.ndarray(qd.f64, shape=(N, M), split=0, halo=2)
    x.from_numpy(np.random.default_rng(5).uniform(-1.0, 1.0, (N, M)))
    gain = qd.field(qd.f64, shape=(M,), needs_grad=True)
    offset = qd.ndarray(qd.f64, shape=(1,), needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def measure(x: qd.types.ndarray(), offset: qd.types.ndarray()):
        for i, j in qd.ndrange((1, N - 1), M):
            loss[None] += (gain[j] * (x[i - 1, j] - x[i + 1, j]) - offset[0]) ** 2

    gain.from_numpy(np.linspace(0.5, 1.5, M))
    offset.fill(0.25)
    with qd.ad.Tape(loss):
        measure(x, offset)
    recorded = gain.grad.to_numpy(), offset.grad.to_numpy()
    # Added to the current contents.
    measure.grad(x, offset)
    return {
        "gain": recorded[0],
        "offset": recorded[1],
        "twice": np.concatenate([gain.grad.to_numpy(), offset.grad.to_numpy()]),
        "loss": loss.to_numpy(),
    }


def gradients_of_rows(_):
    """Gradients of split arrays: by a tape over loops that read and add to neighbors' rows, and manually."""
    u = qd.field(qd.f64, shape=(N, M), split=0, needs_grad=True)
    v = qd.field(qd.f64, shape=(N, M), split=0, needs_grad=True)
    bodies = qd.Struct.field({"x": qd.types.vector(2, qd.f64), "n": qd.i32}, shape=N, split=0, needs_grad=True)
    gain = qd.field(qd.f64, shape=(M,), needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def step():
        for i, j in qd.ndrange((1, N - 1), M):
            v[i, j] = u[i, j] + gain[j] * (u[i - 1, j] - u[i + 1, j] * u[i + 1, j])
        for i, j in qd.ndrange((1, N - 1), M):
            v[i - 1, j] += 0.25 * u[i, j] * u[i, j]
            v[i + 1, j] += 0.5 * u[i, j]
        for i, j in v:
            v[i, j] *= 1.5

    @qd.kernel
    def measure():
        for i, j in v:
            power = v[i, j]
            for _ in range(2):
                power *= v[i, j]
            loss[None] += power
        for i in range(2, N):
            loss[None] += bodies[i].n * bodies[i].x.dot(bodies[i - 2].x)

    @qd.kernel
    def around(a: qd.types.ndarray(), b: qd.types.ndarray()):
        for i in a:
            b[i] = a[(i + 1) % a.shape[0]] * a[(i - 1) % a.shape[0]]

    random = np.random.default_rng(7)
    u.from_numpy(random.uniform(-1.0, 1.0, (N, M)))
    gain.from_numpy(np.linspace(-0.5, 0.5, M))
    bodies.from_numpy({"x": random.uniform(-1.0, 1.0, (N, 2)), "n": np.arange(N, dtype=np.int32)})
    # The tape clears it.
    u.grad.fill(100.0)
    with qd.ad.Tape(loss):
        step()
        measure()
    a = qd.ndarray(qd.f64, shape=(N,), split=0, periodic=True, needs_grad=True)
    b = qd.ndarray(qd.f64, shape=(N,), split=0, periodic=True, needs_grad=True)
    a.from_numpy(np.arange(N, dtype=np.float64))
    b.grad.fill(1.0)
    around.grad(a, b)
    return {
        "loss": loss.to_numpy(),
        "u": u.to_numpy(),
        "u_grad": u.grad.to_numpy(),
        "gain": gain.to_numpy(),
        "gain_grad": gain.grad.to_numpy(),
        "x": bodies.x.to_numpy(),
        "x_grad": bodies.x.grad.to_numpy(),
        "a_grad": a.grad.to_numpy(),
    }


def periodic(_):
    """Rows that wrap around: read, added to, reduced, as fields and arguments, by the shape and by a constant."""
    u = qd.ndarray(qd.i32, shape=(N, M), split=0, periodic=True)
    v = qd.ndarray(qd.i32, shape=(N, M), split=0, periodic=True)
    flux = qd.field(qd.types.vector(2, qd.i64), shape=(N,), split=0, halo=3, periodic=True)
    total = qd.field(qd.i32, shape=())

    @qd.kernel
    def step(a: qd.types.ndarray(), b: qd.types.ndarray()):
        n = a.shape[0]
        for i, j in a:
            b[i, j] = 3 * a[(i - 1) % n, j] - a[(i + 2) % n, (j + 1) % M] + a[(i + n - 2) % n, j] + a[i, j] + i
        for i in range(N):
            flux[(i + 3) % N] += qd.Vector([b[i, 0], b[i, 1]], dt=qd.i64)
            flux[(i + N - 2) % N] -= qd.Vector([b[i, 2], 1], dt=qd.i64)
            flux[i] += qd.Vector([1, i], dt=qd.i64)
        for i in range(1, a.shape[0] - 1):
            b[i, 1] = a[i - 1, 1] + a[(i + 1) % n, 2]
        for i in range(N):
            total[None] += b[(i + 1) % N, 3]

    u.from_numpy(np.arange(N * M, dtype=np.int32).reshape(N, M) % 101)
    for _ in range(3):
        step(u, v)
        step(v, u)
    return {"u": u.to_numpy(), "v": v.to_numpy(), "flux": flux.to_numpy(), "total": total.to_numpy()}


def periodic_few_rows(_):
    """Ghost rows that are copies of one row several times, and of rows of this rank."""
    x = qd.field(qd.i32, shape=(3,), split=0, halo=5, periodic=True)
    y = qd.field(qd.i32, shape=(3,), split=0, halo=5, periodic=True)
    z = qd.field(qd.i32, shape=(3,), split=0, halo=5, periodic=True)

    @qd.kernel
    def run():
        for i in x:
            x[i] = i + 1
        for i in x:
            z[i] = x[(i + 1) % 3] + 10 * x[(i - 1) % 3]
            y[(i + 1) % 3] += x[i]
            y[(i - 1) % 3] += 100 * x[i]

    run()
    run()
    return {"y": y.to_numpy(), "z": z.to_numpy()}


@qd.data_oriented
class Cells:
    """A grid that particles are near to, as a member of an object."""

    def __init__(self):
        self.mass = qd.ndarray(qd.i32, shape=(N, 2), split=0)
        self.near = qd.field(qd.i32, shape=(N,), split=0, halo=3)

    @qd.kernel
    def deposit(self, place: qd.types.ndarray()):
        for p in place:
            if place[p] >= 0:
                row = qd.cast(place[p], qd.i32)
                self.mass[qd.distributed.assume_local(self.mass, row), p % 2] += p % ROOM
                for d in qd.static(range(-1, 2)):
                    if 0 <= row + d < N:
                        self.near[qd.distributed.assume_local(self.near, row + d)] += 3 + d

    @qd.kernel
    def gather(self, place: qd.types.ndarray(), seen: qd.types.ndarray()):
        for p in seen:
            if place[p] >= 0:
                row = qd.cast(place[p], qd.i64)
                seen[p] = self.near[qd.distributed.assume_local(self.near, row)]


def particles(_):
    """Particles, each on the rank that has its cell or an adjacent one, add to cells and read them."""
    cells = Cells()
    blocks = cells.near.blocks
    # Each block has room for all particles, and those whose cells are in its rows.
    cell = np.sort(np.random.default_rng(3).integers(0, N, ROOM))
    owner = np.searchsorted([end for _, end in blocks], cell, side="right")
    place = qd.ndarray(qd.f32, shape=(len(blocks) * ROOM,), split=0)
    whole = np.concatenate([np.where(owner == block, cell + 0.25, -1.0) for block in range(len(blocks))])
    place.from_numpy(whole.astype(np.float32)[slice(*place.rows)], local=True)
    seen = qd.ndarray(qd.i32, shape=(len(blocks) * ROOM,), split=0)
    for _ in range(2):
        cells.deposit(place)
    cells.gather(place, seen)
    found = seen.to_numpy().reshape(len(blocks), ROOM).max(axis=0)
    return {"near": cells.near.to_numpy(), "seen": found, "mass": cells.mass.to_numpy()}


def moving(_):
    """Particles move to the blocks that have their cells, with fields of structs and an array of other axes."""
    count, room = 90, 100
    cells = qd.ndarray(qd.i32, shape=(N,), split=0, halo=1)
    blocks = len(cells.blocks)
    body = qd.types.struct(place=qd.f64, of=qd.types.vector(2, qd.i32))
    bodies = body.field(shape=(blocks * room,), split=0, halo=0)
    marks = qd.ndarray(qd.i32, shape=(3, blocks * room), split=1, halo=1)
    owner = qd.ndarray(qd.i32, shape=(blocks * room,), split=0, halo=0)

    @qd.kernel
    def start():
        for p in owner:
            owner[p] = -1
            if p < count:
                bodies[p].place = (p * 37 % (4 * N)) / 4.0
                bodies[p].of = qd.Vector([p, p % 7 - 3])
                for k in range(3):
                    marks[k, p] = 10 * p + k
                owner[p] = qd.distributed.block_of_row(int(bodies[p].place), N, blocks)

    @qd.kernel
    def step(cells: qd.types.ndarray()):
        for p in owner:
            if owner[p] >= 0:
                cells[qd.distributed.assume_local(cells, int(bodies[p].place))] += bodies[p].of[0] + 1
        for p in owner:
            if owner[p] >= 0:
                bodies[p].place += bodies[p].of[1] * 0.75
                if bodies[p].place < 0.0:
                    bodies[p].place += N
                if bodies[p].place >= N:
                    bodies[p].place -= N
                owner[p] = qd.distributed.block_of_row(int(bodies[p].place), N, blocks)

    start()
    qd.distributed.move_rows(owner, bodies, marks)
    for _ in range(12):
        step(cells)
        qd.distributed.move_rows(owner, bodies, marks)
    used, found = owner.to_numpy(), bodies.to_numpy()
    (here,) = np.nonzero(used >= 0)
    assert len(here) == count
    assert (used[here] == here // room).all()
    order = here[np.argsort(found["of"][here, 0])]
    if blocks > 1:
        owner.fill(0)
        with np.testing.assert_raises_regex(qd.OctantsDistributedError, "block 0 has room for 0 rows"):
            qd.distributed.move_rows(owner, bodies)
        owner.fill(blocks)
        with np.testing.assert_raises_regex(qd.OctantsDistributedError, f"there are only {blocks} blocks"):
            qd.distributed.move_rows(owner, bodies)
    return {
        "cells": cells.to_numpy(),
        "place": found["place"][order],
        "of": found["of"][order],
        "marks": marks.to_numpy()[:, order],
    }


def structs(_):
    """A field of structs, with a struct as a member, and fields of vectors and matrices by their constructors."""
    inner = qd.types.struct(mass=qd.f32, count=qd.i32)
    body = qd.types.struct(place=qd.types.vector(2, qd.f32), of=inner)
    bodies = body.field(shape=(N,), split=0, halo=1)
    frames = qd.Matrix.field(2, 2, qd.f32, shape=(N,), split="x")
    forces = qd.Vector.ndarray(2, qd.f32, (N,), split=0)

    @qd.kernel
    def start():
        for i in bodies:
            bodies[i] = body(place=qd.Vector([i, 2.0 * i]), of=inner(mass=1.0 + i % 3, count=i))
            frames[i] = qd.Matrix([[1.0, i], [0.0, 2.0]])

    @qd.kernel
    def pull(bodies: qd.template(), forces: qd.types.ndarray()):
        for i in range(1, N - 1):
            along = bodies[i + 1].place + bodies.place[i - 1] - 2 * bodies[i].place
            forces[i] = frames[i] @ along + bodies[i - 1].of.mass
            bodies[i].of.count += 1

    bodies.fill({"place": 0.0, "of": {"mass": 1.0, "count": 0}})
    start()
    bodies[3].place = [7.0, 9.0]
    bodies.place[20][1] = 3.0
    frames[2][0, 1] = 4.0
    pull(bodies, forces)
    kept = bodies.to_numpy(gather=False)
    bodies.from_numpy(kept, local=True)
    rows = bodies.rows
    assert rows[1] - rows[0] == len(kept["place"])
    found = bodies.to_numpy()
    third = np.array([bodies[3].place.x, bodies[3].of.count])
    return {"place": found["place"], "third": third, "forces": forces.to_numpy(), **found["of"]}


def elements(_):
    """The host's reads and writes of elements and whole arrays."""
    x = qd.ndarray(qd.f32, shape=(N, 2), split=0)
    y = qd.ndarray(qd.f32, shape=(N, 2), split=0)
    x.from_numpy(np.arange(2 * N, dtype=np.float32).reshape(N, 2))

    @qd.kernel
    def shift(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i, k in y:
            if i + 1 < y.shape[0]:
                y[i, k] = x[i + 1, k]

    shift(x, y)
    x[5, 1] = -1.0
    x[N - 1, 0] = -2.0
    before = y.to_numpy()
    shift(x, y)
    return {"before": before, "y": y.to_numpy(), "read": np.array([x[5, 1], y[4, 1], x[N - 1, 0]])}


def other_axes(_):
    """Arrays that are split along their second or third axis, beside others: stencils, sums, ghost sums, elements,
    periodic rows and gathered rows."""
    x = qd.field(qd.i32, shape=(M, N), split=1)
    y = qd.ndarray(qd.i32, shape=(M, N), split="y")
    v = qd.ndarray(qd.types.vector(2, qd.i64), shape=(3, M, N), split=2, halo=1)
    w = qd.ndarray(qd.i32, shape=(N, M), split=0)
    p = qd.ndarray(qd.i32, shape=(M, N), split=1, halo=1, periodic=True)
    total = qd.field(qd.i32, shape=())
    columns = qd.field(qd.i32, shape=M)

    @qd.kernel
    def run(y: qd.types.ndarray(), v: qd.types.ndarray(), w: qd.types.ndarray(), p: qd.types.ndarray()):
        for i, j in x:
            x[i, j] = i * 31 % 17 + j * j % 23
        for i, j in qd.ndrange(M, (1, N - 1)):
            y[i, j] = x[i, j - 1] + 2 * x[i, j + 1] + 100 * w[j, i]
        for j in range(N):
            for i in range(M):
                w[j, i] += x[i, qd.min(j + 1, x.shape[1] - 1)] + i
        for k, i, j in v:
            v[k, i, j] = qd.Vector([x[i, j] * k, y[i, j] - w[j, i]], dt=qd.i64)
        for i, j in x:
            total[None] += x[i, j] * y[i, j] % 7
            columns[i] += w[j, i]
        for i, j in qd.ndrange(M, (1, N - 1)):
            y[i, j - 1] += x[i, j]
            y[i, j + 1] -= x[i, j] * 3
        for i, j in p:
            p[i, j] = y[i, j] % 97
        for i, j in p:
            x[i, j] = p[i, (j + 1) % p.shape[1]] - 5 * p[i, (j - 1) % p.shape[1]]

    y.from_numpy(np.arange(M * N, dtype=np.int32).reshape(M, N) % 13)
    w[4, 3] = 9
    run(y, v, w, p)
    y[2, N - 1] = 77
    v[1, 2, 20] = [5, 6]
    run(y, v, w, p)
    rows = x.to_numpy(gather=False)
    first, end = x.rows
    assert (x.split, rows.shape) == (1, (M, end - first))
    assert (rows == x.to_numpy()[:, first:end]).all()
    copy = qd.field(qd.i32, shape=(M, N), split=1)
    copy.from_numpy(rows, local=True)
    again = qd.field(qd.i32, shape=(M, N), split=1)
    again.copy_from(copy)
    return {
        "x": x.to_numpy(),
        "y": y.to_numpy(),
        "v": v.to_numpy(),
        "w": w.to_numpy(),
        "copy": again.to_numpy(),
        "total": total.to_numpy(),
        "columns": columns.to_numpy(),
        "read": np.array([x[3, 5], y[2, N - 1]]),
    }


def random_numbers(_):
    """Iterations draw the numbers that they draw in loops over arrays that are not split."""

    @qd.kernel
    def draw(x: qd.types.ndarray(), y: qd.types.ndarray(), z: qd.types.ndarray()):
        for i, j in x:
            x[i, j] = qd.random(qd.i32) % 1000
            if x[i, j] % 2 == 0:
                x[i, j] += 10 * (qd.random(qd.i32) % 100)
        for i in range(1, N - 1):
            total = qd.cast(0.0, qd.f64)
            for _ in range(i % 5):
                total += qd.random(qd.f64)
            y[i] = total + x[i - 1, 0] * qd.random(qd.f32) + x[i + 1, 1]
        for j, i in z:
            z[j, i] = qd.random(qd.u64) + qd.cast(x[i, j], qd.u64)

    found = {}
    for name, options in (("", {}), ("1", {"split": 0})):
        second = {"split": 1} if options else {}
        qd.sync()
        x = qd.ndarray(qd.i32, shape=(N, M), **options)
        y = qd.ndarray(qd.f64, shape=(N,), **options)
        z = qd.ndarray(qd.u64, shape=(M, N), **second)
        draw(x, y, z)
        draw(x, y, z)
        found |= {f"{key}{name}": array.to_numpy() for key, array in (("x", x), ("y", y), ("z", z))}
    return found


def collectives(_):
    """Arrays that each rank has."""
    ranks, me = qd.distributed.size(), qd.distributed.rank()
    f = qd.field(qd.i32, shape=4)
    f.fill(me + 1)
    qd.distributed.all_reduce(f)
    a = qd.ndarray(qd.f32, shape=(3,))
    a.fill(float(me))
    qd.distributed.all_reduce(a, "max")
    h = np.full(2, me + 2.0, np.float16)
    qd.distributed.all_reduce(h, "product")
    b = np.arange(3) * (me + 1)
    qd.distributed.broadcast(b, source=ranks - 1)
    parts = qd.distributed.all_gather(np.full((me + 1, 2), me))
    assert [len(p) for p in parts] == list(range(1, ranks + 1))
    if ranks > 1 and me < 2:
        token = np.full(1, 7 * me)
        if me == 0:
            qd.distributed.recv(token, 1)
            assert token[0] == 7
        else:
            qd.distributed.send(token, 0)
    qd.distributed.barrier()
    assert (f.to_numpy() == ranks * (ranks + 1) // 2).all()
    assert (a.to_numpy() == ranks - 1).all()
    assert h[0] == np.prod([r + 2.0 for r in range(ranks)], dtype=np.float16)
    assert (b == np.arange(3) * ranks).all()
    return {"parts": np.unique(np.concatenate(parts))[:1]}


def save(folder):
    """Writes split and other arrays for another number of ranks."""
    x = qd.ndarray(qd.f32, shape=(N, M), split=0)
    x.from_numpy(np.arange(N * M, dtype=np.float32).reshape(N, M))
    s = qd.field(qd.i32, shape=3)
    s.fill(9)
    y = qd.ndarray(qd.f32, shape=(M, N), split=1)
    y.from_numpy(np.arange(N * M, dtype=np.float32).reshape(M, N))
    qd.distributed.save(folder / "state", x=x, s=s, y=y)
    return {}


def load(folder):
    """Reads them."""
    x = qd.ndarray(qd.f32, shape=(N, M), split=0)
    s = qd.field(qd.i32, shape=3)
    y = qd.ndarray(qd.f32, shape=(M, N), split=1)
    qd.distributed.load(folder / "state", x=x, s=s, y=y)
    return {"x": x.to_numpy(), "s": s.to_numpy(), "y": y.to_numpy()}


PROGRAMS = (
    heat,
    several_loops,
    sums,
    resets,
    large,
    vectors,
    edges,
    scatters,
    row_sums,
    few_rows,
    float_scatter,
    gradients,
    gradients_of_rows,
    particles,
    moving,
    periodic,
    periodic_few_rows,
    structs,
    elements,
    other_axes,
    random_numbers,
    collectives,
    save,
    load,
)


def main():
    names, folder = sys.argv[1].split(","), Path(sys.argv[2])
    qd.distributed.init(timeout=60.0)
    options = [option.split("=") for option in sys.argv[3:]]
    qd.init(arch=qd.cpu, **{name: int(*number) if number else True for name, *number in options})
    programs = {program.__name__: program for program in PROGRAMS}
    for name in names:
        found = programs[name](folder)
        if qd.distributed.rank() == 0:
            np.savez(folder / f"{name}.npz", **found)
        qd.distributed.barrier()


if __name__ == "__main__":
    main()
