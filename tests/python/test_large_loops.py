"""Loops over so many elements that devices run them coarsened, and stencils in tiles.

This code differs from that of small loops, and must handle bounds that begin and end within a group.
"""

import numpy as np
import pytest

import octants as qd

ROWS, COLUMNS = 700, 1024
LONG = (1 << 20) + 8

F1 = qd.types.ndarray(dtype=qd.f32, ndim=1)
F2 = qd.types.ndarray(dtype=qd.f32, ndim=2)


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)


def numbers(*shape, dtype=np.float32):
    return (np.arange(np.prod(shape)) % 1000).reshape(shape).astype(dtype)


@pytest.mark.parametrize(("first", "last"), [(0, LONG), (3, LONG - 1), (4, LONG - 4), (1, LONG - 6)])
def test_part_of_a_long_array(first, last):
    @qd.kernel
    def double(x: F1, y: F1, first: qd.i32, last: qd.i32):
        for i in range(first, last):
            y[i] = x[i] * 2.0 + y[i]

    x, y = qd.ndarray(qd.f32, LONG), qd.ndarray(qd.f32, LONG)
    x.from_numpy(numbers(LONG))
    y.fill(1.0)
    double(x, y, first, last)
    wanted = np.ones(LONG, np.float32)
    wanted[first:last] += 2 * numbers(LONG)[first:last]
    np.testing.assert_array_equal(y.to_numpy(), wanted)


@pytest.mark.parametrize(("dtype", "kind"), [(qd.i8, np.int8), (qd.i16, np.int16), (qd.f64, np.float64)])
def test_groups_of_narrow_and_of_wide_numbers(dtype, kind):
    array = qd.types.ndarray(dtype=dtype, ndim=1)

    @qd.kernel
    def shift(x: array, y: array):
        for i in range(5, x.shape[0] - 3):
            y[i] = x[i] + qd.cast(1, dtype)

    x, y = qd.ndarray(dtype, LONG), qd.ndarray(dtype, LONG)
    n = (np.arange(LONG) % 100).astype(kind)
    x.from_numpy(n)
    shift(x, y)
    wanted = np.zeros(LONG, kind)
    wanted[5:-3] = n[5:-3] + 1
    np.testing.assert_array_equal(y.to_numpy(), wanted)


def stencil_of(a):
    wanted = np.zeros_like(a)
    wanted[1:-1, 1:-1] = 0.25 * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:])
    return wanted


def test_a_stencil_on_arrays():
    @qd.kernel
    def smooth(a: F2, b: F2):
        for i, j in qd.ndrange((1, a.shape[0] - 1), (1, a.shape[1] - 1)):
            b[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])

    for rows, columns in [(ROWS, COLUMNS), (2051, 260), (600, 1001)]:
        a, b = qd.ndarray(qd.f32, (rows, columns)), qd.ndarray(qd.f32, (rows, columns))
        a.from_numpy(numbers(rows, columns))
        smooth(a, b)
        np.testing.assert_array_equal(b.to_numpy(), stencil_of(numbers(rows, columns)))


def test_a_stencil_on_fields():
    a, b = qd.field(qd.f32, (ROWS, COLUMNS)), qd.field(qd.f32, (ROWS, COLUMNS))

    @qd.kernel
    def smooth():
        for i, j in qd.ndrange((1, ROWS - 1), (1, COLUMNS - 1)):
            b[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])

    a.from_numpy(numbers(ROWS, COLUMNS))
    smooth()
    np.testing.assert_array_equal(b.to_numpy(), stencil_of(numbers(ROWS, COLUMNS)))


def test_a_stencil_in_three_dimensions():
    array = qd.types.ndarray(dtype=qd.f32, ndim=3)

    @qd.kernel
    def smooth(a: array, b: array):
        for i, j, k in qd.ndrange((1, a.shape[0] - 1), (2, a.shape[1] - 1), (1, a.shape[2] - 2)):
            b[i, j, k] = (
                a[i - 1, j, k] + a[i + 1, j, k] + a[i, j - 2, k] + a[i, j + 1, k] + a[i, j, k - 1] + a[i, j, k + 2]
            )

    shape = (20, 130, 512)
    a, b = qd.ndarray(qd.f32, shape), qd.ndarray(qd.f32, shape)
    n = numbers(*shape)
    a.from_numpy(n)
    smooth(a, b)
    wanted = np.zeros_like(n)
    wanted[1:-1, 2:-1, 1:-2] = (
        n[:-2, 2:-1, 1:-2]
        + n[2:, 2:-1, 1:-2]
        + n[1:-1, :-3, 1:-2]
        + n[1:-1, 3:, 1:-2]
        + n[1:-1, 2:-1, :-3]
        + n[1:-1, 2:-1, 3:]
    )
    np.testing.assert_array_equal(b.to_numpy(), wanted)


def test_sums_and_counts_of_a_part():
    counts_of = qd.types.ndarray(dtype=qd.i32, ndim=1)

    @qd.kernel
    def total(x: F2, first: qd.i32) -> qd.f32:
        s = 0.0
        for i, j in qd.ndrange((1, x.shape[0]), (first, x.shape[1] - 1)):
            s += x[i, j]
        return s

    @qd.kernel
    def count(x: counts_of, counts: counts_of):
        for i in range(1, x.shape[0] - 2):
            counts[x[i]] += 1

    a = qd.ndarray(qd.f32, (ROWS, COLUMNS))
    a.from_numpy(np.round(numbers(ROWS, COLUMNS) / 1000))
    for first in (0, 3):
        assert total(a, first) == np.round(numbers(ROWS, COLUMNS) / 1000)[1:, first:-1].sum()
    x, counts = qd.ndarray(qd.i32, LONG), qd.ndarray(qd.i32, 1000)
    x.from_numpy(numbers(LONG, dtype=np.int32))
    count(x, counts)
    np.testing.assert_array_equal(counts.to_numpy(), np.bincount(numbers(LONG, dtype=np.int32)[1:-2], minlength=1000))
