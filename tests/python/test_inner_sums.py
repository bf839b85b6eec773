"""Sums that inner loops of parallel loops repeatedly add to one element of memory."""

import numpy as np

import octants as qd

N = 50


def test_forces_on_both_ends_of_pairs():
    qd.init(arch=qd.cpu)
    x, f = qd.field(qd.f32, N), qd.Vector.field(2, qd.f32, N)
    energy = qd.field(qd.f64, ())

    @qd.kernel
    def pairs():
        for i in x:
            for j in range(i):
                d = x[i] - x[j]
                f[i] += qd.Vector([d, 2.0])
                f[j] -= qd.Vector([d, 1.0])
                energy[None] += d * d

    values = np.random.default_rng(1).random(N).astype(np.float32)
    x.from_numpy(values)
    f.fill(0.5)
    pairs()
    d = values[:, None] - values[None, :]
    i = np.arange(N)
    expected = np.stack([d.sum(1), 2 * i - (N - 1 - i)], 1) + 0.5
    np.testing.assert_allclose(f.to_numpy(), expected, rtol=1e-5, atol=1e-5)
    assert abs(energy[None] - np.tril(d.astype(np.float64) ** 2).sum()) < 1e-4


def test_sums_of_while_loops_with_exits():
    qd.init(arch=qd.cpu)
    following, total = qd.field(qd.i32, N), qd.field(qd.i64, N)

    @qd.kernel
    def walk():
        for i in following:
            k = i
            while k != -1:
                if k % 7 == 3:
                    break
                total[i] += k
                k = following[k]

    chain = np.where(np.arange(N) % 5 == 0, -1, np.arange(N) - 1).astype(np.int32)
    following.from_numpy(chain)
    walk()
    expected = np.zeros(N, np.int64)
    for i in range(N):
        k = i
        while k != -1 and k % 7 != 3:
            expected[i] += k
            k = chain[k]
    assert (total.to_numpy() == expected).all()


def test_an_invalid_address_is_not_accessed_when_nothing_is_added():
    qd.init(arch=qd.cpu)
    where, ends, out = qd.field(qd.i32, N), qd.field(qd.i32, N), qd.field(qd.i32, N)

    @qd.kernel
    def count():
        for i in where:
            at = where[i]
            for j in range(ends[i]):
                out[at] += j + 1

    index = np.arange(N)
    where.from_numpy(np.where(index % 2 == 0, index, -(1 << 28)).astype(np.int32))
    ends.from_numpy(np.where(index % 2 == 0, index, 0).astype(np.int32))
    count()
    assert (out.to_numpy() == np.where(index % 2 == 0, index * (index + 1) // 2, 0)).all()


def test_reads_in_the_loop_see_current_values():
    qd.init(arch=qd.cpu)
    x = qd.ndarray(qd.i32, N)

    @qd.kernel
    def double_often(x: qd.types.ndarray(dtype=qd.i32, ndim=1)):
        for i in x:
            for _ in range(5):
                x[i] += x[i] + 1

    double_often(x)
    assert (x.to_numpy() == 31).all()
