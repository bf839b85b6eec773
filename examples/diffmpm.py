"""Diff MPM: a soft robot learns to walk.

An elastic body with two legs, four muscles that pull along the legs, a floor with friction: 1,024 steps of the material
point method. The muscles' activation over time is learned by gradients through all steps. Only 33 steps are kept in
memory, and the state at the start of each of the 32 segments; the gradient recomputes a segment's steps before it runs
backward through them. Draws the loss (minus the distance that the robot walks) over the iterations.
"""

import numpy as np
from example_support import Arrays, Example, Tolerance, curve

example = Example(__doc__, frames=40, size=64, out="out/diffmpm.png", check_frames=1, check_size=24)
qd = example.qd

n_grid = example.size
segments, every = (3, 4) if example.args.check else (32, 32)
steps = segments * every
dt = 1e-3
dx = 1.0 / n_grid
bound = 3
floor_y = bound * dx
gravity, friction = 3.8, 0.5
elasticity = 10.0
p_vol = (0.5 * dx) ** 2
p_mass = p_vol
strength = 4.0
waves, muscles = 4, 4
speed = 40.0


def robot() -> tuple[np.ndarray, np.ndarray]:
    """Places of the particles, and for each its muscle (-1 in the trunk)."""
    parts = [(0.0, 0.1, 0.3, 0.1, -1)]
    for leg, left in enumerate((0.0, 0.2)):
        parts += [(left, 0.0, 0.05, 0.1, 2 * leg), (left + 0.05, 0.0, 0.05, 0.1, 2 * leg + 1)]
    places, which = [], []
    for left, low, width, height, muscle in parts:
        nx, ny = max(round(width * 2 * n_grid), 1), max(round(height * 2 * n_grid), 1)
        grid = np.stack(np.meshgrid((np.arange(nx) + 0.5) / nx, (np.arange(ny) + 0.5) / ny, indexing="ij"), -1)
        places.append(grid.reshape(-1, 2) * [width, height] + [left + 0.25, low + floor_y])
        which.append(np.full(nx * ny, muscle))
    return np.concatenate(places), np.concatenate(which).astype(np.int32)


start_place, muscle_of = robot()
n = len(start_place)

x = qd.Vector.field(2, qd.f64, (every + 1, n), needs_grad=True)
v = qd.Vector.field(2, qd.f64, (every + 1, n), needs_grad=True)
C = qd.Matrix.field(2, 2, qd.f64, (every + 1, n), needs_grad=True)
F = qd.Matrix.field(2, 2, qd.f64, (every + 1, n), needs_grad=True)
state = (x, v, C, F)
momentum = qd.Vector.field(2, qd.f64, (n_grid, n_grid), needs_grad=True)
mass = qd.field(qd.f64, (n_grid, n_grid), needs_grad=True)
flow = qd.Vector.field(2, qd.f64, (n_grid, n_grid), needs_grad=True)
muscle = qd.field(qd.i32, n)
weights = qd.field(qd.f64, (muscles, waves), needs_grad=True)
pull = qd.field(qd.f64, (steps, muscles), needs_grad=True)
loss = qd.field(qd.f64, (), needs_grad=True)


@qd.kernel
def plan():
    for t, m in pull:
        phase = 0.0
        for k in range(waves):
            phase += weights[m, k] * qd.sin(speed * t * dt + 2 * np.pi / waves * k)
        pull[t, m] = qd.tanh(phase)


@qd.kernel
def clear_grid():
    for i, j in mass:
        momentum[i, j] = [0.0, 0.0]
        mass[i, j] = 0.0


@qd.kernel
def to_grid(s: qd.i32, t: qd.i32):
    for p in muscle:
        base = qd.cast(x[s, p] / dx - 0.5, qd.i32)
        fx = x[s, p] / dx - base
        w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
        new_F = F[s, p] + dt * C[s, p] @ F[s, p]
        F[s + 1, p] = new_F
        act = 0.0
        if muscle[p] >= 0:
            act = pull[t, muscle[p]] * strength
        # Neo-Hookean, and the muscle along the leg.
        inner = qd.Matrix([[elasticity, 0.0], [0.0, elasticity + act]])
        pressure = elasticity * (qd.log(new_F.determinant()) - 1.0)
        stress = new_F @ inner @ new_F.transpose() + qd.Matrix([[pressure, 0.0], [0.0, pressure]])
        affine = -4 * dt * p_vol / dx**2 * stress + p_mass * C[s, p]
        for i, j in qd.static(qd.ndrange(3, 3)):
            offset = qd.Vector([i, j])
            weight = w[i][0] * w[j][1]
            momentum[base + offset] += weight * (p_mass * v[s, p] + affine @ ((offset - fx) * dx))
            mass[base + offset] += weight * p_mass


@qd.kernel
def on_grid():
    for i, j in mass:
        u = momentum[i, j] / (mass[i, j] + 1e-10)
        u[1] -= dt * gravity
        if j < bound and u[1] < 0:
            along = qd.max(abs(u[0]) + friction * u[1], 0.0)
            u = [along if u[0] > 0 else -along, 0.0]
        flow[i, j] = u


@qd.kernel
def from_grid(s: qd.i32):
    for p in muscle:
        base = qd.cast(x[s, p] / dx - 0.5, qd.i32)
        fx = x[s, p] / dx - base
        w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
        new_v = qd.Vector([0.0, 0.0])
        new_C = qd.Matrix([[0.0, 0.0], [0.0, 0.0]])
        for i, j in qd.static(qd.ndrange(3, 3)):
            offset = qd.Vector([i, j])
            u = flow[base + offset]
            weight = w[i][0] * w[j][1]
            new_v += weight * u
            new_C += 4 / dx * weight * u.outer_product(offset - fx)
        v[s + 1, p] = new_v
        x[s + 1, p] = x[s, p] + dt * new_v
        C[s + 1, p] = new_C


@qd.kernel
def carry():
    for p in muscle:
        x[0, p] = x[every, p]
        v[0, p] = v[every, p]
        C[0, p] = C[every, p]
        F[0, p] = F[every, p]


@qd.kernel
def measure():
    for p in muscle:
        loss[None] -= x[0, p][0] / n


def step(s: int, t: int) -> None:
    """One step of the window, from slot `s` to the next."""
    grid(s, t)
    from_grid(s)


def grid(s: int, t: int) -> None:
    """The grid of a step."""
    clear_grid()
    to_grid(s, t)
    on_grid()


kept: dict[int, list[np.ndarray]] = {}


@qd.ad.grad_replaced
def segment(number: int) -> None:
    """Runs the steps of a segment, and keeps its initial state."""
    kept[number] = [field.to_numpy()[0] for field in state]
    for s in range(every):
        step(s, number * every + s)
    carry()


@qd.ad.grad_for(segment)
def segment_gradient(number: int) -> None:
    """Computes the steps again and goes back through them."""
    for field, values in zip(state, kept[number], strict=True):
        window = field.to_numpy()
        window[0] = values
        field.from_numpy(window)
    for s in range(every):
        step(s, number * every + s)
    carry.grad()
    for s in reversed(range(every)):
        grid(s, number * every + s)  # there is one grid: recomputes its state at this step
        for field in (momentum, mass, flow):
            field.grad.fill(0)
        from_grid.grad(s)
        on_grid.grad()
        to_grid.grad(s, number * every + s)


def begin() -> None:
    """Sets the robot's initial state."""
    for field, values in zip(state, (start_place, 0.0, 0.0, np.eye(2)), strict=True):
        window = np.zeros((*field.shape, *field.element_shape))
        window[0] = values
        field.from_numpy(window)


muscle.from_numpy(muscle_of)
first_weights = np.random.default_rng(3).standard_normal((muscles, waves)) * 0.3
weights.from_numpy(first_weights)
losses: list[float] = []
gradients: list[np.ndarray] = []
means = np.zeros((2, muscles, waves))


def advance(frame: int) -> None:
    """One iteration: simulate, differentiate, and take a step of Adam."""
    begin()
    with qd.ad.Tape(loss):
        plan()
        for number in range(segments):
            segment(number)
        measure()
    gradient = weights.grad.to_numpy()
    losses.append(float(loss[None]))
    gradients.append(gradient)
    means[0] = 0.9 * means[0] + 0.1 * gradient
    means[1] = 0.99 * means[1] + 0.01 * gradient**2
    first, second = means[0] / (1 - 0.9 ** (frame + 1)), means[1] / (1 - 0.99 ** (frame + 1))
    weights.from_numpy(weights.to_numpy() - 0.1 * first / (np.sqrt(second) + 1e-12))


def way(value: float) -> float:
    """How far the robot went, of a loss."""
    return float(-value - start_place[:, 0].mean())


def loss_of(w: np.ndarray) -> float:
    """The same in numpy, all particles at once."""
    time = np.arange(steps)[:, None] * dt * speed + 2 * np.pi / waves * np.arange(waves)
    acts = np.tanh(np.sin(time) @ w.T)
    px, pv, pC, pF = start_place.copy(), np.zeros((n, 2)), np.zeros((n, 2, 2)), np.tile(np.eye(2), (n, 1, 1))
    nodes = np.stack(np.meshgrid(np.arange(3), np.arange(3), indexing="ij"), -1).reshape(9, 2)
    for t in range(steps):
        base = np.floor(px / dx - 0.5).astype(int)
        fx = px / dx - base
        shape = np.stack([0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2], 1)
        weight = shape[:, nodes[:, 0], 0] * shape[:, nodes[:, 1], 1]
        away = nodes[None] - fx[:, None]
        cell = base[:, None] + nodes[None]
        at = (cell[..., 0].ravel(), cell[..., 1].ravel())
        pF = pF + dt * pC @ pF
        inner = np.tile(np.eye(2) * elasticity, (n, 1, 1))
        inner[:, 1, 1] += np.where(muscle_of >= 0, acts[t][muscle_of] * strength, 0.0)
        pressure = elasticity * (np.log(np.linalg.det(pF)) - 1.0)
        stress = pF @ inner @ pF.transpose(0, 2, 1) + pressure[:, None, None] * np.eye(2)
        affine = -4 * dt * p_vol / dx**2 * stress + p_mass * pC
        pushed = weight[..., None] * (p_mass * pv[:, None] + np.einsum("pab,pkb->pka", affine, away * dx))
        gv, gm = np.zeros((n_grid, n_grid, 2)), np.zeros((n_grid, n_grid))
        np.add.at(gv, at, pushed.reshape(-1, 2))
        np.add.at(gm, at, weight.ravel() * p_mass)
        gv /= gm[..., None] + 1e-10
        gv[..., 1] -= dt * gravity
        low = gv[:, :bound]
        stops = low[..., 1] < 0
        along = np.maximum(abs(low[..., 0]) + friction * low[..., 1], 0.0)
        low[..., 0] = np.where(stops, np.where(low[..., 0] > 0, along, -along), low[..., 0])
        low[..., 1] = np.where(stops, 0.0, low[..., 1])
        u = gv[cell[..., 0], cell[..., 1]]
        pv = (weight[..., None] * u).sum(1)
        pC = 4 / dx * np.einsum("pk,pka,pkb->pab", weight, u, away)
        px = px + dt * pv
    return -float(px[:, 0].mean())


def reference(_frames: int) -> Arrays:
    """Loss and gradient of the first iteration, the gradient by differences."""
    gradient = np.empty((muscles, waves))
    for index in np.ndindex(muscles, waves):
        h = np.zeros((muscles, waves))
        h[index] = 1e-4
        gradient[index] = (loss_of(first_weights + h) - loss_of(first_weights - h)) / 2e-4
    scale = abs(gradient).max()
    return {"loss": np.array([loss_of(first_weights)]), "gradient": gradient / scale, "scale": np.array([scale])}


def result() -> Arrays:
    """Loss and gradient of the first iteration."""
    scale = abs(gradients[0]).max()
    return {"loss": np.array([losses[0]]), "gradient": gradients[0] / scale, "scale": np.array([scale])}


if __name__ == "__main__":
    example.run(
        advance=advance,
        picture=lambda: curve([loss - min(losses) + 1e-4 for loss in losses]),
        state=result,
        reference=reference,
        tolerance={"loss": Tolerance(1e-9), "gradient": Tolerance(1e-4), "scale": Tolerance(1e-7)},
        work=(float(n * steps), "particle steps with gradient"),
        report=lambda _: print(f"{'way gone:':<22}{way(losses[0]):.3f}, at the end {way(losses[-1]):.3f}"),
    )
