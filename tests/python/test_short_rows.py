"""Loops over rows whose bounds are read from memory: neighbors in a cell, elements of a row of a sparse matrix. Their
vector code may mask the iterations that do not fill a vector."""

import re

import numpy as np
import pytest

import octants as qd

ROWS = 300
I32 = qd.types.ndarray(dtype=qd.i32, ndim=1)
F32 = qd.types.ndarray(dtype=qd.f32, ndim=1)
F64 = qd.types.ndarray(dtype=qd.f64, ndim=1)


@pytest.fixture(autouse=True, params=[{}, {"fast_math": False}, {"opt_level": 1}], ids=["usual", "exact", "level 1"])
def program(request):
    qd.init(arch=qd.cpu, **request.param)
    yield
    qd.reset()


@pytest.fixture(scope="module")
def rows():
    """Bounds of rows, some of them empty or reversed, and columns. The last elements are at the end of the memory."""
    random = np.random.default_rng(3)
    lengths = random.integers(-2, 70, ROWS)
    lengths[::7], lengths[3::11] = 0, 16
    begin = np.cumsum(np.maximum(lengths, 0)) - np.maximum(lengths, 0)
    total = int(np.maximum(lengths, 0).sum())
    columns = random.integers(0, 50, total).astype(np.int32)
    return begin.astype(np.int32), (begin + lengths).astype(np.int32), columns, random


def test_products_of_sparse_rows(rows):
    begin, end, columns, random = rows
    values, x = random.random(len(columns), np.float32), random.random(50, np.float32)

    @qd.kernel
    def multiply(begin: I32, end: I32, columns: I32, values: F32, x: F32, y: F32):
        for i in range(ROWS):
            total = 0.0
            for k in range(begin[i], end[i]):
                total += values[k] * x[columns[k]]
            y[i] = total

    y = np.full(ROWS, -1, np.float32)
    multiply(begin, end, columns, values, x, y)
    expected = [float(values[b:e].astype(np.float64) @ x[columns[b:e]]) for b, e in zip(begin, end, strict=True)]
    np.testing.assert_allclose(y, expected, rtol=1e-5)


def test_sums_counts_and_extrema_of_some_elements(rows):
    begin, end, columns, random = rows
    values = random.standard_normal(len(columns))

    @qd.kernel
    def reduce(begin: I32, end: I32, columns: I32, values: F64, sums: F64, least: F64, most: I32, counts: I32):
        for i in range(ROWS):
            total, lowest, highest, count = qd.f64(0.0), qd.f64(9.0), -1, 0
            for k in range(begin[i], end[i]):
                if columns[k] != i % 50 and values[k] > -0.5:
                    total += qd.sqrt(values[k] + 0.5)
                    lowest = qd.min(lowest, values[k])
                    highest = qd.max(highest, columns[k])
                    count += 1
            sums[i], least[i], most[i], counts[i] = total, lowest, highest, count

    sums, least = np.zeros(ROWS), np.zeros(ROWS)
    most, counts = np.zeros(ROWS, np.int32), np.zeros(ROWS, np.int32)
    reduce(begin, end, columns, values, sums, least, most, counts)
    for i in range(ROWS):
        of = slice(begin[i], max(begin[i], end[i]))
        chosen = (columns[of] != i % 50) & (values[of] > -0.5)
        kept = values[of][chosen]
        np.testing.assert_allclose(sums[i], np.sqrt(kept + 0.5).sum(), rtol=1e-12)
        assert least[i] == min([9.0, *kept])
        assert most[i] == max([-1, *columns[of][chosen]])
        assert counts[i] == len(kept)


def test_vectors_of_neighbors(rows):
    begin, end, columns, random = rows
    places = random.random((50, 3), np.float32)
    vector = qd.types.vector(3, qd.f32)

    @qd.kernel
    def attract(
        begin: I32, end: I32, columns: I32, places: qd.types.ndarray(vector, 1), out: qd.types.ndarray(vector, 1)
    ):
        for i in range(ROWS):
            total = vector(0.0)
            for k in range(begin[i], end[i]):
                away = places[i % 50] - places[columns[k]]
                if columns[k] != i % 50 and away.norm() < 0.6:
                    total += away / away.norm()
            out[i] = total

    stored, out = qd.Vector.ndarray(3, qd.f32, 50), qd.Vector.ndarray(3, qd.f32, ROWS)
    stored.from_numpy(places)
    attract(begin, end, columns, stored, out)
    expected = np.zeros((ROWS, 3))
    for i in range(ROWS):
        away = (places[i % 50] - places[columns[begin[i] : max(begin[i], end[i])]]).astype(np.float64)
        norms = np.linalg.norm(away, axis=1)
        near = (norms > 0) & (norms < 0.6)
        expected[i] = (away[near] / norms[near, None]).sum(0)
    np.testing.assert_allclose(out.to_numpy(), expected, atol=2e-5)


def test_rows_of_a_block_take_vectors_of_the_length_of_the_block():
    grid = qd.types.ndarray(dtype=qd.f32, ndim=2)

    @qd.kernel
    def block(x: grid, active: I32, seen: I32, j: qd.i32, n: qd.i32, same: qd.i32) -> qd.f32:
        rows = 1
        if n >= 4:
            seen[0] += 1
            if same > 0:
                rows = 4
        total = 0.0
        qd.loop_config(serialize=True)
        for k in range(rows):
            if active[k] > 0:
                total += x[k, j] * x[k, 0]
        return total

    x, seen = np.arange(1, 17, dtype=np.float32).reshape(4, 4), np.zeros(1, np.int32)
    active = np.array([1, 0, 1, 1], np.int32)
    if qd.cfg.fast_math and qd.cfg.opt_level > 1:
        code = qd.inspect(block, x, active, seen, 1, 4, 1, target="x86-64-v4", emit="llvm")
        assert set(re.findall(r"<\d+ x float>", code)) == {"<4 x float>"}
    products = x[:, 1] * x[:, 0]
    assert block(x, active, seen, 1, 4, 1) == (products * active).sum()
    assert block(x, active, seen, 1, 4, 0) == products[0]
    assert block(x, active, seen, 1, 3, 1) == products[0]
    assert seen[0] == 2
