"""MPM99: blocks of water, jelly and snow fall onto each other.

The material point method with a deformation gradient per particle: a singular value decomposition in each step gives
the elastic stress of jelly (corotated), lets snow flow plastically, and preserves only the volume of water.
"""

import numpy as np
from example_support import Arrays, Example, Tolerance, dots

example = Example(__doc__, frames=150, size=6000, out="out/mpm99.gif", check_frames=3, check_size=600)
qd = example.qd

WATER, JELLY, SNOW = 0, 1, 2
COLORS = np.array([[0x06, 0x85, 0x87], [0xED, 0x55, 0x3B], [0xEE, 0xEE, 0xF0]], np.uint8)

small = example.args.check
n_grid = 32 if small else 96
substeps = 20 if small else 30
dt = 2e-4 if small else 1e-4


@qd.data_oriented
class Mixture:
    """Particles of three materials, and the grid they talk through."""

    def __init__(self, particles: int, cells: int, time_step: float) -> None:
        self.n_particles = particles
        self.n_grid = cells
        self.dt = time_step
        self.inv_dx = float(cells)
        self.p_vol = (0.5 / cells) ** 2
        self.p_mass = self.p_vol * 1.0
        young, poisson = 1000.0, 0.2
        self.mu_0 = young / (2 * (1 + poisson))
        self.lambda_0 = young * poisson / ((1 + poisson) * (1 - 2 * poisson))
        self.x = qd.Vector.field(2, qd.f32, particles)
        self.v = qd.Vector.field(2, qd.f32, particles)
        self.C = qd.Matrix.field(2, 2, qd.f32, particles)
        self.F = qd.Matrix.field(2, 2, qd.f32, particles)
        self.material = qd.field(qd.i32, particles)
        self.Jp = qd.field(qd.f32, particles)
        self.grid_v = qd.Vector.field(2, qd.f32, (cells, cells))
        self.grid_m = qd.field(qd.f32, (cells, cells))

    @qd.func
    def weights(self, fx):
        return [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1.0) ** 2, 0.5 * (fx - 0.5) ** 2]

    @qd.kernel
    def reset(self):
        for p in self.x:
            self.v[p] = [0.0, 0.0]
            self.C[p] = qd.Matrix.zero(qd.f32, 2, 2)
            self.F[p] = qd.Matrix.identity(qd.f32, 2)
            self.Jp[p] = 1.0

    @qd.kernel
    def clear_grid(self):
        for I in qd.grouped(self.grid_m):
            self.grid_v[I] = qd.Vector.zero(qd.f32, 2)
            self.grid_m[I] = 0.0

    @qd.kernel
    def particles_to_grid(self):
        for p in self.x:
            base = (self.x[p] * self.inv_dx - 0.5).cast(int)
            fx = self.x[p] * self.inv_dx - base.cast(float)
            w = self.weights(fx)
            F = (qd.Matrix.identity(qd.f32, 2) + self.dt * self.C[p]) @ self.F[p]
            hardening = qd.max(0.1, qd.min(5.0, qd.exp(10.0 * (1.0 - self.Jp[p]))))
            if self.material[p] == JELLY:
                hardening = 0.3
            mu = self.mu_0 * hardening
            lam = self.lambda_0 * hardening
            if self.material[p] == WATER:
                mu = 0.0
            U, sigma, V = qd.svd(F)
            J = 1.0
            for d in qd.static(range(2)):
                kept = sigma[d, d]
                if self.material[p] == SNOW:
                    kept = qd.min(qd.max(sigma[d, d], 1.0 - 2.5e-2), 1.0 + 4.5e-3)
                self.Jp[p] *= sigma[d, d] / kept
                sigma[d, d] = kept
                J *= kept
            if self.material[p] == WATER:
                F = qd.Matrix.identity(qd.f32, 2) * qd.sqrt(J)
            elif self.material[p] == SNOW:
                F = U @ sigma @ V.transpose()
            self.F[p] = F
            stress = 2.0 * mu * (F - U @ V.transpose()) @ F.transpose()
            stress += qd.Matrix.identity(qd.f32, 2) * lam * J * (J - 1.0)
            affine = -self.dt * self.p_vol * 4.0 * self.inv_dx**2 * stress + self.p_mass * self.C[p]
            for i, j in qd.static(qd.ndrange(3, 3)):
                offset = qd.Vector([i, j])
                dpos = (offset.cast(float) - fx) / self.inv_dx
                weight = w[i][0] * w[j][1]
                self.grid_v[base + offset] += weight * (self.p_mass * self.v[p] + affine @ dpos)
                self.grid_m[base + offset] += weight * self.p_mass

    @qd.kernel
    def move_grid(self, gravity: qd.f32):
        for i, j in self.grid_m:
            if self.grid_m[i, j] > 0.0:
                velocity = self.grid_v[i, j] / self.grid_m[i, j]
                velocity[1] -= self.dt * gravity
                if i < 3:
                    velocity[0] = qd.max(velocity[0], 0.0)
                if i > self.n_grid - 3:
                    velocity[0] = qd.min(velocity[0], 0.0)
                if j < 3:
                    velocity[1] = qd.max(velocity[1], 0.0)
                if j > self.n_grid - 3:
                    velocity[1] = qd.min(velocity[1], 0.0)
                self.grid_v[i, j] = velocity

    @qd.kernel
    def grid_to_particles(self):
        for p in self.x:
            base = (self.x[p] * self.inv_dx - 0.5).cast(int)
            fx = self.x[p] * self.inv_dx - base.cast(float)
            w = self.weights(fx)
            velocity = qd.Vector.zero(qd.f32, 2)
            affine = qd.Matrix.zero(qd.f32, 2, 2)
            for i, j in qd.static(qd.ndrange(3, 3)):
                offset = qd.Vector([i, j])
                weight = w[i][0] * w[j][1]
                near = self.grid_v[base + offset]
                velocity += weight * near
                affine += 4.0 * self.inv_dx * weight * near.outer_product(offset.cast(float) - fx)
            self.v[p] = velocity
            self.C[p] = affine
            self.x[p] += self.dt * velocity

    def step(self) -> None:
        """One time step."""
        self.clear_grid()
        self.particles_to_grid()
        self.move_grid(50.0)
        self.grid_to_particles()


def start() -> tuple[np.ndarray, np.ndarray]:
    """Positions and materials: three blocks, one above the other."""
    third = example.size // 3
    material = np.minimum(np.arange(example.size) // third, 2).astype(np.int32)
    corner = np.array([[0.30, 0.10], [0.34, 0.38], [0.42, 0.66]])[material]
    inside = np.random.default_rng(3).random((example.size, 2)) * 0.24
    return (corner + inside).astype(np.float32), material


def reference(frames: int) -> Arrays:
    """The same method in numpy, double precision, LAPACK's decomposition."""
    start_x, kind = start()
    n, inv_dx = example.size, float(n_grid)
    p_vol = (0.5 / n_grid) ** 2
    mu_0, lambda_0 = 1000.0 / 2.4, 200.0 / (1.2 * 0.6)
    x, v, C = start_x.astype(np.float64), np.zeros((n, 2)), np.zeros((n, 2, 2))
    F, Jp, identity = np.tile(np.eye(2), (n, 1, 1)), np.ones(n), np.eye(2)
    nodes = np.stack(np.meshgrid(np.arange(3), np.arange(3), indexing="ij"), -1).reshape(9, 2)
    index = np.arange(n_grid)
    low, high = index < 3, index > n_grid - 3
    for _ in range(frames * substeps):
        base = np.floor(x * inv_dx - 0.5).astype(int)
        fx = x * inv_dx - base
        w = np.stack([0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1.0) ** 2, 0.5 * (fx - 0.5) ** 2], 1)
        weight = w[:, nodes[:, 0], 0] * w[:, nodes[:, 1], 1]
        offset = nodes[None] - fx[:, None]
        cell = base[:, None] + nodes[None]
        F = (identity + dt * C) @ F
        hard = np.where(kind == JELLY, 0.3, np.clip(np.exp(10.0 * (1.0 - Jp)), 0.1, 5.0))
        mu, lam = np.where(kind == WATER, 0.0, mu_0 * hard), lambda_0 * hard
        U, sigma, Vt = np.linalg.svd(F)
        kept = np.where((kind == SNOW)[:, None], np.clip(sigma, 1.0 - 2.5e-2, 1.0 + 4.5e-3), sigma)
        Jp = Jp * np.prod(sigma / kept, 1)
        J = np.prod(kept, 1)
        F = np.where((kind == WATER)[:, None, None], identity * np.sqrt(J)[:, None, None], F)
        F = np.where((kind == SNOW)[:, None, None], U @ (kept[:, :, None] * Vt), F)
        stress = 2.0 * mu[:, None, None] * (F - U @ Vt) @ F.transpose(0, 2, 1)
        stress += (lam * J * (J - 1.0))[:, None, None] * identity
        affine = -dt * p_vol * 4.0 * inv_dx**2 * stress + p_vol * C
        momentum = weight[..., None] * (p_vol * v[:, None] + np.einsum("pab,pkb->pka", affine, offset / inv_dx))
        gv, gm = np.zeros((n_grid, n_grid, 2)), np.zeros((n_grid, n_grid))
        at = (cell[..., 0].ravel(), cell[..., 1].ravel())
        np.add.at(gv, at, momentum.reshape(-1, 2))
        np.add.at(gm, at, weight.ravel() * p_vol)
        some = gm > 0.0
        gv[some] = gv[some] / gm[some][:, None] - [0.0, dt * 50.0]
        gv[low, :, 0], gv[high, :, 0] = np.maximum(gv[low, :, 0], 0.0), np.minimum(gv[high, :, 0], 0.0)
        gv[:, low, 1], gv[:, high, 1] = np.maximum(gv[:, low, 1], 0.0), np.minimum(gv[:, high, 1], 0.0)
        near = gv[cell[..., 0], cell[..., 1]]
        v = np.einsum("pk,pka->pa", weight, near)
        C = 4.0 * inv_dx * np.einsum("pk,pka,pkb->pab", weight, near, offset)
        x = x + dt * v
    return {"x": x, "v": v, "F": F, "Jp": Jp}


if __name__ == "__main__":
    mixture = Mixture(example.size, n_grid, dt)
    positions, materials = start()
    mixture.x.from_numpy(positions)
    mixture.material.from_numpy(materials)
    mixture.reset()

    def advance(_frame: int) -> None:
        """One frame."""
        for _ in range(substeps):
            mixture.step()

    example.run(
        advance=advance,
        picture=lambda: dots(mixture.x.to_numpy(), COLORS[materials], 320),
        state=lambda: {
            "x": mixture.x.to_numpy(),
            "v": mixture.v.to_numpy(),
            "F": mixture.F.to_numpy(),
            "Jp": mixture.Jp.to_numpy(),
        },
        reference=reference,
        tolerance={"x": Tolerance(1e-4), "v": Tolerance(1e-2), "F": Tolerance(1e-3), "Jp": Tolerance(1e-3)},
        work=(float(example.size * substeps), "particle-steps"),
    )
