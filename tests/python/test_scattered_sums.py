"""Sums that many iterations scatter over few elements: on GPUs, blocks have private copies, and warps combine updates
of the same element."""

import numpy as np
import pytest

import octants as qd

# Not whole warps, nor whole blocks.
N = 777
MOST = 70


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


def numbers(*shape):
    return np.random.default_rng(3).random(shape).astype(np.float32)


def lengths(least=0):
    """How many times the rows' inner loops run: none, a few, all."""
    return np.random.default_rng(5).integers(least, MOST + 1, N).astype(np.int32)


def filled(values, ty):
    f = qd.field(ty, shape=values.shape)
    f.from_numpy(values)
    return f


@pytest.mark.parametrize("ty", [qd.f32, qd.f64, qd.i64])
@pytest.mark.parametrize("spread", [1, 50])
def test_histograms(ty, spread):
    bins = np.random.default_rng(1).integers(0, spread, N).astype(np.int32)
    b, total, lost = filled(bins, qd.i32), qd.field(ty, shape=50), qd.field(ty, shape=50)

    @qd.kernel
    def count():
        for i in b:
            total[b[i]] += 2
            lost[b[i]] -= 1

    total.fill(1)
    count()
    expected = np.bincount(bins, minlength=50)
    assert np.array_equal(total.to_numpy(), 1 + 2 * expected)
    assert np.array_equal(lost.to_numpy(), -expected)


def test_large_arrays_and_used_old_values_are_not_privatized():
    bins = np.random.default_rng(1).integers(0, 50, N).astype(np.int32)
    b, small, large, seen = filled(bins, qd.i32), *(qd.field(qd.f32, shape=n) for n in (50, 20000, 50))

    @qd.kernel
    def count():
        for i in b:
            small[b[i]] += 1.0
            large[b[i] * 300] += 1.0
            if seen[b[i]] < 1e9:
                seen[b[i]] += 1.0

    count()
    expected = np.bincount(bins, minlength=50)
    for counted in (small.to_numpy(), large.to_numpy()[:15000:300], seen.to_numpy()):
        assert np.array_equal(counted, expected)


def test_a_small_and_a_large_array():
    Floats = qd.types.ndarray(dtype=qd.f32, ndim=1)
    bins = np.random.default_rng(1).integers(0, 50, N).astype(np.int32)
    b = filled(bins, qd.i32)

    @qd.kernel
    def count(h: Floats):
        for i in b:
            h[b[i]] += 1.0

    for n in (50, 20000):
        h = qd.ndarray(qd.f32, shape=n)
        count(h)
        assert np.array_equal(h.to_numpy(), np.bincount(bins, minlength=n))


@pytest.mark.parametrize("first", [0, 3])
def test_rows_of_different_lengths(first):
    n, w, by_column = lengths(), filled(numbers(N), qd.f32), qd.field(qd.f32, shape=MOST)
    length = filled(n, qd.i32)

    @qd.kernel
    def add():
        for i in w:
            for k in range(first, length[i]):
                by_column[k] += w[i]

    add()
    columns = np.arange(MOST)
    reached = (columns[None, :] < n[:, None]) & (columns >= first)
    assert np.allclose(by_column.to_numpy(), (reached * numbers(N)[:, None]).sum(0), rtol=1e-5)


@pytest.mark.parametrize("first", [0, 3])
def test_gradients_of_elements_that_all_rows_read(first):
    n, x = lengths(), numbers(N)
    start, end = (qd.field(qd.f32, shape=N, needs_grad=True) for _ in range(2))
    rate = qd.field(qd.f32, shape=MOST, needs_grad=True)
    length = filled(n, qd.i32)

    @qd.kernel
    def swing():
        for i in start:
            a = start[i]
            for k in range(first, length[i]):
                a += rate[k] * qd.sin(a)
            end[i] = a

    r = 0.1 * numbers(MOST)
    start.from_numpy(x)
    rate.from_numpy(r)
    swing()
    end.grad.fill(1.0)
    swing.grad()
    states, a = [], x.astype(np.float64)
    for k in range(MOST):
        states.append(a)
        a = np.where((n > k) & (k >= first), a + r[k] * np.sin(a), a)
    g, by_rate = np.ones(N), np.zeros(MOST)
    for k in reversed(range(first, MOST)):
        runs = n > k
        by_rate[k] = (g * np.sin(states[k]))[runs].sum()
        g = np.where(runs, g * (1 + r[k] * np.cos(states[k])), g)
    assert np.allclose(rate.grad.to_numpy(), by_rate, rtol=1e-4)
    assert np.allclose(start.grad.to_numpy(), g, rtol=1e-4)


def test_rows_with_different_targets():
    """Neighboring rows differ in an index that their inner loops share: in some warps all agree, in others not."""
    w = filled(numbers(N), qd.f32)
    sums = qd.field(qd.f32, shape=(4, MOST))
    n = lengths()
    length = filled(n, qd.i32)

    @qd.kernel
    def add():
        for i in w:
            part = 3 if i >= 500 else i % 3
            for k in range(length[i]):
                if i != 9:
                    sums[part, k] += 0.0
                sums[part, MOST - 1 - k] -= w[i]
                sums[part, k] += 2.0 * w[i]

    add()
    part = np.where(np.arange(N) >= 500, 3, np.arange(N) % 3)
    expected = np.zeros((4, MOST))
    for i in range(N):
        expected[part[i], : n[i]] += 2.0 * numbers(N)[i]
        expected[part[i], MOST - n[i] :] -= numbers(N)[i]
    assert np.allclose(sums.to_numpy(), expected, rtol=1e-4, atol=1e-3)


def test_vectors_from_nested_loops():
    sums = qd.Vector.field(2, qd.f32, shape=(5, MOST))
    n = lengths()
    length = filled(n, qd.i32)

    @qd.kernel
    def add():
        for i in length:
            for j in range(5):
                if i % 7 != j:
                    for k in range(length[i]):
                        sums[j, k] += qd.Vector([1.0, 2.0])

    add()
    for j in range(5):
        rows = n[np.arange(N) % 7 != j]
        counted = (np.arange(MOST)[:, None] < rows[None, :]).sum(1)
        assert np.array_equal(sums.to_numpy()[j], np.stack([counted, 2 * counted], 1))


def test_a_view_of_the_summed_array_is_read():
    pairs = qd.Vector.field(2, qd.i32, shape=N)
    seconds = pairs.get_scalar_field(1)
    order = np.random.default_rng(2).permutation(N).astype(np.int32)
    place, found = filled(order, qd.i32), qd.field(qd.i32, shape=N)

    @qd.kernel
    def add():
        for i in found:
            pairs[place[i]] += 1
            found[i] = seconds[place[i]]

    add()
    assert (found.to_numpy() == 1).all()


def test_chunks_of_different_lengths_lose_no_sums():
    """The last chunk of a loop has fewer iterations than the others: too few to justify a private copy, while the
    others have just enough."""
    threads, adds = 16, 16
    qd.init(arch=qd.cpu, cpu_max_num_threads=threads)

    @qd.kernel
    def count(total: qd.types.ndarray(dtype=qd.i32, ndim=1), n: qd.i32, bins: qd.i32):
        for i in range(n):
            for k in qd.static(range(adds)):
                total[(i * 7 + k * 13) % bins] += 1

    for n in range(1001, 1024, 3):
        # A copy pays from one addition for eight of its bytes on.
        bins = adds * 2 * -(-n // threads)
        places = np.arange(n)[:, None] * 7 + np.arange(adds) * 13
        expected = np.bincount(places.ravel() % bins, minlength=bins)
        total = qd.ndarray(qd.i32, bins)
        for _ in range(30):
            total.fill(0)
            count(total, n, bins)
            assert np.array_equal(total.to_numpy(), expected)
