"""Iterations that return to elements that they have written, and use adjacent elements in between."""

import numpy as np

import octants as qd

N = 500
V2 = qd.types.ndarray(dtype=qd.types.vector(2, qd.i32), ndim=1)
I1 = qd.types.ndarray(dtype=qd.i32, ndim=1)


def numbers(seed: int, n: int = N) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, n).astype(np.int32)


def array(values: np.ndarray) -> qd.ScalarNdarray:
    a = qd.ndarray(qd.i32, values.shape)
    a.from_numpy(values)
    return a


def interleaved(*values: np.ndarray) -> list[qd.ScalarField]:
    """Fields whose elements are interleaved."""
    fields = [qd.field(qd.i32) for _ in values]
    qd.root.dense(qd.i, N).place(*fields)
    for field, numbers in zip(fields, values):
        field.from_numpy(numbers)
    return fields


def test_a_conditional_sum_is_seen_by_a_later_sum():
    @qd.kernel
    def add(b: I1, c: I1, z: V2):
        for i in range(N):
            s = c[i]
            z[i] += 1
            if c[i] == 0:
                z[i][1] += 100
            for k in range(20):
                s = abs(s * 3 - b[k])
            z[i] += s

    qd.init(arch=qd.cpu, cpu_max_num_threads=1)
    b, c, z = numbers(1, 20), numbers(2), qd.Vector.ndarray(2, qd.i32, N)
    add(array(b), array(c), z)
    s = c.copy()
    for k in range(20):
        s = abs(s * 3 - b[k])
    np.testing.assert_array_equal(z.to_numpy(), np.stack([1 + s, 1 + s + 100 * (c == 0)], 1))


def test_a_conditional_store_is_read_back_with_its_neighbor():
    qd.init(arch=qd.cpu)
    a, b, c = numbers(1), numbers(2), numbers(3)
    x, y, z = interleaved(a, b, c)

    @qd.kernel
    def update(most: qd.i32):
        for i in range(N):
            s = 0
            if x[i] != most:
                s = z[i] ^ 5
                z[i] = 1 + s
            y[i] = z[i] * s

    update(1)
    s = np.where(a != 1, c ^ 5, 0)
    stored = np.where(a != 1, 1 + s, c)
    np.testing.assert_array_equal(z.to_numpy(), stored)
    np.testing.assert_array_equal(y.to_numpy(), stored * s)


def test_a_conditional_store_keeps_its_order():
    qd.init(arch=qd.cpu)
    a, c = numbers(1), numbers(3)
    x, y, z = interleaved(a, a, c)

    @qd.kernel
    def update():
        for i in range(N):
            x[i] = z[i] + 7
            if z[i] > 0:
                x[i] = -z[i]
            y[i] = z[i] * 3

    update()
    np.testing.assert_array_equal(x.to_numpy(), np.where(c > 0, -c, c + 7))
    np.testing.assert_array_equal(y.to_numpy(), c * 3)


def test_conditional_stores_to_one_array_are_read_back():
    @qd.kernel
    def update(z: I1):
        for i in range(N):
            if z[3 * i] > 0:
                z[3 * i + 1] = z[3 * i] * 2
            z[3 * i + 2] = z[3 * i + 1] + z[3 * i]

    qd.init(arch=qd.cpu)
    before = numbers(4, 3 * N)
    z = array(before)
    update(z)
    want = before.reshape(N, 3).copy()
    want[:, 1] = np.where(want[:, 0] > 0, want[:, 0] * 2, want[:, 1])
    want[:, 2] = want[:, 1] + want[:, 0]
    np.testing.assert_array_equal(z.to_numpy().reshape(N, 3), want)


def test_members_of_structs_clamped_in_sequence():
    qd.init(arch=qd.cpu)
    cells = qd.Struct.field({"mass": qd.f32, "v": qd.math.vec2}, shape=N)
    mass = np.maximum(numbers(5), 0).astype(np.float32)
    v = np.stack([numbers(6), numbers(7)], 1).astype(np.float32)
    cells.from_numpy({"mass": mass, "v": v})

    @qd.kernel
    def bound():
        for i in range(N):
            if cells[i].mass > 0:
                cells[i].v /= cells[i].mass
            cells[i].v.y -= 0.5
            if i < 100 and cells[i].v.x < 0:
                cells[i].v.x = 0
            if cells[i].v.y < 0:
                cells[i].v.y = 0
            cells[i].mass = cells[i].v.x + cells[i].v.y

    bound()
    with np.errstate(divide="ignore", invalid="ignore"):
        want = np.where(mass[:, None] > 0, v / mass[:, None], v)
    want[:, 1] -= 0.5
    want[:100, 0] = np.maximum(want[:100, 0], 0)
    want[:, 1] = np.maximum(want[:, 1], 0)
    got = cells.to_numpy()
    np.testing.assert_allclose(got["v"], want, rtol=1e-6)
    np.testing.assert_allclose(got["mass"], want.sum(1), rtol=1e-6)


def test_a_value_taken_under_a_condition_is_the_old_one():
    @qd.func
    def take(z: qd.template(), i):
        s = z[i]
        z[i] = -1
        return s

    @qd.kernel
    def by_branch(z: I1, y: I1, c: I1):
        for i in range(N):
            s = 7
            if c[i] > 0:
                s = z[i]
                z[i] = -1
            y[i] = s

    @qd.kernel
    def by_function(z: I1, y: I1, c: I1):
        for i in range(N):
            s = 7
            if c[i] > 0:
                s = take(z, i)
            y[i] = s

    @qd.kernel
    def by_leaving(z: I1, y: I1, c: I1):
        for i in range(N):
            y[i] = 7
            if c[i] <= 0:
                continue
            s = z[i]
            z[i] = -1
            y[i] = s

    @qd.kernel
    def by_exchange(z: I1, y: I1, c: I1):
        for i in range(N):
            s = 7
            if c[i] > 0:
                s = qd.atomic_exchange(z[i], -1)
            y[i] = s

    qd.init(arch=qd.cpu)
    before, c = numbers(8), numbers(9)
    for kernel in (by_branch, by_function, by_leaving, by_exchange):
        z, y = array(before), array(np.zeros(N, np.int32))
        kernel(z, y, array(c))
        np.testing.assert_array_equal(y.to_numpy(), np.where(c > 0, before, 7))
        np.testing.assert_array_equal(z.to_numpy(), np.where(c > 0, -1, before))


def test_elements_swapped_under_a_condition():
    @qd.kernel
    def exchange(x: I1, z: I1, c: I1):
        for i in range(N):
            z[i] += c[i]
            if c[i] < 1:
                t = z[i]
                z[i] = x[i]
                x[i] = t
            z[i] += 1

    qd.init(arch=qd.cpu)
    a, b, c = numbers(10), numbers(11), numbers(12)
    x, z = array(a), array(b)
    exchange(x, z, array(c))
    np.testing.assert_array_equal(x.to_numpy(), np.where(c < 1, b + c, a))
    np.testing.assert_array_equal(z.to_numpy(), np.where(c < 1, a, b + c) + 1)
