"""Bounds of parallel loops whose type differs from the loop's index type: the launcher evaluates them like the
kernel."""

import numpy as np
import pytest

import octants as qd


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


TYPES = [qd.u8, qd.i8, qd.u16, qd.i16, qd.u32, qd.i32, qd.u64, qd.i64]


@pytest.mark.filterwarnings("ignore:Casting range_for boundary")
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_loops_over_parameters_of_every_integer_type(dtype):
    @qd.kernel
    def count(n: dtype, out: qd.types.ndarray(qd.i32, 1)):
        for i in range(n):
            out[i] = i + 1
        for i in range(n + 1):
            out[8 + i] = i + 1

    out = qd.ndarray(qd.i32, 16)
    count(5, out)
    assert out.to_numpy().tolist() == [1, 2, 3, 4, 5, 0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0]


def test_bounds_that_are_negative_in_a_small_type():
    @qd.kernel
    def count(begin: qd.i8, out: qd.types.ndarray(qd.i32, 1)):
        for i in range(begin, 2):
            out[i + 4] = i

    out = qd.ndarray(qd.i32, 8)
    out.fill(7)
    count(-3, out)
    assert out.to_numpy().tolist() == [7, -3, -2, -1, 0, 1, 7, 7]


@pytest.mark.parametrize("begin", [-(2**31), -2, 3, 1_500_000_000, 2**31 - 5])
def test_index_computations_that_wrap(begin):
    @qd.kernel
    def turn(begin: qd.i32, end: qd.i32, out: qd.types.ndarray(qd.i32, 1)):
        for _ in range(1):
            for i in range(begin, end):
                out[(begin + end - 1 - i) - begin] = i - begin

    out = qd.ndarray(qd.i32, 6)
    out.fill(7)
    turn(begin, begin + 4, out)
    assert out.to_numpy().tolist() == [3, 2, 1, 0, 7, 7]


@pytest.mark.parametrize("begin", [-(2**31), -2, 3, 1_500_000_000, 2**31 - 5])
def test_index_computations_that_wrap_by_a_constant(begin):
    @qd.kernel
    def copy(begin: qd.i32, end: qd.i32, out: qd.types.ndarray(qd.i32, 2)):
        for _ in range(1):
            for i in range(begin, end):
                out[0, i - (begin + 5) + 5] = i - begin
                out[1, i - (begin - 5) - 5] = i - begin
                out[2, (end + 2147483647) - i - 2147483647] = i - begin
                out[3, i + (7 - begin) - 7] = i - begin

    out = qd.ndarray(qd.i32, (4, 6))
    out.fill(7)
    copy(begin, begin + 4, out)
    assert out.to_numpy().tolist() == [[0, 1, 2, 3, 7, 7]] * 2 + [[7, 3, 2, 1, 0, 7]] + [[0, 1, 2, 3, 7, 7]]


@pytest.mark.parametrize("begin", [-(2**31), -2, 3, 1_500_000_000, 2**31 - 5])
def test_vector_index_computations_that_wrap(begin):
    @qd.kernel
    def copy(begin: qd.i32, end: qd.i32, out: qd.types.ndarray(qd.i32, 2)):
        for _ in range(1):
            for i in range(begin, end):
                at, first, last = qd.Vector([i, 1]), qd.Vector([begin, 0]), qd.Vector([end, 1])
                out[at + (last - first) - last] = i - begin
                out[(first + (last - 1) - at) - first + qd.Vector([0, 1])] = i - begin
                out[at + (end + 7) - (end + first) - qd.Vector([7, 6])] = i - begin

    out = qd.ndarray(qd.i32, (6, 4))
    out.fill(7)
    copy(begin, begin + 4, out)
    backwards, forwards = [3, 2, 1, 0, 7, 7], [0, 1, 2, 3, 7, 7]
    assert out.to_numpy().T.tolist() == [backwards, forwards, forwards, [7] * 6]


def test_a_bound_that_is_made_shorter_keeps_its_low_bits():
    @qd.kernel
    def count(n: qd.i64, begin: qd.i32, out: qd.types.ndarray(qd.i32, 1)):
        for i in range(begin, qd.cast(n, qd.i32)):
            qd.atomic_add(out[0], 1)

    out = qd.ndarray(qd.i32, 1)
    count(2**32 + 5, 0, out)
    assert out[0] == 5
    # As an i32 it is negative.
    count(2**31 + 5, 2**31 - 5, out)
    assert out[0] == 5


def test_the_launcher_reproduces_overflow_of_a_bound():
    @qd.kernel
    def count(begin: qd.i32, n: qd.i32, out: qd.types.ndarray(qd.i32, 1)):
        for i in range(begin, n + 1):
            qd.atomic_add(out[0], 1)

    out = qd.ndarray(qd.i32, 1)
    count(2**31 - 5, 2**31 - 2, out)
    assert out[0] == 4
    count(2**31 - 5, 2**31 - 1, out)
    assert out[0] == 4, "one more than the largest i32 is the smallest one"


def test_axes_of_several_types():
    @qd.kernel
    def count(n: qd.u16, m: qd.i64, out: qd.types.ndarray(qd.i32, 2)):
        for i, j in qd.ndrange(n, m):
            out[i, j] += 1

    out = qd.ndarray(qd.i32, (3, 4))
    count(2, 3, out)
    expected = np.zeros((3, 4), np.int32)
    expected[:2, :3] = 1
    assert (out.to_numpy() == expected).all()


@pytest.mark.parametrize("dtype", [qd.i32, qd.i64], ids=str)
def test_inner_loops_with_loads_have_correct_trip_counts(dtype):
    @qd.kernel
    def add_up(bounds: qd.types.ndarray(dtype, 2), x: qd.types.ndarray(qd.i32, 1), sums: qd.types.ndarray(qd.i32, 1)):
        for i in sums:
            s = 0
            for k in range(bounds[i, 0], bounds[i, 1]):
                s += x[k & 63]
            sums[i] = s

    # On GPUs such loops are in the code many times.
    least, most = -(2**31), 2**31 - 1
    ranges = [(0, n) for n in (0, 1, 2, 31, 32, 33, 64, 65, 100)] + [(3, 99), (-7, 60), (-100, -64), (5, 3)]
    ranges += [(least, least + 40), (most - 70, most), (most, least), (2 * 10**9, -2 * 10**9)]
    bounds = qd.ndarray(dtype, (len(ranges), 2))
    bounds.from_numpy(np.array(ranges, np.int64 if dtype == qd.i64 else np.int32))
    x, sums = qd.ndarray(qd.i32, 64), qd.ndarray(qd.i32, len(ranges))
    values = np.arange(64, dtype=np.int32) ** 2 + 1
    x.from_numpy(values)
    add_up(bounds, x, sums)
    expected = [int(values[np.arange(begin, end) & 63].sum()) if begin < end else 0 for begin, end in ranges]
    assert sums.to_numpy().tolist() == expected


def test_while_loops_that_count():
    @qd.kernel
    def ends(first: qd.i32, bound: qd.i32, y: qd.types.NDArray[qd.i32, 1]):
        for _ in range(1):
            i = first
            while i < bound:
                y[0] += i
                i += 1
            y[1] = i
            j = first
            while bound * 1 > j:
                y[2] += 1
                j = 5 + j
            y[3] = j
            k = first
            while k < bound:
                m = k
                while m < bound:
                    m += 2
                y[4] += m
                k += 3
            y[5] = k

    for first, bound in ((0, 7), (7, 0), (-4, 11), (2**31 - 20, 2**31 - 7), (-(2**31), -(2**31) + 9), (3, 4)):
        y = qd.ndarray(qd.i32, 6)
        y.fill(0)
        ends(first, bound, y)
        at = range(first, bound)
        by_five, by_three = range(first, bound, 5), range(first, bound, 3)
        last = [max(first, bound), len(by_five), first + 5 * len(by_five), first + 3 * len(by_three)]
        inner = sum(k + 2 * len(range(k, bound, 2)) for k in by_three)
        expected = [sum(at), last[0], last[1], last[2], inner, last[3]]
        assert y.to_numpy().tolist() == [(n + 2**31) % 2**32 - 2**31 for n in expected]
