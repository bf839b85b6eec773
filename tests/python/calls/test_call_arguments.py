"""Arguments: positional and keyword, scalars, arrays; and results."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from call_kernels import add, compiled, scale, shift

import octants as qd


def test_positional_and_keyword_arguments_mean_the_same():
    assert add(1, 2.5) == add(1, b=2.5) == add(b=2.5, a=1) == 3.5
    assert compiled(add) == 1


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((1,), {}, "Missing argument 'b'"),
        ((1, 2, 3), {}, "Too many arguments"),
        ((1,), {"c": 2}, "Unexpected argument 'c'"),
        ((1, 2), {"a": 2}, "Multiple values for argument 'a'"),
    ],
)
def test_wrong_arguments_are_named(args: tuple, kwargs: dict, message: str):
    with pytest.raises(qd.OctantsSyntaxError, match=message):
        add(*args, **kwargs)


def test_a_stream_argument_may_be_none():
    assert add(1, 2.0, qd_stream=None) == 3.0


def test_integers_that_do_not_fit_are_refused():
    @qd.kernel
    def same(a: qd.u8) -> qd.i32:
        return a

    assert same(255) == 255
    with pytest.raises(TypeError, match="300 does not fit u8"):
        same(300)


@pytest.mark.parametrize("value", [1.5, "1", None, [1], np.float32(1)])
def test_non_integers_are_refused(value: object):
    with pytest.raises(qd.OctantsRuntimeTypeError, match="required type i32 .parameter `a` of kernel `add`"):
        add(value, 1.0)


@pytest.mark.parametrize("value", [3.0, np.float32(3), np.int64(3), "x", None, b"abc"])
def test_non_arrays_are_refused(value: object):
    @qd.kernel
    def first(a: qd.types.ndarray()) -> qd.f32:
        return a[0]

    with pytest.raises(qd.OctantsRuntimeTypeError, match="kernel `first` expects an array"):
        first(value)


@pytest.mark.parametrize("value", [np.int64(2), np.uint8(2), True])
def test_numpy_integers_and_booleans_are_integers(value: object):
    assert add(value, 0.0) == int(value)


def test_values_out_of_range_are_refused():
    @qd.kernel
    def same(a: qd.u64) -> qd.u64:
        return a

    assert same(2**64 - 1) == 2**64 - 1
    for value in (-1, 2**64):
        with pytest.raises(TypeError, match="does not fit u64"):
            same(value)


def test_numpy_arrays_are_not_copied():
    a = np.arange(4, dtype=np.float32)
    scale(a, 2.0)
    assert a.tolist() == [0, 2, 4, 6]


def test_strided_arrays_are_written_in_place():
    a = np.ones((3, 4), np.float32)
    scale(a[:, 1], 5.0)
    scale(a[2, ::-2], 3.0)
    assert a.tolist() == [[1, 5, 1, 1], [1, 5, 1, 1], [1, 15, 1, 3]]


def test_contiguous_and_strided_arrays_have_separate_code():
    before = compiled(scale)
    a = np.ones((4, 4), np.float32)
    scale(a[0], 1.0)
    scale(a[:, 0], 1.0)
    scale(a[1], 1.0)
    assert compiled(scale) <= before + 2


def test_vectors_fold_the_last_axis():
    @qd.kernel
    def norms(x: qd.types.ndarray(dtype=qd.types.vector(3, qd.f32), ndim=1)) -> qd.f32:
        s = 0.0
        for i in range(x.shape[0]):
            s += x[i].dot(x[i])
        return s

    assert norms(np.ones((5, 3), np.float32)) == 15
    with pytest.raises(ValueError, match=r"required element_shape=\(3,\), array with element shape of \(2,\)"):
        norms(np.ones((5, 2), np.float32))
    with pytest.raises(ValueError, match="required array has ndim=1 element_dim=1, array with 1 dimensions"):
        norms(np.ones(3, np.float32))
    assert norms(np.ones((10, 3), np.float32)[::2]) == 15
    assert norms(np.ones((3, 5), np.float32).T) == 15


@pytest.mark.parametrize("arch", ["threads", "separate memory"])
def test_noncontiguous_components_are_copied_in_and_out(arch: str):
    qd.init(arch=qd.cpu, cpu_separate_memory=arch == "separate memory")

    @qd.kernel
    def double(x: qd.types.ndarray(dtype=qd.math.vec3, ndim=1), m: qd.types.ndarray(dtype=qd.math.mat2, ndim=1)):
        for i in x:
            x[i] *= 2
        for i in m:
            m[i][0, 1] += 5

    @qd.kernel
    def read(x: qd.types.ndarray(dtype=qd.math.vec3, ndim=1), out: qd.types.ndarray()):
        for i in x:
            out[i] = x[i].sum()

    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    matrices = np.asfortranarray(np.arange(8, dtype=np.float32).reshape(2, 2, 2))
    before = values.copy()
    double(values.T, matrices)
    assert values.tolist() == (before * 2).tolist()
    assert matrices[:, 0, 1].tolist() == [6, 10]
    wide = np.ones((4, 6), np.float32)
    double(wide[:, ::2], matrices)
    assert wide.tolist() == [[2, 1] * 3] * 4
    constant = values.T
    constant.flags.writeable = False
    sums = np.zeros(4, np.float32)
    read(constant, sums)
    assert sums.tolist() == constant.sum(axis=1).tolist()
    with pytest.raises(ValueError, match="`x` is read-only"):
        double(constant, matrices)
    with pytest.raises(ValueError, match="`x` must be contiguous in memory where another argument shares"):
        read(values.T, values[0])


@qd.kernel
def sum_rows(a: qd.types.ndarray(element_dim=1), b: qd.types.ndarray()):
    for i in range(a.shape[0]):
        b[i] = a[i].sum()


def test_element_shapes_come_from_the_last_axes() -> None:
    for n in (3, 2):
        a, b = np.arange(4 * n, dtype=np.float32).reshape(4, n), np.zeros(4, np.float32)
        sum_rows(a, b)
        np.testing.assert_equal(b, a.sum(axis=1))
    with pytest.raises(ValueError, match="a vector of any size, but f32"):
        sum_rows(qd.ndarray(qd.f32, (4,)), b)


def test_arrays_without_axes() -> None:
    @qd.kernel
    def fill(x: qd.types.ndarray(dtype=qd.f32, ndim=0), v: qd.f32):
        x[None] = v

    a = np.zeros((), np.float32)
    fill(a, 2.0)
    assert a[()] == 2.0


def test_read_only_arrays_may_be_read():
    a, b = np.ones(3, np.float32), np.zeros(3, np.float32)
    a.flags.writeable = False
    shift(b, a)
    assert b.tolist() == [0, 1, 1]
    with pytest.raises(ValueError, match="read-only"):
        shift(a, b)


def strided(shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    strides = tuple(4 * s for s in strides)
    return np.lib.stride_tricks.as_strided(np.ones(64, np.float32), shape, strides)


@pytest.mark.parametrize(
    ("shape", "strides", "overlaps"),
    [
        ((4, 3), (0, 1), True),
        ((4, 3), (1, 1), True),
        ((4, 3), (2, 3), True),
        ((3, 4), (2, 3), False),
        ((2, 3), (3, 2), False),
        ((4, 3), (1, 4), False),
        ((1, 3), (0, 1), False),
        ((2, 0), (0, 1), False),
        ((2, 2, 2), (7, 5, 2), True),
        ((2, 2, 2), (8, 5, 2), False),
    ],
)
def test_an_array_with_overlapping_elements_is_read_only(shape, strides, overlaps):
    @qd.kernel
    def write(x: qd.types.ndarray()):
        for i in qd.grouped(x):
            x[i] += 1

    @qd.kernel
    def read(x: qd.types.ndarray()) -> qd.f32:
        total = 0.0
        for i in qd.grouped(x):
            total += x[i]
        return total

    array = strided(shape, strides)
    assert read(array) == array.size
    if overlaps:
        with pytest.raises(ValueError, match=r"elements of the array given for `x` share memory.*`array.copy\(\)`"):
            write(array)
        assert (array == 1).all()
    else:
        write(array)
        assert (array == 2).all()


def test_a_member_with_overlapping_elements_is_named():
    @dataclasses.dataclass
    class State:
        n: qd.i32
        x: qd.types.NDArray[qd.f32, 2]

    @qd.kernel
    def write(first: qd.types.ndarray(), s: State):
        for i in qd.grouped(s.x):
            s.x[i] += first[0]

    for _ in range(3):
        with pytest.raises(ValueError, match="given for `s.x` share memory"):
            write(np.ones(1, np.float32), State(1, strided((4, 3), (0, 1))))


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (np.zeros(3), ValueError, "required array has dtype=f32, array with dtype=f64"),
        (np.zeros((2, 2), np.float32), ValueError, "required array has ndim=1, array with 2 dimensions"),
        (np.zeros(3, np.complex64), ValueError, "complex64 cannot be used"),
        (np.zeros(3, ">f4"), ValueError, "cannot be used"),
        ([1.0], TypeError, "Invalid type for argument x"),
        (3, TypeError, "Invalid type for argument x"),
    ],
)
def test_mismatched_arrays_are_refused(value: object, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        scale(value, 1.0)


def test_overlapping_arrays_see_each_others_writes():
    a = np.arange(64, dtype=np.float32)
    shift(np.zeros(64, np.float32), a)
    shift(a[1:], a[:-1])
    expected = np.arange(64, dtype=np.float32)
    for i in range(1, 63):
        expected[i + 1] = expected[i - 1]
    assert a.tolist() == expected.tolist()


def test_memoryviews_are_arrays():
    a = np.ones(3, np.float32)
    scale(memoryview(a), 4.0)
    assert a.tolist() == [4, 4, 4]


class _Torchlike:
    """The attributes of a torch tensor that the binding uses, over a numpy array."""

    def __init__(self, array: np.ndarray, device: str = "cpu") -> None:
        self.array = array
        self.device = type("device", (), {"type": device})()
        self.dtype = f"torch.{array.dtype}"
        self.shape = array.shape

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def element_size(self) -> int:
        return self.array.itemsize

    def is_contiguous(self) -> bool:
        return self.array.flags.c_contiguous

    def stride(self) -> tuple[int, ...]:
        return tuple(s // self.array.itemsize for s in self.array.strides)


def test_tensors_are_passed_by_their_memory() -> None:
    a = np.ones((3, 4), np.float32)
    scale(_Torchlike(a[:, 1]), 3.0)
    scale(_Torchlike(a[0]), 2.0)
    assert a[:, 1].tolist() == [6, 3, 3]
    with pytest.raises(ValueError, match="device `cuda`"):
        scale(_Torchlike(a[0], "cuda"), 2.0)


def test_two_equal_arrays_among_many_are_found():
    Array = qd.types.ndarray(dtype=qd.i32, ndim=1)
    Many = dataclasses.make_dataclass("Many", [(f"a{n}", Array) for n in range(20)])

    @qd.kernel
    def write(many: Many):
        with qd.stream_parallel():
            for i in many.a3:
                many.a3[i] = 1
        with qd.stream_parallel():
            for i in many.a17:
                many.a17[i] = 2

    arrays = [qd.ndarray(qd.i32, 4) for _ in range(20)]
    write(Many(*arrays))
    assert (arrays[3][0], arrays[17][0]) == (1, 2)
    arrays[17] = arrays[3]
    with pytest.raises(qd.QuadrantsSyntaxError, match="the same memory in this call"):
        write(Many(*arrays))


def test_tuples_vectors_matrices_and_structs():
    pair = qd.types.struct(a=qd.i32, v=qd.types.vector(2, qd.f32))

    @qd.kernel
    def several(n: qd.i32) -> tuple[qd.i32, qd.types.vector(2, qd.f32)]:
        return n, qd.Vector([1.0, 2.0])

    @qd.kernel
    def matrix() -> qd.types.matrix(2, 3, qd.i32):
        return qd.Matrix([[1, 2, 3], [4, 5, 6]])

    @qd.kernel
    def struct(s: pair) -> pair:
        return pair(a=s.a + 1, v=s.v * 2)

    n, v = several(3)
    assert (n, v.to_numpy().tolist()) == (3, [1, 2])
    assert matrix().to_numpy().tolist() == [[1, 2, 3], [4, 5, 6]]
    s = struct(pair(a=1, v=[1, 2]))
    assert (s.a, s.v.to_numpy().tolist()) == (2, [2, 4])


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(qd.i8, -5), (qd.u64, 2**63 + 1), (qd.i64, -(2**40)), (qd.f64, 0.1), (qd.f16, 0.5), (qd.u1, 1)],
)
def test_scalars_of_every_width(dtype: qd.types.DataType, value: float):
    @qd.kernel
    def same(a: dtype) -> dtype:
        return a

    assert same(value) == value


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.float16])
def test_arrays_of_vectors_determine_the_element_type(dtype: type):
    @qd.kernel
    def change(x: qd.types.ndarray(dtype=qd.math.vec2, ndim=1)) -> qd.f32:
        x[0] = x[0] * 3
        x[1].y = 7
        return x[0].y + x[1].y

    @qd.kernel
    def square(x: qd.types.ndarray(dtype=qd.types.matrix(2, 2, qd.f32))):
        for i in x:
            x[i] = x[i] @ x[i]

    vectors, matrices = np.ones((3, 2), dtype), np.ones((3, 2, 2), dtype)
    assert change(vectors) == 10
    assert vectors.tolist() == [[3, 3], [1, 7], [1, 1]]
    square(matrices)
    assert matrices.tolist() == [[[2, 2], [2, 2]]] * 3
    with pytest.raises(ValueError, match="element_shape"):
        change(np.ones((3, 3), dtype))
    with pytest.raises(ValueError, match="required element type"):
        change(qd.Vector.ndarray(2, qd.f64, 3))


def test_a_parameter_with_a_gradient_refuses_an_ndarray_without_one():
    @qd.kernel
    def fill(x: qd.types.ndarray(dtype=qd.f32, ndim=1, needs_grad=True)):
        x[0] = 3

    with_gradient = qd.ndarray(qd.f32, 2, needs_grad=True)
    for _ in range(2):
        fill(with_gradient)
        with pytest.raises(ValueError, match="argument x - required needs_grad=True, but False is provided"):
            fill(qd.ndarray(qd.f32, 2))
    assert with_gradient[0] == 3


def test_a_parameter_without_a_gradient_leaves_the_gradient_of_its_array():
    @qd.kernel
    def add_squares(x: qd.types.ndarray(needs_grad=False), y: qd.types.ndarray(), total: qd.types.ndarray()):
        for i in x:
            total[0] += x[i] * x[i] * y[i]

    x, y = qd.ndarray(qd.f32, 3, needs_grad=True), qd.ndarray(qd.f32, 3, needs_grad=True)
    total = qd.ndarray(qd.f32, 1, needs_grad=True)
    x.fill(2)
    y.fill(5)
    for arrays in ((x, y, total), (qd.Tensor(x), y, total)):
        y.grad.fill(0)
        total.grad.fill(1)
        add_squares(*arrays)
        add_squares.grad(*arrays)
        assert x.grad.to_numpy().tolist() == [0, 0, 0]
        assert y.grad.to_numpy().tolist() == [4, 4, 4]


def test_arrays_of_vectors_of_any_scalar():
    any_vector = qd.types.ndarray(dtype=qd.types.vector(3), ndim=1)

    @qd.func
    def add_one(x: any_vector, i):
        x[i] += 1

    @qd.kernel
    def step(x: any_vector):
        for i in x:
            add_one(x, i)

    for dtype in (qd.i32, qd.f32, qd.f64):
        x = qd.Vector.ndarray(3, dtype, 2)
        step(x)
        assert x.to_numpy().tolist() == [[1, 1, 1]] * 2
    with pytest.raises(ValueError, match=r"VectorType\[3, i32\], but VectorType\[2, i32\] is provided"):
        step(qd.Vector.ndarray(2, qd.i32, 2))


def test_an_ndarray_of_vectors_may_be_empty():
    @qd.kernel
    def fill(x: qd.types.ndarray(ndim=1)):
        for i in x:
            x[i] += 1

    x = qd.Vector.ndarray(2, qd.f32, shape=(0,))
    fill(x)
    x.fill(1)
    assert (x.shape, x.to_numpy().shape) == ((0,), (0, 2))
    assert qd.Matrix.ndarray(2, 2, qd.f32, shape=(3, 0)).to_numpy().shape == (3, 0, 2, 2)
