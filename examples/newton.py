"""Newton's method with a line search: a membrane with a stiffening foundation under a moving load, each frame one
graph.

A frame moves the load, solves, and records the deflection; Newton's steps, the conjugate gradients in each of them and
the line search all loop on the device. `--check` compares the graph with the same kernels launched one by one, whose
loops the host decides. A normal run also draws the graph.
"""

import numpy as np
from example_support import Arrays, Example, Timing, Tolerance, heat_map

example = Example(__doc__, frames=60, size=128, out="out/newton.gif", check_frames=3, check_size=24)
qd = example.qd

n = example.size
stiffening = 400.0
tolerance = 1e-4
most_steps, most_rounds, least_length = 20, 4 * n, 1.0 / 64.0

u, load, force, away, left, search, image = (qd.field(qd.f32, (n, n)) for _ in range(7))
norm, energy, tried, slope, length, now, last, curve = (qd.field(qd.f32, ()) for _ in range(8))
going, solving, searching, steps, rounds, frame = (qd.field(qd.i32, ()) for _ in range(6))


@qd.func
def stretched(x: qd.template(), i, j):
    """Row (i, j) of the membrane's matrix: it is held at its rim."""
    total = 4.0 * x[i, j]
    if i > 0:
        total -= x[i - 1, j]
    if i < n - 1:
        total -= x[i + 1, j]
    if j > 0:
        total -= x[i, j - 1]
    if j < n - 1:
        total -= x[i, j + 1]
    return total


@qd.func
def density(i, j, by):
    """The energy at (i, j) once the membrane is moved along the direction."""
    own = u[i, j] + by * away[i, j]
    bent = stretched(u, i, j) + by * stretched(away, i, j)
    return 0.5 * own * bent + 0.25 * stiffening / n**2 * own**4 - load[i, j] * own


@qd.func
def move_load():
    for _ in range(1):
        frame[None] += 1
        going[None] = 1
        steps[None] = 0
    for i, j in load:
        angle = 0.1 * frame[None]
        x, y = (i + 0.5) / n - 0.5 - 0.25 * qd.cos(angle), (j + 0.5) / n - 0.5 - 0.25 * qd.sin(angle)
        load[i, j] = 6e4 / n**2 * qd.exp(-60.0 * (x * x + y * y))


@qd.func
def begin_step():
    """The forces that are left, and the first direction of the solver."""
    for _ in range(1):
        now[None] = 0.0
        energy[None] = 0.0
        solving[None] = 1
        rounds[None] = 0
    for i, j in u:
        force[i, j] = load[i, j] - stretched(u, i, j) - stiffening / n**2 * u[i, j] ** 3
        left[i, j] = force[i, j]
        search[i, j] = force[i, j]
        away[i, j] = 0.0
        now[None] += force[i, j] ** 2
    for i, j in u:
        energy[None] += density(i, j, 0.0)
    for _ in range(1):
        norm[None] = now[None]


@qd.func
def solve_round():
    """A round of conjugate gradients for the direction."""
    for _ in range(1):
        last[None] = now[None]
        curve[None] = 0.0
        now[None] = 0.0
    for i, j in search:
        image[i, j] = stretched(search, i, j) + 3.0 * stiffening / n**2 * u[i, j] ** 2 * search[i, j]
        curve[None] += search[i, j] * image[i, j]
    for i, j in left:
        by = last[None] / curve[None]
        away[i, j] += by * search[i, j]
        left[i, j] -= by * image[i, j]
        now[None] += left[i, j] ** 2
    for i, j in search:
        search[i, j] = left[i, j] + now[None] / last[None] * search[i, j]
    for _ in range(1):
        rounds[None] += 1
        solving[None] = now[None] > 1e-6 * norm[None] and rounds[None] < most_rounds


@qd.func
def begin_search():
    for _ in range(1):
        slope[None] = 0.0
        length[None] = 2.0
        searching[None] = 1
    for i, j in force:
        slope[None] -= force[i, j] * away[i, j]


@qd.func
def search_round():
    """Halves the step until the energy decreases sufficiently for the slope (the Armijo rule)."""
    for _ in range(1):
        length[None] *= 0.5
        tried[None] = 0.0
    for i, j in u:
        tried[None] += density(i, j, length[None])
    for _ in range(1):
        falls = tried[None] <= energy[None] + 1e-4 * length[None] * slope[None]
        searching[None] = not falls and length[None] > least_length


@qd.func
def end_step():
    for _ in range(1):
        now[None] = 0.0
    for i, j in u:
        u[i, j] += length[None] * away[i, j]
    for i, j in u:
        rest = load[i, j] - stretched(u, i, j) - stiffening / n**2 * u[i, j] ** 3
        now[None] += rest * rest
    for _ in range(1):
        steps[None] += 1
        going[None] = now[None] > (tolerance * 6e4 / n) ** 2 and steps[None] < most_steps


@qd.kernel
def push():
    move_load()


@qd.kernel(graph=True)
def solve():
    while qd.graph.do_while(going):
        begin_step()
        while qd.graph.do_while(solving):
            solve_round()
        begin_search()
        while qd.graph.do_while(searching):
            search_round()
        end_step()


@qd.kernel
def one_begin_step():
    begin_step()


@qd.kernel
def one_solve_round():
    solve_round()


@qd.kernel
def one_begin_search():
    begin_search()


@qd.kernel
def one_search_round():
    search_round()


@qd.kernel
def one_end_step():
    end_step()


def by_host() -> None:
    """A frame without a graph: the host decides about each round."""
    push()
    while going[None]:
        one_begin_step()
        while solving[None]:
            one_solve_round()
        one_begin_search()
        while searching[None]:
            one_search_round()
        one_end_step()


def start() -> None:
    u.fill(0)
    frame[None] = 0


def reference(frames: int) -> Arrays:
    """The frames without a graph, and that the forces of the last one are in balance."""
    start()
    taken = 0
    for _ in range(frames):
        by_host()
        taken += steps[None]
    assert taken > frames, "Newton's method takes several steps"
    want = {"deflection": u.to_numpy(), "unbalanced forces": np.zeros((n, n))}
    start()
    return want


def unbalanced() -> np.ndarray:
    """The forces that are left, in double precision by numpy."""
    own = np.pad(u.to_numpy().astype(np.float64), 1)
    bent = 4 * own[1:-1, 1:-1] - own[:-2, 1:-1] - own[2:, 1:-1] - own[1:-1, :-2] - own[1:-1, 2:]
    return load.to_numpy() - bent - stiffening / n**2 * own[1:-1, 1:-1] ** 3


start()
with qd.graph.capture() as graph:
    push()
    solve()


def advance(_frame: int) -> None:
    """One frame: one launch."""
    graph.launch()


def report(_timing: Timing) -> None:
    """Draws the graph."""
    drawing = example.args.out.with_suffix(".svg")
    graph.plot(drawing)
    print(f"{'graph:':<22}{drawing}, {steps[None]} steps of Newton's method in the last frame")


if __name__ == "__main__":
    example.run(
        advance=advance,
        picture=lambda: heat_map(u.to_numpy() / 12.0),
        state=lambda: {"deflection": u.to_numpy(), "unbalanced forces": unbalanced()},
        reference=reference,
        tolerance={"deflection": Tolerance(2e-3), "unbalanced forces": Tolerance(tolerance * 6e4 / n)},
        work=(float(n * n), "unknowns"),
        report=report,
        against="the run without a graph",
    )
