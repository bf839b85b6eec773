"""Conjugate gradients: heat in an insulated plate by implicit steps, each step's solver one graph that the device ends.

`--check` compares the graph with the same loops launched one by one, whose end the host finds, and both with the exact
solution. A normal run draws the graph next to the animation.
"""

import numpy as np
from example_support import Arrays, Example, Timing, Tolerance, heat_map

example = Example(__doc__, frames=60, size=256, out="out/conjugate_gradient.gif", check_frames=3, check_size=48)
qd = example.qd

n = example.size
rate = 40.0
tolerance = 1e-5

Plate = qd.types.ndarray(dtype=qd.f32, ndim=2)
Number = qd.types.ndarray(dtype=qd.f32, ndim=0)
Count = qd.types.ndarray(dtype=qd.i32, ndim=0)


@qd.func
def apply(p: qd.template(), i, j):
    """Row (i, j) of the matrix of a step: the heat flow to existing neighbors."""
    own = p[i, j]
    flow = 0.0
    if i > 0:
        flow += own - p[i - 1, j]
    if i < n - 1:
        flow += own - p[i + 1, j]
    if j > 0:
        flow += own - p[i, j - 1]
    if j < n - 1:
        flow += own - p[i, j + 1]
    return own + rate * flow


@qd.func
def begin(x: Plate, r: Plate, p: Plate, rr: Number):
    """The first residual, which is the first direction."""
    for i, j in p:
        p[i, j] = x[i, j]
    rr[()] = 0.0
    for i, j in r:
        r[i, j] = x[i, j] - apply(p, i, j)
    for i, j in r:
        p[i, j] = r[i, j]
        rr[()] += r[i, j] * r[i, j]


@qd.func
def iterate(x: Plate, r: Plate, p: Plate, q: Plate, rr: Number, last: Number, pq: Number, going: Count):
    """A step along the direction, and the next direction (Hestenes and Stiefel 1952)."""
    pq[()] = 0.0
    last[()] = rr[()]
    for i, j in p:
        q[i, j] = apply(p, i, j)
        pq[()] += p[i, j] * q[i, j]
    rr[()] = 0.0
    for i, j in r:
        length = last[()] / pq[()]
        x[i, j] += length * p[i, j]
        r[i, j] -= length * q[i, j]
        rr[()] += r[i, j] * r[i, j]
    for i, j in p:
        p[i, j] = r[i, j] + rr[()] / last[()] * p[i, j]
    going[()] = 1 if rr[()] > tolerance * tolerance * n * n else 0


@qd.kernel(graph=True)
def step(x: Plate, r: Plate, p: Plate, q: Plate, rr: Number, last: Number, pq: Number, going: Count):
    """Solves A y = x and leaves y in x."""
    begin(x, r, p, rr)
    while qd.graph.do_while(going):
        iterate(x, r, p, q, rr, last, pq, going)


@qd.kernel
def only_begin(x: Plate, r: Plate, p: Plate, rr: Number):
    begin(x, r, p, rr)


@qd.kernel
def only_iterate(x: Plate, r: Plate, p: Plate, q: Plate, rr: Number, last: Number, pq: Number, going: Count):
    iterate(x, r, p, q, rr, last, pq, going)


x, r, p, q = (qd.ndarray(qd.f32, (n, n)) for _ in range(4))
rr, last, pq = (qd.ndarray(qd.f32, ()) for _ in range(3))
going = qd.ndarray(qd.i32, ())


def start() -> np.ndarray:
    """Hot letters of a sort: an L and a bar."""
    plate = np.full((n, n), 0.1, np.float32)
    plate[n // 5 : 3 * n // 5, n // 5 : n // 4] = 1.0
    plate[11 * n // 20 : 3 * n // 5, n // 5 : n // 2] = 1.0
    plate[n // 4 : n // 3, 3 * n // 5 : 9 * n // 10] = 0.8
    return plate


x.from_numpy(start())
with qd.graph.capture() as graph:
    going.fill(1)
    step(x, r, p, q, rr, last, pq, going)


def advance(_frame: int) -> None:
    """One implicit step: one launch."""
    graph.launch()


def by_host(frames: int) -> np.ndarray:
    """The steps without a graph."""
    x.from_numpy(start())
    iterations = 0
    for _ in range(frames):
        only_begin(x, r, p, rr)
        going.fill(1)
        while going[()]:
            only_iterate(x, r, p, q, rr, last, pq, going)
            iterations += 1
    assert iterations > frames, "a step takes several iterations"
    result = x.to_numpy()
    x.from_numpy(start())
    return result


def exact(frames: int) -> np.ndarray:
    """The same steps by the plate's eigenvectors, which are products of cosines, and so without the solver's error."""
    k = np.arange(n)
    basis = np.cos(np.pi * np.outer(k, 2 * k + 1) / (2 * n))
    basis *= np.where(k == 0, np.sqrt(1.0 / n), np.sqrt(2.0 / n))[:, None]
    decay = 2.0 - 2.0 * np.cos(np.pi * k / n)
    factor = 1.0 / (1.0 + rate * (decay[:, None] + decay[None, :]))
    waves = basis @ start().astype(np.float64) @ basis.T
    return basis.T @ (waves * factor**frames) @ basis


def reference(frames: int) -> Arrays:
    """The steps without a graph, which must be close to the exact solution."""
    want = by_host(frames)
    assert np.abs(want - exact(frames)).max() < 2e-5, "the solver has converged"
    return {"temperature": want}


def report(_timing: Timing) -> None:
    """Draws the graph."""
    drawing = example.args.out.with_suffix(".svg")
    graph.plot(drawing)
    print(f"{'graph:':<22}{drawing}")


if __name__ == "__main__":
    example.run(
        advance=advance,
        picture=lambda: heat_map(x.to_numpy()),
        state=lambda: {"temperature": x.to_numpy()},
        reference=reference,
        tolerance={"temperature": Tolerance(2e-5)},
        work=(float(n * n), "unknowns"),
        report=report,
        against="the run without a graph",
    )
