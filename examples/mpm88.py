"""MPM88: a block of elastic, weakly compressible material falls into a box.

Moving least squares material point method: particles carry mass and momentum to a grid, the grid applies gravity and
walls, and the particles take the new velocities back. Prints particle-steps per second, compile time and launch time.
"""

import numpy as np
from example_support import Arrays, Example, Timing, Tolerance, dots, launch_microseconds

example = Example(__doc__, frames=300, size=8192, out="out/mpm88.gif", check_frames=4, check_size=512)
qd = example.qd

n_particles = example.size
n_grid = 32 if example.args.check else 128
substeps = 20
dt = 1e-3 if example.args.check else 2e-4
dx = 1.0 / n_grid
p_vol = (dx * 0.5) ** 2
p_mass = p_vol * 1.0
gravity = 9.8
bound = 3
stiffness = 400.0

x = qd.Vector.field(2, qd.f32, n_particles)
v = qd.Vector.field(2, qd.f32, n_particles)
C = qd.Matrix.field(2, 2, qd.f32, n_particles)
J = qd.field(qd.f32, n_particles)
grid_v = qd.Vector.field(2, qd.f32, (n_grid, n_grid))
grid_m = qd.field(qd.f32, (n_grid, n_grid))
flag = qd.field(qd.i32, ())


@qd.kernel
def substep():
    for i, j in grid_m:
        grid_v[i, j] = [0, 0]
        grid_m[i, j] = 0
    for p in x:
        Xp = x[p] / dx
        base = int(Xp - 0.5)
        fx = Xp - base
        w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
        stress = -dt * 4 * stiffness * p_vol * (J[p] - 1) / dx**2
        affine = qd.Matrix([[stress, 0], [0, stress]]) + p_mass * C[p]
        for i, j in qd.static(qd.ndrange(3, 3)):
            offset = qd.Vector([i, j])
            dpos = (offset - fx) * dx
            weight = w[i].x * w[j].y
            grid_v[base + offset] += weight * (p_mass * v[p] + affine @ dpos)
            grid_m[base + offset] += weight * p_mass
    for i, j in grid_m:
        if grid_m[i, j] > 0:
            grid_v[i, j] /= grid_m[i, j]
        grid_v[i, j].y -= dt * gravity
        if i < bound and grid_v[i, j].x < 0:
            grid_v[i, j].x = 0
        if i > n_grid - bound and grid_v[i, j].x > 0:
            grid_v[i, j].x = 0
        if j < bound and grid_v[i, j].y < 0:
            grid_v[i, j].y = 0
        if j > n_grid - bound and grid_v[i, j].y > 0:
            grid_v[i, j].y = 0
    for p in x:
        Xp = x[p] / dx
        base = int(Xp - 0.5)
        fx = Xp - base
        w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
        new_v = qd.Vector.zero(qd.f32, 2)
        new_C = qd.Matrix.zero(qd.f32, 2, 2)
        for i, j in qd.static(qd.ndrange(3, 3)):
            offset = qd.Vector([i, j])
            dpos = (offset - fx) * dx
            weight = w[i].x * w[j].y
            g_v = grid_v[base + offset]
            new_v += weight * g_v
            new_C += 4 * weight * g_v.outer_product(dpos) / dx**2
        v[p] = new_v
        x[p] += dt * v[p]
        J[p] *= 1 + dt * new_C.trace()
        C[p] = new_C


@qd.kernel
def touch():
    flag[None] = 1


def start() -> np.ndarray:
    """The particles' initial positions: a block of 0.4 by 0.4, filled at random."""
    return (np.random.default_rng(7).random((n_particles, 2)) * 0.4 + [0.3, 0.2]).astype(np.float32)


def reference(frames: int) -> Arrays:
    """The same method in numpy, double precision, all particles at once."""
    px, pv = start().astype(np.float64), np.tile([0.0, -1.0], (n_particles, 1))
    pC, pJ = np.zeros((n_particles, 2, 2)), np.ones(n_particles)
    nodes = np.stack(np.meshgrid(np.arange(3), np.arange(3), indexing="ij"), -1).reshape(9, 2)
    index = np.arange(n_grid)
    for _ in range(frames * substeps):
        base = np.floor(px / dx - 0.5).astype(int)
        fx = px / dx - base
        w = np.stack([0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1.0) ** 2, 0.5 * (fx - 0.5) ** 2], 1)
        weight = w[:, nodes[:, 0], 0] * w[:, nodes[:, 1], 1]
        dpos = (nodes[None] - fx[:, None]) * dx
        cell = base[:, None] + nodes[None]
        at = (cell[..., 0].ravel(), cell[..., 1].ravel())
        pressure = -dt * 4.0 * stiffness * p_vol * (pJ - 1.0) / dx**2
        affine = pressure[:, None, None] * np.eye(2) + p_mass * pC
        momentum = weight[..., None] * (p_mass * pv[:, None] + np.einsum("pab,pkb->pka", affine, dpos))
        gv, gm = np.zeros((n_grid, n_grid, 2)), np.zeros((n_grid, n_grid))
        np.add.at(gv, at, momentum.reshape(-1, 2))
        np.add.at(gm, at, weight.ravel() * p_mass)
        gv[gm > 0.0] /= gm[gm > 0.0][:, None]
        gv[..., 1] -= dt * gravity
        low, high = index < bound, index > n_grid - bound
        gv[low, :, 0] = np.maximum(gv[low, :, 0], 0.0)
        gv[high, :, 0] = np.minimum(gv[high, :, 0], 0.0)
        gv[:, low, 1] = np.maximum(gv[:, low, 1], 0.0)
        gv[:, high, 1] = np.minimum(gv[:, high, 1], 0.0)
        near = gv[cell[..., 0], cell[..., 1]]
        pv = np.einsum("pk,pka->pa", weight, near)
        pC = 4.0 * np.einsum("pk,pka,pkb->pab", weight, near, dpos) / dx**2
        px = px + dt * pv
        pJ = pJ * (1.0 + dt * np.trace(pC, axis1=1, axis2=2))
    return {"x": px, "v": pv, "J": pJ}


def advance(_frame: int) -> None:
    """One frame."""
    for _ in range(substeps):
        substep()


def report(_timing: Timing) -> None:
    """Prints the host time of one launch."""
    print(f"{'launch time:':<22}{launch_microseconds(qd, touch):.2f} us (host, a kernel of one store)")


if __name__ == "__main__":
    x.from_numpy(start())
    v.from_numpy(np.tile(np.array([0, -1], np.float32), (n_particles, 1)))
    C.fill(0)
    J.fill(1)
    example.run(
        advance=advance,
        picture=lambda: dots(x.to_numpy(), np.array([0x6A, 0xC8, 0xE8]), 320),
        state=lambda: {"x": x.to_numpy(), "v": v.to_numpy(), "J": J.to_numpy()},
        reference=reference,
        tolerance={"x": Tolerance(1e-4), "v": Tolerance(5e-3), "J": Tolerance(5e-4)},
        work=(float(n_particles * substeps), "particle-steps"),
        report=report,
    )
