"""Jelly: an elastic block of tetrahedra falls, turns and lands on the floor.

Each cell adds its forces to its four vertices. The surface, which the picture shows, is the faces with one cell only.
"""

import itertools

import numpy as np
from example_support import Arrays, Example, Tolerance

example = Example(__doc__, frames=90, size=10, out="out/jelly.gif", check_frames=6, check_size=2)
qd = example.qd

n = example.size
substeps = 40
dt = 1.0 / (30.0 * substeps)
density = 1000.0
mu, lam = 3e4, 8e4
vec3, mat3 = qd.types.vector(3, qd.f32), qd.types.matrix(3, 3, qd.f32)


def block() -> tuple[np.ndarray, np.ndarray]:
    """Vertices and cells of a block of 2n x n x n cubes of six tetrahedra each, tilted, above the floor."""
    shape = np.array([2 * n, n, n])
    corners = np.stack(np.meshgrid(*[np.arange(k + 1) for k in shape], indexing="ij"), -1).reshape(-1, 3)
    stride = np.array([(n + 1) ** 2, n + 1, 1])
    first = np.stack(np.meshgrid(*[np.arange(k) for k in shape], indexing="ij"), -1).reshape(-1, 3) @ stride
    paths = [np.cumsum([0, *stride[list(axes)]]) for axes in itertools.permutations(range(3))]
    cells = (first[:, None, None] + np.array(paths)).reshape(-1, 4)
    tilt = np.array([[0.8, -0.6, 0.0], [0.6, 0.8, 0.0], [0.0, 0.0, 1.0]])
    return (corners / n - [1.0, 0.5, 0.5]) * 0.4 @ tilt.T + [0.0, 0.9, 0.0], cells


positions, cells = block()
mesh = qd.Mesh.create(qd.Mesh.from_elements(positions, cells=cells))
mesh.verts.place({"x": vec3, "v": vec3, "force": vec3, "mass": qd.f32}, reorder=True)
mesh.cells.place({"inverse": mat3, "volume": qd.f32}, reorder=True)
is_outside = qd.field(qd.i32, shape=len(mesh.faces))
corners = qd.Vector.field(3, qd.i32, shape=len(mesh.faces))


@qd.func
def edges_of(cell):
    return qd.Matrix.cols([cell.verts[i].x - cell.verts[3].x for i in qd.static(range(3))])


@qd.kernel
def prepare():
    for c in mesh.cells:
        edges = edges_of(c)
        c.inverse = edges.inverse()
        c.volume = qd.abs(edges.determinant()) / 6.0
        for v in c.verts:
            v.mass += 0.25 * density * c.volume
    for f in mesh.faces:
        is_outside[f.id] = int(f.cells.size == 1)
        corners[f.id] = [f.verts[0].id, f.verts[1].id, f.verts[2].id]


@qd.kernel
def step():
    for v in mesh.verts:
        v.force = v.mass * vec3(0.0, -9.8, 0.0)
    for c in mesh.cells:
        f = edges_of(c) @ c.inverse
        strain = 0.5 * (f.transpose() @ f - qd.Matrix.identity(qd.f32, 3))
        stress = f @ (2.0 * mu * strain + lam * strain.trace() * qd.Matrix.identity(qd.f32, 3))
        forces = -c.volume * stress @ c.inverse.transpose()
        for i in qd.static(range(3)):
            force = vec3(forces[0, i], forces[1, i], forces[2, i])
            c.verts[i].force += force
            c.verts[3].force -= force
    for v in mesh.verts:
        v.v = (v.v + dt * v.force / v.mass) * 0.9995
        if v.x.y < 0.0:
            v.v *= 0.9
            v.v.y = qd.max(v.v.y, 0.0)
        v.x += dt * v.v


def reference(frames: int) -> Arrays:
    """The same steps on whole numpy arrays, in double precision."""
    x, v = positions.copy(), np.zeros_like(positions)

    def edges() -> np.ndarray:
        return np.swapaxes(x[cells[:, :3]] - x[cells[:, 3:]], 1, 2)

    inverse, volume = np.linalg.inv(edges()), np.abs(np.linalg.det(edges())) / 6.0
    mass = np.zeros(len(x))
    np.add.at(mass, cells, 0.25 * density * volume[:, None])
    for _ in range(frames * substeps):
        force = mass[:, None] * [0.0, -9.8, 0.0]
        f = edges() @ inverse
        strain = 0.5 * (np.swapaxes(f, 1, 2) @ f - np.eye(3))
        trace = np.trace(strain, axis1=1, axis2=2)[:, None, None]
        forces = -volume[:, None, None] * (f @ (2.0 * mu * strain + lam * trace * np.eye(3)))
        forces = np.swapaxes(forces @ np.swapaxes(inverse, 1, 2), 1, 2)
        np.add.at(force, cells[:, :3], forces)
        np.add.at(force, cells[:, 3], -forces.sum(axis=1))
        v = (v + dt * force / mass[:, None]) * 0.9995
        below = x[:, 1] < 0.0
        v[below] *= 0.9
        v[below, 1] = np.maximum(v[below, 1], 0.0)
        x = x + dt * v
    return {"place": x}


def advance(_frame: int) -> None:
    """One frame."""
    for _ in range(substeps):
        step()


def picture(size: int = 320) -> np.ndarray:
    """The faces of the surface, shaded, nearer ones drawn last."""
    image = np.full((size, size, 3), [24, 26, 34], np.uint8)
    place = mesh.verts.x.to_numpy()
    a, b, c = (place[column] for column in corners.to_numpy()[is_outside.to_numpy() == 1].T)
    normal = np.cross(b - a, c - a)
    light = np.abs(normal @ [0.48, 0.8, 0.36]) / np.maximum(np.linalg.norm(normal, axis=-1), 1e-12)
    grid = [(s, t) for s in np.linspace(0, 1, 12) for t in np.linspace(0, 1, 12) if s + t <= 1.0]
    points = np.concatenate([a * (1 - s - t) + b * s + c * t for s, t in grid])
    bright = np.tile(0.25 + 0.75 * light, len(grid))
    tilt = np.array([[0.8, 0.0, 0.6], [0.3, 0.86, -0.4], [-0.5, 0.5, 0.7]])
    seen = (points - [0.0, 0.5, 0.0]) @ tilt.T
    order = np.argsort(seen[:, 2])
    at_row = np.clip(((0.5 - seen[order, 1] / 1.8) * size).astype(int), 0, size - 1)
    at_column = np.clip(((seen[order, 0] / 1.8 + 0.5) * size).astype(int), 0, size - 1)
    image[at_row, at_column] = (bright[order, None] * [230, 110, 130]).astype(np.uint8)
    return image


if __name__ == "__main__":
    mesh.verts.x.from_numpy(mesh.get_position_as_numpy().astype(np.float32))
    prepare()
    example.run(
        advance=advance,
        picture=picture,
        state=lambda: {"place": mesh.verts.x.to_numpy()},
        reference=reference,
        tolerance={"place": Tolerance(5e-4)},
        work=(float(len(mesh.cells) * substeps), "cell updates"),
    )
