"""Kernels of many loops, which are compiled in several pieces."""

import numpy as np
import pytest

import octants as qd

LOOPS, STATEMENTS = 12, 30


@pytest.mark.parametrize("threads", [1, 3])
def test_a_kernel_of_many_loops_is_correct_in_any_partition(threads):
    qd.init(arch=qd.cpu, num_compile_threads=threads, offline_cache=False)

    @qd.kernel
    def many(a: qd.types.ndarray(), most: qd.types.ndarray()):
        for t in qd.static(range(LOOPS)):
            for i in range(a.shape[0]):
                v = a[i]
                for k in qd.static(range(STATEMENTS)):
                    v = v * 3 + k + t
                a[i] = v
                qd.atomic_max(most[t], v)

    start = np.arange(100, dtype=np.int32)
    a, most = start.copy(), np.full(LOOPS, -(2**31), np.int32)
    many(a, most)
    expected = start.copy()
    for t in range(LOOPS):
        for k in range(STATEMENTS):
            expected = expected * 3 + k + t
        assert most[t] == expected.max()
    np.testing.assert_array_equal(a, expected)


@pytest.mark.parametrize("count", [3, 101])
@pytest.mark.filterwarnings("ignore:You are unrolling")
def test_inner_loops_are_unrolled_only_with_known_trip_counts(count):
    qd.init(arch=qd.cpu, offline_cache=False)

    @qd.kernel
    def walk(at: qd.types.ndarray(), n: qd.types.ndarray(), following: qd.types.ndarray()):
        for i in range(at.shape[0]):
            here = i
            for _ in qd.static(range(count)):
                for _ in range(n[i]):
                    here = following[here]
            at[i] = here

    at, n = np.zeros(4, np.int32), np.arange(4, dtype=np.int32)
    following = (n + 1) % 4
    walk(at, n, following)
    np.testing.assert_array_equal(at, (np.arange(4) + count * n) % 4)
    # To unroll one LLVM looks through them all, which takes the square of their number.
    text = qd.inspect(walk, at, n, following, emit="llvm")
    assert ("llvm.loop.unroll.runtime.disable" in text) == (count > 100)
