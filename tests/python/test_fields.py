"""Fields from the host: elements, whole arrays, gradients, and the end of a program."""

import copy
import gc
import itertools
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import octants as qd

DTYPES = [qd.i8, qd.i16, qd.i32, qd.i64, qd.u8, qd.u16, qd.u32, qd.u64, qd.f16, qd.f32, qd.f64]
SHAPES = [(), (5,), (3, 4), (2, 3, 4), (1, 2, 1, 2, 1, 2, 1, 2)]


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


def every(shape):
    return itertools.product(*(range(n) for n in shape))


def test_kernels_are_not_compiled_with_unplaced_fields():
    x = qd.field(qd.f32)
    y = qd.field(qd.f32, needs_grad=True)
    qd.root.dense(qd.i, 3).place(y)

    @qd.kernel
    def nothing():
        pass

    with pytest.raises(
        RuntimeError, match=r"not placed:\n.*test_fields.py:\d+\nThese .* grad .*:\n  a field.grad, created at"
    ):
        nothing()
    qd.root.dense(qd.i, 3).place(x, y.grad)
    nothing()


def test_members_of_a_field_have_one_shape():
    m = qd.Matrix.field(1, 2, qd.i32)
    qd.root.dense(qd.i, 3).place(m.get_scalar_field(0, 0))
    qd.root.dense(qd.i, 4).place(m.get_scalar_field(0, 1))
    with pytest.raises(RuntimeError, match=r"have different shapes:\n  a field of shapes \(3,\), \(4,\), created at"):
        qd.sync()


def test_fields_are_not_used_before_their_builder_is_finalized():
    x, empty = qd.field(qd.f32), qd.FieldsBuilder()
    builder = qd.FieldsBuilder()
    builder.dense(qd.i, 3).place(x)

    @qd.kernel
    def nothing():
        pass

    for use in (nothing, lambda: x[0], qd.sync):
        with pytest.raises(qd.OctantsRuntimeError, match=r"not finalized: .* created at .*test_fields.py"):
            use()
    builder.finalize()
    nothing()
    assert x[0] == 0
    assert empty.empty


def test_an_unrolled_loop_over_no_axes_has_one_index():
    x = qd.field(qd.i32, ())

    @qd.kernel
    def count():
        for cell in qd.static(qd.grouped(qd.ndrange())):
            x[cell] += 42

    count()
    assert x[None] == 42


def test_a_copied_field_is_another_name_for_the_same_memory():
    x = qd.Vector.field(2, qd.f32, shape=3)
    y = copy.copy(x)
    y[1] = [1, 2]
    assert x[1].to_list() == [1, 2]

    @qd.kernel
    def double():
        for i in y:
            y[i] = 2 * x[i]

    double()
    assert x[1].to_list() == [2, 4]


def test_elements_of_another_shape_are_not_copied():
    x, v = qd.field(qd.f32, 3), qd.Vector.field(2, qd.f32, 3)
    for to, source in ((x, v), (v, x)):
        with pytest.raises(ValueError, match=r"elements of shape .* cannot be copied to elements of shape"):
            to.copy_from(source)


def test_the_methods_of_a_struct_are_a_dict():
    for shape in (1, (2, 3), [4]):
        with pytest.raises(TypeError, match="methods of a struct must be a dict .* shape="):
            qd.Struct.field({"a": qd.f32}, shape)
    for methods in (None, {}):
        assert qd.Struct.field({"a": qd.f32}, methods, shape=(2,)).shape == (2,)


def test_a_struct_type_is_no_base_class():
    @qd.dataclass
    class Base:
        a: qd.f32

    with pytest.raises(TypeError, match="class Derived: a struct type cannot be a base class"):

        class Derived(Base):
            b: qd.f32


def test_rows_are_assigned_to_elements_of_a_field_of_vectors():
    x = qd.Vector.field(3, qd.i32, shape=2)
    x.from_numpy(np.arange(6, dtype=np.int32).reshape(2, 1, 3))
    assert x[1].to_list() == [3, 4, 5]


def test_element_types_match_the_number_of_components():
    with pytest.raises(AssertionError, match="dtype list"):
        qd.Vector.field(2, dtype=[qd.f32], shape=3)
    with pytest.raises(ValueError, match="at least one component"):
        qd.Vector.field(0, qd.f32, shape=3)
    with pytest.raises(TypeError, match="offset"):
        qd.field(qd.f32, shape=3, offset=1.5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_scalar_elements_and_arrays(dtype, shape):
    x = qd.field(dtype, shape)
    assert x.shape == shape
    assert x.dtype is dtype
    assert not x.to_numpy().any()
    for number, index in enumerate(every(shape)):
        x[index if index else None] = number
    expected = np.arange(int(np.prod(shape, dtype=int))).astype(dtype.numpy).reshape(shape)
    assert x.to_numpy().dtype == dtype.numpy
    np.testing.assert_array_equal(x.to_numpy(), expected)
    y = qd.field(dtype, shape)
    y.from_numpy(expected * 2)
    y.copy_from(x)
    np.testing.assert_array_equal(y.to_numpy(), expected)
    assert type(x[(0,) * len(shape) or None]) is (float if dtype.is_float else int)
    x.fill(7)
    assert (x.to_numpy() == 7).all()


def test_extreme_values_survive():
    for dtype, value in [(qd.u64, 2**64 - 1), (qd.i64, -(2**63)), (qd.u8, 255), (qd.i8, -128), (qd.f64, 1e300)]:
        x = qd.field(dtype, ())
        x[None] = value
        assert x[None] == value
    x = qd.field(qd.i8, ())
    x[None] = 130
    assert x[None] == -126
    with pytest.raises(TypeError, match="integer"):
        x[None] = -1.9
    assert x[None] == -126
    flag = qd.field(qd.u1, 2)
    flag[1] = 5
    assert flag.to_numpy().tolist() == [False, True]


@pytest.mark.parametrize("layout", [qd.Layout.AOS, qd.Layout.SOA])
@pytest.mark.parametrize("order", ["ij", "ji"])
def test_vector_and_matrix_elements(layout, order):
    v = qd.Vector.field(3, qd.i32, shape=(2, 3), layout=layout, order=order)
    m = qd.Matrix.field(2, 3, qd.f32, shape=(2, 3), layout=layout, order=order)
    for i, j in every((2, 3)):
        v[i, j] = [i, j, i * j]
        m[i, j] = [[i, j, 1], [2, 3, i + j]]
    assert v.to_numpy()[1, 2].tolist() == [1, 2, 2]
    assert m.to_numpy()[1, 2].tolist() == [[1, 2, 1], [2, 3, 3]]
    assert (v.n, v.m, m.n, m.m) == (3, 1, 2, 3)
    assert list(v[1, 2]) == [1, 2, 2]
    v[1, 2].y = 50
    v[1, 2][2] += 1
    v[1, 2].xy = v[1, 2].yx
    assert list(v[1, 2]) == [50, 1, 3]
    m[0, 1][1, 2] = 9
    m[0, 1][0, :] = [4, 5, 6]
    assert m[0, 1].to_list() == [[4, 5, 6], [2, 3, 9]]
    assert m.get_scalar_field(1, 2)[0, 1] == 9
    assert m.get_scalar_field(1, 2) is m.get_scalar_field(1, 2)
    v[0, 0] += 1
    assert list(v[0, 0]) == [1, 1, 1]
    with pytest.raises((TypeError, ValueError)):
        v[0, 0] = [1, 2]
    with pytest.raises((TypeError, IndexError)):
        v[0, 0][3] = 1
    v.fill(2)
    m.fill([[1, 2, 3], [4, 5, 6]])
    assert (v.to_numpy() == 2).all()
    assert m[1, 1].to_list() == [[1, 2, 3], [4, 5, 6]]


def test_element_arithmetic_follows_python():
    v = qd.Vector.field(2, qd.i32, shape=1)
    v[0] = [2**31 - 1, 3]
    assert (v[0] + 1).to_list() == [2**31, 4]
    assert v[0] == [2**31 - 1, 3]
    assert (v[0] / 2).y == 1.5


def test_numpy_shapes_of_columns():
    m = qd.Matrix.field(3, 1, qd.f32, shape=2)
    assert m.to_numpy().shape == (2, 3)
    assert m.to_numpy(keep_dims=True).shape == (2, 3, 1)
    m.from_numpy(np.ones((2, 3, 1), np.float32))
    m.from_numpy(np.ones((2, 3), np.float32))
    assert qd.Matrix.field(1, 3, qd.f32, shape=2).to_numpy().shape == (2, 1, 3)


def test_arrays_of_other_types_are_converted():
    x = qd.field(qd.i32, 3)
    x.from_numpy(np.array([1.9, -1.9, 3.0]))
    assert x.to_numpy().tolist() == [1, -1, 3]
    assert x.to_numpy(dtype=np.float64).dtype == np.float64
    assert x.to_numpy(dtype=qd.f64).dtype == np.float64
    strided = np.arange(6, dtype=np.int32)[::2]
    x.from_numpy(strided)
    assert x.to_numpy().tolist() == [0, 2, 4]
    with pytest.raises(ValueError, match="does not match"):
        x.from_numpy(np.zeros(4, np.int32))
    with pytest.raises(TypeError):
        x.from_numpy([1, 2, 3])


@pytest.mark.in_place
def test_views_without_a_copy():
    x = qd.field(qd.f32, shape=(2, 3), order="ji")
    view = x.to_numpy(copy=False)
    view[1, 2] = 5
    assert x[1, 2] == 5
    x[0, 1] = 3
    assert view[0, 1] == 3
    with pytest.raises(ValueError, match="copy=False"):
        x.to_numpy(dtype=np.float64, copy=False)
    nested = qd.field(qd.f32)
    qd.root.dense(qd.ij, 2).dense(qd.ij, 2).place(nested)
    with pytest.raises(ValueError, match="copy=False"):
        nested.to_numpy(copy=False)
    assert nested.to_numpy(copy=None).shape == (4, 4)
    soa = qd.Vector.field(3, qd.i32, shape=4, layout=qd.Layout.SOA)
    soa.to_numpy(copy=False)[2, 1] = 8
    assert soa[2].y == 8
    assert np.from_dlpack(x).shape == (2, 3)


def test_offsets():
    x = qd.field(qd.i32, shape=(4, 3), offset=(-2, 10))
    x[-2, 10] = 1
    x[1, 12] = 2
    assert x.to_numpy()[0, 0] == 1
    assert x.to_numpy()[3, 2] == 2
    with pytest.raises(AssertionError):
        x[2, 10]
    placed = qd.field(qd.i32)
    qd.root.dense(qd.i, 4).place(placed, offset=-1)
    placed[-1] = 3
    assert placed.to_numpy().tolist() == [3, 0, 0, 0]


def test_vectors_are_shapes_and_offsets():
    shape, offset = qd.math.ivec2(3, 4), qd.Vector([-1, 2])
    x = qd.field(qd.i32, shape=shape, offset=offset)
    x[-1, 5] = 7
    assert x.shape == (3, 4)
    assert x.to_numpy()[0, 3] == 7
    placed = qd.field(qd.f32)
    qd.root.dense(qd.ij, shape).place(placed, offset=offset)
    assert placed.shape == (3, 4)
    made = [
        qd.Vector.field(2, qd.f32, shape),
        qd.Struct.field({"a": qd.f32}, shape=shape),
        qd.ndarray(qd.f32, shape),
        qd.Vector.ndarray(2, qd.f32, shape),
        qd.tensor(qd.f32, shape, layout=(1, 0)),
    ]
    assert [array.shape for array in made] == [(3, 4)] * 5
    with pytest.raises(TypeError, match="must be an integer, got"):
        qd.field(qd.f32, shape=qd.Vector([3.0, 4.0]))


@pytest.mark.parametrize("key", [(3, 0), (-1, 0), (0, 4), (0, -1)])
def test_indices_out_of_bounds_are_refused(key):
    x, v = qd.field(qd.f32, (3, 4)), qd.Vector.field(2, qd.f32, (3, 4))
    for field in (x, v):
        with pytest.raises(AssertionError, match="out of bounds"):
            field[key]
        with pytest.raises(AssertionError, match="out of bounds"):
            field[key] = 1


def test_wrong_indices_are_refused():
    x = qd.field(qd.f32, (3, 4))
    for key in (0, (0, 0, 0), None):
        with pytest.raises(AssertionError, match="Slicing is not supported"):
            x[key]
    for key in ((0, slice(None)), (1.5, 0), "a"):
        with pytest.raises(TypeError, match="Detected illegal element"):
            x[key]
    assert x[np.int32(1), np.int64(2)] == 0
    assert x[qd.Vector([1, 2])] == 0
    with pytest.raises(NotImplementedError):
        list(x)
    with pytest.raises(TypeError):
        x[0, 0] = [1]


def test_arguments_of_field_are_checked():
    bad = [
        (dict(shape=0), RuntimeError, "positive"),
        (dict(shape=(2, -1)), RuntimeError, "positive"),
        (dict(shape=2.5), TypeError, "integer"),
        (dict(offset=1), qd.QuadrantsSyntaxError, "offset"),
        (dict(shape=(2, 2), offset=1), qd.QuadrantsSyntaxError, "offset"),
        (dict(order="i"), qd.QuadrantsSyntaxError, "order"),
        (dict(shape=(2, 2), order="i"), qd.QuadrantsSyntaxError, "dimensionality"),
        (dict(shape=(2, 2), order="ii"), qd.QuadrantsSyntaxError, "different"),
        (dict(shape=(2, 2), order="ik"), qd.QuadrantsSyntaxError, "Invalid axis"),
        (dict(shape=2, foo=1), TypeError, "foo"),
    ]
    for kwargs, error, match in bad:
        with pytest.raises(error, match=match):
            qd.field(qd.f32, **kwargs)
    with pytest.raises(ValueError, match="Invalid data type"):
        qd.field("f32", 2)
    with pytest.raises(RuntimeError, match="same compute type"):
        qd.Vector.field(2, [qd.f32, qd.i32], 2)


def test_gradients():
    x = qd.field(qd.f32, 3, needs_grad=True)
    v = qd.Vector.field(2, qd.f64, 3, needs_grad=True, needs_dual=True)
    x.grad.fill(2)
    assert x.to_numpy().tolist() == [0, 0, 0]
    assert x.grad.to_numpy().tolist() == [2, 2, 2]
    assert x.has_grad()
    assert not x.has_dual()
    assert v.grad.shape == v.dual.shape == (3,)
    assert v.get_scalar_field(1).grad[2] == 0
    plain = qd.field(qd.f32, 3)
    assert not plain.has_grad()
    with pytest.raises(RuntimeError, match="has not been placed"):
        plain.grad[0]
    for make in (lambda: qd.field(int, 1, needs_grad=True), lambda: qd.Vector.field(2, int, 1, needs_dual=True)):
        with pytest.raises(RuntimeError, match="not supported for field with"):
            make()
    placed = qd.field(qd.f32, needs_grad=True)
    qd.root.dense(qd.i, 3).place(placed, placed.grad)
    assert placed.has_grad()


def test_struct_fields():
    vec3 = qd.types.vector(3, qd.f32)
    line = qd.types.struct(start=vec3, length=qd.f64)
    item = qd.types.struct(line=line, idx=int)
    for layout in (qd.Layout.AOS, qd.Layout.SOA):
        x = item.field(shape=(2, 2), layout=layout)
        x[0, 1] = item(line(1, 2.5), 7)
        assert x[0, 1].to_dict() == {"line": {"start": [1, 1, 1], "length": 2.5}, "idx": 7}
        x[0, 1].line.start.y = 4
        x[0, 1].line.length = 3
        x[0, 1].idx += 1
        assert x[0, 1].to_dict() == {"line": {"start": [1, 4, 1], "length": 3}, "idx": 8}
        x[1, 0].line = x[0, 1].line
        x[1, 1] = {"line": {"start": [1, 2, 3], "length": 1}, "idx": 2}
        assert x.line.start[1, 0].to_list() == [1, 4, 1]
        assert x.idx[1, 1] == 2
        arrays = x.to_numpy()
        assert arrays["line"]["start"].shape == (2, 2, 3)
        y = item.field(shape=(2, 2))
        y.from_numpy(arrays)
        y.copy_from(x)
        assert y[1, 1].to_dict() == x[1, 1].to_dict()
        x.fill(5)
        assert x[0, 0].to_dict() == {"line": {"start": [5, 5, 5], "length": 5}, "idx": 5}
        with pytest.raises(KeyError, match="no value for the members .'line'."):
            x[0, 0] = {"idx": 1}
        with pytest.raises(KeyError, match="no value for the members .'idx'."):
            x.from_numpy({"line": arrays["line"]})
    placed = qd.Struct.field({"a": qd.f32, "b": vec3})
    qd.root.dense(qd.i, 2).dense(qd.i, 2).place(placed)
    placed[3].b = [1, 2, 3]
    assert placed.b[3].z == 3
    with pytest.raises(RuntimeError, match="not supported for field with"):
        qd.Struct.field({"a": int}, shape=1, needs_grad=True)


def test_copy_from_needs_a_field_of_the_same_shape():
    x = qd.field(qd.f32, (2, 3))
    ones = qd.field(qd.i32, (2, 3))
    ones.fill(1)
    x.copy_from(ones)
    assert (x.to_numpy() == 1).all()
    with pytest.raises(ValueError, match="does not match"):
        x.copy_from(qd.field(qd.f32, (3, 2)))
    with pytest.raises(TypeError):
        x.copy_from(np.zeros((2, 3)))


def test_text():
    x = qd.field(qd.i32, 3, name="x")
    assert repr(x) == "<qd.field>"
    assert str(x) == "[0 0 0]"
    assert repr(qd.Matrix.field(2, 3, qd.f32, 1)) == "<2x3 qd.Matrix.field>"
    assert "memory" in str(qd.field(qd.f32))
    assert x._name == x.snode._name == "x"


def test_objects_of_an_ended_program_raise():
    x, a, t = qd.field(qd.f32, 3), qd.ndarray(qd.f32, 3), qd.tensor(qd.f32, 3)
    unused = qd.field(qd.f32, 3)
    x[0] = 1
    qd.init(arch=qd.cpu)
    for use in (lambda: x[0], lambda: x.to_numpy(), lambda: unused[0], lambda: a[0], lambda: a.fill(1), lambda: t[0]):
        with pytest.raises(RuntimeError, match="ended"):
            use()
    assert x.shape == (3,)
    str(x)
    qd.reset()
    for make in (lambda: qd.field(qd.f32, 3), lambda: qd.ndarray(qd.f32, 3), lambda: qd.root.dense(qd.i, 3)):
        with pytest.raises(RuntimeError, match=r"qd.init\(\)"):
            make()
    assert qd.cfg is None


def test_fields_without_memory_are_refused_in_kernels():
    unplaced, destroyed = qd.field(qd.i32), qd.field(qd.i32)
    builder = qd.FieldsBuilder()
    builder.dense(qd.i, 3).place(destroyed)
    builder.finalize().destroy()

    @qd.kernel
    def loop(x: qd.template()):
        for i in x:
            x[i] = 1

    @qd.kernel
    def index(x: qd.template()):
        x[0] = 1

    for kernel in (loop, index):
        with pytest.raises(qd.OctantsRuntimeError, match="not placed"):
            kernel(unplaced)
    with pytest.raises(qd.OctantsRuntimeError, match="Field has no allocation"):
        unplaced[0]
    del unplaced
    for kernel in (loop, index):
        with pytest.raises(qd.OctantsCompilationError, match="has been destroyed"):
            kernel(destroyed)


BESIDE = """
import sys
import octants as qd

shape, reach = tuple(int(n) for n in sys.argv[1].split(",")), int(sys.argv[2])
qd.init(arch=qd.cpu)
x = qd.Vector.field(2, qd.f32, shape)
x.fill(1.0)


@qd.kernel
def smooth(reach: qd.i32) -> qd.f32:
    total = 0.0
    for I in qd.grouped(x):
        J = I
        J[0] = -reach if I[0] == 0 else x.shape[0] - 1 + reach
        x[J] += 1.0
        total += x[J].x
    return total


smooth(reach)
assert x.to_numpy().sum() == 2 * x.to_numpy()[..., 0].size
other = [qd.field(qd.f32, shape) for _ in range(3)]
assert all(not f.to_numpy().any() for f in other)
print("done")
"""


@pytest.mark.parametrize(
    ("shape", "reach"), [("10", 20), ("16,16", 1), ("100,100", 1), ("512,512", 1), ("1000000", 4000)]
)
def test_accesses_just_outside_a_field_do_not_crash(tmp_path, shape, reach):
    # Without checks of bounds, as in solvers that look at the row before the first.
    script = tmp_path / "beside.py"
    script.write_text(BESIDE)
    done = subprocess.run([sys.executable, script, shape, str(reach)], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_a_component_shares_memory_with_its_field() -> None:
    v = qd.Vector.field(2, qd.f32, shape=4)
    first, second = v.get_scalar_field(0), v.get_scalar_field(1)
    total = qd.Vector.field(2, qd.f32, shape=())
    of_total = total.get_scalar_field(0)

    @qd.kernel
    def in_order(k: qd.i32) -> qd.f32:
        found = 0.0
        for i in range(1):
            first[i] = 1.0
            second[i] = 2.0
            v[i][k] = 7.0
            v[i][0] += second[i]
            found += first[i] * 10 + second[i]
        return found

    @qd.kernel
    def sum_inside(n: qd.i32):
        for i in v:
            v[i] = [1.0, 0.0]
            for _ in range(n):
                first[i] += 1.0
            v[i][1] = v[i][0]

    @qd.kernel
    def sum_up():
        for _ in range(1):
            of_total[None] += 5.0
            total[None][1] = total[None][0]

    assert (in_order(0), in_order(1)) == (92, 87)
    sum_inside(3)
    assert v.to_numpy().tolist() == [[4, 4]] * 4
    sum_up()
    assert total[None].to_list() == [5, 5]


@pytest.mark.parametrize("dtype", [qd.f32, qd.f64, qd.i32])
def test_rows_and_columns_are_distinguished(dtype):
    n = 8
    values = np.arange(n * n).reshape(n, n)
    x, y = qd.field(dtype, (n, n)), qd.field(dtype, (n, 3))
    x.from_numpy(values.astype(np.int32 if dtype == qd.i32 else np.float32))

    @qd.kernel
    def read():
        for i in range(n):
            y[i, 0] = x[i, 0] + 2 * x[i, 1] + 3 * x[0, i] + 5 * x[1, i]
            # Neighbors of another line.
            if i > 0:
                y[i, 1] = x[i - 1, 0] + 10 * x[0, i] + 100 * x[i, 0]

    @qd.kernel
    def symmetric():
        for i in range(n):
            sum = x[0, 0] - x[0, 0]
            for j in range(n):
                sum += (j + 1) * (x[i, j] + x[j, i])
            y[i, 2] = sum

    read()
    symmetric()
    at = np.arange(n)
    expected = values[:, 0] + 2 * values[:, 1] + 3 * values[0] + 5 * values[1]
    np.testing.assert_array_equal(y.to_numpy()[:, 0], expected)
    expected = values[at[1:] - 1, 0] + 10 * values[0, 1:] + 100 * values[1:, 0]
    np.testing.assert_array_equal(y.to_numpy()[1:, 1], expected)
    np.testing.assert_array_equal(y.to_numpy()[:, 2], ((at + 1) * (values + values.T)).sum(axis=1))


def test_an_augmented_assignment_reads_the_indices_of_its_target_last():
    # As in Quadrants: calls in source order, then plain reads of indices.
    x = qd.field(qd.i32, shape=8)
    v = qd.Vector.field(2, qd.i32, shape=4)

    @qd.kernel
    def change(which: qd.template()):
        qd.loop_config(serialize=True)
        for _ in range(1):
            a = 1
            if qd.static(which == 0):
                x[x[a]] *= 0 - qd.atomic_sub(a, a)
            elif qd.static(which == 1):
                x[a] += 100 * qd.atomic_add(a, 1)
            elif qd.static(which == 2):
                x[qd.atomic_add(a, 1)] += a
            elif qd.static(which == 3):
                v[a].xy += qd.Vector([qd.atomic_add(a, 1), a])
            else:
                v[a][a - 1] -= qd.atomic_add(a, 1)

    def changed(which):
        x.from_numpy(np.array([5, 3, 4, 7, 6, 9, 8, 2], np.int32))
        v.from_numpy(np.zeros((4, 2), np.int32))
        before = x.to_numpy()
        change(which)
        after = x.to_numpy()
        differing = {int(i): int(after[i]) for i in np.flatnonzero(after != before)}
        return differing or v.to_numpy().tolist()

    assert changed(0) == {5: -9}
    assert changed(1) == {2: 104}
    assert changed(2) == {1: 5}
    assert changed(3) == [[0, 0], [0, 0], [1, 2], [0, 0]]
    assert changed(4) == [[0, 0], [0, 0], [0, -1], [0, 0]]


@pytest.mark.parametrize("make", ["shaped", "vector", "gradient", "struct", "placed", "builder"])
def test_memory_is_freed_with_its_last_field(make):
    def fields():
        if make == "shaped":
            return [qd.field(qd.f32, shape=4)]
        if make == "vector":
            return [qd.Vector.field(3, qd.f32, shape=4)]
        if make == "gradient":
            x = qd.field(qd.f32, shape=4, needs_grad=True)
            return [x, x.grad]
        if make == "struct":
            return [qd.types.struct(a=qd.f32, b=qd.i32).field(shape=4).a]
        made = [qd.field(qd.f32), qd.field(qd.i32)]
        builder = qd.FieldsBuilder() if make == "builder" else qd.root
        builder.dense(qd.i, 4).place(*made)
        return made

    # Without the collector of cycles.
    gc.collect()
    gc.disable()
    try:
        made = fields()
        made[-1].fill(1)
        tree = weakref.ref(made[-1]._root)
        while len(made) > 1:
            made.pop(0)
            assert (made[-1].to_numpy() == 1).all()
        assert tree() is not None
        made.clear()
        assert tree() is None
    finally:
        gc.enable()


def test_boolean_elements_read_as_numbers_in_python():
    record = qd.types.struct(a=qd.u1, b=qd.i32)
    places = [qd.field(qd.u1, 2), qd.ndarray(qd.u1, 2), qd.field(qd.u1, 2, offset=0), record.field(shape=2).a]
    vectors = [qd.Vector.field(2, qd.u1, 2), qd.Vector.ndarray(2, qd.u1, 2)]

    @qd.kernel
    def whole() -> record:
        return record(True, 3)

    for place in places:
        place[0] = True
        assert f"{place[0]} {place[1]}" == "1 0"
    for vector in vectors:
        vector[0] = [True, False]
        assert vector[0].to_list() == [1, 0]
        assert f"{vector[0][0]}" == "1"
    assert f"{whole().a} {record(True, 2).a}" == "1 1"


def test_kernels_of_a_destroyed_tree_are_refused():
    builder = qd.FieldsBuilder()
    x, other = qd.field(qd.i32, name="heights"), qd.field(qd.i32, 3)
    builder.dense(qd.i, 3).place(x)
    tree = builder.finalize()

    @qd.kernel
    def captured() -> qd.i32:
        total = 0
        for i in x:
            total += x[i]
        return total

    @qd.kernel
    def fill(field: qd.template()):
        for i in field:
            field[i] = 1

    fill(x)
    fill(other)
    assert captured() == 3
    tree.destroy()
    where = r"has been destroyed: that of the FieldsBuilder created at .*test_fields\.py:\d+ \(with `heights`\)"
    for call in (captured, lambda: fill(x), lambda: x[0], x.to_numpy, tree.destroy):
        with pytest.raises(qd.OctantsRuntimeError, match=where):
            call()
    fill(other)
    assert other.to_numpy().sum() == 3


def builder_tree(**types):
    builder = qd.FieldsBuilder()
    fields = [qd.field(dtype, name=name) for name, dtype in types.items()]
    for field in fields:
        builder.dense(qd.i, 8).place(field)
    return builder, builder.finalize(), fields


@qd.kernel
def fill_with_twos(field: qd.template()):
    for i in field:
        field[i] = 2


@pytest.mark.parametrize("options", [{}, {"cpu_streams": True}], ids=str)
def test_each_use_of_a_destroyed_tree_is_refused(options):
    qd.init(arch=qd.cpu, **options)
    builder, tree, (x,) = builder_tree(x=qd.f32)
    other = qd.field(qd.f32, 8)
    stream = qd.create_stream()
    fill_with_twos(x, qd_stream=stream)
    x.fill(3.0)
    assert x[1] == 3.0
    with qd.graph.capture() as graph:
        fill_with_twos(x)
        fill_with_twos(other)
    tree.destroy()

    def capture():
        with qd.graph.capture():
            fill_with_twos(x)

    def record():
        with qd.ad.Tape(loss=qd.field(qd.f32, (), needs_grad=True)):
            fill_with_twos(x)

    uses = {
        "kernel": lambda: fill_with_twos(x),
        "stream": lambda: fill_with_twos(x, qd_stream=stream),
        "read": lambda: x[0],
        "write": lambda: x.__setitem__(0, 1.0),
        "export": x.to_numpy,
        "view": lambda: x.to_numpy(copy=False),
        "dlpack": x.to_dlpack,
        "import": lambda: x.from_numpy(np.zeros(8, np.float32)),
        "fill": lambda: x.fill(1.0),
        "queued fill": lambda: x.fill(1.0, qd_stream=stream),
        "copy to": lambda: x.copy_from(other),
        "copy from": lambda: other.copy_from(x),
        "deactivate": builder.deactivate_all,
        "level": lambda: builder.dense(qd.i, 3),
        "finalize": builder.finalize,
        "capture": capture,
        "tape": record,
    }
    where = r"destroyed: that of the FieldsBuilder .*test_fields\.py:\d+ \(with `x`\)"
    for call in uses.values():
        with pytest.raises(RuntimeError, match=where):
            call()
    with pytest.raises(RuntimeError, match="this graph uses the memory of fields whose SNode tree was destroyed"):
        graph.launch()
    assert str(x) == "<a field of a destroyed SNode tree>"
    assert other.to_numpy().tolist() == [0.0] * 8
    stream.destroy()


@pytest.mark.in_place
def test_a_view_keeps_the_memory_of_a_destroyed_tree():
    _, tree, (x,) = builder_tree(x=qd.f32)
    x.fill(3.0)
    view = x.to_numpy(copy=False)
    tree.destroy()
    assert view.tolist() == [3.0] * 8


@pytest.mark.in_place
def test_the_memory_of_a_destroyed_tree_is_freed_while_its_kernels_and_fields_are_alive():
    qd.init(arch=qd.cpu)
    megabytes = 1 << 20

    def resident():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * 4096 // megabytes

    kept = []
    before = resident()
    for _ in range(8):
        builder = qd.FieldsBuilder()
        x = qd.field(qd.u8)
        builder.dense(qd.i, 40 * megabytes).place(x)
        tree = builder.finalize()
        fill_with_twos(x)
        assert x[0] == 2
        assert resident() - before > 30
        tree.destroy()
        kept.append((x, tree))
    assert resident() - before < 30


@pytest.mark.parametrize("options", [{}, {"cpu_streams": True}], ids=str)
def test_a_tree_is_destroyed_while_other_threads_launch(options):
    qd.init(arch=qd.cpu, **options)
    for _ in range(4):
        _, tree, (x,) = builder_tree(x=qd.f32)
        started, messages = threading.Event(), []

        def launch_until_refused(x=x, started=started, messages=messages):
            try:
                while True:
                    fill_with_twos(x)
                    started.set()
            except RuntimeError as error:
                messages.append(str(error))

        threads = [threading.Thread(target=launch_until_refused) for _ in range(3)]
        for thread in threads:
            thread.start()
        started.wait()
        tree.destroy()
        for thread in threads:
            thread.join()
        assert len(messages) == 3
        assert all("destroyed" in message for message in messages)
    qd.sync()


def test_components_are_indexed_separately():
    x, matrices, array = (
        qd.Vector.field(3, qd.f32, 4),
        qd.Matrix.field(2, 2, qd.f32, 4),
        qd.Vector.ndarray(3, qd.f32, 4),
    )

    @qd.kernel
    def store():
        x[0, 1] = 7.0

    @qd.kernel
    def load() -> qd.f32:
        return matrices[0, 1, 1]

    @qd.kernel
    def load_from_array(a: qd.types.ndarray()) -> qd.f32:
        return a[0, 1]

    for call in (store, load, lambda: load_from_array(array)):
        with pytest.raises(qd.OctantsIndexError, match=r"with dim 1 accessed with indices of dim [23]"):
            call()


def test_placing_twice_names_where_the_field_was_created():
    x = qd.field(qd.f32, name="x")
    assert qd.root.place(x) is None
    with pytest.raises(qd.OctantsRuntimeError, match=r"the field x, created at .*test_fields\.py:\d+, has been placed"):
        qd.root.place(x)
    assert qd.root.dense(qd.i, 3).place(qd.field(qd.f32)) is not None


def test_arguments_of_fields_are_checked():
    for call, message in (
        (lambda: qd.field(qd.f32, 3, foo=1), r"qd\.field\(\) has no keyword `foo`"),
        (lambda: qd.Vector.field(qd.f32, 3, 4), r"must be an integer, got f32.*qd\.Vector\.field\(n, dtype"),
        (lambda: qd.field(qd.f32, (3, 4), order=1), "order must be a string"),
    ):
        with pytest.raises((TypeError, qd.OctantsSyntaxError), match=message):
            call()
