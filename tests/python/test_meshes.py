"""Meshes: loops over elements, relations against brute force, attributes in both orders of memory."""

import json
from typing import Any

import numpy as np
import pytest
from meshes_in_patches import KINDS, Elements, grid_of_tetrahedra, grid_of_triangles, in_patches

import octants as qd

vec3 = qd.types.vector(3, qd.f32)
mat3 = qd.types.matrix(3, 3, qd.f32)

VERTICES, CELLS = grid_of_tetrahedra(2)
TETRAHEDRA = Elements(len(VERTICES), CELLS, seed=1)
PATCHES = 4
IN_PATCHES = in_patches(TETRAHEDRA, VERTICES, PATCHES, seed=3)
FLAT, TRIANGLES = grid_of_triangles(5)


@pytest.fixture(autouse=True)
def program() -> None:
    qd.init(arch=qd.cpu)


def tetrahedra() -> Any:
    return qd.Mesh.create(qd.Mesh.generate_meta(IN_PATCHES))


def triangles(n: int = 5, **options: Any) -> Any:
    vertices, faces = grid_of_triangles(n)
    return qd.Mesh.create(qd.Mesh.from_elements(vertices, faces=faces, **options))


@qd.kernel
def sum_by_index(elements: qd.template(), kind: qd.template()):
    for v in elements:
        v.count = getattr(v, kind).size
        v.total = 0
        for j in range(getattr(v, kind).size):
            v.total += (getattr(v, kind)[j].id + 1) ** 2


@qd.kernel
def sum_by_loop(elements: qd.template(), kind: qd.template()):
    for v in elements:
        count, total = 0, 0
        for other in getattr(v, kind):
            count += 1
            total += (other.id + 1) ** 2
        v.count = count
        v.total = total


def check_relations(mesh: Any, rows_of: Any, orders: range) -> None:
    for source in orders:
        elements = getattr(mesh, KINDS[source])
        for target in orders:
            rows = rows_of(source, target)
            counts = [len(row) for row in rows]
            totals = [sum((number + 1) ** 2 for number in row) for row in rows]
            for kernel in (sum_by_index, sum_by_loop):
                elements.count.fill(-1)
                elements.total.fill(-1)
                kernel(elements, KINDS[target])
                found = elements.count.to_numpy().tolist(), elements.total.to_numpy().tolist()
                assert found == (counts, totals), (KINDS[source], KINDS[target], kernel)


@pytest.mark.parametrize("reordered", [(), KINDS, ("verts", "faces")])
def test_every_relation_of_a_file_in_patches(reordered: tuple[str, ...]) -> None:
    mesh = tetrahedra()
    for kind in KINDS:
        getattr(mesh, kind).place({"count": qd.i32, "total": qd.i32}, reorder=kind in reordered)
    check_relations(mesh, TETRAHEDRA.relation, range(4))


@pytest.mark.parametrize("reorder", [False, True])
def test_every_relation_that_follows_from_tetrahedra(reorder: bool) -> None:
    meta = qd.Mesh.from_elements(VERTICES, cells=CELLS, patch_size=7)
    mesh = qd.Mesh.create(meta)
    for kind in KINDS:
        getattr(mesh, kind).place({"count": qd.i32, "total": qd.i32}, reorder=reorder)
    # The package chooses the numbers of edges and faces, so they are identified by their vertices.
    elements = Elements(len(VERTICES), CELLS)
    for order in (1, 2):
        rows = corners(getattr(mesh, KINDS[order]), order + 1)
        assert set(map(frozenset, rows)) == set(elements.sets[order])
        elements.sets[order] = [frozenset(row) for row in rows]
    check_relations(mesh, elements.relation, range(4))


def corners(elements: Any, width: int) -> list[list[int]]:
    found = qd.field(qd.i32, shape=(len(elements), width))

    @qd.kernel
    def read():
        for e in elements:
            for j in qd.static(range(width)):
                found[e.id, j] = e.verts[j].id

    read()
    return found.to_numpy().tolist()


def test_the_order_of_corners_edges_and_faces() -> None:
    mesh = qd.Mesh.create(
        qd.Mesh.from_elements(np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]), cells=[[2, 0, 1, 3]])
    )
    volume, area, opposite = qd.field(qd.f32, shape=()), qd.field(qd.f32, shape=()), qd.field(qd.i32, shape=(2, 6))
    mesh.verts.place({"x": vec3})
    mesh.verts.x.from_numpy(mesh.get_position_as_numpy())

    @qd.kernel
    def measure():
        for c in mesh.cells:
            x = [c.verts[i].x for i in qd.static(range(4))]
            volume[None] = (x[1] - x[0]).cross(x[2] - x[0]).dot(x[3] - x[0]) / 6
            for i in qd.static(range(4)):
                opposite[0, i] = c.verts[i].id
                for j in qd.static(range(3)):
                    opposite[0, i] += 100 * int(c.faces[i].verts[j].id == c.verts[i].id)
            for i in qd.static(range(6)):
                opposite[1, i] = c.edges[i].verts[0].id + 10 * c.edges[i].verts[1].id
        for f in mesh.faces:
            x = [f.verts[i].x for i in qd.static(range(3))]
            # The flux of the position is three times the volume, if the normals point outward.
            area[None] += (x[1] - x[0]).cross(x[2] - x[0]).dot(x[0]) / 6

    measure()
    assert volume[None] == pytest.approx(1 / 6)
    assert area[None] == pytest.approx(1 / 6)
    assert opposite.to_numpy()[0, :4].tolist() == [2, 0, 1, 3]
    pairs = [(2, 0), (2, 1), (2, 3), (0, 1), (0, 3), (1, 3)]
    assert opposite.to_numpy()[1].tolist() == [min(pair) + 10 * max(pair) for pair in pairs]


def test_a_mesh_may_consist_of_edges() -> None:
    mesh = qd.Mesh.create(qd.Mesh.from_elements([[0.0, 0], [1, 0], [1, 1], [5, 5]], edges=[[0, 1], [1, 2]]))
    mesh.verts.place({"degree": qd.i32})

    @qd.kernel
    def count():
        for v in mesh.verts:
            v.degree = 10 * v.edges.size + v.verts.size

    count()
    assert mesh.verts.degree.to_numpy().tolist() == [11, 22, 11, 0]
    assert (len(mesh.verts), len(mesh.edges), len(mesh.faces), len(mesh.cells)) == (4, 2, 0, 0)


@pytest.mark.parametrize("reorder", [False, True])
def test_the_patch_of_each_element(reorder: bool) -> None:
    mesh = tetrahedra()
    for order, kind in enumerate(KINDS):
        elements = getattr(mesh, kind)
        elements.place({"patch": qd.i32}, reorder=reorder)
        data = IN_PATCHES["elements"][order]
        wanted = np.full(len(elements), -1)
        for patch in range(PATCHES):
            owned = data["owned_offsets"][patch + 1] - data["owned_offsets"][patch]
            begin = data["total_offsets"][patch]
            wanted[data["l2g_mapping"][begin : begin + owned]] = patch

        @qd.func
        def patch_of_the_loop():
            return qd.mesh_patch_idx()

        @qd.kernel
        def read():
            for v in elements:
                v.patch = -7
                for other in v.verts:
                    # The patch of the loop around, not of this vertex.
                    v.patch = qd.max(qd.mesh_patch_idx(), patch_of_the_loop())

        read()
        assert elements.patch.to_numpy().tolist() == wanted.tolist()


@pytest.mark.parametrize("layout", [qd.Layout.SOA, qd.Layout.AOS])
@pytest.mark.parametrize("reorder", [False, True])
def test_attributes_of_every_type_by_number(reorder: bool, layout: Any) -> None:
    mesh = tetrahedra()
    types = {"s": qd.i32, "d": qd.f64, "v": vec3, "m": mat3, "b": qd.u8}
    mesh.verts.place(types, reorder=reorder, layout=layout)
    mesh.verts.place({"plain": qd.i32})
    assert mesh.verts.keys == [*types, "plain"]
    n = len(mesh.verts)
    i = np.arange(n)
    mesh.verts.s.from_numpy(i**2)
    mesh.verts.v.from_numpy(np.stack([i, i**2, i**3], 1).astype(np.float32))
    mesh.verts.m[3] = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    mesh.verts.v[5] = [7.0, 8.0, 9.0]
    mesh.verts.v[6].y = -1.0
    mesh.verts.d.fill(0.5)
    copied = qd.field(qd.i32, shape=n)
    copied.copy_from(mesh.verts.s)
    assert copied.to_numpy().tolist() == (i**2).tolist()
    mesh.verts.plain.copy_from(mesh.verts.s)
    seen = qd.field(qd.i32, shape=n)

    @qd.kernel
    def change():
        for v in mesh.verts:
            assert v.plain == v.id**2
            assert mesh.verts.s[v.id] == v.s
            v.s = v.s + v.plain
            v.v *= 2.0
            v.v[1] += 1.0
            v.v.z = v.v.z - 1.0
            v.m[2, 2] += v.id
            v.d -= 0.25
            v.b = v.id
            qd.atomic_max(seen[v.id], v.plain + 1)
            mesh.verts.d[v.id] += 1.0
        for i in mesh.verts.s:
            seen[i] += 1

    change()
    want = np.stack([2 * i, 2 * i**2 + 1, 2 * i**3 - 1], 1).astype(np.float32)
    want[5], want[6] = [14, 17, 17], [12, -1, 431]
    assert mesh.verts.s.to_numpy().tolist() == (2 * i**2).tolist()
    assert mesh.verts.v.to_numpy().tolist() == want.tolist()
    assert mesh.verts.v[4].to_numpy().tolist() == want[4].tolist()
    assert mesh.verts.m[3].to_numpy().tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 12]]
    assert mesh.verts.m[9][2, 2] == 9
    assert (mesh.verts.d.to_numpy() == 1.25).all()
    assert mesh.verts.b[n - 1] == n - 1
    assert seen.to_numpy().tolist() == (i**2 + 2).tolist()
    assert mesh.verts.v.get_scalar_field(1)[7] == want[7, 1]
    with pytest.raises(qd.OctantsAssertionError, match="out of bounds"):
        mesh.verts.s[n]


def test_a_reordered_attribute_is_in_the_order_of_patches() -> None:
    mesh = tetrahedra()
    mesh.verts.place({"x": qd.i32}, reorder=True)
    mesh.verts.x.from_numpy(np.arange(len(mesh.verts)))
    positions = np.array(IN_PATCHES["elements"][0]["g2r_mapping"])
    assert mesh.verts.x._stored.to_numpy().tolist() == np.argsort(positions).tolist()
    with pytest.raises(ValueError, match="copy=False"):
        mesh.verts.x.to_numpy(copy=False)


def test_late_reordering_changes_only_the_order() -> None:
    mesh = triangles()
    mesh.verts.place({"a": qd.i32})

    @qd.kernel
    def neighbors(mesh: qd.template()):
        for v in mesh.verts:
            v.a = 0
            for u in v.verts:
                v.a += u.id

    neighbors(mesh)
    want = mesh.verts.a.to_numpy()
    mesh.verts.place({"b": qd.i32}, reorder=True)

    @qd.kernel
    def neighbors_twice():
        for v in mesh.verts:
            v.b = v.a
            for u in v.verts:
                v.b += u.id

    for _ in range(2):
        mesh.verts.a.fill(-1)
        neighbors(mesh)
        assert mesh.verts.a.to_numpy().tolist() == want.tolist()
    neighbors_twice()
    assert mesh.verts.b.to_numpy().tolist() == (2 * want).tolist()


def test_relations_of_relations_and_updates_of_neighbors() -> None:
    mesh = tetrahedra()
    mesh.verts.place({"total": qd.i32, "hits": qd.i32}, reorder=True)
    mesh.edges.place({"x": qd.i32})
    mesh.edges.x.from_numpy(np.arange(len(mesh.edges)))
    mesh.verts.hits.fill(0)

    @qd.kernel
    def gather():
        for v in mesh.verts:
            v.total = 0
            for c in v.cells:
                for f in c.faces:
                    for e in f.edges:
                        v.total += e.x
        for f in mesh.faces:
            for u in f.verts:
                u.hits += f.id + 1

    gather()
    near = TETRAHEDRA.relation
    cells, faces, edges = near(0, 3), near(3, 2), near(2, 1)
    wanted = [sum(e for c in row for f in faces[c] for e in edges[f]) for row in cells]
    assert mesh.verts.total.to_numpy().tolist() == wanted
    hits = np.zeros(len(mesh.verts), int)
    for face, row in enumerate(near(2, 0)):
        hits[row] += face + 1
    assert mesh.verts.hits.to_numpy().tolist() == hits.tolist()


def test_elements_are_passed_returned_and_assigned() -> None:
    mesh = triangles()
    mesh.verts.place({"x": qd.f32, "walked": qd.i32, "far": qd.i32, "swapped": qd.i32}, reorder=True)
    mesh.verts.x.from_numpy(np.arange(len(mesh.verts), dtype=np.float32))

    @qd.func
    def larger(a, b):
        # Two returns prevent inlining.
        if a.x > b.x:
            return a.id
        return b.id

    @qd.func
    def last_neighbor(v):
        return v.verts[v.verts.size - 1]

    @qd.real_func
    def double(v: qd.template()) -> qd.i32:
        return 2 * v.id

    @qd.func
    def mark(v, amount):
        v.walked += amount

    @qd.kernel
    def walk():
        for v in mesh.verts:
            mark(v, 0)
            v.far = larger(v, last_neighbor(v))
            at = v
            for _ in range(3):
                at = last_neighbor(at)
            v.walked += at.id
            a, b = v.verts[0], v.verts[1]
            a, b = b, a
            v.swapped = 1000 * a.id + b.id + double(v) - 2 * v.id

    walk()
    rows = Elements(len(FLAT), TRIANGLES).relation(0, 0)
    walked = list(range(len(rows)))
    for _ in range(3):
        walked = [rows[at][-1] for at in walked]
    assert mesh.verts.walked.to_numpy().tolist() == walked
    assert mesh.verts.far.to_numpy().tolist() == [max(v, row[-1]) for v, row in enumerate(rows)]
    assert mesh.verts.swapped.to_numpy().tolist() == [1000 * row[1] + row[0] for row in rows]


def test_meshes_in_classes_and_as_arguments() -> None:
    @qd.data_oriented
    class Areas:
        def __init__(self, mesh: Any) -> None:
            self.mesh = mesh
            mesh.verts.place({"x": vec3})
            mesh.faces.place({"area": qd.f32})
            mesh.verts.x.from_numpy(mesh.get_position_as_numpy())

        @qd.func
        def area(self, f):
            return (f.verts[1].x - f.verts[0].x).cross(f.verts[2].x - f.verts[0].x).norm() / 2

        @qd.kernel
        def measure(self):
            for f in self.mesh.faces:
                f.area = self.area(f)

    for n in (3, 5):
        areas = Areas(triangles(n))
        areas.measure()
        np.testing.assert_allclose(areas.mesh.faces.area.to_numpy(), 0.5 / n**2, rtol=1e-5)

    @qd.kernel
    def copy(source: qd.template(), to: qd.template(), other: qd.template()):
        for v in source.verts:
            to[v.id] = v.x[0] + other.verts.x[v.id][1]

    first, second = triangles(), triangles()
    for mesh in (first, second):
        mesh.verts.place({"x": vec3}, reorder=mesh is second)
        mesh.verts.x.from_numpy(mesh.get_position_as_numpy() * (1 if mesh is first else 10))
    to = qd.field(qd.f32, shape=len(first.verts))
    for one, other, scales in ((first, second, (1, 10)), (second, first, (10, 1))):
        copy(one, to, other)
        np.testing.assert_allclose(to.to_numpy(), FLAT[:, 0] * scales[0] + FLAT[:, 1] * scales[1], rtol=1e-5)


def test_struct_attributes() -> None:
    mesh = triangles()
    spring = qd.types.struct(k=qd.f32, rest=qd.f32)
    mesh.edges.place({"spring": spring})

    @qd.kernel
    def fill():
        for e in mesh.edges:
            e.spring.k = e.id
            e.spring.rest = e.spring.k * 2

    fill()
    assert mesh.edges.spring.rest.to_numpy().tolist() == [2.0 * i for i in range(len(mesh.edges))]
    with pytest.raises(qd.OctantsRuntimeError, match="struct type cannot be reordered"):
        mesh.edges.place({"other": spring}, reorder=True)


def test_builders_of_quadrants() -> None:
    builder = qd.lang.mesh._TetMesh()
    builder.verts.place({"a": qd.f32, "b": vec3}, reorder=True)
    builder.verts.place({"c": qd.f32}, needs_grad=True)
    builder.verts.AOS = True
    builder.cells.place({"w": qd.i32})
    meta = qd.Mesh.generate_meta(IN_PATCHES)
    one, two = builder.build(meta), builder.build(meta)

    @qd.kernel
    def set_both():
        qd.mesh_local(one.verts.a, two.verts.b)
        for v in one.verts:
            v.a = v.id
            two.verts.b[v.id] = v.a * 2
            two.verts.c[v.id] = 3

    set_both()
    n = len(one.verts)
    assert one.verts.a.to_numpy().tolist() == list(range(n))
    assert two.verts.b.to_numpy()[:, 2].tolist() == [2.0 * i for i in range(n)]
    assert two.verts.c.has_grad()
    assert not two.verts.a.has_grad()
    assert (two.verts.a.to_numpy() == 0).all()
    assert isinstance(one, qd.MeshInstance)
    assert one.patcher is None
    assert sorted(one.verts.keys) == ["a", "b", "c"]


def test_metadata_outlives_a_program_and_comes_from_files(tmp_path: Any) -> None:
    (tmp_path / "mesh.json").write_text(json.dumps(IN_PATCHES | {"patcher": [1]}))
    meta = qd.Mesh.load_meta(tmp_path / "mesh.json")
    old = qd.Mesh._create_instance(meta)
    old.verts.place({"x": qd.i32})
    qd.init(arch=qd.cpu)
    new = qd.Mesh._create_instance(meta)
    new.verts.place({"x": qd.i32})

    @qd.kernel
    def number(mesh: qd.template()):
        for v in mesh.verts:
            v.x = v.id

    number(new)
    assert new.verts.x[5] == 5
    assert new.patcher == [1]
    assert (new.num_patches, meta.num_patches) == (PATCHES, PATCHES)
    assert meta.num_elements == {kind: TETRAHEDRA.count(order) for order, kind in enumerate(KINDS)}
    assert "FV" in meta.relations
    np.testing.assert_array_equal(new.get_position_as_numpy(), VERTICES)
    with pytest.raises(qd.OctantsRuntimeError, match="program that qd.init"):
        number(old)


def test_serial_mesh_loops_and_loop_options() -> None:
    mesh = triangles()
    mesh.verts.place({"x": qd.i32})
    order = qd.field(qd.i32, shape=())

    @qd.kernel
    def number(do: qd.i32):
        qd.loop_config(serialize=True)
        for v in mesh.verts:
            v.x = order[None]
            order[None] += 1
        if do:
            for v in mesh.verts:
                v.x += 1

    number(1)
    assert mesh.verts.x.to_numpy().tolist() == list(range(1, len(mesh.verts) + 1))


def test_indices_are_checked_in_debug_mode() -> None:
    qd.init(arch=qd.cpu, debug=True)
    mesh = triangles()
    mesh.verts.place({"x": qd.i32})

    @qd.kernel
    def past_the_end(extra: qd.i32):
        for v in mesh.verts:
            v.x = v.edges[v.edges.size - 1 + extra].id

    past_the_end(0)
    with pytest.raises(qd.OctantsAssertionError, match="out of bounds for a mesh relation with"):
        past_the_end(1)


def test_options_of_meshes_are_accepted() -> None:
    qd.init(
        arch=qd.cpu,
        demote_no_access_mesh_fors=True,
        make_mesh_block_local=False,
        optimize_mesh_reordered_mapping=False,
        mesh_localize_to_end_mapping=False,
        mesh_localize_from_end_mapping=True,
        mesh_localize_all_attr_mappings=True,
        experimental_auto_mesh_local=True,
    )
    assert qd.is_extension_enabled(qd.extension.mesh)


@pytest.mark.on_cpu
def test_meshes_in_plain_python() -> None:
    qd.init(arch=qd.python)
    mesh = triangles()
    mesh.verts.place({"count": qd.i32, "total": qd.i32, "patch": qd.i32, "x": vec3}, reorder=True)
    mesh.verts.x.from_numpy(mesh.get_position_as_numpy())
    sum_by_index(mesh.verts, "faces")
    by_index = mesh.verts.total.to_numpy()
    sum_by_loop(mesh.verts, "faces")

    @qd.kernel
    def change():
        qd.mesh_local(mesh.verts.x)
        for v in mesh.verts:
            v.patch = qd.mesh_patch_idx() + 1
            qd.atomic_add(v.count, 1)
            v.x[2] = 4.0
            v.x *= 2.0

    change()
    rows = Elements(len(FLAT), TRIANGLES).relation(0, 2)
    assert mesh.verts.total.to_numpy().tolist() == [sum((f + 1) ** 2 for f in row) for row in rows]
    assert mesh.verts.total.to_numpy().tolist() == by_index.tolist()
    assert mesh.verts.count.to_numpy().tolist() == [len(row) + 1 for row in rows]
    assert (mesh.verts.patch.to_numpy() == 1).all()
    assert mesh.verts.x[3].to_numpy().tolist() == [2 * FLAT[3, 0], np.float32(2 * FLAT[3, 1]), 8.0]

    @qd.kernel
    def missing():
        for v in mesh.verts:
            v.count = v.cells.size

    with pytest.raises(qd.OctantsAttributeError, match="no relation from `verts` to `cells`"):
        missing()
