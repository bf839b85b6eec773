"""Annotations of a `@qd.func`: scalar types convert, vector and matrix types require a shape, others have no effect."""

import dataclasses
import re
import typing
from collections.abc import Iterator
from typing import Optional

import numpy as np
import pytest

import octants as qd

Pair = qd.types.vector(2, qd.f32)
Square = qd.types.matrix(2, 2, qd.i32)
FINE = 1 + 1e-10


@qd.dataclass
class Body:
    mass: qd.f32
    velocity: qd.math.vec2


Moving = qd.types.struct(velocity=qd.math.vec2, mass=qd.i32, extra=qd.f32)
Fixed = qd.types.struct(place=qd.f32)
Weight = qd.types.struct(mass=qd.i32)


@pytest.fixture(autouse=True)
def program() -> Iterator[None]:
    qd.init(arch=qd.cpu, debug=False)
    yield
    qd.reset()


def test_a_vector_annotation_does_not_convert_components() -> None:
    numbers = qd.field(qd.i32, shape=8)
    for i in range(8):
        numbers[i] = 10 * i

    @qd.func
    def at(v: Pair):
        return numbers[v[0] - 1]

    @qd.func
    def at_any(v: qd.types.vector(2)):
        return numbers[v[1]]

    @qd.func
    def total(m: Square):
        return m.sum()

    @qd.func
    def less_one(v: Pair):
        return v[0] - 1.0

    @qd.kernel
    def indices() -> qd.i32:
        return at(qd.Vector([2, 3])) + at_any(qd.Vector([2, 3]))

    @qd.kernel
    def floats() -> qd.f32:
        return total(qd.Matrix([[1.5, 2.5], [3.5, 4.5]]))

    @qd.kernel
    def doubles(x: qd.f64) -> qd.f64:
        return less_one(qd.Vector([x, x]))

    assert indices() == 40
    assert floats() == 12.0
    assert doubles(FINE) == pytest.approx(1e-10, rel=1e-4)


def test_a_changed_parameter_keeps_the_type_of_its_argument() -> None:
    @qd.func
    def changed(v: Pair):
        v[0] = 2.75
        return v

    @qd.kernel
    def integers(x: qd.i32) -> Pair:
        given = qd.Vector([x, x])
        return changed(given) + given

    assert list(integers(1)) == [3, 2]


def test_a_scalar_annotation_converts_each_component() -> None:
    @qd.func
    def half(x: float):
        return x * 0.5

    @qd.func
    def whole(x: int):
        return x

    @qd.func
    def rounded(x: qd.f32):
        return x

    @qd.func
    def narrow(x: qd.f16):
        return x

    @qd.kernel
    def halves(x: qd.i32) -> Pair:
        return half(qd.Vector([x, x + 1]))

    @qd.kernel
    def of_items(x: qd.f32) -> Pair:
        return whole((x, 2.5)) + whole([x, 4])

    @qd.kernel
    def of_matrix(x: qd.f32) -> Square:
        return whole(qd.Matrix([[x, 1.5], [2.5, -x]]))

    @qd.kernel
    def scalar(x: qd.f64) -> qd.f64:
        return rounded(x) + rounded(qd.Vector([x, x]))[1]

    @qd.kernel
    def small() -> qd.f32:
        return narrow(2.7) + whole(True)

    assert list(halves(3)) == [1.5, 2.0]
    assert list(of_items(1.75)) == [2, 6]
    assert of_matrix(3.25).to_numpy().tolist() == [[3, 1], [2, -3]]
    assert scalar(FINE) == 2.0
    assert small() == 3.69921875


def test_an_argument_of_another_shape_is_an_error() -> None:
    @qd.func
    def pair(v: Pair):
        return v[0]

    @qd.func
    def square(m: Square):
        return m[0, 0]

    @qd.func
    def number(x: qd.f32):
        return x

    @qd.kernel
    def too_long() -> qd.f32:
        return pair(qd.Vector([1, 2, 3]))

    @qd.kernel
    def scalar() -> qd.f32:
        return pair(1.0)

    @qd.kernel
    def flat() -> qd.f32:
        return square(qd.Vector([1, 2]))

    @qd.kernel
    def struct() -> qd.f32:
        return number(Body(1, qd.math.vec2(1, 2)))

    @qd.kernel
    def text() -> qd.f32:
        return number("1")

    for kernel, message in [
        (too_long, "Argument v of type .* is expected to be a Matrix with n 2, but got 3"),
        (scalar, "Argument v .* is expected to be a Matrix, but got f32"),
        (flat, "argument `m` must be .*, got"),
        (struct, "argument `x` must be f32, got"),
        (text, "Argument x must be f32, got a string"),
    ]:
        with pytest.raises(qd.OctantsCompilationError, match=message) as caught:
            kernel()
        assert re.search(r'test_function_annotations\.py", line \d+, in ', str(caught.value))


def test_a_struct_annotation_takes_any_struct_with_the_members_in_use() -> None:
    @qd.func
    def speed(b: Body):
        return b.mass + b.velocity.x

    @qd.func
    def doubled(b: Body):
        b.mass = b.mass * 2
        return b.mass

    @qd.kernel
    def of_other(x: qd.f32) -> qd.f32:
        return speed(Moving(mass=x, velocity=qd.math.vec2(1, 2), extra=3))

    @qd.kernel
    def of_unnamed(x: qd.f64) -> qd.f64:
        return speed(qd.Struct(mass=x, velocity=qd.Vector([x, x]))) - 2

    @qd.kernel
    def by_value(x: qd.f32) -> qd.f32:
        body = Moving(mass=x, velocity=qd.math.vec2(1, 2), extra=3)
        return doubled(body) * 100 + body.mass

    @qd.kernel
    def without_the_member() -> qd.f32:
        return speed(Fixed(1.0))

    @qd.kernel
    def of_a_number() -> qd.f32:
        return speed(1.0)

    assert of_other(2.75) == 3.0
    assert of_unnamed(FINE) == pytest.approx(2e-10, rel=1e-4)
    assert by_value(3) == 603
    for kernel in (without_the_member, of_a_number):
        with pytest.raises(qd.OctantsCompilationError, match=r'(?s)test_function_annotations\.py", line \d+.*mass'):
            kernel()


def test_a_scalar_result_annotation_converts_each_component() -> None:
    @qd.func
    def items(x) -> qd.i32:
        return x, x + 1

    @qd.func
    def of_one(x) -> tuple[qd.i32]:
        return x

    @qd.func
    def vector(x) -> qd.f32:
        return qd.Vector([x, x])

    @qd.func
    def mixed(x) -> tuple[qd.i32, Pair]:
        return qd.Vector([x, -x]), x

    @qd.kernel
    def both(x: qd.f32) -> qd.f32:
        p, q = items(x)
        return p + q + of_one(x)

    @qd.kernel
    def rounded(x: qd.f64) -> qd.f64:
        return vector(x).sum()

    @qd.kernel
    def parts(x: qd.f64) -> qd.f64:
        p, q = mixed(x)
        return p[0] * 100 + p[1] + q

    assert both(3.75) == 10
    assert rounded(FINE) == 2.0
    assert parts(2 + FINE) == 300 - 3 + 2 + FINE


@pytest.mark.parametrize("annotation", [typing.Tuple, tuple, typing.List, list], ids=str)  # noqa: UP006
def test_a_tuple_annotation_without_item_types_accepts_any_items(annotation) -> None:
    def parts(x):
        return x + 0.5, 2 * x

    parts.__annotations__["return"] = annotation
    compiled = qd.func(parts)

    @qd.kernel
    def difference(x: qd.i32) -> qd.f32:
        first, second = compiled(x)
        return first - second

    assert difference(3) == -2.5


def test_other_result_annotations_have_no_effect() -> None:
    @qd.func
    def cell(x) -> qd.math.ivec2:
        return qd.floor(qd.Vector([x, x + 1]))

    @qd.func
    def shifted(x) -> qd.math.vec2:
        return qd.Vector([x, x + 1])

    @qd.func
    def shorter(x) -> qd.math.vec3:
        return qd.Vector([x, x + 1])

    @qd.func
    def number(x) -> Pair:
        return x

    @qd.func
    def body(x) -> Fixed:
        return Body(x, qd.math.vec2(1, 2))

    @qd.kernel
    def floats(x: qd.f32) -> Pair:
        return cell(x) + shorter(x)

    @qd.kernel
    def doubles(x: qd.f64) -> qd.f64:
        return shifted(x).sum() - 3 + number(x) - 1

    @qd.kernel
    def struct(x: qd.f32) -> qd.f32:
        return body(x).mass

    assert list(floats(3.5)) == [6.5, 8.5]
    assert doubles(FINE) == pytest.approx(3e-10, rel=1e-4)
    assert struct(2.5) == 2.5


def test_called_functions_convert_like_inlined_ones() -> None:
    @qd.func
    def small(x: qd.f32):
        return x

    @qd.func
    def long(v: Pair, b: Body, x: int) -> qd.f32:
        total = v[0] - 1
        for _ in range(2):
            total += small(v[1]) - small(v[1]) + small(x[0]) - small(x[0])
        total += b.mass - b.mass + small(0) + small(0) + small(0)
        return total, x[0]

    @qd.kernel
    def doubles(x: qd.f64) -> qd.f64:
        total = x - x
        for i in range(1):
            a, b = long(qd.Vector([x, x]), Moving(mass=i), (2.75, 1.0))
            total += a * 1e10 + b * 100
        return total

    @qd.kernel
    def integers(x: qd.i32) -> qd.i32:
        total = 0
        for i in range(1):
            a, b = long(qd.Vector([x, x]), Weight(mass=i), [x, x])
            total += qd.cast(a * 10 + b, qd.i32)
        return total

    assert doubles(FINE) == pytest.approx(1 + 200, rel=1e-4)
    assert integers(7) == 67


@pytest.mark.filterwarnings("ignore:Calling non-quadrants function")
def test_annotations_of_an_undecorated_function_have_no_effect() -> None:
    def plain(x: int) -> int:
        return x * 2

    def plain_pair(x: Square) -> Square:
        return x

    @qd.kernel
    def doubles(x: qd.f64) -> qd.f64:
        return plain(x) + plain_pair(x) - 3

    assert doubles(FINE) == pytest.approx(3e-10, rel=1e-4)


def test_a_real_function_enforces_its_types() -> None:
    @qd.real_func
    def rounded(x: qd.f32) -> qd.f64:
        return x

    @qd.real_func
    def pair(v: Pair) -> qd.f64:
        return v[0]

    @qd.real_func
    def result(x: qd.f64) -> Pair:
        return qd.Vector([x, x])

    @qd.real_func
    def wrong(x: qd.f64) -> Pair:
        return x

    @qd.kernel
    def converted(x: qd.f64) -> qd.f64:
        return rounded(x) + pair(qd.Vector([x, x])) + result(x).sum()

    @qd.kernel
    def refused(x: qd.f64) -> qd.f64:
        return wrong(x).sum()

    @qd.kernel
    def vector_for_a_number(x: qd.f64) -> qd.f64:
        return rounded(qd.Vector([x, x]))

    @qd.kernel
    def own_result(x: qd.f64) -> Pair:
        return x

    assert converted(FINE) == 4.0
    for kernel in (refused, vector_for_a_number, own_result):
        with pytest.raises(qd.OctantsCompilationError, match="mismatch|must be"):
            kernel(1.0)


def test_an_unused_default_array_may_belong_to_an_ended_program() -> None:
    reserve = qd.ndarray(qd.f32, ())

    @qd.func
    def doubled(x: qd.f32, out: qd.types.ndarray(), store: qd.template()) -> qd.f32:
        if qd.static(store):
            out[()] = x
        return 2 * x

    @qd.kernel
    def double(a: qd.types.ndarray()) -> None:
        for i in a:
            a[i] = doubled(a[i], reserve, False)

    for _ in range(2):
        a = qd.ndarray(qd.f32, 2)
        a.fill(3)
        double(a)
        assert a.to_numpy().tolist() == [6, 6]
        qd.init(arch=qd.cpu, debug=False)


def test_optional_arrays():
    array = qd.types.NDArray[qd.f32, 1]

    @qd.kernel
    def total(x: array | None, y: qd.Tensor | None, z: Optional[qd.Template]) -> qd.f32:
        s = 0.0
        if qd.static(x is not None):
            for i in range(x.shape[0]):
                s += x[i]
        if qd.static(y is not None):
            s += 10 * y[0]
        if qd.static(z is not None):
            s += 100 * z
        return s

    ones = qd.ndarray(qd.f32, shape=3)
    ones.fill(1)
    for _ in range(2):
        assert total(None, None, None) == 0
        assert total(ones, None, None) == 3
        assert total(np.ones(4, np.float32), ones, 2) == 214
    with pytest.raises(TypeError, match="Expect element type f32 for argument x"):
        total(qd.ndarray(qd.i32, shape=3), None, None)


def test_other_optional_values_are_refused():
    @qd.kernel
    def number(n: int | None):
        pass

    @qd.kernel
    def either(x: qd.Tensor | qd.Template):
        pass

    with pytest.raises(qd.OctantsSyntaxError, match="only supported for qd.Tensor, qd.types.Template and"):
        number(None)
    with pytest.raises(qd.OctantsSyntaxError, match="of the form 'T | None'"):
        either(None)


def test_tensor_parameters_take_arrays_of_other_libraries():
    @dataclasses.dataclass
    class State:
        x: qd.Tensor

    @qd.kernel
    def count(x: qd.Tensor, state: State):
        for i in range(3):
            x[i] += i
            state.x[i] += 2 * i

    numpy, foreign = np.zeros(3), np.zeros(3, np.int32)
    for _ in range(2):
        count(numpy, State(foreign))
    field = qd.tensor(qd.f32, shape=3, backend=qd.Backend.FIELD)
    count(field, State(qd.tensor(qd.f32, shape=3)))
    assert numpy.tolist() == [0, 2, 4]
    assert foreign.tolist() == [0, 4, 8]
    assert field.to_numpy().tolist() == [0, 1, 2]
