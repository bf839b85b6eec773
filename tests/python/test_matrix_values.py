"""Vectors, matrices and structs as Python values, against numpy."""

import copy
import math
import operator
import pickle

import numpy as np
import pytest

import octants as qd


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


OPERATORS = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.pow,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    operator.eq,
    operator.ne,
    operator.and_,
    operator.or_,
    operator.xor,
    operator.lshift,
    operator.rshift,
]


@pytest.mark.parametrize("op", OPERATORS)
def test_operators_match_numpy_component_by_component(op):
    a, b = np.array([7, 2, 9]), np.array([3, 2, 1])
    for left, right in [(qd.Vector(a), qd.Vector(b)), (qd.Vector(a), b), (qd.Vector(a), b.tolist()), (a, qd.Vector(b))]:
        result = op(left, right)
        assert isinstance(result, qd.Vector)
        assert result.to_list() == op(a, b).tolist()
    assert op(qd.Vector(a), 2).to_list() == op(a, 2).tolist()
    assert op(2, qd.Vector(b)).to_list() == op(2, b).tolist()


def test_comparisons_are_true_when_they_hold_for_all():
    v = qd.Vector([1, 2, 3])
    assert v == [1, 2, 3]
    assert not v == [1, 2, 4]
    assert v != [1, 2, 4]
    assert not v != [1, 2, 3]
    assert v < 4
    assert (v == None) is False  # noqa: E711


def test_functions_of_numpy_take_vectors():
    v, m, row = qd.Vector([3.0, 4.0]), qd.Matrix([[1.0, 4.0], [9.0, 16.0]]), np.array([2.0, 5.0])
    for function in (np.sqrt, np.floor, np.isfinite, np.negative, np.prod):
        for value, array in ((v, v.to_numpy()), (m, m.to_numpy())):
            np.testing.assert_array_equal(function(value), function(array))
            assert type(function(value)) is type(function(array))
    for function in (np.maximum, np.add, np.arctan2, np.matmul, np.less, np.clip):
        arguments = (0.0,) if function is np.clip else ()
        np.testing.assert_array_equal(function(row, *arguments, v), function(row, *arguments, v.to_numpy()))
    np.testing.assert_array_equal(np.add(v, 2), [5.0, 6.0])
    # Operators still give vectors.
    for made in (row + v, v + row, row * v, np.float64(2) / v, row @ m, m @ row):
        assert isinstance(made, qd.Vector)
    row += v
    np.testing.assert_array_equal(np.asarray(row), [5.0, 9.0])
    for wrong in (lambda: np.float64(2) @ v, lambda: v @ np.float64(2), lambda: np.array(2.0) @ v):
        with pytest.raises(TypeError, match="@ multiplies only matrices and vectors"):
            wrong()


def test_linear_algebra_against_numpy():
    rng = np.random.default_rng(0)
    a, b, v, w = rng.normal(size=(3, 3)), rng.normal(size=(3, 3)), rng.normal(size=3), rng.normal(size=3)
    ma, mb, qv, qw = qd.Matrix(a), qd.Matrix(b), qd.Vector(v), qd.Vector(w)
    np.testing.assert_allclose((ma @ mb).to_numpy(), a @ b)
    np.testing.assert_allclose((ma @ qv).to_numpy(), a @ v)
    np.testing.assert_allclose(qv @ qw, v @ w)
    np.testing.assert_allclose(qv.dot(qw), v @ w)
    np.testing.assert_allclose(qv.cross(qw).to_numpy(), np.cross(v, w))
    np.testing.assert_allclose(qv.outer_product(qw).to_numpy(), np.outer(v, w))
    np.testing.assert_allclose(ma.transpose().to_numpy(), a.T)
    np.testing.assert_allclose(ma.inverse().to_numpy(), np.linalg.inv(a))
    np.testing.assert_allclose(ma.determinant(), np.linalg.det(a))
    np.testing.assert_allclose(ma.trace(), np.trace(a))
    np.testing.assert_allclose(qv.norm(), np.linalg.norm(v))
    np.testing.assert_allclose(qv.norm(0.5), math.sqrt(v @ v + 0.5))
    np.testing.assert_allclose(qv.norm_inv(), 1 / np.linalg.norm(v))
    np.testing.assert_allclose(qv.normalized().to_numpy(), v / np.linalg.norm(v))
    assert qv.sum() == v.sum()
    assert qv.max() == v.max()
    assert qv.min() == v.min()
    assert qd.Vector([3, 4]).cross(qd.Vector([1, 2])) == 2


def test_components_swizzles_and_assignment():
    v = qd.Vector([1, 2, 3, 4])
    assert (v.x, v.y, v.z, v.w) == (1, 2, 3, 4)
    assert v.zyx.to_list() == [3, 2, 1]
    assert v.rg.to_list() == v.st.to_list() == [1, 2]
    v.xz = (9, 8)
    assert v.to_list() == [9, 2, 8, 4]
    v.y += 5
    assert v[1] == 7
    with pytest.raises(qd.QuadrantsSyntaxError):
        qd.Vector([1, 2]).z
    with pytest.raises(qd.QuadrantsRuntimeError):
        v.xy = [1]
    with pytest.raises(AttributeError):
        v.foo
    m = qd.Matrix([[1, 2], [3, 4]])
    m[0, 1] = 5
    assert m.to_list() == [[1, 5], [3, 4]]
    assert (m.n, m.m, m.shape) == (2, 2, (2, 2))
    with pytest.raises(IndexError):
        m[0]
    with pytest.raises(IndexError):
        v[4]


def test_constructors():
    assert qd.Vector.zero(qd.f32, 3).to_list() == [0, 0, 0]
    assert qd.Matrix.one(qd.i32, 2, 2).to_list() == [[1, 1], [1, 1]]
    assert qd.Matrix.identity(qd.f32, 2).to_list() == [[1, 0], [0, 1]]
    assert qd.Vector.unit(3, 1).to_list() == [0, 1, 0]
    assert qd.Matrix.diag(2, 3.0).to_list() == [[3, 0], [0, 3]]
    assert qd.Matrix.rows([qd.Vector([1, 2]), [3, 4]]).to_list() == [[1, 2], [3, 4]]
    assert qd.Matrix.cols([qd.Vector([1, 2]), [3, 4]]).to_list() == [[1, 3], [2, 4]]
    for bad in (3, "ab", [[]], [[1], [2, 3]], np.zeros((2, 2, 2))):
        with pytest.raises((TypeError, ValueError)):
            qd.Vector(bad)


def test_types_build_values():
    vec3 = qd.types.vector(3, qd.f32)
    assert vec3 is qd.types.vector(3, qd.f32)
    assert vec3(1, 2, 3).to_list() == [1, 2, 3]
    assert vec3(5).to_list() == [5, 5, 5]
    assert vec3(qd.Vector([1, 2]), 3).to_list() == vec3(1, [2, 3]).to_list() == [1, 2, 3]
    assert vec3(0.1, 0, 0).entries.dtype == np.float32
    assert qd.types.vector(2, qd.i32)(-1.7, 2.9).to_list() == [-1, 2]
    assert qd.types.vector(2, qd.u8)(300, -1).to_list() == [44, 255]
    mat = qd.types.matrix(2, 2, qd.f64)
    assert mat([1, 2], [3, 4]).to_list() == mat(1, 2, 3, 4).to_list() == mat([[1, 2], [3, 4]]).to_list()
    with pytest.raises(IndexError):
        vec3(1, 2)
    with pytest.raises(ValueError, match="Invalid data type"):
        qd.types.vector(3, "f32")


def test_default_types_are_looked_up_at_use():
    vec, ivec = qd.types.vector(2, float), qd.types.vector(2, int)
    assert (vec.dtype, ivec.dtype) == (qd.f32, qd.i32)
    qd.init(arch=qd.cpu, default_fp=qd.f64, default_ip=qd.i64)
    assert (vec.dtype, ivec.dtype) == (qd.f64, qd.i64)
    qd.reset()
    assert (vec.dtype, ivec.dtype) == (qd.f32, qd.i32)


def test_copies_and_pickles():
    for value in (
        qd.Vector([1, 2], qd.f32),
        qd.Matrix([[1, 2], [3, 4]]),
        qd.types.vector(2, qd.f32),
        qd.f32,
        qd.math.uvec3,
    ):
        for made in (copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
            assert repr(made) == repr(value)
    v = qd.Vector([1, 2])
    w = copy.copy(v)
    w[0] = 9
    assert v[0] == 1
    assert np.array(v).tolist() == [1, 2]


def test_structs():
    vec2 = qd.types.vector(2, qd.f32)
    inner = qd.types.struct(a=qd.i32, b=vec2)
    outer = qd.types.struct(inner=inner, n=int)
    s = outer(inner(1.9, 2), 3)
    assert s.to_dict() == {"inner": {"a": 1, "b": [2, 2]}, "n": 3}
    assert outer().to_dict() == {"inner": {"a": 0, "b": [0, 0]}, "n": 0}
    assert outer(inner={"a": 4, "b": [1, 2]}).inner.b.to_list() == [1, 2]
    s.inner.b = (5, 6)
    s.inner.b.x = 7
    s["n"] = 8.5
    assert s.to_dict() == {"inner": {"a": 1, "b": [7, 6]}, "n": 8}
    with pytest.raises(AttributeError):
        s.m
    # An attribute of the object, and no member.
    s.m = 1
    assert s.m == 1
    assert s.to_dict() == {"inner": {"a": 1, "b": [7, 6]}, "n": 8}
    free = qd.Struct(a=1, b={"c": [1, 2]})
    assert free.b.c.to_list() == [1, 2]
    assert pickle.loads(pickle.dumps(s)).to_dict() == copy.deepcopy(s).to_dict() == s.to_dict()


def test_dataclass_with_methods():
    @qd.dataclass
    class Sphere:
        center: qd.types.vector(3, qd.f32)
        radius: qd.f32

        def area(self):
            return 4 * math.pi * self.radius**2

    ball = Sphere(center=[1, 2, 3], radius=2)
    assert ball.area() == 4 * math.pi * 4
    assert list(Sphere.members) == ["center", "radius"]
    field = Sphere.field(shape=2)
    field[1] = ball
    assert field[1].area() == ball.area()


def test_operations_in_python():
    assert qd.sin(0.5) == math.sin(0.5)
    assert qd.sqrt(qd.Vector([4.0, 9.0])).to_list() == [2, 3]
    assert qd.max(1, 5, 3) == 5
    assert qd.min(qd.Vector([1, 5]), 3).to_list() == [1, 3]
    assert qd.select(qd.Vector([1, 0]), qd.Vector([1, 2]), 7).to_list() == [1, 7]
    assert qd.floor(2.7) == 2
    assert qd.round(2.5, qd.i32) == 2
    assert isinstance(qd.round(2.5, qd.i32), int)
    assert qd.cast(-1, qd.u8) == 255
    assert qd.bit_cast(1.0, qd.i32) == 0x3F800000
    assert qd.bit_cast(0x3F800000, qd.f32) == 1.0
    assert (qd.raw_div(-7, 2), qd.raw_mod(-7, 2)) == (-3, -1)
    assert qd.bit_shr(-1, 28) == 15
    assert (qd.static(3), qd.static(1, 2)) == (3, [1, 2])
    assert (qd.math.popcnt(-1), qd.math.clz(1), qd.math.ffs(12)) == (32, 31, 3)
    with pytest.raises(AssertionError, match="no"):
        qd.static_assert(False, "no")
    for call in (lambda: qd.atomic_add(1, 2), lambda: qd.random(), lambda: qd.loop_config(serialize=True)):
        with pytest.raises(qd.QuadrantsRuntimeError):
            call()
    with pytest.raises(qd.QuadrantsSyntaxError):
        qd.f32(3)


def test_ndrange_in_python():
    assert list(qd.ndrange(2, (3, 5))) == [(0, 3), (0, 4), (1, 3), (1, 4)]
    assert list(qd.ndrange(2, (1, 3), axes=(1, 0))) == [(0, 1), (1, 1), (0, 2), (1, 2)]
    assert list(qd.ndrange((5, 3))) == []
    with pytest.raises(qd.QuadrantsTypeError):
        qd.ndrange(1.5)
    with pytest.raises(qd.QuadrantsSyntaxError):
        qd.ndrange((1, 2, 3))


def test_components_written_as_calls():
    @qd.kernel
    def old() -> qd.f32:
        v = qd.Vector([1.0, 2.0])
        m = qd.Matrix([[1.0, 2.0], [3.0, 4.0]])
        return v(1) + m(1, 0)

    assert old() == 5.0


def test_the_components_of_a_matrix_are_converted_once():
    """A row has no element type: otherwise, -3 next to a u32 would become 4294967293."""

    @qd.kernel
    def last(a: qd.u32, b: qd.i64) -> qd.i64:
        return qd.Matrix([[a, -3], [b, 20]])[0, 1]

    assert last(1, 2) == -3


def test_vectors_without_components():
    empty = qd.Vector([])
    assert (empty.n, len(empty), str(empty)) == (0, 0, "[]")

    @qd.kernel
    def count() -> qd.i32:
        none = qd.Vector([])
        return len(none)

    assert count() == 0
    with pytest.raises(TypeError, match="at least one component"):
        qd.Matrix([[]])


def test_top_level_methods_of_a_kernel_are_serial():
    """Their loops are not the kernel's: steps of an elimination depend on one another."""
    n = 6
    numbers = np.random.default_rng(3)
    a = numbers.uniform(-1.0, 1.0, (n, n)).astype(np.float32)
    a[0, 0] = 0.0  # needs pivoting
    b = numbers.uniform(-1.0, 1.0, (3, 3)).astype(np.float32)
    symmetric = (a + a.T) / 2
    square, inverse = (qd.Matrix.field(n, n, qd.f32, shape=()) for _ in range(2))
    vectors = qd.Matrix.field(n, n, qd.f32, shape=())
    small, rotation, stretch = (qd.Matrix.field(3, 3, qd.f32, shape=()) for _ in range(3))
    values = qd.Vector.field(n, qd.f32, shape=())
    determinant = qd.field(qd.f32, shape=())

    @qd.kernel
    def invert():
        inverse[None] = square[None].inverse()
        determinant[None] = square[None].determinant()

    @qd.kernel
    def decompose():
        rotation[None], stretch[None] = qd.polar_decompose(small[None], qd.f32)
        values[None], vectors[None] = qd.sym_eig(square[None], qd.f32)

    square.from_numpy(a)
    small.from_numpy(b)
    invert()
    np.testing.assert_allclose(a @ inverse.to_numpy(), np.eye(n), atol=1e-4)
    np.testing.assert_allclose(determinant[None], np.linalg.det(a), rtol=1e-4)
    square.from_numpy(symmetric)
    decompose()
    np.testing.assert_allclose(rotation.to_numpy() @ stretch.to_numpy(), b, atol=1e-4)
    np.testing.assert_allclose(values.to_numpy(), np.linalg.eigvalsh(symmetric), atol=1e-4)
    of_values = vectors.to_numpy() * values.to_numpy()
    np.testing.assert_allclose(symmetric @ vectors.to_numpy(), of_values, atol=1e-4)


def test_values_of_many_components_warn():
    with pytest.warns(UserWarning, match="a vector or matrix of 145 components"):
        qd.Vector([0] * 145)
    with pytest.warns(UserWarning, match="of 169 components"):
        qd.Matrix([[0.0] * 13] * 13)
