"""Loops over more indices than do something: `if i < count[e]:` around the whole body becomes a bound of the loop."""

import numpy as np
import pytest

import octants as qd

ROWS, ROOM = 7, 30
COUNTS = np.array([0, 1, -4, 29, 30, 99, 2_147_483_647], np.int32)
Array = qd.types.ndarray(dtype=qd.i32, ndim=1)
Grid = qd.types.ndarray(dtype=qd.i32, ndim=2)


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


@qd.func
def below(j, n):
    return j < n


@qd.func
def at_most(j, n):
    return j <= n


@qd.func
def above(j, n):
    return j > n


@qd.func
def at_least(j, n):
    return j >= n


@qd.func
def exchanged(j, n):
    return n > j


@qd.func
def with_another_condition(j, n):
    return n - 1 >= j and j != 3


@qd.func
def between(j, n):
    return j >= 4 and j < n


CONDITIONS = {
    below: lambda j, n: j < n,
    at_most: lambda j, n: j <= n,
    above: lambda j, n: j > n,
    at_least: lambda j, n: j >= n,
    exchanged: lambda j, n: n > j,
    with_another_condition: lambda j, n: n - 1 >= j != 3,
    between: lambda j, n: 4 <= j < n,
}


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda f: f.__name__)
def test_every_comparison_keeps_its_iterations(condition):
    @qd.kernel
    def mark(holds: qd.template(), n: Array, of_axes: Grid, of_loops: Grid):
        qd.loop_config(serialize=True)
        for i, j in qd.ndrange(ROWS, ROOM):
            if holds(j, n[i]):
                of_axes[i, j] = 1
        for i in range(ROWS):
            for j in range(ROOM):
                if holds(j, n[i]):
                    of_loops[i, j] = 1

    of_axes, of_loops = np.zeros((ROWS, ROOM), np.int32), np.zeros((ROWS, ROOM), np.int32)
    mark(condition, COUNTS, of_axes, of_loops)
    expected = [[int(CONDITIONS[condition](j, int(n))) for j in range(ROOM)] for n in COUNTS]
    assert of_axes.tolist() == expected
    assert of_loops.tolist() == expected


def test_a_limit_that_the_loop_changes_is_read_again():
    @qd.kernel
    def fill(n: Array, x: Array):
        for _ in range(1):
            for j in range(ROOM):
                if j < n[0]:
                    x[j] = 1
                    n[0] += 2

    n, x = np.array([1], np.int32), np.zeros(ROOM, np.int32)
    fill(n, x)
    assert x.sum() == ROOM
    assert n[0] == 1 + 2 * ROOM


def test_a_limit_in_the_array_that_is_written_is_read_again():
    @qd.kernel
    def fill(n: Array, x: Array):
        for _ in range(1):
            for j in range(ROOM):
                if j < n[0]:
                    x[j] = 20

    both = np.zeros(ROOM, np.int32)
    both[0] = 1
    array = qd.ndarray(qd.i32, ROOM)
    array.from_numpy(both)
    fill(array, array)
    assert array.to_numpy().tolist() == [20] * 20 + [0] * 10


def test_a_loop_without_iterations_reads_no_limit():
    @qd.kernel
    def count(room: qd.i32, row: qd.i32, n: Array) -> qd.i32:
        total = 0
        for _ in range(1):
            for j in range(room):
                if j < n[row]:
                    total += 1
        return total

    assert count(ROOM, 1, np.array([3, 12], np.int32)) == 12
    # No such row, and far outside of the memory.
    assert count(0, 1_000_000_000, np.array([3, 12], np.int32)) == 0


def test_break_leaves_all_axes():
    @qd.kernel
    def first(n: Array, wanted: qd.i32) -> qd.i32:
        found = -1
        qd.loop_config(serialize=True)
        for i, j in qd.ndrange(ROWS, ROOM):
            if j < n[i]:
                if i * 100 + j >= wanted:
                    found = i * 100 + j
                    break
        return found

    assert first(COUNTS, 105) == 300
    assert first(COUNTS, 428) == 428
    assert first(COUNTS, 1000) == -1
