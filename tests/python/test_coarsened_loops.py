"""Long loops whose threads run adjacent iterations, with vector accesses if a device has them."""

import numpy as np
import pytest

import octants as qd

TYPES = {
    "f16": (qd.f16, np.float16),
    "f32": (qd.f32, np.float32),
    "f64": (qd.f64, np.float64),
    "i8": (qd.i8, np.int8),
    "u16": (qd.u16, np.uint16),
    "i64": (qd.i64, np.int64),
}
LONG = 1 << 19


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)


@pytest.mark.parametrize("count", [LONG + 16, LONG + 19])
@pytest.mark.parametrize("name", TYPES)
def test_adjacent_elements_of_every_type_with_unaligned_ends(name, count):
    dtype, of_numpy = TYPES[name]

    @qd.kernel
    def add(x: qd.types.ndarray(dtype, 1), y: qd.types.ndarray(dtype, 1), begin: qd.i32, end: qd.i32):
        for i in range(begin, end):
            y[i] = x[i] + y[i]

    @qd.kernel
    def spread(x: qd.types.ndarray(dtype, 1), y: qd.types.ndarray(dtype, 1)):
        for i in range(1, x.shape[0] - 1):
            y[i] = x[i - 1] + x[i + 1]

    a = (np.arange(count) % 31).astype(of_numpy)
    x, y = qd.ndarray(dtype, count), qd.ndarray(dtype, count)
    x.from_numpy(a)
    y.from_numpy(a[::-1].copy())
    add(x, y, 5, count - 2)
    expected = a[::-1].copy()
    expected[5 : count - 2] += a[5 : count - 2]
    np.testing.assert_array_equal(y.to_numpy(), expected)
    spread(x, y)
    np.testing.assert_array_equal(y.to_numpy()[1:-1], a[:-2] + a[2:])


def test_an_iteration_reads_what_it_has_written():
    x = qd.field(qd.f32, LONG)
    y = qd.field(qd.f32, LONG)

    @qd.kernel
    def run():
        for i in x:
            x[i] = x[i] + 1
            y[i] = x[i] * 2

    a = np.arange(LONG, dtype=np.float32)
    x.from_numpy(a)
    run()
    np.testing.assert_array_equal(x.to_numpy(), a + 1)
    np.testing.assert_array_equal(y.to_numpy(), (a + 1) * 2)


@pytest.mark.parametrize("columns", [1024, 1028, 1030])
def test_stencils_in_tiles(columns):
    rows = 520
    x, y = qd.ndarray(qd.f32, (rows, columns)), qd.ndarray(qd.f32, (rows, columns))

    @qd.kernel
    def stencil(x: qd.types.ndarray(qd.f32, 2), y: qd.types.ndarray(qd.f32, 2)):
        for i, j in qd.ndrange((1, x.shape[0] - 1), (1, x.shape[1] - 1)):
            y[i, j] = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]

    a = np.random.default_rng(1).random((rows, columns), np.float32)
    x.from_numpy(a)
    stencil(x, y)
    expected = np.zeros_like(a)
    expected[1:-1, 1:-1] = a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:]
    np.testing.assert_allclose(y.to_numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["i64", "f32", "f64"])
def test_sums(name):
    dtype, of_numpy = TYPES[name]
    count = LONG + 5
    x, total = qd.ndarray(dtype, count), qd.ndarray(dtype, 1)

    @qd.kernel
    def add_up(x: qd.types.ndarray(dtype, 1), total: qd.types.ndarray(dtype, 1)):
        for i in range(3, x.shape[0]):
            total[0] += x[i]

    a = (np.arange(count) % 31).astype(of_numpy)
    x.from_numpy(a)
    add_up(x, total)
    assert total.to_numpy()[0] == pytest.approx(a[3:].astype(np.float64).sum(), rel=1e-5)
