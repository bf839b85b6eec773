"""Captured Python objects: methods of numpy arrays, partial functions, callable objects."""

import contextlib
import enum
import functools
import io
from collections.abc import Iterator

import numpy as np
import pytest

import octants as qd

TABLE = np.array([[1.0, 2.0], [3.0, 4.0]])
COUNTS = np.array([3, 1, 2], dtype=np.int32)


@pytest.fixture(autouse=True)
def program() -> Iterator[None]:
    qd.init(arch=qd.cpu, debug=False)
    yield
    qd.reset()


def test_methods_of_a_captured_array_are_called_in_python() -> None:
    @qd.kernel
    def statistics() -> qd.f32:
        return TABLE.mean() + TABLE.std() + TABLE.prod() + TABLE.sum() + TABLE.min() + TABLE.max() + TABLE.trace()

    @qd.kernel
    def arrays() -> qd.f32:
        mean = TABLE.mean(axis=0)
        return (
            TABLE.flatten()[3]
            + TABLE.ravel()[2] * 10
            + TABLE.copy()[0, 1] * 100
            + TABLE.reshape(4)[0] * 1000
            + TABLE.dot(TABLE)[0, 0] * 10000
            + mean[0] * 100000
        )

    @qd.kernel
    def types() -> qd.f32:
        return (TABLE * 1.5).astype(np.int32)[0, 0] + TABLE.T[0, 1] * 10 + TABLE.size * 100 + TABLE.item(1) * 1000

    @qd.kernel
    def lists() -> qd.f32:
        m = qd.Matrix(TABLE.tolist())
        v = qd.Vector(COUNTS.tolist())
        return m[1, 0] * 10 + v[2] + m.sum() * 100

    @qd.kernel
    def unrolled() -> qd.i32:
        total = 0
        for i in qd.static(range(COUNTS.max())):
            total += COUNTS[i] * 10**i
        return total

    expected = TABLE.mean() + TABLE.std() + TABLE.prod() + TABLE.sum() + TABLE.min() + TABLE.max() + TABLE.trace()
    assert statistics() == pytest.approx(expected)
    assert arrays() == 271234
    assert types() == 2431
    assert lists() == 1032
    assert unrolled() == 213


def test_operators_between_captured_arrays_and_numbers_follow_numpy() -> None:
    @qd.kernel
    def folded() -> qd.f64:
        half = (COUNTS / 2).tolist()
        product = TABLE @ TABLE
        return half[0] + (-TABLE).min() * 10 + product[1, 1] * 100 + (2.5 * COUNTS).sum() * 10000

    @qd.kernel
    def at_run_time(x: qd.f32) -> qd.f32:
        return (TABLE * x).sum() + (x * COUNTS).sum()

    @qd.kernel
    def wrong() -> qd.f32:
        return (TABLE + COUNTS)[0, 0]

    assert folded() == 1.5 - 40 + 2200 + 150000
    assert at_run_time(2) == 32
    with pytest.raises(qd.OctantsCompilationError, match=r"(?s)TABLE \+ COUNTS.*could not be broadcast"):
        wrong()


def test_captured_arrays_still_have_the_methods_of_vectors() -> None:
    direction = np.array([3.0, 4.0], dtype=np.float32)

    @qd.kernel
    def both(x: qd.f32) -> qd.f32:
        return direction.norm() + direction.x * 10 + direction.dot(qd.Vector([x, x])) * 100 + direction.shape[0] * 10000

    assert both(1) == 20735


def test_an_unknown_array_attribute_is_an_error_with_its_line() -> None:
    @qd.kernel
    def wrong() -> qd.f32:
        return TABLE.median()

    @qd.kernel
    def raises() -> qd.f32:
        return TABLE.reshape(3)[0]

    with pytest.raises(qd.OctantsCompilationError, match=r"(?s)return TABLE\.median\(\).*no method `median`"):
        wrong()
    with pytest.raises(qd.OctantsCompilationError, match=r"(?s)return TABLE\.reshape\(3\).*cannot reshape"):
        raises()


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (TypeError, qd.OctantsTypeError),
        (AttributeError, qd.OctantsAttributeError),
        (IndexError, qd.OctantsIndexError),
        (NameError, qd.OctantsNameError),
        (ValueError, qd.OctantsValueError),
        (ZeroDivisionError, qd.OctantsCompilationError),
    ],
)
def test_an_exception_of_compile_time_code_sets_the_class_of_the_error(
    raised: type[Exception], expected: type[Exception]
) -> None:
    def fail() -> int:
        raise raised("no value")

    @qd.kernel
    def calls() -> qd.i32:
        return qd.static(fail())

    with pytest.raises(expected, match="no value") as error:
        calls()
    assert type(error.value) is expected
    assert type(error.value.__cause__) is raised


def test_operators_on_strings_are_type_errors() -> None:
    @qd.kernel
    def adds() -> qd.i32:
        x = "a" + 1
        return x

    with pytest.raises(qd.OctantsTypeError, match='"a" \\+ 1'):
        adds()


def test_a_partial_function_takes_its_arguments_first() -> None:
    @qd.func
    def number(a, b, c=0):
        return a * 100 + b * 10 + c

    def plain(a, b):
        return a - b

    @qd.func
    def store(place: qd.template(), x):
        place[None] = x

    first = functools.partial(number, 3)
    named = functools.partial(first, c=7)
    less = functools.partial(plain, 10)
    cell = qd.field(qd.i32, shape=())
    keep = functools.partial(store, cell)
    power = functools.partial(qd.pow, 2.0)

    @qd.kernel
    def called(x: qd.i32) -> qd.i32:
        return first(x) + named(x) * 1000 + named(x, c=9) * 1000000

    @qd.kernel
    def others(x: qd.f32) -> qd.f32:
        keep(5)
        return less(x) + less(4) * 100 + power(x) * 1000

    @qd.kernel
    def missing() -> qd.i32:
        return first()

    assert called(4) == 340 + 347000 + 349000000
    assert others(3) == 7 + 600 + 8000
    assert cell[None] == 5
    with pytest.raises(qd.OctantsCompilationError, match=r"(?s)return first\(\).*Missing argument 'b'"):
        missing()


def test_an_object_with_a_call_operator_is_called() -> None:
    class Plus:
        def __init__(self, n):
            self.n = n

        def __call__(self, x):
            return x + self.n

    class Times:
        def __init__(self, n):
            self.n = n

        @qd.func
        def __call__(self, x):
            return x * self.n

    @qd.data_oriented
    class Chain:
        def __init__(self):
            self.plus, self.times = Plus(4), Times(3)

        @qd.kernel
        def run(self, x: qd.f32) -> qd.f32:
            return self.times(self.plus(x))

    class Silent:
        pass

    plus, times, silent = Plus(1), Times(2), Silent()

    @qd.kernel
    def both(x: qd.f32) -> qd.f32:
        return plus(x) + times(x) * 10 + plus(2) * 100 + times(2) * 1000

    @qd.kernel
    def cannot(x: qd.f32) -> qd.f32:
        return silent(x)

    assert both(1.5) == 2.5 + 30 + 300 + 4000
    assert Chain().run(1.5) == 16.5
    with pytest.raises(qd.OctantsCompilationError, match=r"(?s)return silent\(x\).*type Silent cannot be called"):
        cannot(1)


def test_the_loop_of_a_partial_function_is_a_loop_of_the_kernel() -> None:
    squares = qd.field(qd.i32, shape=100)

    @qd.func
    def fill(a, b):
        for i in squares:
            squares[i] = a * i * i + b

    double = functools.partial(fill, 2)

    @qd.kernel
    def run(b: qd.i32):
        double(b)

    run(1)
    assert squares.to_numpy().tolist() == [2 * i * i + 1 for i in range(100)]


def test_a_replaced_callable_is_seen_by_the_next_launch() -> None:
    @qd.func
    def number(a, b):
        return a * 10 + b

    class Plus:
        def __init__(self, n):
            self.n = n

        def __call__(self, x):
            return x + self.n

    class Times(Plus):
        def __call__(self, x):
            return x * self.n

    @qd.data_oriented
    class Model:
        def __init__(self):
            self.first, self.change = functools.partial(number, 3), Plus(4)

        @qd.kernel
        def run(self, x: qd.i32) -> qd.i32:
            return self.first(x) + self.change(x) * 100

    model = Model()
    assert model.run(5) == 35 + 900
    model.first = functools.partial(number, 4)
    assert model.run(5) == 45 + 900
    model.change = Times(4)
    assert model.run(5) == 45 + 2000
    model.change.n = 6
    assert model.run(5) == 45 + 3000


def test_a_callable_of_an_object_does_not_cause_recompilation() -> None:
    class Plus:
        def __init__(self, n):
            self.n = n

        def __call__(self, x):
            return x + self.n

    @qd.data_oriented
    class Model:
        def __init__(self):
            self.table, self.change = TABLE.copy(), Plus(4)

        @qd.kernel
        def run(self, x: qd.f32) -> qd.f32:
            qd.static_print("compiled")
            return self.change(x) + self.table.sum() + self.table.T[0, 1]

    model = Model()
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert [model.run(x) for x in range(3)] == [17, 18, 19]
    assert text.getvalue().count("compiled") == 1


def test_numbers_have_the_methods_of_python() -> None:
    threads, half = 32, 2.5

    @qd.kernel
    def methods() -> qd.i32:
        levels = qd.static(threads.bit_length() - 1)
        whole = qd.static(half.is_integer())
        return levels * 10 + whole

    assert methods() == 50


def test_a_boolean_indexes_a_tuple() -> None:
    few, many = qd.field(qd.i32, shape=3), qd.field(qd.i32, shape=5)

    @qd.kernel
    def size(of_many: qd.template()) -> qd.i32:
        picked = qd.static((few, many)[of_many])
        return picked.shape[0] + qd.static([10, 20][not of_many])

    assert (size(False), size(True)) == (23, 15)


def test_a_static_name_belongs_to_the_branch_that_binds_it() -> None:
    @qd.kernel
    def branches(first: qd.template(), second: qd.template()) -> qd.i32:
        total = 0
        width = qd.static(1)
        if qd.static(first):
            width = qd.static(20)
            total += width
        if qd.static(second):
            width = qd.static(300)
            for _ in range(2):
                width = qd.static(4000)
                total += width
            total += width
        return total + width

    assert (branches(True, True), branches(True, False), branches(False, False)) == (8321, 21, 1)


def test_a_name_that_a_static_branch_binds_is_unknown_after_it() -> None:
    @qd.kernel
    def leaves() -> qd.i32:
        if qd.static(True):
            found = 3
        return found

    with pytest.raises(qd.QuadrantsNameError, match="found"):
        leaves()


def test_properties_that_are_functions_of_the_kernel_language():
    @qd.data_oriented
    class Grid:
        def __init__(self, n):
            self.x = qd.field(qd.i32, n)

        @property
        @qd.func
        def total(self):
            s = 0
            for i in range(self.x.shape[0]):
                s += self.x[i]
            return s

        @qd.kernel
        def twice(self) -> qd.i32:
            return self.total * 2

    grid = Grid(3)
    grid.x.fill(7)
    assert grid.twice() == 42
    with pytest.raises(AssertionError, match="can only be called from a kernel"):
        print(grid.total)


def test_ranges_are_sequences_of_numbers() -> None:
    @qd.kernel
    def pick(n: qd.template()) -> qd.i32:
        total = qd.static(range(5)[2]) + qd.static(range(3, 9)[-1])
        for i in qd.static(range(n)):
            total += 100 * (i + 1)
        return total

    assert pick(True) == 110


def test_types_of_run_time_values() -> None:
    Pair = qd.types.struct(a=qd.i32, b=qd.f32)
    pairs = Pair.field(shape=2)
    pairs[1] = {"a": 7, "b": 0.5}
    assert isinstance(pairs, qd.Field)
    assert isinstance(pairs.a, qd.Field)

    @qd.func
    def first(x):
        result = 0
        if qd.static(isinstance(x, qd.Struct)):
            result = x.a
        elif qd.static(isinstance(x, qd.Vector)):
            result = x[0]
        elif qd.static(isinstance(x, int)):
            result = -1
        else:
            result = x * 10
        return result

    @qd.kernel
    def run(n: qd.i32) -> qd.types.vector(5, qd.i32):
        s = Pair(a=4, b=1.0)
        return qd.Vector([first(s), first(pairs[1]), first(qd.Vector([3, n])), first(n), first(2)])

    assert run(6).to_numpy().tolist() == [4, 7, 3, 60, 20]


class Color(enum.IntEnum):
    RED = 1
    GREEN = 2


class Flags(enum.IntFlag):
    A = 1
    B = 4


class Text(str, enum.Enum):
    LONG = "abc"


class Share(float, enum.Enum):
    HALF = 0.5


class Shade(enum.IntEnum):
    DARK = 1


def test_members_of_enumerations_of_numbers_and_strings_have_attributes() -> None:
    @qd.data_oriented
    class Holder:
        def __init__(self) -> None:
            self.color = Color.GREEN

        @qd.kernel
        def value(self) -> qd.i32:
            result = self.color.value
            if qd.static(self.color.name == "GREEN"):
                result += 10
            return result

    @qd.kernel
    def values() -> qd.f32:
        return Color.RED.value + qd.static(Flags.B.value) * 10 + Share.HALF.value + qd.static(len(Text.LONG.value))

    @qd.kernel
    def of_argument(c: qd.template()) -> qd.i32:
        result = c.value
        if qd.static(c.name == "DARK"):
            result += 100
        return result

    @qd.func
    def doubled(c):
        return c.value * 2

    @qd.kernel
    def through_function() -> qd.i32:
        return doubled(Color.GREEN)

    @qd.kernel
    def in_loops() -> qd.i32:
        total = 0
        for c in qd.static(Color):
            total += c.value
        for c in qd.static([Color.RED, Flags.B]):
            total += 10 * c.value * (c.name == "B")
        chosen = qd.static(Color.GREEN)
        return total + 100 * chosen.value

    assert Holder().value() == 12
    assert values() == 44.5
    assert [of_argument(c) for c in (Color.RED, Shade.DARK, Color.GREEN)] == [1, 101, 2]
    assert through_function() == 4
    assert in_loops() == 243


def test_enumeration_members_are_numbers_in_operations() -> None:
    x = qd.field(qd.i32, (4, 4))
    table = [10, 20, 30]
    by_color = {Color.RED: 5, Color.GREEN: 6}

    @qd.func
    def typed(a: qd.i32, b):
        b += a
        return b

    @qd.kernel
    def compute(c: qd.template()) -> qd.i32:
        x[c, Color.RED] = 7
        x[(Color.RED, c)] += 2
        total = table[c] + by_color[c] + typed(Color.GREEN, c)
        for i in range(c):
            total += i
        for i in qd.static(range(Color.GREEN)):
            total += i
        v = qd.Vector([Color.RED, c])
        if c == Color.GREEN and c == 2:
            total += qd.max(c, 1) + qd.cast(c, qd.i32) + v[1] + (c | Flags.B)
        return total + len(qd.static([c, Color.RED])) + int(c)

    assert compute(Color.GREEN) == 30 + 6 + 4 + 1 + 1 + 2 + 2 + 2 + 6 + 2 + 2
    assert (x[2, 1], x[1, 2]) == (7, 2)
