"""Unroll-and-jam: on CPUs, several iterations of a parallel loop run the same inner loop interleaved. Results must not
depend on this, for any remainder of groups of 4 to 32."""

import numpy as np
import pytest

import octants as qd

# Around groups of 4, 8, 16 and 32.
SIZES = [1, 3, 4, 5, 8, 15, 31, 32, 33, 100]
# More inner iterations than are written out, but no multiple of anything.
M = 37

I1 = qd.types.ndarray(dtype=qd.i32, ndim=1)
I2 = qd.types.ndarray(dtype=qd.i32, ndim=2)


@pytest.fixture(autouse=True)
def program():
    """One thread: sums need not be atomic, and iterations are in order."""
    qd.init(arch=qd.cpu, cpu_max_num_threads=1)
    yield
    qd.reset()


def numbers(*shape, most=50, seed=3):
    return np.random.default_rng(seed).integers(-most, most + 1, shape).astype(np.int32)


def array(values):
    made = qd.ndarray(qd.i32, values.shape)
    made.from_numpy(values)
    return made


def filled(values, ty=qd.i32):
    made = qd.field(ty, shape=values.shape)
    made.from_numpy(values)
    return made


def zeros(*shape, ty=qd.i32):
    return qd.ndarray(ty, shape)


@pytest.mark.parametrize("ty", [qd.i32, qd.i64, qd.f32, qd.f64], ids=str)
def test_all_pairs(ty):
    """All iterations read the same elements."""
    Numbers = qd.types.ndarray(dtype=ty, ndim=1)

    @qd.kernel
    def add(x: Numbers, y: Numbers):
        for i in x:
            s = x[0] * 0
            for k in range(x.shape[0]):
                s += abs(x[i] - x[k]) * (k - i)
            y[i] = s

    for n in SIZES:
        values = numbers(n, most=20)
        x, y = qd.ndarray(ty, n), qd.ndarray(ty, n)
        x.from_numpy(values.astype(x.to_numpy().dtype))
        add(x, y)
        i = np.arange(n)
        expected = (abs(values[:, None] - values) * (i - i[:, None])).sum(1)
        assert np.array_equal(y.to_numpy(), expected)


@pytest.mark.parametrize("ty", [qd.i32, qd.f32], ids=str)
def test_a_product_of_matrices(ty):
    """Iterations read adjacent elements. Rows are shorter and longer than groups; groups end at the ends of rows."""
    Numbers = qd.types.ndarray(dtype=ty, ndim=2)

    @qd.kernel
    def multiply(a: Numbers, b: Numbers, c: Numbers):
        for i, j in c:
            s = a[0, 0] * 0
            for k in range(a.shape[1]):
                s += a[i, k] * b[k, j]
            c[i, j] = s

    for columns in SIZES:
        for inner in (0, 1, M):
            left, right = numbers(5, inner + 1), numbers(inner + 1, columns, seed=4)
            a, b, c = (qd.ndarray(ty, s) for s in (left.shape, right.shape, (5, columns)))
            a.from_numpy(left.astype(a.to_numpy().dtype))
            b.from_numpy(right.astype(b.to_numpy().dtype))
            multiply(a, b, c)
            assert np.array_equal(c.to_numpy(), left @ right)


@pytest.mark.parametrize("n", [31, 32, 33, 70])
def test_rows_of_known_length(n):
    a, b, c = filled(numbers(3, M)), filled(numbers(M, n, seed=4)), qd.field(qd.i32, shape=(3, n))

    @qd.kernel
    def multiply():
        for i, j in c:
            s = 0
            for k in range(M):
                s += a[i, k] * b[k, j]
            c[i, j] = s

    multiply()
    assert np.array_equal(c.to_numpy(), numbers(3, M) @ numbers(M, n, seed=4))


def test_image_borders():
    @qd.kernel
    def blur(image: I2, weights: I1, out: I2):
        for i, j in out:
            s = 0
            for k in range(weights.shape[0]):
                s += weights[k] * image[i, qd.min(qd.max(j + k - 20, 0), image.shape[1] - 1)]
            out[i, j] = s

    weights = numbers(M, seed=8)
    for n in SIZES:
        image, out = numbers(3, n), zeros(3, n)
        blur(array(image), array(weights), out)
        at = np.clip(np.arange(n)[:, None] + np.arange(M) - 20, 0, n - 1)
        assert np.array_equal(out.to_numpy(), (image[:, at] * weights).sum(2))


def test_sums_scattered_over_elements_that_iterations_share():
    @qd.kernel
    def add(x: I1, to: I1, by_step: I1, by_both: I1, anywhere: I1, own: I2):
        for i in x:
            for k in range(M):
                by_step[k] += x[i] + k
            for k in range(M):
                own[i, k] += i - k
            for k in range(M):
                by_both[i + k] += x[i] * k
            for k in range(M):
                anywhere[to[k]] -= i * k
            own[i, 3] += x[i]

    to = np.random.default_rng(2).integers(0, 9, M).astype(np.int32)
    for n in SIZES:
        x, i, k = numbers(n), np.arange(n)[:, None], np.arange(M)
        sums = [zeros(M), zeros(n + M), zeros(9), zeros(n, M)]
        sums[0].fill(5)
        add(array(x), array(to), *sums)
        by_both, anywhere, own = np.zeros(n + M), np.zeros(9), np.broadcast_to(i - k, (n, M)).copy()
        np.add.at(by_both, i + k, x[:, None] * k)
        np.add.at(anywhere, np.broadcast_to(to, (n, M)), -i * k)
        own[:, 3] += x
        for found, expected in zip(sums, (5 + (x[:, None] + k).sum(0), by_both, anywhere, own), strict=True):
            assert np.array_equal(found.to_numpy(), expected)


def test_loops_split_over_threads():
    """Their parts begin and end anywhere in a group."""
    qd.init(arch=qd.cpu, cpu_max_num_threads=2)

    @qd.kernel
    def run(x: I1, w: I1, out: I2, by_step: I1, by_both: I1):
        for i, j in out:
            s = 0
            for k in range(w.shape[0]):
                s += w[k] * x[i * out.shape[1] + j + k]
            out[i, j] = s
        for i in x:
            for k in range(M):
                by_step[k] += x[i] * k
                by_both[i + k] += x[i] - k

    n = 40009
    for columns in (7, 61, 3001):
        x, w, out = numbers(n), numbers(M), zeros((n - M) // columns, columns)
        by_step, by_both = zeros(M), zeros(n + M)
        run(array(x), array(w), out, by_step, by_both)
        expected = np.lib.stride_tricks.sliding_window_view(x, M) @ w
        assert np.array_equal(out.to_numpy().ravel(), expected[: (n - M) // columns * columns])
        assert np.array_equal(by_step.to_numpy(), x.sum() * np.arange(M))
        both = np.zeros(n + M, int)
        for k in range(M):
            both[k : k + n] += x - k
        assert np.array_equal(by_both.to_numpy(), both)


def test_each_iteration_has_its_own_locals():
    """Numbers that go from step to step, a vector, a matrix, and an array whose elements are chosen as the loop
    runs."""

    @qd.kernel
    def walk(x: I1, out: I2):
        for i in range(out.shape[0]):
            a = i
            v = qd.Vector([i, 1])
            m = qd.Matrix([[1, i % 3], [1, 1]])
            counts = qd.Vector([0, 0, 0, 0, 0, 0, 0])
            for k in range(x.shape[0]):
                a = (a * 3 + x[k] + i) % 1009
                v = (m @ v + x[k]) % 101
                m[k % 2, 1] = (m[k % 2, 1] + x[k] + i) % 7
                counts[(x[k] + i) % 7] += k
            out[i, 0] = a
            out[i, 1] = v[0] + 1000 * v[1]
            out[i, 2] = m[0, 1] + 10 * m[1, 1]
            for c in range(7):
                out[i, 3 + c] = counts[c]

    x = abs(numbers(M))
    for n in SIZES:
        out = zeros(n, 10)
        walk(array(x), out)
        for i in range(n):
            a, v, m, counts = i, np.array([i, 1]), np.array([[1, i % 3], [1, 1]]), np.zeros(7, int)
            for k in range(M):
                a = (a * 3 + x[k] + i) % 1009
                v = (m @ v + x[k]) % 101
                m[k % 2, 1] = (m[k % 2, 1] + x[k] + i) % 7
                counts[(x[k] + i) % 7] += k
            expected = [a, v[0] + 1000 * v[1], m[0, 1] + 10 * m[1, 1], *counts]
            assert out.to_numpy()[i].tolist() == expected


def test_locals_that_only_some_iterations_set():
    @qd.func
    def first_power_above(a, limit):
        for q in range(4):
            if a > limit:
                return a
            a *= 2
        return -1

    @qd.kernel
    def look(x: I1, where: I1, last: I1, total: I1):
        for i in where:
            found, latest = -1, i
            for k in range(x.shape[0]):
                if x[k] == i:
                    found = k
                if (x[k] + i) % 5 == 0:
                    doubled = x[k] * 2 + i
                    latest = doubled
            where[i] = found
            total[i] = first_power_above(x[i % M], i)
            if found >= 0:
                last[i] = latest

    x = np.random.default_rng(6).integers(1, 60, M).astype(np.int32)
    for n in SIZES:
        where, last, total = zeros(n), zeros(n), zeros(n)
        last.fill(-7)
        look(array(x), where, last, total)
        for i in range(n):
            at = np.flatnonzero(x == i)
            fits = np.flatnonzero((x + i) % 5 == 0)
            power = next((int(x[i % M]) * 2**q for q in range(4) if int(x[i % M]) * 2**q > i), -1)
            assert where.to_numpy()[i] == (at[-1] if len(at) else -1)
            latest = x[fits[-1]] * 2 + i if len(fits) else i
            assert last.to_numpy()[i] == (latest if len(at) else -7)
            assert total.to_numpy()[i] == power


def test_values_computed_before_the_parallel_loop_are_shared():
    @qd.kernel
    def add(x: I1, out: I1, n: qd.i32):
        first, scale = n // 3, qd.Vector([n, 2, 5])
        for i in out:
            s = scale[i % 3]
            for k in range(first, n):
                s += x[k] * scale[(i + k) % 3] - first
            out[i] = s

    x = numbers(M)
    for n in SIZES:
        for bound in (0, 1, M):
            out = zeros(n)
            add(array(x), out, bound)
            i, k = np.arange(n)[:, None], np.arange(bound // 3, bound)
            scale = np.array([bound, 2, 5])
            expected = scale[i[:, 0] % 3] + (x[k] * scale[(i + k) % 3] - bound // 3).sum(1)
            assert np.array_equal(out.to_numpy(), expected)


def test_several_loops_in_a_row():
    """Some are interleaved, and one is shorter for some iterations. The code between them uses results of the previous
    loop."""

    @qd.kernel
    def run(x: I1, out: I2):
        for i in range(out.shape[0]):
            a = 0
            for k in range(x.shape[0]):
                a = (a + x[k] * (k + i)) % 977
            b = a
            for k in range(i % 4):
                b = b * 2 + k
            if a % 2 == 1:
                for k in range(x.shape[0]):
                    b -= x[k] - i
            c = b
            for k, q in qd.ndrange(12, (2, 5)):
                c = (c * 5 + x[k * 3 % 37] + q + i) % 4099
            out[i, 0] = a
            d = 0
            while d * d < i:
                d += 1
            for k in range(x.shape[0]):
                if x[k] % 3 == d % 3:
                    continue
                if k > 30:
                    break
                d += k
            out[i, 1] = b
            out[i, 2] = c
            out[i, 3] = d

    x = abs(numbers(M))
    for n in SIZES:
        out = zeros(n, 4)
        run(array(x), out)
        for i in range(n):
            a = 0
            for k in range(M):
                a = (a + int(x[k]) * (k + i)) % 977
            b = a
            for k in range(i % 4):
                b = b * 2 + k
            if a % 2 == 1:
                b -= int((x - i).sum())
            c = b
            for k in range(12):
                for q in range(2, 5):
                    c = (c * 5 + int(x[k * 3 % 37]) + q + i) % 4099
            d = int(np.ceil(np.sqrt(i)))
            for k in range(31):
                if x[k] % 3 != d % 3:
                    d += k
            assert out.to_numpy()[i].tolist() == [a, b, c, d]


def test_bounds_from_memory():
    """They are the same for all iterations, or for each row, or for none."""

    @qd.kernel
    def count(bounds: I2, x: I1, out: I2, by_column: I1):
        for i, j in out:
            for k in range(bounds[0, 0], bounds[0, 1]):
                out[i, j] += x[k] + j
            for k in range(bounds[1, i]):
                out[i, j] += x[k] * j
            for k in range(bounds[2, j]):
                out[i, j] -= k + x[k]
                by_column[k] += j
            for k in range(j):
                out[i, j] += k * i

    x = numbers(101)
    before = np.concatenate([[0], np.cumsum(x)])
    for n in SIZES:
        bounds = np.zeros((3, max(n, 3)), np.int32)
        bounds[0, :2], bounds[1, :3] = (2, 2 + M), (50, 0, 33)
        bounds[2] = np.random.default_rng(9).integers(0, 101, bounds.shape[1])
        out, by_column = zeros(3, n), zeros(101)
        count(array(bounds), array(x), out, by_column)
        i, j, own = np.arange(3)[:, None], np.arange(n), bounds[2, :n].astype(int)
        expected = before[2 + M] - before[2] + M * j + before[bounds[1, :3]][:, None] * j
        expected = expected - own * (own - 1) // 2 - before[own] + j * (j - 1) // 2 * i
        assert np.array_equal(out.to_numpy(), expected)
        assert np.array_equal(by_column.to_numpy(), 3 * ((np.arange(101)[:, None] < own) * j).sum(1))


def test_bounds_from_the_component_of_a_vector_that_the_iteration_chooses():
    bounds, x = qd.Vector.field(3, qd.i32, shape=2), filled(numbers(100))
    bounds[1] = [40, 50, 60]

    @qd.kernel
    def count(out: I1):
        for i in out:
            s = 0
            for k in range(bounds[1][i % 3]):
                s += x[k]
            out[i] = s

    for n in SIZES:
        out = zeros(n)
        count(out)
        assert np.array_equal(out.to_numpy(), np.cumsum(numbers(100))[[39, 49, 59]][np.arange(n) % 3])


def test_a_bound_that_the_loop_changes():
    """Each iteration changes its own bound, and reads it again."""

    @qd.kernel
    def count(bounds: I1, out: I1):
        for i in bounds:
            for k in range(bounds[i]):
                out[i] += k
            bounds[i] += 3
            for k in range(bounds[i]):
                out[i] += 1000

    for n in SIZES:
        own = np.arange(n, dtype=np.int32) % 50
        out = zeros(n)
        count(array(own), out)
        assert np.array_equal(out.to_numpy(), own * (own - 1) // 2 + 1000 * (own + 3))


def test_ranges_that_are_empty_or_begin_below_zero():
    @qd.kernel
    def add(x: I1, out: I1, first: qd.i32, end: qd.i32, least: qd.i32, most: qd.i32):
        for i in range(first, end):
            s = 7
            for k in range(least, most):
                s += x[k + 40] * (i - k)
            out[i + 40] += s

    x = numbers(80)
    for first, end in [(-40, -3), (-5, 5), (-1, 32), (0, 0), (5, -5), (39, 40)]:
        for least, most in [(-40, 33), (0, 0), (3, -3), (-1, 0)]:
            out, expected = zeros(80), np.zeros(80)
            add(array(x), out, first, end, least, most)
            for i in range(first, end):
                expected[i + 40] = 7 + sum(int(x[k + 40]) * (i - k) for k in range(least, most))
            assert np.array_equal(out.to_numpy(), expected)


def test_iterations_that_end_early():
    @qd.kernel
    def add(x: I1, out: I1):
        for i in out:
            if i % 5 == 2:
                continue
            for k in range(x.shape[0]):
                if x[k] == i % 7:
                    break
                out[i] += x[k] * i + 1

    x = numbers(M, most=9)
    for n in SIZES:
        out = zeros(n)
        add(array(x), out)
        for i in range(n):
            upto = next((k for k in range(M) if x[k] == i % 7), M)
            assert out.to_numpy()[i] == (0 if i % 5 == 2 else (x[:upto] * i + 1).sum())


def test_elements_of_an_iteration_change_during_the_loop():
    """Each iteration reads elements that it has written itself, and that no other iteration reads."""

    @qd.kernel
    def step(w: I1, x: I1, across: I2):
        for i in x:
            for k in range(w.shape[0]):
                x[i] = (x[i] * 3 + w[k]) % 1013
            for k in range(1, w.shape[0]):
                across[k, i] += (across[k - 1, i] + x[i]) % 97

    w = abs(numbers(M))
    for n in SIZES:
        x, across = array(np.arange(n, dtype=np.int32)), array(numbers(M, n))
        step(array(w), x, across)
        own, expected = np.arange(n), numbers(M, n).astype(int)
        for k in range(M):
            own = (own * 3 + w[k]) % 1013
        for k in range(1, M):
            expected[k] += (expected[k - 1] + own) % 97
        assert np.array_equal(x.to_numpy(), own)
        assert np.array_equal(across.to_numpy(), expected)


def test_structs_and_small_numbers():
    """Members of structs, and sums of bytes, which wrap around."""
    n = 45
    bodies = qd.Struct.field({"mass": qd.i32, "at": qd.types.vector(2, qd.i64)}, shape=n)
    counts = qd.field(qd.u8, shape=M)
    w = filled(numbers(M))
    bodies.get_member_field("mass").from_numpy(np.arange(n, dtype=np.int32))

    @qd.kernel
    def add():
        for i in bodies:
            for k in range(M):
                bodies[i].at += qd.Vector([w[k] * bodies[i].mass, k])
                counts[k] += qd.cast(i + k, qd.u8)
            bodies[i].mass += 1

    add()
    i, k = np.arange(n), np.arange(M)
    assert np.array_equal(bodies.get_member_field("mass").to_numpy(), i + 1)
    expected = np.stack([numbers(M).sum() * i, np.full(n, k.sum())], 1)
    assert np.array_equal(bodies.get_member_field("at").to_numpy(), expected)
    assert np.array_equal(counts.to_numpy(), (i[:, None] + k).sum(0) % 256)


def test_extremes_and_sums_of_all():
    least, total = qd.field(qd.i32, shape=M), qd.field(qd.i64, shape=())
    most, largest = qd.field(qd.i32, shape=()), qd.field(qd.i32, shape=())

    @qd.kernel
    def look(x: I1, w: I1):
        for i in x:
            best = -(10**6)
            for k in range(M):
                best = qd.max(best, x[i] * w[k] + k)
                total[None] += x[i] * w[k]
            qd.atomic_max(most[None], best)

    @qd.kernel
    def look_by_step(x: I1, w: I1):
        for i in x:
            s = 0
            for k in range(M):
                s += w[k] * i
                qd.atomic_min(least[k], x[i] * w[k] + i)
            qd.atomic_max(largest[None], s)

    w = numbers(M, seed=5)
    for n in SIZES:
        x = numbers(n)
        least.fill(10**6)
        most[None], largest[None], total[None] = -(10**6), -(10**6), 0
        look(array(x), array(w))
        look_by_step(array(x), array(w))
        products, i = x[:, None].astype(int) * w, np.arange(n)[:, None]
        assert most[None] == (products + np.arange(M)).max()
        assert largest[None] == max(0, (n - 1) * w.sum())
        assert total[None] == products.sum()
        assert np.array_equal(least.to_numpy(), (products + i).min(0))


# Dependent iterations run in order because LLVM does not vectorize the parallel loop, whose inner loops have unknown
# lengths.


@pytest.mark.on_cpu
def test_one_thread_runs_dependent_iterations_in_order():
    @qd.kernel
    def prefix_sums(w: I1, x: I1):
        for i in range(1, x.shape[0]):
            s = 0
            for k in range(w.shape[0]):
                s += w[k] * (i + k)
            x[i] = (x[i - 1] + s) % 1009

    @qd.kernel
    def relax(a: I2, x: I1):
        for i in x:
            s = 0
            for k in range(x.shape[0]):
                s += a[i, k] * x[k]
            x[i] = s % 101

    @qd.kernel
    def shift(w: I1, x: I1):
        for i in range(x.shape[0] - 1):
            s = 0
            for k in range(w.shape[0]):
                s += w[k] * x[i + 1]
            x[i] = s

    w = numbers(M)
    for n in SIZES:
        start, a = np.arange(n, dtype=np.int32) % 11, numbers(n, n)
        sums, state, shifted = array(start), array(start), array(start)
        prefix_sums(array(w), sums)
        relax(array(a), state)
        shift(array(w), shifted)
        x, y = start.astype(int), start.astype(int)
        for i in range(n):
            if i > 0:
                x[i] = (x[i - 1] + (w * (i + np.arange(M))).sum()) % 1009
            y[i] = (a[i] * y).sum() % 101
        assert np.array_equal(sums.to_numpy(), x)
        assert np.array_equal(state.to_numpy(), y)
        assert np.array_equal(shifted.to_numpy(), np.concatenate([w.sum() * start[1:], start[-1:]]))


@pytest.mark.on_cpu
def test_one_thread_keeps_the_order_of_stores_and_slots():
    used, free = qd.field(qd.i32, shape=()), qd.field(qd.i32, shape=5)

    @qd.kernel
    def assign(to: I1, w: I1, last: I1, slots: I1, steps: I1, first: I1):
        for i in to:
            s = 0
            for k in range(w.shape[0]):
                s += w[k] * i
                steps[k] = i
            last[to[i]] = s
            slots[qd.atomic_add(used[None], 1)] = i
            if first[to[i]] < 0:
                first[to[i]] = i
            free[i % 5] += 1
            for k in range(w.shape[0]):
                if free[k % 5] == 3:
                    first[7] += 1

    w = abs(numbers(M)) + 1
    for n in SIZES:
        to = np.random.default_rng(4).integers(0, 7, n).astype(np.int32)
        last, slots, steps, first = zeros(7), zeros(n), zeros(M), array(np.full(8, -1, np.int32))
        used[None] = 0
        free.fill(0)
        assign(array(to), array(w), last, slots, steps, first)
        wins, found, taken, seen = np.zeros(7), np.full(8, -1), np.zeros(5), 0
        for i in range(n):
            wins[to[i]] = i * w.sum()
            found[to[i]] = i if found[to[i]] < 0 else found[to[i]]
            taken[i % 5] += 1
            seen += sum(taken[k % 5] == 3 for k in range(M))
        found[7] += seen
        assert np.array_equal(last.to_numpy(), wins)
        assert slots.to_numpy().tolist() == list(range(n))
        assert (steps.to_numpy() == n - 1).all()
        assert first.to_numpy().tolist() == found.tolist()


@pytest.mark.on_cpu
def test_sums_that_other_iterations_read_are_added_in_order():
    """Through the same name, another name for the same array, and a view of one component."""
    pairs = qd.Vector.field(2, qd.i32, shape=M)
    seconds = pairs.get_scalar_field(1)

    @qd.kernel
    def add(total: I1, out: I1, other: I1, seen: I1, viewed: I1):
        for i in out:
            for k in range(total.shape[0]):
                total[k] += i + k
                out[i] += total[k] % 7
            for k in range(total.shape[0]):
                other[k] += i
                out[i] += seen[k] % 5
            for k in range(total.shape[0]):
                pairs[k] += qd.Vector([1, i])
                viewed[i] += seconds[k] % 3

    for n in SIZES:
        total, out, both, viewed = zeros(M), zeros(n), zeros(M), zeros(n)
        pairs.fill(0)
        add(total, out, both, both, viewed)
        i, k = np.arange(n)[:, None], np.arange(M)
        upto = np.cumsum(np.arange(n))[:, None] + 0 * k
        expected = ((upto + (i + 1) * k) % 7 + upto % 5).sum(1)
        assert np.array_equal(out.to_numpy(), expected)
        assert np.array_equal(viewed.to_numpy(), (upto % 3).sum(1))


@pytest.mark.on_cpu
def test_one_array_with_two_names_is_written_and_read_in_order():
    @qd.kernel
    def step(x: I1, y: I1):
        for i in x:
            s = 0
            for k in range(x.shape[0]):
                s += x[k] * (k + 1)
            y[i] = s % 1009

    for n in SIZES:
        start = numbers(n)
        x, y, same = array(start), zeros(n), array(start)
        step(x, y)
        step(same, same)
        k = np.arange(n)
        expected = start.astype(int)
        for i in range(n):
            expected[i] = (expected * (k + 1)).sum() % 1009
        assert (y.to_numpy() == (start * (k + 1)).sum() % 1009).all()
        assert np.array_equal(same.to_numpy(), expected)


def test_an_index_that_is_computed_in_many_steps():
    """Each step uses the previous one several times: an analysis that traces the index must not follow every path."""

    @qd.func
    def step(a):
        return ((a ^ (a >> 3)) * 5 + (a & 1)) & 0xFFFF

    @qd.func
    def four_steps(a):
        b = step(a)
        c = step(b)
        d = step(c)
        return step(d)

    @qd.func
    def mixed(a):
        b = four_steps(a)
        c = four_steps(b)
        d = four_steps(c)
        e = four_steps(d)
        f = four_steps(e)
        return four_steps(f)

    @qd.kernel
    def look(x: I1, out: I1):
        for i in out:
            s = 0
            for k in range(M):
                s += x[mixed(i + k) % 64]
            out[i] = s

    def value(a):
        for _ in range(24):
            a = ((a ^ (a >> 3)) * 5 + (a & 1)) & 0xFFFF
        return a

    x = numbers(64)
    for n in SIZES:
        out = zeros(n)
        look(array(x), out)
        assert out.to_numpy().tolist() == [sum(int(x[value(i + k) % 64]) for k in range(M)) for i in range(n)]


def test_the_gradient_of_all_pairs():
    n, least = 45, 0.5
    x, rate = (qd.field(qd.f64, shape=n, needs_grad=True) for _ in range(2))
    energy = qd.field(qd.f64, shape=n, needs_grad=True)

    @qd.kernel
    def attract():
        for i in x:
            for j in range(n):
                d = x[i] - x[j]
                energy[i] += rate[j] / (d * d + least)

    values, rates, weights = (np.random.default_rng(seed).random(n) for seed in range(3))
    x.from_numpy(values)
    rate.from_numpy(rates)
    attract()
    energy.grad.from_numpy(weights)
    attract.grad()
    d = values[:, None] - values
    r = 1 / (d * d + least)
    by_distance = -2 * d * r * r * rates * weights[:, None]
    assert np.allclose(energy.to_numpy(), r @ rates, rtol=1e-12)
    assert np.allclose(x.grad.to_numpy(), by_distance.sum(1) - by_distance.sum(0), rtol=1e-10, atol=1e-12)
    assert np.allclose(rate.grad.to_numpy(), weights @ r, rtol=1e-12)


@pytest.mark.parametrize("columns", [3, 32, 45])
def test_the_gradient_of_a_product_of_matrices(columns):
    rows, inner = 5, 41
    a, b, c = (qd.field(qd.f64, shape=s, needs_grad=True) for s in ((rows, inner), (inner, columns), (rows, columns)))

    @qd.kernel
    def multiply():
        for i, j in c:
            s = 0.0
            for k in range(inner):
                s += a[i, k] * b[k, j]
            c[i, j] = s

    left, right = numbers(rows, inner).astype(float), numbers(inner, columns, seed=4).astype(float)
    weights = numbers(rows, columns, seed=5).astype(float)
    a.from_numpy(left)
    b.from_numpy(right)
    multiply()
    c.grad.from_numpy(weights)
    multiply.grad()
    assert np.array_equal(c.to_numpy(), left @ right)
    assert np.array_equal(a.grad.to_numpy(), weights @ right.T)
    assert np.array_equal(b.grad.to_numpy(), left.T @ weights)
