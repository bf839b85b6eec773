"""Axes of 2**31 elements and more: every kind of loop over an array or field, and the host, reach the last elements.

The kernels touch only the last elements, so little of an array's two gigabytes is ever in memory.
"""

import numpy as np
import pytest

import octants as qd

LONG = 2**31 + 10


def available_memory():
    with open("/proc/meminfo") as lines:
        kib = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    return kib << 10


@pytest.fixture
def memory():
    if available_memory() < 6 << 30:
        pytest.skip("less than 6 GiB of memory are available, and arrays of 2 GiB are needed")


@pytest.fixture
def program(request, memory):
    qd.init(arch=qd.cpu, debug=getattr(request, "param", False))
    yield
    qd.reset()


@qd.kernel
def extent(x: qd.types.ndarray(dtype=qd.u8, ndim=1)) -> qd.i64:
    return x.shape[0]


@qd.kernel
def mark_last(x: qd.types.ndarray(dtype=qd.u8, ndim=1), few: qd.i64):
    for i in x:
        if i >= x.shape[0] - few:
            x[i] += 1
    for i in range(x.shape[0] - few, x.shape[0]):
        x[i] += 2
    for I in qd.grouped(x):
        if I[0] >= x.shape[0] - few:
            x[I] += 4
    for i, j in qd.ndrange((x.shape[0] - few, x.shape[0]), 1):
        x[i + j] += 8


@pytest.mark.parametrize("program", [False, True], ids=["plain", "debug"], indirect=True)
@pytest.mark.parametrize(
    "make", [lambda: qd.ndarray(qd.u8, LONG), lambda: np.zeros(LONG, np.uint8)], ids=["own", "numpy"]
)
def test_arrays(program, make):
    short, long = np.zeros(5, np.uint8), make()
    # The same kernel takes short and long arrays in turn.
    for x in (short, long, short):
        mark_last(x, 3)
        assert extent(x) == x.shape[0]
    assert short.tolist() == [0, 0, 30, 30, 30]
    assert [long[LONG - k] for k in range(1, 5)] == [15, 15, 15, 0]
    assert long[2**31 - 1] == 0
    assert long[LONG - 3 - 2**31] == 0
    long[LONG - 1] = 77
    assert long[LONG - 1] == 77


def test_strided_array_and_array_in_a_template(program):
    x = np.zeros(LONG, np.uint8)
    mark_last(x[::-1], 3)
    assert x[:4].tolist() == [15, 15, 15, 0]

    @qd.data_oriented
    class Holder:
        def __init__(self, n):
            self.x = qd.ndarray(qd.u8, n)

        @qd.kernel
        def mark(self):
            for i in self.x:
                if i >= self.x.shape[0] - 2:
                    self.x[i] = 5

    h = Holder(4)
    h.mark()
    assert h.x.to_numpy().tolist() == [0, 0, 5, 5]
    h.x = qd.ndarray(qd.u8, LONG)
    h.mark()
    assert [h.x[LONG - k] for k in range(1, 4)] == [5, 5, 0]


def test_fields(program):
    x = qd.field(qd.u8, LONG)
    count = qd.field(qd.i64, ())

    @qd.kernel
    def mark():
        for i in x:
            if i >= 2**31 - 1:
                count[None] += 1
                x[i] = i % 7
        for i in range(x.shape[0] - 3, x.shape[0]):
            x[i] += 10

    mark()
    assert count[None] == 11
    expected = [i % 7 + (10 if i >= LONG - 3 else 0) for i in range(LONG - 11, LONG)]
    assert [x[i] for i in range(LONG - 11, LONG)] == expected
    assert x[LONG - 12] == 0


def test_a_long_axis_among_others(program):
    x = np.zeros((2, LONG // 2 + 2**30), np.int8)
    long = x.shape[1]

    @qd.kernel
    def mark(a: qd.types.ndarray(dtype=qd.i8, ndim=2)) -> qd.i64:
        for i, j in qd.ndrange(a.shape[0], (a.shape[1] - 2, a.shape[1])):
            a[i, j] = i + 1
        return a.shape[0] * a.shape[1]

    assert mark(x) == 2 * long
    assert x[:, long - 3 :].tolist() == [[0, 1, 1], [0, 2, 2]]


def test_an_index_out_of_bounds_is_named(memory):
    qd.init(arch=qd.cpu, debug=True)
    x = qd.ndarray(qd.u8, LONG)

    @qd.kernel
    def read(x: qd.types.ndarray(dtype=qd.u8, ndim=1), i: qd.u64) -> qd.u8:
        return x[i]

    assert read(x, LONG - 1) == 0
    with pytest.raises(AssertionError, match=rf"\[{LONG}\] with bounds \[{LONG}\]"):
        read(x, LONG)
    with pytest.raises(AssertionError, match=rf"with bounds \[{LONG}\]"):
        read(x, 2**64 - 1)
    qd.reset()


def test_loops_with_64_bit_bounds():
    qd.init(arch=qd.cpu)

    @qd.kernel
    def squares(begin: qd.i64, end: qd.u64) -> qd.u64:
        total = qd.u64(0)
        for i in range(begin, end):
            total += qd.u64(i * i)
        return total

    @qd.kernel
    def ordinary(x: qd.types.ndarray(dtype=qd.i32, ndim=1)) -> qd.i64:
        # An index of an ordinary array is i32, and wraps like one.
        total = qd.i64(0)
        for i in x:
            total += (i + 1) * 65536 * 65536
        return total + x.shape[0] * 65536 * 65536

    big = 2**31 + 5
    assert squares(big, big + 3) == sum(i * i for i in range(big, big + 3))
    assert squares(5, 3) == 0
    assert ordinary(np.zeros(3, np.int32)) == 0
    qd.reset()
