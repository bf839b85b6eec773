"""Gradients of loops over elements of meshes, in both orders of memory."""

from typing import Any

import numpy as np
import pytest
from meshes_in_patches import Elements, grid_of_tetrahedra, grid_of_triangles, in_patches

import octants as qd

VERTICES, CELLS = grid_of_tetrahedra(2)
IN_PATCHES = in_patches(Elements(len(VERTICES), CELLS, seed=1), VERTICES, 4, seed=3)
FLAT, TRIANGLES = grid_of_triangles(5)


@pytest.fixture(autouse=True)
def program() -> None:
    qd.init(arch=qd.cpu)


@pytest.mark.parametrize("reorder", [False, True])
def test_gradients_of_elastic_energy(reorder: bool) -> None:
    mesh: Any = qd.Mesh.create(qd.Mesh.generate_meta(IN_PATCHES))
    mesh.verts.place({"x": qd.types.vector(3, qd.f64)}, reorder=reorder, needs_grad=True)
    mesh.cells.place({"B": qd.types.matrix(3, 3, qd.f64), "w": qd.f64})
    energy = qd.field(qd.f64, shape=(), needs_grad=True)
    rest = mesh.get_position_as_numpy()
    mesh.verts.x.from_numpy(rest)

    @qd.func
    def edges_of(c):
        return qd.Matrix.cols([c.verts[i].x - c.verts[3].x for i in qd.static(range(3))])

    @qd.kernel
    def prepare():
        for c in mesh.cells:
            d = edges_of(c)
            c.B = d.inverse()
            c.w = qd.abs(d.determinant()) / 6

    @qd.kernel
    def total_energy():
        for c in mesh.cells:
            f = edges_of(c) @ c.B
            log_j = qd.log(f.determinant())
            energy[None] += c.w * ((f.transpose() @ f).trace() / 2 - 1.5 - log_j + 2 * log_j**2)

    prepare()
    moved = rest + 0.05 * np.sin(7 * rest[:, [1, 2, 0]])
    mesh.verts.x.from_numpy(moved)
    with qd.ad.Tape(energy):
        total_energy()
    found = mesh.verts.x.grad.to_numpy()
    for vertex, axis in ((0, 0), (7, 1), (13, 2), (26, 0)):
        values = []
        for sign in (1, -1):
            shifted = moved.copy()
            shifted[vertex, axis] += sign * 1e-5
            mesh.verts.x.from_numpy(shifted)
            energy[None] = 0
            total_energy()
            values.append(energy[None])
        assert found[vertex, axis] == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-6)
        assert mesh.verts.x.grad[vertex][axis] == found[vertex, axis]


def test_gradients_of_loops_over_neighbors() -> None:
    mesh: Any = qd.Mesh.create(qd.Mesh.from_elements(FLAT, faces=TRIANGLES))
    mesh.verts.place({"x": qd.f64, "y": qd.f64}, reorder=True, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)
    rng = np.random.default_rng(0)
    x, weights = rng.random(len(mesh.verts)), rng.random(len(mesh.verts))
    given = qd.field(qd.f64, shape=len(mesh.verts))
    given.from_numpy(weights)
    mesh.verts.x.from_numpy(x)

    @qd.kernel
    def smooth():
        for v in mesh.verts:
            for u in v.verts:
                v.y += u.x * u.x

    @qd.kernel
    def add():
        for v in mesh.verts:
            loss[None] += v.y * given[v.id]

    with qd.ad.Tape(loss):
        smooth()
        add()
    rows = Elements(len(FLAT), TRIANGLES).relation(0, 0)
    wanted = [2 * x[v] * sum(weights[u] for u in row) for v, row in enumerate(rows)]
    np.testing.assert_allclose(mesh.verts.x.grad.to_numpy(), wanted, rtol=1e-12)
    np.testing.assert_allclose(mesh.verts.y.grad.to_numpy(), weights, rtol=1e-12)
