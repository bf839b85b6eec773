"""A failed assertion or index check ends its own iteration, and prevents later tasks of the launch."""

import re

import numpy as np
import pytest

import octants as qd


@pytest.fixture(params=[{"cpu_max_num_threads": 1}, {"cpu_max_num_threads": 2}, {"cpu_streams": True}], ids=str)
def program(request):
    qd.init(arch=qd.cpu, debug=True, **request.param)
    yield
    qd.reset()


Ints = qd.types.ndarray(dtype=qd.i32, ndim=1)


@qd.func
def checked(i, bad: qd.template()):
    assert i % 100 != bad, f"{i} is bad"
    return i


def expect_failure(launch, match):
    """The launch itself raises, once."""
    with pytest.raises(AssertionError, match=match):
        launch()
    qd.sync()


def test_other_iterations_run_when_one_fails(program):
    n = 100_000
    x = qd.ndarray(qd.i32, n)

    @qd.kernel
    def mark():
        for i in range(n):
            assert i % 100 != 40
            x[i] = i

    def by_function(array: Ints):
        for i in array:
            for _ in range(2):
                array[i] = checked(i, 41)

    @qd.kernel
    def mark_rows():
        for i, j in qd.ndrange(n // 100, 100):
            if j == 42:
                while True:
                    assert j < 40
            x[i * 100 + j] = -1

    expected = np.arange(n, dtype=np.int32)
    expect_failure(mark, "i % 100 != 40")
    np.testing.assert_array_equal(x.to_numpy(), np.where(expected % 100 == 40, 0, expected))
    x.fill(-7)
    expect_failure(lambda: qd.kernel(by_function)(x), "41 is bad")
    np.testing.assert_array_equal(x.to_numpy(), np.where(expected % 100 == 41, -7, expected))
    x.fill(0)
    expect_failure(mark_rows, "j < 40")
    np.testing.assert_array_equal(x.to_numpy(), np.where(expected % 100 == 42, 0, -1))


def test_an_index_out_of_bounds_ends_only_its_iteration(program):
    whole = np.zeros(3000, np.int32)
    middle = whole[1000:2000]

    @qd.kernel
    def shift(x: Ints, by: qd.i32):
        for i in range(1000):
            x[i + by] += 1

    expect_failure(lambda: shift(middle, 100), r"at \[\d+\] with bounds \[1000\]")
    assert (middle[100:] == 1).all()
    expect_failure(lambda: shift(middle, -100), r"at \[-\d+\] with bounds \[1000\]")
    assert (middle[:100] == 1).all()
    assert (middle[100:900] == 2).all()
    assert (middle[900:] == 1).all()
    assert not whole[:1000].any()
    assert not whole[2000:].any()


def test_sums_keep_what_other_iterations_added(program):
    total = qd.field(qd.i64, ())

    @qd.kernel
    def add(n: qd.i32):
        for i in range(n):
            total[None] += 1
            assert i != n - 1
            total[None] += 1

    expect_failure(lambda: add(50_000), "i != n - 1")
    assert total[None] == 99_999


def test_sums_with_assertions_and_overflow_checks_are_complete(program):
    total = qd.field(qd.i64, ())

    @qd.kernel
    def add(n: qd.i32):
        for i in range(n):
            total[None] += 1
            assert i != n + 10
            total[None] += 1

    for n in [1, 8, 65, 100, 1000]:
        total[None] = 0
        add(n)
        assert total[None] == 2 * n


def test_later_tasks_of_the_launch_are_not_executed(program):
    x = qd.ndarray(qd.i32, 1000)

    @qd.kernel
    def two_tasks(x: Ints, limit: qd.i32):
        for i in x:
            assert i < limit
            x[i] = 1
        for i in x:
            x[i] += 1

    @qd.kernel
    def serial_first(x: Ints, limit: qd.i32):
        assert limit > 0
        for i in x:
            x[i] = 5

    expect_failure(lambda: two_tasks(x, 999), "i < limit")
    np.testing.assert_array_equal(x.to_numpy(), [1] * 999 + [0])
    expect_failure(lambda: serial_first(x, 0), "limit > 0")
    np.testing.assert_array_equal(x.to_numpy(), [1] * 999 + [0])
    # The launches after it are.
    two_tasks(x, 1000)
    np.testing.assert_array_equal(x.to_numpy(), [2] * 1000)


@qd.func
def element(x, i):
    return x[i]


@qd.func
def twice(x, i):
    return 2 * element(x, i)


def test_a_failed_check_in_a_function_names_the_line_of_the_kernel():
    qd.init(arch=qd.cpu, debug=True)
    x = qd.field(qd.i32, 4)

    @qd.kernel
    def read(bad: qd.i32) -> qd.i32:
        a = twice(x, 1)
        b = twice(x, bad)
        return a + b

    @qd.kernel
    def solve() -> qd.f32:
        return qd.solve(qd.Matrix([[1.0, 2.0], [2.0, 4.0]]), qd.Vector([1.0, 2.0]))[0]

    first = read.fn.__code__.co_firstlineno
    with pytest.raises(
        AssertionError, match=rf"test_failed_checks\.py:\d+, called at .*test_failed_checks\.py:{first + 3}"
    ):
        read(9)
    line = solve.fn.__code__.co_firstlineno + 2
    with pytest.raises(AssertionError, match=rf"_linalg\.py:\d+, called at .*test_failed_checks\.py:{line}"):
        solve()
    qd.reset()


@qd.real_func
def counted_down(n: qd.i32) -> qd.i32:
    assert n < 4, f"{n} is too large"
    if n <= 0:
        return 0
    return 1 + counted_down(n - 1)


@qd.real_func
def scaled(n: qd.i32) -> qd.i32:
    if n < 0:
        return 0
    return n * 2_000_000_000


def test_a_failed_check_in_a_function_of_its_own_names_the_line_of_the_kernel(capfd):
    qd.init(arch=qd.cpu, debug=True)

    x = qd.field(qd.i32, 4)

    @qd.real_func
    def element_or_zero(i: qd.i32) -> qd.i32:
        if i < 0:
            return 0
        return x[i]

    @qd.func
    def difference(i):
        return element_or_zero(i) - element_or_zero(i - 1)

    @qd.kernel
    def differences(i: qd.i32) -> qd.i32:
        few = difference(1) + difference(2)
        return few + difference(i)

    @qd.kernel
    def count(n: qd.i32) -> qd.i32:
        few = counted_down(1)
        return few + counted_down(n)

    @qd.kernel
    def scale(n: qd.i32) -> qd.i32:
        few = scaled(1)
        return few ^ scaled(n)

    def line(kernel, below):
        return rf"test_failed_checks\.py:{kernel.fn.__code__.co_firstlineno + below}"

    with pytest.raises(AssertionError, match=rf"with bounds \[4\]\n  called at .*{line(differences, 3)}\n"):
        differences(4)
    if qd.cfg.arch == qd.vulkan:
        with pytest.raises(RuntimeError, match=r"`counted_down.*` is recursive.*test_failed_checks\.py:\d+"):
            count(9)
    else:
        with pytest.raises(AssertionError, match=rf"9 is too large\n  called at .*{line(count, 3)}\n"):
            count(9)
    capfd.readouterr()
    scale(3)
    qd.sync()
    printed = capfd.readouterr().out
    assert re.search(rf"overflow detected in .*:\d+:\n  return n .*\n  called at .*{line(scale, 3)}\n", printed)
    qd.reset()
