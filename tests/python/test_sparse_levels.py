"""Sparse levels: activation of cells, loops over active cells, lists, and clearing."""

import random

import numpy as np
import pytest

import octants as qd


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


def visited(field):
    """The indices that a loop over a field or level visits, each once, sorted."""
    counts = qd.field(qd.i32, shape=field.shape)

    @qd.kernel
    def visit():
        for index in qd.grouped(field):
            counts[index] += 1

    visit()
    counts = counts.to_numpy()
    assert counts.max(initial=0) <= 1
    return [tuple(map(int, index)) for index in np.argwhere(counts)]


def blocks_of_cells():
    x = qd.field(qd.f32)
    blocks = qd.root.pointer(qd.ij, (4, 3))
    blocks.dense(qd.ij, (2, 2)).place(x)
    return x, blocks


def cells_of(*blocks):
    return sorted((2 * i + a, 2 * j + b) for i, j in blocks for a in range(2) for b in range(2))


def test_a_store_activates_its_block_and_a_load_does_not():
    x, blocks = blocks_of_cells()
    seen = qd.field(qd.f32, shape=())

    @qd.kernel
    def touch():
        x[5, 1] = 3.0
        seen[None] = x[0, 0] + x[5, 1]

    touch()
    assert visited(x) == cells_of((2, 0))
    assert visited(blocks) == [(2, 0)]
    assert seen[None] == 3.0


def test_atomic_updates_and_stores_from_python_activate():
    x, _ = blocks_of_cells()

    @qd.kernel
    def add():
        for n in range(100):
            x[n % 2, 0] += 1.0
            qd.atomic_max(x[7, 5], qd.cast(n, qd.f32))

    add()
    x[2, 2] = 1.0
    assert visited(x) == cells_of((0, 0), (1, 1), (3, 2))
    assert (x[0, 0], x[1, 0], x[7, 5]) == (50.0, 50.0, 99.0)


def test_passing_an_element_by_reference_activates_it():
    x, _ = blocks_of_cells()

    @qd.func
    def double(value: qd.template()):
        value *= 2.0

    @qd.real_func
    def put(i: qd.i32, value: qd.f32):
        x[i, 5] = value

    @qd.kernel
    def run():
        double(x[3, 3])
        put(6, 2.5)

    run()
    assert visited(x) == cells_of((1, 1), (3, 2))


def test_loops_visit_the_cells_active_at_their_start():
    x, _ = blocks_of_cells()
    counts = qd.field(qd.i32, shape=2)
    x[0, 0] = 1.0

    @qd.kernel
    def spread():
        for i, j in x:
            counts[0] += 1
            x[(i + 2) % 8, j] = 1.0
        for _i, _j in x:
            counts[1] += 1

    spread()
    assert counts.to_numpy().tolist() == [4, 8]


def test_activate_deactivate_and_is_active():
    x, blocks = blocks_of_cells()
    answers = qd.field(qd.i32, shape=(4, 3))

    @qd.kernel
    def change():
        for i in range(4):
            qd.activate(blocks, [i, 1])

    @qd.kernel
    def drop():
        qd.deactivate(blocks, qd.Vector([2, 1]))

    @qd.kernel
    def ask():
        for i, j in answers:
            answers[i, j] = qd.is_active(blocks, [i, j])

    change()
    x.fill(7.0)
    drop()
    ask()
    assert answers.to_numpy().tolist() == [[0, 1, 0], [0, 1, 0], [0, 0, 0], [0, 1, 0]]
    assert x.to_numpy().sum() == 3 * 4 * 7.0
    x[4, 2] = 1.0
    assert x.to_numpy()[4:6, 2:4].tolist() == [[1.0, 0.0], [0.0, 0.0]]


def test_deactivate_all_affects_only_its_level():
    x, blocks = blocks_of_cells()
    y = qd.field(qd.i32)
    qd.root.bitmasked(qd.i, 8).place(y)
    x[0, 0], y[3] = 1.0, 4
    blocks.deactivate_all()
    assert visited(x) == []
    assert x[0, 0] == 0.0
    assert visited(y) == [(3,)]
    qd.deactivate_all_snodes()
    assert visited(y) == []
    assert y[3] == 0


def test_whole_arrays_change_active_cells_only():
    x, _ = blocks_of_cells()
    x[0, 0] = x[7, 5] = 1.0
    values = np.arange(48, dtype=np.float32).reshape(8, 6)
    x.from_numpy(values)
    expected = np.zeros_like(values)
    expected[0:2, 0:2], expected[6:8, 4:6] = values[0:2, 0:2], values[6:8, 4:6]
    assert (x.to_numpy() == expected).all()
    assert visited(x) == cells_of((0, 0), (3, 2))
    dense = qd.field(qd.f32, shape=(8, 6))
    dense.from_numpy(values)
    x.copy_from(dense)
    assert (x.to_numpy() == values).all()
    assert len(visited(x)) == 48


def test_vectors_structs_and_offsets():
    velocity = qd.Vector.field(2, qd.f32)
    particle = qd.Struct.field({"mass": qd.f32, "place": qd.types.vector(3, qd.f64)})
    qd.root.bitmasked(qd.i, 6).place(velocity, offset=(-3,))
    qd.root.pointer(qd.i, 5).place(particle)
    found = qd.field(qd.i32, shape=2)

    @qd.kernel
    def put():
        velocity[-2] = [1.0, 2.0]
        velocity[2].y = 5.0
        particle[4].place = [1.0, 2.0, 3.0]
        particle[1].mass = 2.0

    @qd.kernel
    def visit():
        for i in velocity:
            found[0] += 10 * i + 100
        for i in particle:
            found[1] += i

    put()
    visit()
    assert found.to_numpy().tolist() == [200, 5]
    velocity.fill(3.0)
    assert velocity.to_numpy().sum() == 12.0
    assert particle[4].place[2] == 3.0


def test_lists_grow_by_append_from_all_threads():
    numbers = qd.field(qd.i32)
    lists = qd.root.dense(qd.i, 3).dynamic(qd.j, 4000, chunk_size=32)
    lists.place(numbers)
    lengths = qd.field(qd.i32, shape=3)

    @qd.kernel
    def collect():
        for n in range(9000):
            if n % 3 < 2:
                qd.append(lists, n % 3, n)
        for i in range(3):
            lengths[i] = qd.length(lists, i)

    collect()
    assert lengths.to_numpy().tolist() == [3000, 3000, 0]
    for i in range(2):
        assert sorted(numbers.to_numpy()[i, :3000].tolist()) == list(range(i, 9000, 3))
    assert len(visited(numbers)) == 6000


def test_a_full_list_is_unchanged():
    numbers = qd.field(qd.i32)
    lists = qd.root.dynamic(qd.i, 8)
    lists.place(numbers)

    @qd.kernel
    def collect() -> qd.i32:
        for _ in range(50):
            numbers.append(1)
        return numbers.length()

    assert collect() == 8
    assert numbers.to_numpy().tolist() == [1] * 8


def test_elements_of_lists_are_values_vectors_and_structs():
    Edge = qd.types.struct(start=qd.math.vec2, length=qd.f32)
    edges = Edge.field()
    qd.root.dense(qd.i, 2).dynamic(qd.j, 5).place(edges)
    numbers = qd.field(qd.i32, shape=6)

    @qd.kernel
    def collect():
        qd.loop_config(serialize=True)
        for k in range(3):
            numbers[k] = edges[1].append(Edge(start=[k, 2 * k], length=0.5))
        numbers[3] = edges[1].length()
        edges[1].deactivate()
        numbers[4] = edges[1].length()
        numbers[5] = edges[1].append(Edge(start=[7, 8], length=9))

    collect()
    assert numbers.to_numpy().tolist() == [0, 1, 2, 3, 0, 0]
    assert edges.start.to_numpy()[1].tolist() == [[7, 8], [0, 0], [0, 0], [0, 0], [0, 0]]
    assert edges[1, 0].length == 9.0


def test_writing_past_the_end_extends_a_list():
    numbers = qd.field(qd.i32)
    lists = qd.root.dynamic(qd.i, 8)
    lists.place(numbers)
    numbers[4] = 3
    assert visited(numbers) == [(i,) for i in range(5)]


@pytest.mark.parametrize(
    "options", [{"debug": True}, {"opt_level": 0}, {"fast_math": False}, {"cpu_max_num_threads": 1}]
)
def test_options_of_programs(options):
    qd.reset()
    qd.init(arch=qd.cpu, **options)
    x, blocks = blocks_of_cells()

    @qd.kernel
    def fill():
        for i in range(8):
            x[i, i % 6] += i + 1.0
        for i, j in x:
            x[i, j] *= 2.0
        for i, j in blocks:
            if i == 0:
                qd.deactivate(blocks, [i, j])

    fill()
    assert visited(x) == cells_of((1, 1), (2, 2), (3, 0))
    assert x.to_numpy().sum() == 2.0 * (3 + 4 + 5 + 6 + 7 + 8)


def test_gradients_flow_through_active_cells():
    x = qd.field(qd.f32, needs_grad=True)
    loss = qd.field(qd.f32, shape=(), needs_grad=True)
    qd.root.pointer(qd.i, 4).dense(qd.i, 2).place(x, x.grad)
    x[2], x[3], x[7] = 3.0, 5.0, 2.0

    @qd.kernel
    def add():
        for i in x:
            loss[None] += x[i] ** 2

    with qd.ad.Tape(loss):
        add()
    assert loss[None] == 38.0
    assert x.grad.to_numpy().tolist() == [0, 0, 6, 10, 0, 0, 0, 4]


def test_stores_to_gradients_activate_cells():
    x = qd.field(qd.f32, needs_grad=True)
    loss = qd.field(qd.f32, shape=(), needs_grad=True)
    qd.root.pointer(qd.i, 4).dense(qd.i, 2).place(x, x.grad)
    x[2] = 1.0

    @qd.kernel
    def add():
        for i in range(6):
            loss[None] += 3.0 * x[i]

    assert visited(x) == [(2,), (3,)]
    for _ in range(3):
        with qd.ad.Tape(loss):
            add()
        assert x.grad.to_numpy().tolist() == [3, 3, 3, 3, 3, 3, 0, 0]
        assert visited(x) == [(i,) for i in range(6)]


def test_gradients_of_sparse_loops_repeat_the_same_iterations():
    x = qd.field(qd.f32, needs_grad=True)
    loss = qd.field(qd.f32, shape=(), needs_grad=True)
    qd.root.pointer(qd.i, 8).place(x, x.grad)
    x[2], x[3] = 1.0, 1.0

    @qd.kernel
    def add():
        for i in x:
            loss[None] += x[i]
        for i in x:
            loss[None] += 2.0 * x[i + 1]

    active = [2, 3]
    for _ in range(3):
        expected = np.zeros(8)
        for i in active:
            expected[i] += 1
            expected[i + 1] += 2
        active.append(active[-1] + 1)
        with qd.ad.Tape(loss):
            add()
        # The gradient activates the neighbor of the last cell.
        assert x.grad.to_numpy().tolist() == expected.tolist()
        assert visited(x) == [(i,) for i in active]


def test_forward_mode_lists_cells_before_each_loop():
    x = qd.field(qd.f32, needs_dual=True)
    y = qd.field(qd.f32, needs_dual=True)
    qd.root.pointer(qd.i, 8).place(x, x.dual)
    qd.root.pointer(qd.i, 8).place(y, y.dual)
    x[2] = 1.0

    @qd.kernel
    def spread():
        for i in x:
            x[i + 1] = 2.0 * x[i]
        for i in x:
            y[i] = 3.0 * x[i]

    with qd.ad.FwdMode(loss=y, param=x, seed=[0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]):
        spread()
    assert x.to_numpy().tolist() == [0, 0, 1, 2, 0, 0, 0, 0]
    assert y.dual.to_numpy().tolist() == [0, 0, 3, 6, 0, 0, 0, 0]
    assert visited(x) == visited(y) == [(2,), (3,)]


def test_stores_to_duals_activate_cells():
    x = qd.field(qd.f32, shape=4, needs_dual=True)
    y = qd.field(qd.f32, needs_dual=True)
    qd.root.pointer(qd.i, 4).place(y)
    qd.root.pointer(qd.i, 4).place(y.dual)
    x.dual.fill(2.0)

    @qd.kernel
    def scale():
        for i in range(3):
            y[i] = 5.0 * x[i]

    with qd.ad.FwdMode(loss=y, param=x, seed=[1.0, 1.0, 1.0, 1.0]):
        scale()
    assert y.dual.to_numpy().tolist() == [5, 5, 5, 0]
    assert visited(y.dual) == [(i,) for i in range(3)]


@pytest.mark.in_place
def test_a_tree_may_be_larger_than_memory():
    x = qd.field(qd.f32)
    numbers = qd.field(qd.i32)
    blocks = qd.root.pointer(qd.ij, (64, 64)).pointer(qd.ij, (16, 16))
    blocks.dense(qd.ij, (64, 64)).place(x)
    blocks.dynamic(qd.k, 2**20, chunk_size=1024).place(numbers)

    @qd.kernel
    def put(i: qd.i32, j: qd.i32):
        x[i, j] += 1.0
        qd.append(numbers.parent(), [i // 64, j // 64], 7)

    @qd.kernel
    def total() -> qd.f32:
        s = 0.0
        for i, j in x:
            s += x[i, j]
        return s

    @qd.kernel
    def length(i: qd.i32, j: qd.i32) -> qd.i32:
        return numbers[i, j].length()

    listed = qd.Vector.field(4, qd.i32, shape=8)
    count = qd.field(qd.i32, shape=())

    @qd.kernel
    def all_numbers():
        for i, j, k in numbers:
            listed[qd.atomic_add(count[None], 1)] = [i, j, k, numbers[i, j, k]]

    for i, j in [(0, 0), (65535, 65535), (65535, 65535), (40000, 123)]:
        put(i, j)
    assert total() == 4.0
    assert (length(0, 0), length(1023, 1023), length(1, 1)) == (1, 2, 0)
    all_numbers()
    visited = sorted(map(tuple, listed.to_numpy()[: count[None]]))
    assert visited == [(0, 0, 0, 7), (625, 1, 0, 7), (1023, 1023, 0, 7), (1023, 1023, 1, 7)]
    qd.root.deactivate_all()
    count[None] = 0
    all_numbers()
    assert (total(), count[None]) == (0.0, 0)
    assert (x[65535, 65535], length(1023, 1023)) == (0.0, 0)


def test_the_number_of_cells_of_a_level_is_limited():
    x = qd.field(qd.i32)
    qd.root.pointer(qd.ij, (2**16, 2**16)).place(x)
    with pytest.raises(qd.OctantsRuntimeError, match="2\\^31 - 1 cells, but this one has 4294967296"):
        x[0, 0] = 1


@pytest.mark.parametrize("mode", ["static", "full"])
def test_activation_metadata_is_not_a_race(mode):
    qd.reset()
    qd.init(arch=qd.cpu, check_races=mode)
    x, _ = blocks_of_cells()
    sums = qd.field(qd.f32, shape=(2, 8, 6))

    @qd.kernel
    def fill():
        for n in range(48):
            x[n // 6, n % 6] += n

    @qd.kernel
    def copy_twice():
        with qd.stream_parallel():
            for i, j in x:
                sums[0, i, j] = x[i, j]
        with qd.stream_parallel():
            for i, j in x:
                sums[1, i, j] = x[i, j]

    fill()
    copy_twice()
    assert sums.to_numpy().sum() == 2 * sum(range(48))


def test_streams_may_loop_over_one_field_concurrently():
    x, _ = blocks_of_cells()
    sums = [qd.field(qd.f32, shape=(8, 6)) for _ in range(2)]

    @qd.kernel
    def copy(to: qd.template()):
        for i, j in x:
            to[i, j] = x[i, j]

    x[0, 0], x[7, 5] = 1.0, 2.0
    streams = [qd.create_stream() for _ in sums]
    for _ in range(20):
        for stream, to in zip(streams, sums, strict=True):
            copy(to, qd_stream=stream)
    for stream, to in zip(streams, sums, strict=True):
        stream.synchronize()
        assert to.to_numpy().sum() == 3.0


def test_a_sparse_grid_reports_its_usage():
    grid = qd.sparse.grid({"place": qd.math.vec2, "mass": qd.f32}, shape=(10, 10))
    grid[0, 0].place = qd.math.vec2(1, 2)
    grid[0, 0].mass = 1.0
    grid[9, 9].mass = 1.0
    assert qd.sparse.usage(grid) == pytest.approx(0.02)
    with pytest.raises(qd.OctantsValueError, match="two or three axes, not 1"):
        qd.sparse.grid({"mass": qd.f32}, shape=(10,))


def test_misuse_names_the_line():
    x, blocks = blocks_of_cells()
    rows = qd.root.dense(qd.i, 4)
    rows.dynamic(qd.j, 4).place(qd.field(qd.i32))

    def refused(message):
        return pytest.raises(qd.OctantsCompilationError, match=message)

    @qd.kernel
    def one_index():
        qd.activate(blocks, [1])

    @qd.kernel
    def no_sparse_level():
        qd.activate(rows, 1)

    @qd.kernel
    def length_of_no_list():
        qd.length(blocks, [0, 0])

    @qd.kernel
    def nested():
        for _ in range(3):
            for i, j in x:
                x[i, j] += 1.0

    with refused(r"activate\(blocks, \[1\]\)(.|\n)*has 2 indices"):
        one_index()
    with refused(r"activate\(rows, 1\)(.|\n)*takes a pointer, bitmasked or dynamic level"):
        no_sparse_level()
    with pytest.raises(qd.OctantsTypeError, match=r"length\(blocks(.|\n)*takes a dynamic level"):
        length_of_no_list()
    # Exceptions at compile time can also be caught by their own class.
    with pytest.raises(qd.OctantsRuntimeError, match="Indexed with 1"):
        one_index()
    with refused(r"for i, j in x(.|\n)*must be at the top level of a kernel"):
        nested()
    with pytest.raises(qd.OctantsAssertionError, match="a dynamic level must have exactly one axis"):
        qd.root.dynamic(qd.ij, 4)
    for size, chunk in ((2**31, None), (8, 2**31)):
        with pytest.raises(qd.OctantsRuntimeError, match=r"cannot exceed 2\*\*31-1"):
            qd.root.dynamic(qd.i, size, chunk_size=chunk)
    with pytest.raises(qd.OctantsRuntimeError, match="a pointer level cannot be placed below a dynamic level"):
        qd.FieldsBuilder().dynamic(qd.i, 4).pointer(qd.j, 3)


class Model:
    """A random tree of sparse and dense levels over two axes, and which of its cells ought to be active."""

    def __init__(self, draw):
        self.x = qd.field(qd.i32)
        self.levels = []
        self.shape = [1, 1]
        node = qd.root
        for _ in range(draw.randrange(1, 4)):
            kind = draw.choice(["pointer", "bitmasked", "dense"])
            axes = draw.choice([(0,), (1,), (0, 1)])
            extents = [draw.choice([1, 2, 3, 5]) for _ in axes]
            node = getattr(node, kind)(qd.axes(*axes), extents)
            for axis, extent in zip(axes, extents, strict=True):
                self.shape[axis] *= extent
            if kind != "dense":
                self.levels.append((node, tuple(self.shape)))
        node = node.dense(qd.ij, (1, 1))
        node.place(self.x)
        self.active = [set() for _ in self.levels]
        self.values = np.zeros(self.shape, np.int32)

    def cell(self, level, index):
        shape = self.levels[level][1]
        return tuple(i // (n // m) for i, n, m in zip(index, self.shape, shape, strict=True))

    def store(self, index, value):
        self.values[index] = value
        for level, active in enumerate(self.active):
            active.add(self.cell(level, index))

    def expected(self):
        if not self.levels:
            return sorted(np.ndindex(*self.shape))
        last = len(self.levels) - 1
        return sorted(i for i in np.ndindex(*self.shape) if self.cell(last, i) in self.active[last])

    def deactivate_all(self, level):
        self.levels[level][0].deactivate_all()
        for below in self.active[level:]:
            below.clear()
        self.values[...] = 0


@pytest.mark.parametrize("seed", range(12))
def test_random_trees(seed):
    draw = random.Random(seed)
    model = Model(draw)
    x = model.x

    @qd.kernel
    def store(places: qd.types.ndarray(dtype=qd.i32, ndim=2)):
        for n in range(places.shape[0]):
            x[places[n, 0], places[n, 1]] = n + 1

    for _ in range(3):
        places = sorted({tuple(draw.randrange(n) for n in model.shape) for _ in range(draw.randrange(1, 6))})
        store(np.array(places, np.int32))
        for n, index in enumerate(places):
            model.store(index, n + 1)
        assert visited(x) == model.expected()
        assert (x.to_numpy() == model.values).all()
        if model.levels and draw.random() < 0.5:
            model.deactivate_all(draw.randrange(len(model.levels)))
            assert visited(x) == model.expected()
            assert not x.to_numpy().any()


def test_indices_of_levels_are_checked_in_debug_mode():
    qd.init(arch=qd.cpu, debug=True)
    x, y = qd.field(qd.f32), qd.field(qd.f32)
    cells = qd.root.pointer(qd.ij, 4)
    cells.place(x)
    lists = qd.root.dense(qd.i, 4).dynamic(qd.j, 8)
    lists.place(y)

    @qd.kernel
    def is_active(i: qd.i32, j: qd.i32) -> qd.i32:
        return qd.is_active(cells, [i, j])

    @qd.kernel
    def activate(i: qd.i32, j: qd.i32):
        qd.activate(cells, [i, j])

    @qd.kernel
    def deactivate(i: qd.i32, j: qd.i32):
        qd.deactivate(cells, [i, j])

    @qd.kernel
    def append(i: qd.i32, j: qd.i32):
        qd.append(lists, [i], 1.0)

    @qd.kernel
    def length(i: qd.i32, j: qd.i32) -> qd.i32:
        return qd.length(lists, [i])

    activate(3, 3)
    assert (is_active(3, 3), is_active(0, 3)) == (1, 0)
    for kernel in (is_active, activate, deactivate, append, length):
        for index in ((9, 9), (4, 0), (-1, 0)) + (() if kernel in (append, length) else ((0, 9),)):
            with pytest.raises(AssertionError, match="Out of bound access"):
                kernel(*index)
    with pytest.raises(AssertionError, match=r"qd\.is_active of .* at \[0, 9\] with bounds \(4, 4\)"):
        is_active(0, 9)


def test_a_tree_beyond_the_address_space_names_its_largest_level():
    ids, mass = qd.field(qd.i32), qd.field(qd.f32)
    blocks = qd.root.pointer(qd.ijk, 32).pointer(qd.ijk, 32)
    blocks.dense(qd.ijk, 4).place(mass)
    blocks.dynamic(qd.l, 1 << 20).place(ids)
    with pytest.raises(MemoryError, match=r"out of memory: 4.0 PiB .* dynamic \[1024, 1024, 1024, 1048576\], with"):
        mass[0, 0, 0] = 1.0
