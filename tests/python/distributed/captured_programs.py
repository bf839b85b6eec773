"""Programs whose steps on split arrays are captured in graphs, run by any number of ranks: `mpiexec -n 4 python
captured_programs.py NAME[,NAME...] FOLDER`, or by one process on several devices. Without `captured=1` the same steps
run one by one.

Rank 0 writes what a program computed to `FOLDER/NAME.npz`.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import octants as qd

N, M = 29, 5


class Step:
    """A function, or a graph of what it does."""

    def __init__(self, captured, do, **named):
        self.do, self.graph = do, None
        if captured:
            with qd.graph.capture(**named) as self.graph:
                do()

    def __call__(self):
        self.do() if self.graph is None else self.graph.launch()


def heat(captured):
    """A stencil on two arrays by turns, with a maximum; the host, and other launches, change rows between launches."""
    u = qd.field(qd.f32, shape=(N, M), split=0)
    v = qd.field(qd.f32, shape=(N, M), split=0)
    change = qd.field(qd.f32, shape=())
    seen = qd.ndarray(qd.f32, shape=(8,))
    count = qd.field(qd.i32, shape=())

    @qd.kernel
    def step(a: qd.types.ndarray(qd.f32, ndim=2), b: qd.types.ndarray(qd.f32, ndim=2)):
        for i, j in qd.ndrange((1, N - 1), (1, M - 1)):
            b[i, j] = a[i, j] + 0.1 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1] - 4.0 * a[i, j])

    @qd.kernel
    def compare():
        change[None] = 0.0
        for i, j in u:
            qd.atomic_max(change[None], abs(u[i, j] - v[i, j]))

    @qd.kernel
    def note(seen: qd.types.ndarray()):
        seen[count[None]] = change[None]
        count[None] += 1

    def both():
        step(u, v)
        step(v, u)
        compare()
        note(seen)

    start = np.sin(np.arange(N * M, dtype=np.float32)).reshape(N, M)
    u.from_numpy(start)
    v.from_numpy(start)
    run = Step(captured, both)
    run()
    run()
    # Rows at the borders of blocks, between two launches.
    u.from_numpy(u.to_numpy() * np.float32(1.5))
    run()
    for i in range(1, N - 1):
        u[i, 2] = 2.0 * i
    run()
    step(v, u)
    run()
    return {"u": u.to_numpy(), "v": v.to_numpy(), "seen": seen.to_numpy(), "count": count.to_numpy()}


def fills_and_copies(captured):
    """They change rows of other ranks, and are steps of the graph."""
    x, y, z = (qd.ndarray(qd.i32, shape=(N,), split=0) for _ in range(3))
    p, q = (qd.ndarray(qd.i32, shape=(N,), split=0, halo=1, periodic=True) for _ in range(2))

    @qd.kernel
    def shift(x: qd.types.ndarray(), z: qd.types.ndarray()):
        for i in range(N - 1):
            z[i] += x[i + 1]

    @qd.kernel
    def grow(y: qd.types.ndarray(), q: qd.types.ndarray()):
        for i in y:
            y[i] = 2 * y[i] + i
            q[i] = y[i] % 11

    @qd.kernel
    def around(p: qd.types.ndarray(), z: qd.types.ndarray()):
        for i in z:
            z[i] += p[(i - 1) % N] * 100 + p[(i + 1) % N]

    def step():
        grow(y, q)
        x.copy_from(y)
        shift(x, z)
        p.copy_from(q)
        around(p, z)
        x.fill(7)
        shift(x, z)
        p.fill(3)
        around(p, z)

    z.fill(1)
    run = Step(captured, step)
    for _ in range(3):
        run()
    return {"x": x.to_numpy(), "y": y.to_numpy(), "z": z.to_numpy()}


def tables(captured):
    """Kernels on other memory run before, between and after those on split arrays that use it."""
    x = qd.ndarray(qd.i64, shape=(N,), split=0)
    table = qd.ndarray(qd.i64, shape=(4,))
    total = qd.field(qd.i64, shape=())

    @qd.kernel
    def turn(table: qd.types.ndarray()):
        for k in table:
            table[k] = (table[k] * 7 + k + 1) % 101

    @qd.kernel
    def use(x: qd.types.ndarray(), table: qd.types.ndarray()):
        for i in x:
            x[i] += table[i % 4]
        for i in x:
            total[None] += x[i]

    @qd.kernel
    def feed(table: qd.types.ndarray()):
        table[1] += total[None] % 13

    def step():
        turn(table)
        use(x, table)
        feed(table)
        turn(table)
        use(x, table)

    run = Step(captured, step)
    for _ in range(4):
        run()
    return {"x": x.to_numpy(), "table": table.to_numpy(), "total": total.to_numpy()}


def scatters(captured):
    """Sums into rows of neighbors, periodic rows, and histograms."""
    x = qd.ndarray(qd.i32, shape=(N,), split=0, halo=2, periodic=True)
    y = qd.ndarray(qd.i32, shape=(N,), split=0, halo=2, periodic=True)
    counts = qd.ndarray(qd.i32, shape=(6,))

    @qd.kernel
    def step(x: qd.types.ndarray(), y: qd.types.ndarray(), counts: qd.types.ndarray()):
        for i in x:
            y[(i + 2) % N] += x[i] + i
            y[(i - 1) % N] -= x[i] // 2
        for i in y:
            x[i] = (y[(i - 2) % N] + y[(i + 1) % N]) % 1000
        for i in x:
            counts[x[i] % 6] += 1

    run = Step(captured, lambda: step(x, y, counts))
    for _ in range(3):
        run()
    return {"x": x.to_numpy(), "y": y.to_numpy(), "counts": counts.to_numpy()}


@dataclass
class State:
    """Members that are split, and one that is not."""

    x: object
    y: object
    sums: object


def updates(captured):
    """Numbers are those of the capture or of an update; arrays, with all their uses, are replaced."""
    makes = [qd.ndarray(qd.i32, shape=(N,), split=0) for _ in range(5)]
    a, b, c, d, e = makes
    first, second = qd.ndarray(qd.i32, shape=(3,)), qd.ndarray(qd.i32, shape=(3,))

    @qd.data_oriented
    class Scale:
        def __init__(self):
            self.factor = 3

        @qd.kernel
        def shift(self, x: qd.types.ndarray(), y: qd.types.ndarray(), n: qd.i32):
            for i in range(1, N):
                y[i] += self.factor * x[i - 1] + n

    scale = Scale()

    @qd.kernel
    def count(y: qd.types.ndarray(), sums: qd.types.ndarray()):
        for i in y:
            sums[i % 3] += y[i]

    def step(s, n):
        s.x.fill(2)
        scale.shift(s.x, s.y, n)
        scale.shift(s.y, e, n)
        count(s.y, s.sums)
        qd.distributed.all_reduce(s.sums, "max")

    one, two = State(a, b, first), State(c, d, second)
    run = Step(captured, lambda: step(one, 5), state=one)
    run()
    scale.factor = 9 if captured else 3
    run()
    scale.factor = 3
    if captured:
        run.graph.update(state=two)
        run.graph.launch()
        run.graph(n=11)
        with np.testing.assert_raises(TypeError):
            run.graph.update(state=State(qd.ndarray(qd.i64, shape=(N,), split=0), d, second))
    else:
        step(two, 5)
        step(two, 11)
    found = {f"x{k}": x.to_numpy() for k, x in enumerate(makes)}
    return {**found, "first": first.to_numpy(), "second": second.to_numpy()}


def nested(captured):
    """Graphs in graphs, on several streams, with arrays made in the block."""
    x, y = (qd.ndarray(qd.i32, shape=(N,), split=0) for _ in range(2))

    @qd.kernel
    def add(x: qd.types.ndarray(), y: qd.types.ndarray(), n: qd.i32):
        for i in range(N - 1):
            y[i] += x[i + 1] + n

    @qd.kernel
    def put(x: qd.types.ndarray()):
        for i in x:
            x[i] += i

    inner = Step(captured, lambda: add(x, y, 2))

    def step():
        t = qd.ndarray(qd.i32, shape=(N,), split=0)
        put(t)
        add(t, x, 1)
        inner()
        add(y, x, 0)
        inner()

    run = Step(captured, step)
    for _ in range(3):
        run()
        inner()
    return {"x": x.to_numpy(), "y": y.to_numpy()}


def conditions(captured):
    """A kernel with a loop whose condition its sums decide."""
    x, y = (qd.ndarray(qd.i32, shape=(N,), split=0) for _ in range(2))
    left = qd.ndarray(qd.i32, shape=())

    @qd.kernel(graph=True)
    def settle(x: qd.types.ndarray(), y: qd.types.ndarray(), left: qd.types.ndarray(dtype=qd.i32, ndim=0)):
        while qd.graph.do_while(left):
            for i in range(N - 1):
                y[i] += x[i + 1] % 5 + 1
            for i in x:
                x[i] = 3 * y[i] + i
            left[()] -= 1

    @qd.kernel
    def again(left: qd.types.ndarray(dtype=qd.i32, ndim=0), n: qd.i32):
        left[()] = n

    def step():
        again(left, 3)
        settle(x, y, left)
        again(left, 2)
        settle(x, y, left)

    run = Step(captured, step)
    for _ in range(3):
        run()
    return {"x": x.to_numpy(), "y": y.to_numpy()}


def gradients(captured):
    """The gradient of a graph with kernels, fills and copies of split arrays: integers in floats, which are exact."""
    options = {"split": 0, "halo": 1, "periodic": True, "needs_grad": True}
    x, y, z, w = (qd.field(qd.f64, shape=(N,), **options) for _ in range(4))
    gain = qd.field(qd.f64, shape=(), needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def spread():
        for i in x:
            y[i] += gain[None] * x[(i - 1) % N] + x[i] * x[(i + 1) % N]

    @qd.kernel
    def mix():
        for i in z:
            w[i] += z[i] * z[(i + 2 - 1) % N]

    @qd.kernel
    def total():
        for i in w:
            loss[None] += w[i] * (i % 3)

    def forwards():
        y.fill(1.0)
        spread()
        z.copy_from(y)
        w.fill(0.0)
        mix()
        total()

    x.from_numpy((np.arange(N) % 4).astype(np.float64))
    gain[None] = 2.0
    loss.grad[None] = 1.0
    if captured:
        run = Step(True, forwards)
        backwards = run.graph.grad()
        for _ in range(2):
            run()
            loss.grad[None] = 1.0
            backwards.launch()
    else:
        for _ in range(2):
            forwards()
            loss.grad[None] = 1.0
            total.grad()
            mix.grad()
            w.grad.fill(0.0)
            y.grad.from_numpy(y.grad.to_numpy() + z.grad.to_numpy())
            z.grad.fill(0.0)
            spread.grad()
            y.grad.fill(0.0)
    return {"x": x.grad.to_numpy(), "gain": gain.grad.to_numpy(), "loss": loss.to_numpy()}


def collectives(captured):
    """On arrays that each rank has, with kernels before and after."""
    ranks, me = qd.distributed.size(), qd.distributed.rank()
    f = qd.field(qd.i32, shape=4)
    a = qd.ndarray(qd.f32, shape=(3,))
    b = np.arange(3)
    token = qd.ndarray(qd.i32, shape=(2,))
    gathered = []

    @qd.kernel
    def start(f: qd.template(), a: qd.types.ndarray(), me: qd.i32):
        for i in f:
            f[i] = f[i] % 5 + me + i
        for i in a:
            a[i] += me

    @qd.kernel
    def finish(f: qd.template(), a: qd.types.ndarray()):
        for i in f:
            f[i] *= 2
        for i in a:
            a[i] += f[i]

    def step():
        start(f, a, me)
        qd.distributed.all_reduce(f)
        qd.distributed.all_reduce(a, "max")
        qd.distributed.barrier()
        finish(f, a)
        qd.distributed.broadcast(a, source=ranks - 1)
        qd.distributed.broadcast(b, source=ranks - 1)
        gathered[:] = qd.distributed.all_gather(f)
        if ranks > 1 and me == 0:
            qd.distributed.recv(token, 1)
        elif me == 1:
            qd.distributed.send(token, 0)

    run = Step(captured, step)
    expected, largest = np.zeros(4, int), np.zeros(3)
    i = np.arange(4)
    for turn in range(3):
        b[:] = np.arange(3) * (me + 1) + turn
        token.fill(10 * me + turn)
        run()
        expected = 2 * sum(expected % 5 + rank + i for rank in range(ranks))
        largest = largest + ranks - 1 + expected[:3]
        assert (f.to_numpy() == expected).all(), (f.to_numpy(), expected)
        assert (a.to_numpy() == largest).all(), (a.to_numpy(), largest)
        assert (b == np.arange(3) * ranks + turn).all()
        assert len(gathered) == ranks
        assert all((part == expected).all() for part in gathered)
        assert (token.to_numpy() == 10 * (1 if me == 0 and ranks > 1 else me) + turn).all()
    return {"done": np.ones(1)}


PROGRAMS = (heat, fills_and_copies, tables, scatters, updates, nested, conditions, gradients, collectives)


def main():
    names, folder = sys.argv[1].split(","), Path(sys.argv[2])
    options = dict(option.split("=") for option in sys.argv[3:])
    captured = bool(options.pop("captured", False))
    qd.distributed.init(timeout=20.0)
    qd.init(arch=qd.cpu, **{name: int(value) for name, value in options.items()})
    programs = {program.__name__: program for program in PROGRAMS}
    for name in names:
        found = programs[name](captured)
        if qd.distributed.rank() == 0:
            np.savez(folder / f"{name}.npz", **found)
        qd.distributed.barrier()


if __name__ == "__main__":
    main()
