"""Misuse of meshes: in kernels, in Python, and in metadata."""

import copy
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


def test_misuse_in_kernels() -> None:
    mesh = qd.Mesh.create(qd.Mesh.generate_meta({**IN_PATCHES, "relations": IN_PATCHES["relations"][4:5]}))
    mesh.verts.place({"x": qd.f32})
    mesh.edges.place({"y": qd.i32})
    flat = qd.Mesh.create(qd.Mesh.from_elements(FLAT, faces=TRIANGLES))
    values = qd.field(qd.i32, shape=4)

    def check(kernel: Any, error: type[Exception], *texts: str) -> None:
        with pytest.raises(error) as found:
            kernel()
        for text in texts:
            assert text in str(found.value), str(found.value)

    @qd.kernel
    def missing_relation():
        for v in mesh.verts:
            v.x = v.cells.size

    check(missing_relation, AttributeError, "no relation from `verts` to `cells`", "EV", "v.x = v.cells.size")

    @qd.kernel
    def missing_attribute():
        for e in mesh.edges:
            e.y = e.verts[0].z

    check(missing_attribute, AttributeError, "an element of `verts` has no attribute `z`", "place", "e.verts[0].z")

    @qd.kernel
    def float_index():
        for e in mesh.edges:
            e.y = e.verts[0.5].id

    check(float_index, TypeError, "indices must be integers", "e.verts[0.5]")

    @qd.kernel
    def index_too_large():
        for e in mesh.edges:
            e.y = e.verts[2].id

    check(index_too_large, IndexError, "index 2 is out of bounds for a mesh relation with 2 elements")

    @qd.kernel
    def negative_index():
        for e in mesh.edges:
            e.y = e.verts[-1].id

    check(negative_index, qd.OctantsSyntaxError, "Negative indices")

    @qd.kernel
    def two_indices():
        for e in mesh.edges:
            e.y = e.verts[0, 1].id

    check(two_indices, IndexError, "takes one index, not 2")

    @qd.kernel
    def used_as_a_number():
        for v in mesh.verts:
            v.x = v + 1

    check(used_as_a_number, TypeError, "an element of `verts`", "v + 1")

    @qd.kernel
    def assigned_number():
        for v in mesh.verts:
            v.id = 3

    check(assigned_number, qd.OctantsSyntaxError, "cannot be assigned")

    @qd.kernel
    def assigned_element():
        for v in mesh.edges:
            u = v.verts[0]
            u = v
            u.x = 1

    check(assigned_element, TypeError, "holds an element of `verts`")

    @qd.kernel
    def assigned_loop_variable():
        for e in mesh.edges:
            e = e

    check(assigned_loop_variable, qd.OctantsSyntaxError, 'the loop index "e" cannot be assigned')

    @qd.kernel
    def two_variables():
        for a, b in mesh.edges:
            a.y = b

    check(two_variables, qd.OctantsSyntaxError, "1 loop target, found 2")

    @qd.kernel
    def grouped():
        for e in qd.grouped(mesh.edges):
            e.y = 1

    check(grouped, qd.OctantsSyntaxError, "does not support mesh elements")

    @qd.kernel
    def no_such_elements():
        for c in flat.cells:
            values[0] = c.id

    check(no_such_elements, ValueError, "the mesh has no cells")

    @qd.kernel
    def no_loop():
        for i in values:
            values[i] = qd.mesh_patch_idx()

    check(no_loop, qd.OctantsSyntaxError, "can only be called inside a loop over mesh elements", "qd.mesh_patch_idx()")

    @qd.kernel
    def no_field():
        qd.mesh_local(mesh.verts)
        for v in mesh.verts:
            v.x = 1

    check(no_field, TypeError, "qd.mesh_local() takes mesh attributes and fields")

    @qd.kernel
    def whole_mesh():
        for v in mesh:
            values[0] = 1

    check(whole_mesh, qd.OctantsSyntaxError, "Cannot loop over")

    @qd.kernel
    def places():
        mesh.verts.place({"z": qd.f32})

    check(places, qd.OctantsCompilationError, "place")


def test_misuse_in_python() -> None:
    mesh = qd.Mesh.create(qd.Mesh.from_elements(FLAT, faces=TRIANGLES))
    mesh.verts.place({"x": qd.f32})
    for name in ("x", "verts", "id", "place", "mesh", "not a name"):
        with pytest.raises(qd.OctantsSyntaxError, match="name"):
            mesh.verts.place({name: qd.f32})
    with pytest.raises(qd.OctantsRuntimeError, match="the mesh has no cells"):
        mesh.cells.place({"x": qd.f32})
    with pytest.raises(qd.OctantsRuntimeError, match="needs_grad"):
        mesh.verts.place({"y": qd.i32}, needs_grad=True)
    with pytest.raises(AttributeError, match="`verts` of this mesh has no attribute 'z'"):
        _ = mesh.verts.z
    with pytest.raises(qd.OctantsScopeError, match="`verts` of a mesh can only be looped over in a kernel"):
        list(mesh.verts)
    for function in (qd.mesh_patch_idx, lambda: qd.mesh_local(mesh.verts.x)):
        with pytest.raises(qd.OctantsScopeError, match="can only be called in kernels and @qd.func functions"):
            function()
    with pytest.raises(TypeError, match="load_meta"):
        qd.Mesh.create({})
    without_positions = {key: value for key, value in IN_PATCHES.items() if key != "attrs"}
    with pytest.raises(qd.OctantsRuntimeError, match="no vertex positions"):
        qd.Mesh.create(qd.Mesh.generate_meta(without_positions)).get_position_as_numpy()
    builder = qd.lang.mesh._TriMesh()
    builder.verts.place({"x": qd.f32})
    with pytest.raises(qd.OctantsSyntaxError, match="already"):
        builder.verts.place({"x": qd.f32})
    qd.reset()
    with pytest.raises(qd.OctantsRuntimeError, match=r"qd.init\(\)"):
        qd.Mesh.create(qd.Mesh.from_elements(FLAT, faces=TRIANGLES))


def changed(path: str, value: Any) -> dict[str, Any]:
    """The metadata in patches with one entry replaced."""
    data = copy.deepcopy(IN_PATCHES)
    *keys, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    place: Any = data
    for key in keys:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value(place[last]) if callable(value) else value
    return data


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("num_patches", None, "`num_patches` is missing"),
        ("num_patches", 0, "at least 1"),
        ("num_patches", 2.5, "must be a number"),
        ("elements.0.order", 4, "`order` must be 0 for verts"),
        ("elements.1.order", 0, "listed twice"),
        ("elements.0.num", 26, "verts: "),
        ("elements.2.l2g_mapping", None, "faces: `l2g_mapping` is missing"),
        ("elements.2.l2g_mapping", lambda old: [*old[:-1], 10**6], "integers from 0 to"),
        ("elements.2.l2g_mapping", lambda old: [old[1], *old[1:]], "each element must be owned by one patch"),
        ("elements.0.g2r_mapping", lambda old: [old[1], *old[1:]], "must contain each number below 27 exactly once"),
        ("elements.0.l2r_mapping", lambda old: [*old[1:], old[0]], "`l2r_mapping`"),
        ("elements.0.owned_offsets", lambda old: [*old[:-1], 3], "entries that increase from 0 to 27"),
        ("elements.0.total_offsets", lambda old: [0.5, *old[1:]], "must be a list of integers"),
        ("relations.0.from_order", 7, "a relation: `from_order`"),
        ("relations.1.to_order", 0, "relation VV: it is listed twice"),
        ("relations.4.value", lambda old: old[1:], "relation EV: `value` must have 2 entries"),
        ("relations.4.value", lambda old: [60000, *old[1:]], "exceeds the number of verts in its patch"),
        ("relations.1.value", lambda old: [60000, *old[1:]], "exceeds the number of edges in its patch"),
        ("relations.1.offset", lambda old: old[1:], "`offset` must have an entry for each of 27"),
        ("relations.1.offset", lambda old: [old[1] + 1, *old[1:]], "`offset` must increase"),
        ("relations.1.patch_offset", [0], "`patch_offset` must have an entry"),
        ("relations.1.patch_offset", None, "relation VE: `patch_offset` is missing"),
        ("attrs.x", [1.0, 2.0], "3 numbers for each of the 27 verts"),
    ],
)
def test_bad_metadata(path: str, value: Any, message: str) -> None:
    with pytest.raises(qd.OctantsRuntimeError, match="mesh metadata: ") as found:
        qd.Mesh.generate_meta(changed(path, value))
    assert message in str(found.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "pass exactly one of"),
        ({"faces": TRIANGLES, "cells": CELLS}, "pass exactly one of"),
        ({"faces": CELLS}, r"integers of shape \(faces, 3\)"),
        ({"faces": TRIANGLES + 30}, "contain vertex indices from 0 to 35"),
        ({"faces": TRIANGLES * 1.0}, "must be integers"),
        ({"faces": [[0, 1, 1]]}, "different vertices: row 0"),
        ({"faces": [[0, 1, 2], [2, 0, 1]]}, "two rows with the same vertices"),
        ({"faces": TRIANGLES, "patch_size": 0}, "patch_size"),
        ({"vertices": FLAT[:, 0], "faces": TRIANGLES}, "`vertices` must have the shape"),
        ({"vertices": FLAT * np.nan, "faces": TRIANGLES}, "finite"),
    ],
)
def test_bad_elements(options: dict[str, Any], message: str) -> None:
    with pytest.raises(qd.OctantsRuntimeError, match=message):
        qd.Mesh.from_elements(**{"vertices": FLAT, **options})
