"""`return` on each path of a function, or on none, and `return` from serial loops."""

import pytest

import octants as qd


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


def result_of(function):
    """A kernel that returns what the function does."""

    @qd.kernel
    def run(x: qd.i32) -> qd.i32:
        return function(x)

    return run


def one_branch(x):
    if x > 0:
        return 3


def inner_branch(x):
    if x > 0:
        return 3
    else:
        if x < -5:
            return 2


def bare(x):
    if x > 0:
        return 3
    return


def none(x):
    if x > 0:
        return 3
    return None


def typed(x) -> qd.i32:
    if x > 0:
        return 3


def typed_bare(x) -> qd.i32:
    return


def static_branch(x):
    if qd.static(True):
        if x > 0:
            return 3


def leaves_the_loop(x):
    while True:
        x -= 1
        if x == 0:
            return 3
        if x < -9:
            break


@pytest.mark.parametrize(
    ("function", "message", "line"),
    [
        (one_branch, "returns a value on other paths, but none when this condition is false", "x > 0"),
        (inner_branch, "returns a value on other paths, but none when this condition is false", "x < -5"),
        (bare, "this `return` has no value, but an earlier one of the function returns `3`", "return"),
        (none, "this `return` has no value, but an earlier one of the function returns `3`", "return None"),
        (typed, "returns a value on other paths, but none when this condition is false", "x > 0"),
        (typed_bare, "this `return` has no value, but the function has a return type", "return"),
        (static_branch, "but none on a path through this statement", "qd.static"),
        (leaves_the_loop, "returns a value on other paths, but none", "break"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
@pytest.mark.filterwarnings("ignore:Calling non-quadrants function")
def test_a_path_without_a_value_is_refused(function, message, line):
    for decorated in (qd.func(function), function):
        if decorated is function and function.__annotations__:
            continue  # Annotations of a function that is not decorated are comments.
        with pytest.raises(qd.OctantsSyntaxError, match=message) as raised:
            result_of(decorated)(1)
        assert line in str(raised.value)
        assert f"in {function.__name__}:" in str(raised.value)


def test_real_functions_and_methods_return_on_each_path():
    @qd.real_func
    def open_end(x: qd.i32) -> qd.i32:
        if x > 0:
            return 3

    @qd.real_func
    def without_value(x: qd.i32) -> qd.i32:
        if x > 0:
            return 3
        return

    @qd.data_oriented
    class Solver:
        @qd.func
        def pick(self, x):
            if x > 0:
                return 3

        @qd.kernel
        def run(self, x: qd.i32) -> qd.i32:
            return self.pick(x)

    for call in (result_of(open_end), Solver().run):
        with pytest.raises(qd.OctantsSyntaxError, match="returns a value on other paths"):
            call(1)
    with pytest.raises(qd.OctantsSyntaxError, match="but the function has a return type"):
        result_of(without_value)(1)


def test_complete_and_endless_paths_are_accepted():
    @qd.func
    def both_branches(x):
        if x > 0:
            return 3
        elif x < -5:
            return 2
        else:
            return 1

    @qd.func
    def endless(x):
        while True:
            x -= 3
            if x < 0:
                return -x

    @qd.func
    def folded(x):
        if qd.static(True):
            if x > 0:
                return 3
            return 1

    @qd.func
    def asserted(x):
        if x > -100:
            return x
        assert False, "never"  # noqa: PT015, B011

    @qd.func
    def nothing(x):
        if x > 0:
            return
        x += 1

    @qd.func
    def first_of_while(x):
        while x:
            return x * 2

    @qd.real_func
    def first_of_for(x: qd.i32) -> qd.i32:
        for i in range(x, 10):
            return i

    @qd.kernel
    def call_nothing(x: qd.i32):
        nothing(x)

    assert [result_of(both_branches)(x) for x in (1, -1, -9)] == [3, 1, 2]
    assert [result_of(endless)(x) for x in (7, 8)] == [2, 1]
    assert [result_of(folded)(x) for x in (1, -1)] == [3, 1]
    assert result_of(asserted)(5) == 5
    assert (result_of(first_of_while)(4), result_of(first_of_for)(4)) == (8, 4)
    call_nothing(1)


def test_return_from_serial_loops_at_the_top_level():
    @qd.func
    def from_while(x):
        while x > 0:
            x -= 1
            if x == 2:
                return 5
        return 7

    @qd.func
    def from_for(x):
        qd.loop_config(serialize=True)
        for i in range(x):
            if i == 2:
                return 5
        return 7

    @qd.func
    def from_parallel(x):
        for i in range(x):
            if i == 2:
                return 5
        return 7

    assert [result_of(from_while)(x) for x in (5, 1)] == [5, 7]
    assert [result_of(from_for)(x) for x in (5, 1)] == [5, 7]
    with pytest.raises(qd.OctantsSyntaxError, match="in a function with parallel loops"):
        result_of(from_parallel)(5)
