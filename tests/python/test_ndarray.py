"""Ndarrays and tensors from the host."""

import copy
import itertools
import pickle

import numpy as np
import pytest

import octants as qd

BACKENDS = [qd.Backend.FIELD, qd.Backend.NDARRAY]


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


@pytest.mark.parametrize("dtype", [qd.i8, qd.i32, qd.u64, qd.f16, qd.f32, qd.f64, qd.u1], ids=str)
@pytest.mark.parametrize("shape", [(), 3, (2, 3), (1, 2, 1, 2, 1, 2, 1, 2)])
def test_scalars(dtype, shape):
    a = qd.ndarray(dtype, shape)
    extents = shape if isinstance(shape, tuple) else (shape,)
    assert (a.shape, a.dtype, a.element_shape) == (extents, dtype, ())
    assert not a.to_numpy().any()
    a[(0,) * len(extents) or None] = 1
    assert a[(0,) * len(extents) or None] == 1
    assert a.to_numpy().sum() == 1
    values = (np.arange(int(np.prod(extents, dtype=int))).reshape(extents) % 2).astype(dtype.numpy)
    a.from_numpy(values)
    np.testing.assert_array_equal(a.to_numpy(), values)
    assert a.to_numpy().dtype == dtype.numpy
    a.fill(1)
    assert (a.to_numpy() == 1).all()


def test_vectors_and_matrices():
    v = qd.Vector.ndarray(3, qd.f32, 4)
    m = qd.ndarray(qd.types.matrix(2, 2, qd.i32), (2, 2))
    assert isinstance(v, qd.VectorNdarray)
    assert isinstance(m, qd.MatrixNdarray)
    assert v.element_type.element_type() is qd.f32
    assert m.element_type.shape() == [2, 2]
    of_m = m.get_type()
    assert (of_m.element_type, of_m.shape, of_m.needs_grad) == (m.element_type, m.shape, False)
    assert (v.n, v.element_shape, m.n, m.m, m.element_shape) == (3, (3,), 2, 2, (2, 2))
    v[1] = [1, 2, 3]
    v[1].y = 9
    v[1][2] += 1
    assert v[1].to_list() == [1, 9, 4]
    m[1, 0] = [[1, 2], [3, 4]]
    m[1, 0][1, 1] = 8
    assert m.to_numpy()[1, 0].tolist() == [[1, 2], [3, 8]]
    v.fill([5, 6, 7])
    assert v.to_numpy().tolist() == [[5, 6, 7]] * 4
    with pytest.raises(TypeError):
        v[0] = 5
    with pytest.raises(IndexError, match="1d ndarray indexed with 2d"):
        v[0, 1]


def test_indices():
    a = qd.ndarray(qd.f32, (3, 4))
    with pytest.raises(IndexError, match="2d ndarray indexed with 1d"):
        a[0]
    for key in ((3, 0), (0, -1)):
        with pytest.raises(AssertionError, match="Out of bound"):
            a[key]
    with pytest.raises(TypeError):
        a[1.5, 0]
    a[np.array(1), 2] = 3
    assert a[1, np.array(2)] == 3
    with pytest.raises(TypeError):
        a[np.array(1.0), 0]


def test_arguments_are_checked():
    for shape in (0, (2, 0), -1, 2.5, (2, 1.5)):
        with pytest.raises(RuntimeError, match="not a valid shape"):
            qd.ndarray(qd.f32, shape)
    for dtype in (3, "f32", qd.types.struct(a=qd.f32)):
        with pytest.raises(RuntimeError, match="not supported as ndarray element type"):
            qd.ndarray(dtype, 2)
    with pytest.raises(RuntimeError, match="needs_grad"):
        qd.ndarray(qd.i32, 3, needs_grad=True)


def test_whole_arrays():
    a, b = qd.ndarray(qd.i32, (2, 3)), qd.ndarray(qd.i32, (2, 3))
    values = np.arange(6, dtype=np.int32).reshape(2, 3)
    a.from_numpy(values)
    b.copy_from(a)
    np.testing.assert_array_equal(b.to_numpy(), values)
    a.from_numpy(np.asfortranarray(values + 0.9))
    np.testing.assert_array_equal(a.to_numpy(), values)
    assert a.to_numpy(dtype=np.float32).dtype == np.float32
    with pytest.raises(ValueError, match="Mismatch shape"):
        a.from_numpy(values.T.copy())
    with pytest.raises(AssertionError):
        a.copy_from(qd.ndarray(qd.i32, (3, 2)))
    with pytest.raises(NotImplementedError):
        iter(a)


@pytest.mark.in_place
def test_views_without_a_copy():
    a = qd.ndarray(qd.i32, (2, 3))
    view = a.to_numpy(copy=False)
    view[1, 2] = 50
    assert a[1, 2] == 50
    assert np.from_dlpack(a)[1, 2] == 50
    with pytest.raises(ValueError, match="copy=False"):
        a.to_numpy(dtype=np.float32, copy=False)
    for layout in itertools.permutations(range(3)):
        for backend in BACKENDS:
            t = qd.tensor(qd.f32, (2, 3, 4), backend=backend, layout=layout)
            assert t.to_numpy(copy=False).transpose(layout).flags.c_contiguous


def test_copies_and_pickles():
    for a in (
        qd.ndarray(qd.f32, (2, 3), needs_grad=True),
        qd.Vector.ndarray(2, qd.i32, 3),
        qd.Matrix.ndarray(2, 2, qd.f64, 3),
    ):
        a.fill(3)
        if a.grad is not None:
            a.grad.fill(4)
        for b in (copy.copy(a), copy.deepcopy(a), pickle.loads(pickle.dumps(a))):
            assert type(b) is type(a)
            assert (b.shape, b.dtype, b.element_shape) == (a.shape, a.dtype, a.element_shape)
            np.testing.assert_array_equal(b.to_numpy(), a.to_numpy())
            if a.grad is not None:
                assert (b.grad.to_numpy() == 4).all()
            b.fill(9)
            assert (a.to_numpy() == 3).all()


def test_gradient():
    a = qd.ndarray(qd.f32, 3, needs_grad=True)
    a.grad.fill(2)
    assert a.has_grad()
    assert a.to_numpy().tolist() == [0, 0, 0]
    assert qd.ndarray(qd.f32, 3).grad is None


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("layout", [None, *itertools.permutations(range(3))])
def test_tensor_layouts_do_not_change_what_users_see(backend, layout):
    shape = (2, 3, 4)
    t = qd.tensor(qd.f32, shape, backend=backend, layout=layout)
    natural = layout in (None, (0, 1, 2))
    assert t.layout == (None if natural else layout)
    values = np.arange(24, dtype=np.float32).reshape(shape)
    t.from_numpy(values)
    assert t.shape == shape
    assert t[1, 2, 3] == 23
    assert t[0, 1, 2] == 6
    t[1, 0, 2] = -1
    values[1, 0, 2] = -1
    np.testing.assert_array_equal(t.to_numpy(), values)
    for made in (pickle.loads(pickle.dumps(t)), copy.deepcopy(t)):
        assert (made.layout, made.shape, made.dtype) == (t.layout, t.shape, t.dtype)
        np.testing.assert_array_equal(made.to_numpy(), values)


@pytest.mark.parametrize("backend", BACKENDS)
def test_tensor_interface(backend):
    t = qd.tensor(qd.f32, 4, backend=backend, needs_grad=True)
    v = qd.Vector.tensor(3, qd.i32, shape=2, backend=backend)
    m = qd.tensor(qd.types.matrix(2, 2, qd.f32), (3,), backend=int(backend))
    assert (type(t), type(v), type(m)) == (qd.Tensor, qd.VectorTensor, qd.MatrixTensor)
    assert (v.element_shape, m.element_shape) == ((3,), (2, 2))
    assert isinstance(t._unwrap(), qd.ScalarField if backend == qd.Backend.FIELD else qd.ScalarNdarray)
    assert t.grad.shape == (4,)
    assert isinstance(qd.wrap(v._unwrap()), qd.VectorTensor)
    v[1] = [1, 2, 3]
    v.fill([4, 5, 6])
    assert v.to_numpy().tolist() == [[4, 5, 6]] * 2
    other = qd.tensor(qd.f32, 4, backend=1 - backend)
    with pytest.raises(TypeError if backend == qd.Backend.FIELD else AssertionError, match="one backend"):
        t.copy_from(other)
    assert str(backend.name) in repr(t)


def test_tensor_arguments():
    for kwargs, error, match in [
        (dict(layout=(0,)), ValueError, "layout has"),
        (dict(layout=(0, 0)), ValueError, "not a permutation"),
        (dict(order="ji"), TypeError, "layout="),
        (dict(offset=1), TypeError, "unexpected keyword"),
        (dict(backend="field"), ValueError, "backend="),
    ]:
        with pytest.raises(error, match=match):
            qd.tensor(qd.f32, (2, 2), **kwargs)
    with pytest.raises(TypeError, match="layout.*not supported.*compound"):
        qd.tensor(qd.types.vector(2, qd.f32), (2,), layout=(0,))
    with pytest.raises(TypeError, match="requires"):
        qd.Tensor(3)
    with pytest.raises(TypeError, match="requires"):
        qd.wrap(qd.tensor(qd.f32, 2))


def test_an_index_outside_a_clamped_array_reads_the_nearest_element():
    Clamped = qd.types.ndarray(boundary="clamp")

    @qd.kernel
    def blur(x: Clamped, y: qd.types.ndarray()):
        for i, j in x:
            y[i, j] = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]

    @qd.kernel
    def component(x: Clamped, i: qd.i64, k: qd.i32) -> qd.f32:
        return x[i][k] + 100 * x[i][k]

    @qd.kernel
    def write(x: Clamped, i: qd.u8, by: qd.i32):
        x[i + by, 100] += 1.0

    given = np.arange(20, dtype=np.float32).reshape(4, 5)
    x, y = qd.ndarray(qd.f32, (4, 5)), qd.ndarray(qd.f32, (4, 5))
    x.from_numpy(given)
    blur(x, y)
    framed = np.pad(given, 1, mode="edge")
    np.testing.assert_array_equal(
        y.to_numpy(), framed[:-2, 1:-1] + framed[2:, 1:-1] + framed[1:-1, :-2] + framed[1:-1, 2:]
    )
    v = qd.Vector.ndarray(2, qd.f32, 3)
    v.from_numpy(np.arange(6, dtype=np.float32).reshape(3, 2))
    assert [component(v, i, k) for i, k in [(-5, 0), (1, 7), (2**40, -1), (1, 1)]] == [0.0, 303.0, 404.0, 303.0]
    m = qd.Matrix.ndarray(2, 2, qd.f32, 1)
    m.from_numpy(np.arange(4, dtype=np.float32).reshape(1, 2, 2))

    @qd.kernel
    def position(x: Clamped, i: qd.i32, j: qd.i32) -> qd.f32:
        return x[9][i, j]

    # For a matrix, the position of the component, row by row, is clamped.
    assert [position(m, i, j) for i, j in [(-1, 0), (1, -1), (0, 2), (1, 5)]] == [0.0, 1.0, 2.0, 3.0]
    write(x, 200, 0)
    write(x, 1, -9)
    assert (x[3, 4], x[0, 4]) == (20.0, 5.0)
    with pytest.raises(ValueError, match="boundary"):
        qd.types.ndarray(boundary="wrap")


def test_gradients_are_separate_arrays_in_kernels():
    @qd.kernel
    def write(x: qd.types.ndarray(), by: qd.f32):
        for i in x:
            x.grad[i] += x[i] * by

    x = qd.ndarray(qd.f32, 4, needs_grad=True)
    x.from_numpy(np.arange(4, dtype=np.float32))
    write(x, 2.0)
    write(x, 0.5)
    np.testing.assert_array_equal(x.grad.to_numpy(), np.arange(4) * 2.5)
    y = qd.Vector.ndarray(2, qd.f32, 4, needs_grad=True)
    y.fill(3.0)
    write(y, 1.0)
    np.testing.assert_array_equal(y.grad.to_numpy(), np.full((4, 2), 3.0))
    np.testing.assert_array_equal(x.grad.to_numpy(), np.arange(4) * 2.5)
    with pytest.raises(qd.OctantsTypeError, match="`x` has no gradient"):
        write(qd.ndarray(qd.f32, 4), 1.0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_tensors_keep_element_type_and_gradient_in_kernels(backend):
    kind = qd.template() if backend == qd.Backend.FIELD else qd.types.ndarray()

    @qd.kernel
    def fill(v: kind, x: kind):
        for i in range(4):
            x.grad[i] = i * 100.0
            for j in qd.static(range(3)):
                v[i][j] = i * 10.0 + j

    v = qd.Vector.tensor(3, qd.f32, shape=4, backend=backend)
    x = qd.tensor(qd.f32, 4, backend=backend, needs_grad=True)
    fill(v, x)
    assert v.to_numpy()[2].tolist() == [20.0, 21.0, 22.0]
    assert x.grad.to_numpy().tolist() == [0.0, 100.0, 200.0, 300.0]


@pytest.mark.parametrize("options", [{}, {"cpu_streams": True}], ids=str)
def test_fill_with_a_vector(options):
    qd.init(arch=qd.cpu, **options)
    for make in (
        lambda: qd.Vector.ndarray(3, qd.f32, (97, 113)),
        lambda: qd.Vector.field(3, qd.f32, (97, 113)),
        lambda: qd.Vector.field(3, qd.f32, (97, 113), layout=qd.Layout.SOA),
        lambda: qd.Vector.field(3, qd.f32, ()),
    ):
        array = make()
        array.fill(qd.Vector([1.0, 2.0, 3.0]))
        np.testing.assert_array_equal(array.to_numpy(), np.broadcast_to([1.0, 2.0, 3.0], (*array.shape, 3)))


def test_element_shapes_in_kernels():
    v = qd.Matrix.ndarray(2, 3, qd.f32, 4)
    s = qd.ndarray(qd.f32, 4)
    f = qd.Vector.field(3, qd.i32, shape=2)

    @qd.kernel
    def count(a: qd.types.ndarray(), b: qd.types.ndarray(), c: qd.template()) -> qd.i32:
        return qd.static(
            len(a.element_shape) * 100 + a.element_shape[1] * 10 + len(b.element_shape) + c.element_shape[0]
        )

    assert count(v, s, f) == 233


@pytest.mark.parametrize("backend", [qd.Backend.FIELD, qd.Backend.NDARRAY])
def test_tensors_of_integers_have_no_gradient(backend):
    counts = qd.tensor(qd.i32, 3, backend=backend, needs_grad=True)
    pairs = qd.Vector.tensor(2, qd.i32, 3, backend=backend, needs_grad=True)
    values = qd.tensor(qd.f32, 3, backend=backend, needs_grad=True)
    assert [x.has_grad() for x in (counts, pairs, values)] == [False, False, True]


def test_ndarray_classes_construct_ndarrays():
    for made, element_shape in (
        (qd.ScalarNdarray(qd.f32, (3,)), ()),
        (qd.VectorNdarray(3, qd.f32, (3,)), (3,)),
        (qd.MatrixNdarray(2, 4, qd.f32, shape=(3,)), (2, 4)),
    ):
        assert (made.shape, tuple(made.element_shape), made.dtype) == ((3,), element_shape, qd.f32)
        assert made.to_numpy().shape == (3, *element_shape)
