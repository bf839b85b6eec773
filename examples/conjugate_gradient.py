"""Conjugate gradients: heat in an insulated plate by implicit steps, each step's solver one graph that the device
ends."""

import numpy as np
from example_support import Arrays, Example, Tolerance, heat_map

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


@qd.kernel(graph=True)
def step(x: Plate, r: Plate, p: Plate, q: Plate, rr: Number, last: Number, pq: Number, going: Count):
    """Solves A y = x by conjugate gradients (Hestenes and Stiefel 1952) and leaves y in x."""
    rr[()] = 0.0
    last[()] = 0.0
    for i, j in p:
        p[i, j] = x[i, j]
    for i, j in r:
        r[i, j] = x[i, j] - apply(p, i, j)
    for i, j in r:
        p[i, j] = r[i, j]
        rr[()] += r[i, j] * r[i, j]
    while qd.graph.do_while(going):
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


def advance(_frame: int) -> None:
    """One implicit step."""
    going.fill(1)
    step(x, r, p, q, rr, last, pq, going)


def reference(frames: int) -> Arrays:
    """The same steps by the plate's eigenvectors, which are products of cosines, and so without the solver's error."""
    k = np.arange(n)
    basis = np.cos(np.pi * np.outer(k, 2 * k + 1) / (2 * n))
    basis *= np.where(k == 0, np.sqrt(1.0 / n), np.sqrt(2.0 / n))[:, None]
    decay = 2.0 - 2.0 * np.cos(np.pi * k / n)
    factor = 1.0 / (1.0 + rate * (decay[:, None] + decay[None, :]))
    waves = basis @ start().astype(np.float64) @ basis.T
    return {"temperature": basis.T @ (waves * factor**frames) @ basis}


if __name__ == "__main__":
    x.from_numpy(start())
    example.run(
        advance=advance,
        picture=lambda: heat_map(x.to_numpy()),
        state=lambda: {"temperature": x.to_numpy()},
        reference=reference,
        tolerance={"temperature": Tolerance(2e-5)},
        work=(float(n * n), "unknowns"),
    )
