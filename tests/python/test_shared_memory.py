"""One array reached in several ways in one call: code must not assume that these are different memory."""

import numpy as np
import pytest

import octants as qd

Ints = qd.types.ndarray(dtype=qd.i32, ndim=1)
n = 100
# Each element is one more than the previous one. This fails if stores are assumed not to alias the loads.
CHAIN = np.arange(n)


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


def chain(array):
    values = array if isinstance(array, np.ndarray) else array.to_numpy()
    return (values == CHAIN).all()


def captured_chain():
    """An ndarray, and a kernel that has captured it."""
    seen = qd.ndarray(qd.i32, shape=n)

    @qd.kernel
    def run(x: Ints):
        qd.loop_config(serialize=True)
        for i in range(n - 1):
            x[i + 1] = seen[i] + 1

    return seen, run


def test_a_captured_ndarray_and_an_argument():
    seen, run = captured_chain()
    for _ in range(2):
        other = qd.ndarray(qd.i32, shape=n)
        run(other)
        assert (other.to_numpy()[1:] == seen.to_numpy()[:-1] + 1).all()
        seen.fill(0)
        run(seen)
        assert chain(seen)


@pytest.mark.in_place
def test_a_captured_ndarray_and_a_view_of_it():
    seen, run = captured_chain()
    for _ in range(2):
        run(qd.ndarray(qd.i32, shape=n))
        seen.fill(0)
        run(seen.to_numpy(copy=False))
        assert chain(seen)


def test_members_of_an_object_that_become_aliases():
    @qd.data_oriented
    class Owner:
        def __init__(self):
            self.x, self.y = qd.ndarray(qd.i32, shape=n), qd.ndarray(qd.i32, shape=n)

        @qd.kernel
        def run(self):
            qd.loop_config(serialize=True)
            for i in range(n - 1):
                self.x[i + 1] = self.y[i] + 1

    owner = Owner()
    owner.run()
    assert (owner.x.to_numpy()[1:] == 1).all()
    owner.x.fill(0)
    owner.y = owner.x
    owner.run()
    assert chain(owner.x)


def test_s13_sections_that_access_one_array_by_two_names():
    seen = qd.ndarray(qd.i32, shape=n)

    @qd.kernel
    def run(x: Ints):
        with qd.stream_parallel():
            for i in x:
                x[i] = 1
        with qd.stream_parallel():
            for i in seen:
                seen[i] = 2

    run(qd.ndarray(qd.i32, shape=n))
    with pytest.raises(qd.QuadrantsSyntaxError, match=r"`\w+` and `\w+` \(the same memory in this call\)"):
        run(seen)
    run(qd.ndarray(qd.i32, shape=n))
