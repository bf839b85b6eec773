"""Atomic operations on elements of less than four bytes, up to the last byte of memory."""

import numpy as np
import pytest

import octants as qd

KINDS = [qd.u8, qd.i8, qd.u16, qd.i16, qd.f16]


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


@pytest.mark.parametrize("count", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_sums(dtype, count):
    x, y = qd.field(dtype, shape=count), qd.ndarray(dtype, shape=count)
    z = np.zeros(count, dtype.numpy)

    @qd.kernel
    def add(y: qd.types.ndarray(), z: qd.types.ndarray()):
        for i in range(12 * count):
            x[i % count] += 1
            qd.atomic_max(y[i % count], qd.cast(i // count, dtype))
            z[i % count] -= 1

    add(y, z)
    assert x.to_numpy().tolist() == [12] * count
    assert y.to_numpy().tolist() == [11] * count
    assert z.tolist() == np.full(count, -12).astype(dtype.numpy).tolist()


def test_components():
    x = qd.Vector.field(3, qd.u8, shape=3)

    @qd.kernel
    def count():
        for i in range(3):
            for c in range(3):
                x[i][c] += i + c

    count()
    assert x.to_numpy().tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
