"""The address of every element: compares a handwritten recursive layout of trees with the package's."""

import itertools
import random

import numpy as np
import pytest

import octants as qd

DTYPES = [qd.u1, qd.i8, qd.i16, qd.i32, qd.i64, qd.u8, qd.u16, qd.u32, qd.u64, qd.f16, qd.f32, qd.f64]


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


class Level:
    """A level of a tree as the test writes it down: (axis, size) pairs outermost first, then children."""

    def __init__(self, axes=(), children=()):
        self.axes = list(axes)
        self.children = list(children)


def up(value, alignment):
    while value % alignment:
        value += 1
    return value


def extent(item):
    """Size and alignment of a child: a level or a (name, dtype) leaf."""
    if isinstance(item, tuple):
        return item[1].nbytes, item[1].nbytes
    size, alignment = cell(item)
    for _, n in item.axes:
        size *= n
    return size, alignment


def cell(level):
    size, alignment = 0, 1
    for child in level.children:
        child_size, child_alignment = extent(child)
        size = up(size, child_alignment) + child_size
        alignment = max(alignment, child_alignment)
    return up(size, alignment), alignment


def addresses(level, base=0, digits=()):
    """(leaf name, index of the used axes) -> byte address, by walking over every cell in memory order."""
    found = {}
    cell_size, _ = cell(level)
    for number, choice in enumerate(itertools.product(*(range(n) for _, n in level.axes))):
        here = digits + tuple((axis, n, value) for (axis, n), value in zip(level.axes, choice))
        at = base + number * cell_size
        offset = 0
        for child in level.children:
            child_size, child_alignment = extent(child)
            offset = up(offset, child_alignment)
            if isinstance(child, tuple):
                index = {}
                for axis, n, value in here:
                    index[axis] = index.get(axis, 0) * n + value
                found[child[0], tuple(index[axis] for axis in sorted(index))] = at + offset
            else:
                found.update(addresses(child, at + offset, here))
            offset += child_size
    return found


def build(level, node, fields):
    for child in level.children:
        if isinstance(child, tuple):
            fields[child[0]] = field = qd.field(child[1], name=child[0])
            node.place(field)
        else:
            axes = qd.axes(*(axis for axis, _ in child.axes))
            build(child, node.dense(axes, tuple(n for _, n in child.axes)), fields)


def random_level(rng, depth, names):
    children = []
    for _ in range(rng.randint(1, 3)):
        if depth and rng.random() < 0.6:
            axes = rng.sample(range(4), rng.randint(1, 2))
            child = random_level(rng, depth - 1, names)
            child.axes = [(axis, rng.randint(1, 3)) for axis in axes]
            children.append(child)
        else:
            children.append((f"f{next(names)}", rng.choice(DTYPES)))
    return Level((), children)


def address(placement, index):
    at = placement.base
    for value, digits in zip(index, placement.axes):
        for n, stride in reversed(digits):
            at += value % n * stride
            value //= n
        assert value == 0
    return at


@pytest.mark.parametrize("seed", range(25))
def test_random_trees_agree_with_a_walk_over_memory(seed):
    rng = random.Random(seed)
    level = random_level(rng, 3, itertools.count())
    builder, fields = qd.FieldsBuilder(), {}
    build(level, builder.root, fields)
    tree = builder.finalize()
    expected = addresses(level)
    seen = set()
    for name, field in fields.items():
        (placement,) = field._placed()
        indices = list(itertools.product(*(range(n) for n in field.shape)))
        assert len(indices) == sum(1 for key in expected if key[0] == name)
        for index in indices:
            at = address(placement, index)
            assert at == expected[name, index]
            assert at % field.dtype.nbytes == 0
            covered = set(range(at, at + field.dtype.nbytes))
            assert not covered & seen
            seen |= covered
    assert max(seen) < tree.buffer.nbytes


@pytest.mark.parametrize("seed", range(10))
def test_host_access_follows_the_layout(seed):
    rng = random.Random(100 + seed)
    level = random_level(rng, 3, itertools.count())
    builder, fields = qd.FieldsBuilder(), {}
    build(level, builder.root, fields)
    tree = builder.finalize()
    for name, field in fields.items():
        placement = field._placed()[0]
        values = np.arange(int(np.prod(field.shape))).astype(field.dtype.numpy).reshape(field.shape)
        field.from_numpy(values)
        for index in itertools.product(*(range(n) for n in field.shape)):
            at = address(placement, index)
            raw = np.frombuffer(tree.buffer.read(at, field.dtype.nbytes), field.dtype.numpy)[0]
            assert raw == values[index]
            assert field[index] == values[index]
        if field.shape:
            last = tuple(n - 1 for n in field.shape)
            field[last] = 1
            values[last] = 1
        assert (field.to_numpy() == values).all()


def test_order_puts_the_named_axis_outermost():
    x = qd.field(qd.i32, shape=(3, 5), order="ji")
    placement = x._placed()[0]
    assert placement.axes == (((3, 4),), ((5, 12),))
    assert x.shape == (3, 5)
    assert x.layout == (1, 0)


def test_a_refused_order_names_what_the_function_takes():
    with pytest.raises(TypeError, match=r"does not accept order=; pass layout=\(...\) instead"):
        qd.tensor(qd.f32, shape=(2, 3), order="ji")
    for make in (
        lambda order: qd.Vector.tensor(2, qd.f32, shape=(2, 3), order=order),
        lambda order: qd.Matrix.tensor(2, 2, qd.f32, shape=(2, 3), order=order),
    ):
        with pytest.raises(TypeError, match=r"does not accept order=; use qd.\w+.field\(..., order=...\) instead"):
            make("ji")
    assert qd.Vector.field(2, qd.f32, shape=(2, 3), order="ji").shape == (2, 3)


def test_aos_and_soa():
    aos = qd.Vector.field(3, qd.f32, shape=4, layout=qd.Layout.AOS)
    soa = qd.Vector.field(3, qd.f32, shape=4, layout=qd.Layout.SOA)
    assert [p.base for p in aos._placed()] == [0, 4, 8]
    assert [p.base for p in soa._placed()] == [0, 16, 32]
    for field in (aos, soa):
        field.from_numpy(np.arange(12, dtype=np.float32).reshape(4, 3))
        assert list(field[2]) == [6, 7, 8]
        field[2][1] = 100
        assert field.to_numpy()[2].tolist() == [6, 100, 8]
        assert field.get_scalar_field(1)[2] == 100


def test_components_placed_one_by_one():
    v = qd.Vector.field(2, qd.i32)
    for number in range(2):
        qd.root.dense(qd.i, 3).place(v.get_scalar_field(number))
    v.from_numpy(np.array([[1, 2], [3, 4], [5, 6]], dtype=np.int32))
    assert v.to_numpy().tolist() == [[1, 2], [3, 4], [5, 6]]
    assert v.get_scalar_field(1).to_numpy().tolist() == [2, 4, 6]
    assert list(v[1]) == [3, 4]
    v.fill([7, 8])
    assert list(v[2]) == [7, 8]


def test_large_index_space_is_laid_out_without_being_touched():
    x = qd.field(qd.i32)
    qd.root.dense(qd.l, 3).dense(qd.ijk, 29).place(x)
    assert x.shape == (29, 29, 29, 3)
    assert x.snode.parent().parent()._cell_size_bytes == 4 * 29**3


@pytest.mark.parametrize("shape", [2**61, (2**40, 2**40), 2**70], ids=["bytes", "axes", "extent"])
def test_trees_whose_size_does_not_fit_are_refused(shape):
    with pytest.raises(qd.OctantsRuntimeError, match=r"at most 2\^63 - 1 bytes"):
        qd.field(qd.i32, shape=shape).fill(0)


def test_levels_are_placed_only_under_levels_that_allow_them():
    x = qd.field(qd.i32, shape=3)
    with pytest.raises(qd.OctantsRuntimeError, match="a place level cannot have levels below it"):
        x.snode.dense(qd.i, 3)
    with pytest.raises(qd.OctantsRuntimeError, match="a place level cannot have levels below it"):
        x.snode.place()
    lists = qd.FieldsBuilder().dynamic(qd.i, 4)
    with pytest.raises(qd.OctantsRuntimeError, match="a bitmasked level cannot be placed below a dynamic level"):
        lists.dense(qd.j, 2).bitmasked(qd.k, 2)
    with pytest.raises(qd.OctantsRuntimeError, match="a dynamic level must have exactly one axis"):
        qd.FieldsBuilder().dynamic(qd.ij, 4)


def test_shapes_seen_through_the_tree():
    x = qd.field(qd.f32)
    block = qd.root.dense(qd.k, 3).dense(qd.ij, (4, 5))
    leaf = block.dense(qd.i, 2)
    leaf.place(x)
    assert x.shape == (8, 5, 3)
    assert x.parent() == leaf
    assert x.parent(2) == block
    assert x.parent(2).parent(2) == qd.root
    assert x.parent(4) == qd.root
    assert x.parent(5) is None
    assert str(x.snode) == "qd.root => dense [3] => dense [4, 5, 3] => dense [8, 5, 3] => place [8, 5, 3]"
    assert x.snode._path_from_root()[0] == qd.root


def test_a_tree_in_use_cannot_grow():
    x = qd.field(qd.f32)
    block = qd.root.dense(qd.i, 4)
    block.place(x)
    x[0] = 1
    y = qd.field(qd.f32)
    with pytest.raises(qd.QuadrantsRuntimeError, match="finalized"):
        block.place(y)
    qd.root.dense(qd.i, 4).place(y)
    assert y[3] == 0


def test_placing_twice_and_empty_levels_are_refused():
    x = qd.field(qd.f32)
    qd.root.place(x)
    with pytest.raises(qd.QuadrantsRuntimeError, match="placed already"):
        qd.root.place(x)
    with pytest.raises(ValueError, match="cannot be placed"):
        qd.root.dense(qd.i, 4).place(3)
    with pytest.raises(qd.QuadrantsRuntimeError, match="positive"):
        qd.root.dense(qd.i, 0)


def test_fields_builder_frees_its_memory():
    builder = qd.FieldsBuilder()
    x = qd.field(qd.i32)
    builder.dense(qd.i, 4).place(x)
    tree = builder.finalize()
    x[2] = 5
    tree.destroy()
    with pytest.raises(qd.QuadrantsRuntimeError, match="destroyed"):
        x[2]
    with pytest.raises(qd.QuadrantsRuntimeError, match="destroyed"):
        tree.destroy()
    with pytest.raises(qd.QuadrantsRuntimeError):
        builder.dense(qd.i, 4)


def test_lazy_grad_places_the_gradient_beside_the_field():
    x, n = qd.field(qd.f32), qd.field(qd.i32)
    block = qd.root.dense(qd.i, 4)
    block.place(x, n)
    shaped = qd.field(qd.f64, shape=3)
    assert not x.has_grad()
    qd.root.lazy_grad()
    assert x.has_grad()
    assert shaped.has_grad()
    assert n.grad is None
    assert x.grad.parent() == block
    x.grad.fill(2)
    assert x.to_numpy().tolist() == [0, 0, 0, 0]
    assert x.grad.to_numpy().tolist() == [2, 2, 2, 2]


def test_loops_over_the_cells_of_a_level():
    x = qd.field(qd.i32)
    blocks = qd.root.dense(qd.ij, (2, 3))
    blocks.dense(qd.ij, (2, 2)).place(x)

    @qd.kernel
    def count():
        for i, j in x.parent():
            x[i, j] += 1
        for i, j in blocks:
            x[i, j] += 10
        for cell in qd.grouped(blocks):
            x[cell] += 100

    count()
    expected = np.ones((4, 6), int)
    expected[:2, :3] += 110
    assert x.to_numpy().tolist() == expected.tolist()


def test_loops_over_an_ndrange_made_in_python():
    x = qd.field(qd.i32, shape=(3, 4))
    inner = qd.ndrange((1, 3), (2, 4))

    @qd.kernel
    def count():
        for i, j in inner:
            x[i, j] += 1
        for cell in qd.grouped(inner):
            x[cell] += cell[1]

    count()
    expected = np.zeros((3, 4), int)
    expected[1:, 2:] = [3, 4]
    assert x.to_numpy().tolist() == expected.tolist()


def test_an_index_of_an_ndrange_is_assigned():
    x = qd.field(qd.i32, shape=(3, 4))

    @qd.kernel
    def count():
        for i, j in qd.ndrange(2, 4):
            if j > 1:
                i = i + 1
            x[i, j] += 1
        for i in qd.ndrange(3):
            i = qd.cast(i, qd.i64)
            for k in range(2):
                i += k
            x[i - 1, 0] += 10

    count()
    assert x.to_numpy().tolist() == [[11, 1, 0, 0], [11, 1, 1, 1], [10, 0, 1, 1]]


@pytest.mark.in_place
def test_addresses_in_the_hosts_memory_are_the_hosts():
    plain, array = qd.field(qd.i32, shape=(4, 6)), np.zeros((3, 5), np.float32)

    @qd.kernel
    def place_in(a: qd.types.ndarray(), i: qd.i32, j: qd.i32) -> qd.u64:
        return qd.get_addr(a, (i, j))

    @qd.kernel
    def place_of(f: qd.template(), i: qd.i32, j: qd.i32) -> qd.u64:
        return qd.get_addr(f, [i, j])

    assert place_in(array, 1, 2) == array.ctypes.data + 4 * (1 * 5 + 2)
    view = plain.to_numpy(copy=False)
    assert place_of(plain, 2, 3) == view.ctypes.data + 2 * view.strides[0] + 3 * view.strides[1]


def test_addresses_of_elements_follow_the_layout():
    plain = qd.field(qd.i32, shape=(4, 6))
    turned = qd.Vector.field(2, qd.i16, shape=(4, 6), order="ji")
    x, y = qd.field(qd.f64), qd.field(qd.u8)
    qd.root.dense(qd.i, 5).place(x, y)

    @qd.kernel
    def distance(f: qd.template(), i: qd.i32, j: qd.i32) -> qd.u64:
        return qd.get_addr(f, [i, j]) - qd.get_addr(f, [0, 0])

    @qd.kernel
    def place_of(f: qd.template(), i: qd.i32) -> qd.u64:
        f[i] = 7
        return qd.get_addr(f, i)

    @qd.kernel
    def not_an_array(i: qd.i32) -> qd.u64:
        return qd.get_addr(i, 0)

    assert distance(plain, 2, 3) == 4 * (2 * 6 + 3)
    assert distance(turned, 2, 3) == 4 * (3 * 4 + 2)
    assert distance(plain.snode, 2, 3) == distance(plain, 2, 3)
    assert place_of(x, 3) - place_of(x, 2) == place_of(y, 4) - place_of(y, 3)
    with pytest.raises(qd.OctantsTypeError, match="takes a field or an array"):
        not_an_array(1)


def test_a_builder_knows_whether_it_is_empty():
    builder = qd.FieldsBuilder()
    assert builder.empty
    assert not builder.finalized
    builder.dense(qd.i, 4).place(qd.field(qd.f32))
    assert not builder.empty


def test_orders_of_axes_that_do_not_fit():
    with pytest.raises(qd.OctantsSyntaxError, match="has 1 entries but ndrange was called with 2"):
        qd.ndrange(2, 3, axes=(0,))
    with pytest.raises(qd.OctantsSyntaxError, match="is not a permutation of range"):
        qd.ndrange(2, 3, axes=(0, 2))
    with pytest.raises(qd.OctantsTypeError, match="entries must be Python ints"):
        qd.ndrange(2, 3, axes="ij")


def test_copies_between_backends_are_refused():
    field = qd.tensor(qd.f32, shape=4, backend=qd.Backend.FIELD)
    array = qd.tensor(qd.f32, shape=4)
    with pytest.raises(TypeError, match="two tensors of one backend"):
        field.copy_from(array)
    with pytest.raises(AssertionError, match="two tensors of one backend"):
        array.copy_from(field)
