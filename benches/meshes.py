"""Times loops over the elements of a triangle mesh on this package and on others of the same interface.

    python benches/meshes.py --python octants=PYTHON --python quadrants=PYTHON

The mesh is a grid of 100,352 triangles. All packages read the same metadata, in patches of 256 vertices. Each loop runs
on two threads, with attributes in the order of the elements and reordered.
"""

# mypy: ignore-errors
# Annotations of kernels are values.

import importlib
import statistics
import time
from typing import Any

import numpy as np
from package_rounds import compare

SQUARES = 224
VERTICES_OF_PATCH = 256


def grid() -> tuple[np.ndarray, np.ndarray]:
    """Positions of vertices, and the vertices of each triangle."""
    side = np.arange(SQUARES + 1)
    vertices = np.stack(np.meshgrid(side, side, [0.0], indexing="ij"), -1).reshape(-1, 3) / SQUARES
    a = (side[:-1, None] * (SQUARES + 1) + side[:-1]).reshape(-1)
    b, c, d = a + 1, a + SQUARES + 1, a + SQUARES + 2
    return vertices, np.stack([a, c, b, b, c, d], 1).reshape(-1, 3)


def element(order: int, owned: list[np.ndarray], listed: list[np.ndarray]) -> dict[str, Any]:
    """The metadata of one kind of element: those that each patch owns, and these with the others that it reads."""
    in_order = np.concatenate(owned)
    position = np.empty(len(in_order), int)
    position[in_order] = np.arange(len(in_order))
    flat = np.concatenate(listed)
    return {
        "order": order,
        "num": len(in_order),
        "max_num_per_patch": max(map(len, listed)),
        "owned_offsets": np.cumsum([0, *map(len, owned)]).tolist(),
        "total_offsets": np.cumsum([0, *map(len, listed)]).tolist(),
        "l2g_mapping": flat.tolist(),
        "l2r_mapping": position[flat].tolist(),
        "g2r_mapping": position.tolist(),
    }


def metadata() -> dict[str, Any]:
    """The mesh in patches, with the relations from vertices to vertices and from faces to vertices."""
    vertices, faces = grid()
    edges = np.concatenate([faces[:, pair] for pair in ([0, 1], [1, 2], [2, 0])])
    edges = np.unique(np.concatenate([edges, edges[:, ::-1]]), axis=0)
    row = np.searchsorted(edges[:, 0], np.arange(len(vertices) + 1))
    patches = -(-len(vertices) // VERTICES_OF_PATCH)
    own_vertices = np.array_split(np.arange(len(vertices)), patches)
    patch_of = np.repeat(np.arange(patches), [len(own) for own in own_vertices])
    own_faces = [np.flatnonzero(patch_of[faces[:, 0]] == patch) for patch in range(patches)]
    all_vertices = []
    near: dict[str, Any] = {"from_order": 0, "to_order": 0, "value": [], "offset": [], "patch_offset": []}
    corners: dict[str, Any] = {"from_order": 2, "to_order": 0, "value": []}
    for own, of_patch in zip(own_vertices, own_faces, strict=True):
        first, last = row[own[0]], row[own[-1] + 1]
        read = np.union1d(edges[first:last, 1], faces[of_patch])
        listed = np.concatenate([own, np.setdiff1d(read, own)])
        local = np.zeros(len(vertices), int)
        local[listed] = np.arange(len(listed))
        all_vertices.append(listed)
        near["patch_offset"].append(len(near["value"]))
        near["value"] += local[edges[first:last, 1]].tolist()
        near["offset"] += (row[own[0] : own[-1] + 2] - first).tolist()
        corners["value"] += local[faces[of_patch]].reshape(-1).tolist()
    return {
        "num_patches": patches,
        "elements": [element(0, own_vertices, all_vertices), element(2, own_faces, own_faces)],
        "relations": [near, corners],
        "attrs": {"x": vertices.reshape(-1).tolist()},
    }


def measure(package: str, repeat: int) -> dict[str, float]:
    """Milliseconds of each case."""
    qd = importlib.import_module(package)
    qd.init(arch=qd.cpu, log_level=qd.ERROR, cpu_max_num_threads=2, offline_cache=False)
    vec3 = qd.types.vector(3, qd.f32)
    data = metadata()
    found = {}
    for reorder in (False, True):
        builder = qd.lang.mesh._TriMesh()
        builder.verts.place({"x": vec3, "y": vec3, "s": qd.f32, "t": qd.f32}, reorder=reorder)
        builder.faces.place({"area": qd.f32}, reorder=reorder)
        mesh = builder.build(qd.Mesh.generate_meta(data))
        mesh.verts.x.from_numpy(mesh.get_position_as_numpy().astype(np.float32))
        mesh.verts.s.fill(1.0)
        for name, kernel in loops(qd, mesh, vec3).items():
            times = []
            for _ in range(20 * repeat):
                start = time.perf_counter()
                kernel()
                qd.sync()
                times.append(1e3 * (time.perf_counter() - start))
            found[f"{name}{', reordered' if reorder else ''}"] = statistics.median(times[repeat:])
        edges, area = mesh.verts.t.to_numpy().sum(), mesh.faces.area.to_numpy().sum()
        if edges != sum(len(r["value"]) for r in data["relations"][:1]) or not np.isclose(area, 1.0, rtol=1e-4):
            raise RuntimeError(f"{package} computes {edges} neighbors and an area of {area}")
    return found


def loops(qd: Any, mesh: Any, vec3: Any) -> dict[str, Any]:
    """A kernel for each case."""

    @qd.kernel
    def sum_neighbors():
        for v in mesh.verts:
            total = 0.0
            for j in range(v.verts.size):
                total += v.verts[j].s
            v.t = total

    @qd.kernel
    def sum_differences():
        for v in mesh.verts:
            total = vec3(0.0)
            for j in range(v.verts.size):
                total += v.verts[j].x - v.x
            v.y = total

    @qd.kernel
    def areas():
        for f in mesh.faces:
            a, b, c = f.verts[0].x, f.verts[1].x, f.verts[2].x
            f.area = (b - a).cross(c - a).norm() / 2.0

    return {
        "each vertex sums a number of its neighbors": sum_neighbors,
        "each vertex sums differences of positions": sum_differences,
        "area of each face": areas,
    }


if __name__ == "__main__":
    compare(__doc__, __file__, measure)
