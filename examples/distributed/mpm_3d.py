"""A weakly compressible fluid, split over ranks: the material point method (MLS-MPM) in three dimensions.

Each rank has a block of the grid's rows and the particles in it. Particles read nodes and add to nodes up to `REACH`
rows away from the block: two for the kernel's support, the others for particles that have left the block.
"""

import numpy as np
from rank_support import check, run, start

import octants as qd

args = start(__doc__, size=48, steps=50)
n, m = args.rows, args.size
REACH = 6
WALL = 3

dx = 1.0 / m
dt = 0.005 * dx
volume = (0.5 * dx) ** 3  # of a particle, which is also its mass
stiffness = 400.0

grid_v = qd.field(qd.types.vector(3, qd.f32), shape=(n, m, m), split=0, halo=REACH)
grid_m = qd.field(qd.f32, shape=(n, m, m), split=0, halo=REACH)

# Eight particles in each cell of the lower half, by rows of cells. The particle arrays have blocks of equal length;
# surplus particles of a rank have no mass.
HEIGHT, DEPTH = m // 2 - WALL, m - 2 * WALL - 1
PER_ROW = 8 * HEIGHT * DEPTH
ranks = qd.distributed.size()
rows = [qd.distributed.rows_of_rank(n, rank, ranks) for rank in range(ranks)]
blocks = [[min(max(row, WALL), n - WALL - 1) for row in of_rank] for of_rank in rows]
room = PER_ROW * max(end - first for first, end in blocks)
first_rows = qd.field(qd.i32, shape=ranks)
last_rows = qd.field(qd.i32, shape=ranks)
first_rows.from_numpy(np.array([first for first, _ in blocks], np.int32))
last_rows.from_numpy(np.array([end for _, end in blocks], np.int32))

x = qd.field(qd.types.vector(3, qd.f32), shape=(ranks * room,), split=0, halo=0)
v = qd.field(qd.types.vector(3, qd.f32), shape=(ranks * room,), split=0, halo=0)
c = qd.field(qd.types.matrix(3, 3, qd.f32), shape=(ranks * room,), split=0, halo=0)
stretch = qd.field(qd.f32, shape=(ranks * room,), split=0, halo=0)
mass = qd.field(qd.f32, shape=(ranks * room,), split=0, halo=0)


@qd.kernel
def place():
    for p in x:
        rank, q = p // room, p % room
        row = first_rows[rank] + q // PER_ROW
        mass[p] = volume
        if row >= last_rows[rank]:
            row = first_rows[rank]
            mass[p] = 0.0
        cell = qd.Vector([row, WALL + q // (8 * DEPTH) % HEIGHT, WALL + q // 8 % DEPTH])
        corner = qd.Vector([q % 2, q // 2 % 2, q // 4 % 2])
        x[p] = dx * (qd.cast(cell, qd.f32) + 0.25 + 0.5 * qd.cast(corner, qd.f32))
        v[p] = qd.Vector([0.5 * qd.cast(row % 3, qd.f32), -1.0, 0.0])
        stretch[p] = 1.0


@qd.func
def support(position):
    """The first of the nodes near a position, the distance from it in cells, and the weights along each axis."""
    base = qd.cast(position / dx - 0.5, qd.i32)
    fx = position / dx - qd.cast(base, qd.f32)
    w = qd.Matrix.rows([0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1.0) ** 2, 0.5 * (fx - 0.5) ** 2])
    return base, fx, w


@qd.kernel
def substep():
    for i, j, k in grid_m:
        grid_v[i, j, k] = qd.Vector([0.0, 0.0, 0.0])
        grid_m[i, j, k] = 0.0
    for p in x:
        base, fx, w = support(x[p])
        stress = -dt * 4.0 * stiffness * mass[p] * (stretch[p] - 1.0) / dx**2
        affine = qd.Matrix.identity(qd.f32, 3) * stress + mass[p] * c[p]
        for a, b, d in qd.static(qd.ndrange(3, 3, 3)):
            weight = w[a, 0] * w[b, 1] * w[d, 2]
            distance = (qd.Vector([a, b, d]) - fx) * dx
            row = qd.distributed.assume_local(grid_m, base[0] + a)
            grid_v[row, base[1] + b, base[2] + d] += weight * (mass[p] * v[p] + affine @ distance)
            grid_m[row, base[1] + b, base[2] + d] += weight * mass[p]
    for i, j, k in grid_m:
        if grid_m[i, j, k] > 0.0:
            u = grid_v[i, j, k] / grid_m[i, j, k]
            u[1] -= dt * 9.8
            for axis, index, extent in qd.static([(0, i, n), (1, j, m), (2, k, m)]):
                if (index < WALL and u[axis] < 0.0) or (index > extent - WALL and u[axis] > 0.0):
                    u[axis] = 0.0
            grid_v[i, j, k] = u
    for p in x:
        base, fx, w = support(x[p])
        velocity = qd.Vector([0.0, 0.0, 0.0])
        gradient = qd.Matrix.zero(qd.f32, 3, 3)
        for a, b, d in qd.static(qd.ndrange(3, 3, 3)):
            weight = w[a, 0] * w[b, 1] * w[d, 2]
            distance = (qd.Vector([a, b, d]) - fx) * dx
            row = qd.distributed.assume_local(grid_v, base[0] + a)
            u = grid_v[row, base[1] + b, base[2] + d]
            velocity += weight * u
            gradient += 4.0 * weight / dx**2 * u.outer_product(distance)
        v[p] = velocity
        c[p] = gradient
        x[p] += dt * velocity
        stretch[p] *= 1.0 + dt * gradient.trace()


def expected() -> np.ndarray:
    """The grid's masses after the same steps with numpy, in double precision."""
    row, height, depth, corner = np.mgrid[WALL : n - WALL - 1, :HEIGHT, :DEPTH, :8].reshape(4, -1)
    cell = np.stack([row, WALL + height, WALL + depth])
    px = dx * (cell + 0.25 + 0.5 * np.stack([corner % 2, corner // 2 % 2, corner // 4 % 2])).T
    pv = np.stack([0.5 * (row % 3), np.full(row.shape, -1.0), np.zeros(row.shape)], axis=1)
    pc, pj = np.zeros((len(px), 3, 3)), np.ones(len(px))
    gm = np.zeros((n, m, m))
    for _ in range(args.steps):
        base = (px / dx - 0.5).astype(int)
        fx = px / dx - base
        w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1.0) ** 2, 0.5 * (fx - 0.5) ** 2]
        affine = volume * pc + (-dt * 4.0 * stiffness * volume * (pj - 1.0) / dx**2)[:, None, None] * np.eye(3)
        near = []
        for a, b, d in np.ndindex(3, 3, 3):
            weight = w[a][:, 0] * w[b][:, 1] * w[d][:, 2]
            near.append((tuple((base + (a, b, d)).T), weight, ((a, b, d) - fx) * dx))
        gv, gm = np.zeros((n, m, m, 3)), np.zeros((n, m, m))
        for node, weight, distance in near:
            np.add.at(gv, node, weight[:, None] * (volume * pv + np.einsum("pij,pj->pi", affine, distance)))
            np.add.at(gm, node, weight * volume)
        gv[gm > 0] /= gm[gm > 0][:, None]
        gv[..., 1][gm > 0] -= dt * 9.8
        for axis, extent in enumerate((n, m, m)):
            low, high = (
                np.moveaxis(gv, axis, 0)[rows][..., axis] for rows in (slice(WALL), slice(extent - WALL + 1, None))
            )
            np.maximum(low, 0.0, out=low)
            np.minimum(high, 0.0, out=high)
        pv, pc = np.zeros_like(pv), np.zeros_like(pc)
        for node, weight, distance in near:
            pv += weight[:, None] * gv[node]
            pc += (4.0 / dx**2 * weight)[:, None, None] * gv[node][:, :, None] * distance[:, None, :]
        px += dt * pv
        pj *= 1.0 + dt * np.trace(pc, axis1=1, axis2=2)
    return gm / volume


place()
run(args, substep, float(PER_ROW * (n - 2 * WALL - 1)), "particle updates")
if args.check:
    check(args, grid_m.to_numpy() / volume, expected, 1e-3)
