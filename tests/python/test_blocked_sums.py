"""Sums of inner loops that run in blocks of a few iterations: on GPUs, a warp adds the elements of a block together."""

import numpy as np
import pytest

import octants as qd

MOST = 50
# Not whole warps; few rows; whole blocks of threads.
ROWS = [777, 40, 512]


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


def numbers(*shape):
    return np.random.default_rng(3).random(shape).astype(np.float32)


def lengths(kind, rows):
    """How many times the rows' loops run."""
    rng = np.random.default_rng(5)
    n = rng.integers(0, MOST + 1, rows)
    if kind == "equal":
        n[:] = MOST
    elif kind == "often none":
        n[rng.random(rows) < 0.8] = 0
    elif kind == "below none":
        n[::3] = rng.choice([-1, -9, -(2**31), -(2**31) + 7], len(n[::3]))
    n[rows // 2] = MOST
    return n.astype(np.int32)


KINDS = ["equal", "random", "often none", "below none"]


def filled(values, ty=qd.f32, **options):
    f = qd.field(ty, shape=values.shape, **options)
    f.from_numpy(values)
    return f


def reached(n, most=MOST):
    return np.arange(most)[None, :] < n[:, None]


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_of_eight(kind, rows):
    """The arrays are adjacent and end with the longest row, whose length is not a multiple of eight."""
    n = lengths(kind, rows)
    length, w = filled(n, qd.i32), filled(numbers(rows))
    forwards, backwards, after = (qd.field(qd.f32, shape=MOST) for _ in range(3))

    @qd.kernel
    def add():
        for i in w:
            count = length[i]
            for b in range((count + 7) // 8):
                for t in range(8):
                    k = 8 * b + t
                    if k < count:
                        forwards[k] += w[i]
                    if k < count:
                        backwards[MOST - 1 - k] -= 2.0 * w[i]
                        forwards[k] += 1.0
            after[0] += 1.0

    add()
    of_row = numbers(rows).astype(np.float64)[:, None]
    assert np.allclose(forwards.to_numpy(), (reached(n) * (of_row + 1)).sum(0), rtol=1e-5)
    assert np.allclose(backwards.to_numpy()[::-1], -(reached(n) * 2 * of_row).sum(0), rtol=1e-5)
    assert np.array_equal(after.to_numpy(), rows * (np.arange(MOST) == 0))


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [3, 8])
def test_a_partial_last_block(block, kind, rows):
    n = lengths(kind, rows)
    length, w, total = filled(n, qd.i32), filled(numbers(rows)), qd.field(qd.f32, shape=rows)
    weight, sums = filled(numbers(MOST)), qd.field(qd.f32, shape=MOST)

    @qd.kernel
    def add():
        for i in w:
            of_row = w[i]
            for b in range((length[i] + block - 1) // block):
                rest = length[i] - block * b
                for t in range(block):
                    if t < rest:
                        of_row += weight[block * b + t]
                for t in range(block):
                    if block - 1 - t < rest:
                        sums[block * b + (block - 1 - t)] += of_row
            total[i] = of_row

    @qd.kernel
    def add_by_row():
        for i in w:
            of_row = w[i]
            for b in range((length[i] + block - 1) // block):
                rest = length[i] - block * b
                for t in range(block):
                    if t < rest:
                        of_row += weight[block * b + t]
            total[i] += of_row

    add()
    running = numbers(rows).astype(np.float64)[:, None] + np.cumsum(numbers(MOST).astype(np.float64))
    by_column = np.zeros(MOST)
    for k in range(MOST):
        # The row's sum after the block that contains the element.
        last = np.minimum(np.maximum(n, 1) - 1, k // block * block + block - 1)
        by_column[k] = running[np.arange(rows), last][n > k].sum()
    in_all = np.where(n > 0, running[np.arange(rows), np.maximum(n, 1) - 1], numbers(rows))
    assert np.allclose(sums.to_numpy(), by_column, rtol=1e-5)
    assert np.allclose(total.to_numpy(), in_all, rtol=1e-5)
    add_by_row()
    assert np.allclose(total.to_numpy(), 2 * in_all, rtol=1e-5)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [1, 8])
def test_gradients(block, kind, rows):
    n = lengths(kind, rows)
    x, r = numbers(rows), 0.1 * numbers(MOST)
    start, rate, length = filled(x, needs_grad=True), filled(r, needs_grad=True), filled(n, qd.i32)
    end = qd.field(qd.f32, shape=rows, needs_grad=True)

    @qd.kernel
    def swing():
        for i in start:
            a = start[i]
            count = length[i]
            if qd.static(block == 1):
                for k in range(count):
                    a += rate[k] * qd.sin(a)
            else:
                for b in range((count + block - 1) // block):
                    for t in range(block):
                        k = block * b + t
                        if k < count:
                            a += rate[k] * qd.sin(a)
            end[i] = a

    swing()
    end.grad.fill(1.0)
    swing.grad()
    states, a = [], x.astype(np.float64)
    for k in range(MOST):
        states.append(a)
        a = np.where(n > k, a + r[k] * np.sin(a), a)
    g, by_rate = np.ones(rows), np.zeros(MOST)
    for k in reversed(range(MOST)):
        by_rate[k] = (g * np.sin(states[k]))[n > k].sum()
        g = np.where(n > k, g * (1 + r[k] * np.cos(states[k])), g)
    assert np.allclose(end.to_numpy(), a, rtol=1e-4)
    assert np.allclose(rate.grad.to_numpy(), by_rate, rtol=1e-4)
    assert np.allclose(start.grad.to_numpy(), g, rtol=1e-4)


@pytest.mark.parametrize("block", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("ty", [qd.f32, qd.f64])
def test_blocks_of_other_lengths_and_starts(ty, block):
    rows = 150
    n = lengths("random", rows)
    length, w = filled(n, qd.i32), filled(numbers(rows))
    sums = qd.field(ty, shape=MOST)

    @qd.kernel
    def add(most: qd.i32):
        for i in w:
            for b in range(2, 2 + (length[i] + block - 1) // block):
                for t in range(-1, block - 1):
                    if block * (b - 2) + t + 1 < length[i]:
                        sums[most - (block * b + t) - (1 - 2 * block) - 1] += w[i]

    add(MOST)
    expected = (reached(n) * numbers(rows).astype(np.float64)[:, None]).sum(0)
    assert np.allclose(sums.to_numpy()[::-1], expected, rtol=1e-5)


@pytest.mark.parametrize("count", [1, 3, 5, 9, 17])
@pytest.mark.parametrize("first", [0, 2, -3])
def test_several_sums_of_one_loop(first, count):
    """However many registers they take."""
    rows = 200
    n = lengths("below none", rows)
    length, w = filled(n, qd.i32), filled(numbers(rows))
    sums = qd.field(qd.f32, shape=(count, MOST + 3))

    @qd.kernel
    def add():
        for i in w:
            for k in range(first, length[i]):
                for j in qd.static(range(count)):
                    sums[j, k + 3] += (j + 1.0) * w[i]

    add()
    columns = np.arange(-3, MOST)
    runs = (columns[None, :] < n[:, None]) & (columns >= first)
    by_column = (runs * numbers(rows).astype(np.float64)[:, None]).sum(0)
    assert np.allclose(sums.to_numpy(), np.arange(1, count + 1)[:, None] * by_column, rtol=1e-5)


def test_vectors_and_rows_of_a_table():
    rows = 333
    n, table = lengths("random", rows), 3
    length, w = filled(n, qd.i32), filled(numbers(rows))
    pairs = qd.Vector.field(2, qd.f32, shape=(table, 56))
    floats = qd.types.ndarray(dtype=qd.f32, ndim=1)

    @qd.kernel
    def add(total: floats):
        for i in w:
            for row in range(table):
                if (i + row) % 5 != 0:
                    for b in range((length[i] + 7) // 8):
                        for t in range(8):
                            k = 8 * b + t
                            if k < length[i]:
                                pairs[row, k] += qd.Vector([w[i], 1.0])
                                total[k] += w[i]

    total = qd.ndarray(qd.f32, shape=MOST)
    add(total)
    of_row = numbers(rows).astype(np.float64)[:, None]
    in_all = np.zeros(MOST)
    for row in range(table):
        runs = reached(n) & ((np.arange(rows) + row) % 5 != 0)[:, None]
        sums = np.stack([(runs * of_row).sum(0), runs.sum(0)], 1)
        in_all += sums[:, 0]
        assert np.allclose(pairs.to_numpy()[row, :MOST], sums, rtol=1e-5)
        assert not pairs.to_numpy()[row, MOST:].any()
    assert np.allclose(total.to_numpy(), in_all, rtol=1e-5)


def test_nan_is_propagated_in_sums():
    rows = 64
    length = filled(lengths("random", rows), qd.i32)
    w = numbers(rows)
    w[17] = np.nan
    weights, sums = filled(w), qd.field(qd.f32, shape=56)

    @qd.kernel
    def add():
        for i in weights:
            for b in range((length[i] + 7) // 8):
                for t in range(8):
                    sums[8 * b + t] += weights[i]

    add()
    reaches = -(-lengths("random", rows)[17] // 8) * 8
    assert reaches > 0
    assert np.array_equal(np.isnan(sums.to_numpy()), np.arange(56) < reaches)
