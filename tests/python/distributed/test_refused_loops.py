"""Loops over split arrays that cannot run in parts are refused, with the user's line."""

import re

import numpy as np
import pytest

import octants as qd

pytestmark = pytest.mark.usefixtures("cpu_program")


@pytest.fixture
def cpu_program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


def split(*shape, dtype=qd.i32, **options):
    return qd.ndarray(dtype, shape=shape, split=0, **options)


def refused(kernel, *args):
    with pytest.raises(qd.OctantsCompilationError) as error:
        kernel(*args)
    text = str(error.value)
    assert "test_refused_loops.py" in text
    return text


def test_an_index_from_memory_has_no_bound():
    @qd.kernel
    def gather(x: qd.types.ndarray(), y: qd.types.ndarray(), of: qd.types.ndarray()):
        for i in y:
            y[i] = x[of[i]]

    text = refused(gather, split(8), split(8), qd.ndarray(qd.i32, shape=(8,)))
    assert "cannot bound the first index of `x`, which is split over ranks" in text
    assert "y[i] = x[of[i]]" in text


def test_a_scaled_index_has_no_bound():
    @qd.kernel
    def gather(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in range(4):
            y[i] = x[2 * i]

    assert "cannot bound the first index" in refused(gather, split(8), split(8))


def test_an_iteration_writes_one_row():
    @qd.kernel
    def scatter(x: qd.types.ndarray()):
        for i in range(7):
            x[i] = 1
            x[i + 1] = 2

    assert "an iteration writes two different rows" in refused(scatter, split(8))


def test_sums_in_rows_of_neighbors_are_complete_after_the_loop():
    @qd.kernel
    def reads(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in x:
            if i + 1 < 8:
                y[i + 1] += 1
            x[i] = y[i]

    assert "the same loop adds to rows of `y` that other ranks own" in refused(reads, split(8), split(8))

    @qd.kernel
    def old_value(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in range(7):
            x[i] = qd.atomic_add(y[i + 1], 1)

    @qd.kernel
    def product(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in range(7):
            x[i] = 1
            qd.atomic_mul(y[i + 1], 2)

    for kernel in (old_value, product):
        assert "an iteration writes two different rows of split arrays" in refused(kernel, split(8), split(8))


def test_assume_local_only_reads_and_adds_in_loops_over_rows():
    @qd.kernel
    def writes(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in x:
            y[qd.distributed.assume_local(y, x[i])] = 1

    assert "cannot bound the first index of `y`, which is split over ranks" in refused(writes, split(8), split(8))

    @qd.kernel
    def by_number(x: qd.types.ndarray()):
        for i in range(8):
            x[qd.distributed.assume_local(x, i % 3)] += 1

    assert "apart from `x`, no split array is indexed by the loop variable" in refused(by_number, split(8))

    @qd.kernel
    def by_float(x: qd.types.ndarray()):
        for i in x:
            x[qd.distributed.assume_local(x, 0.5 * i)] += 1

    with pytest.raises(qd.OctantsTypeError, match="row index of `assume_local` must be an integer"):
        by_float(split(8))


def test_rows_between_other_bounds_are_refused():
    @qd.kernel
    def clamped(x: qd.types.ndarray(), y: qd.types.ndarray(), most: qd.i32):
        for i in x:
            y[qd.max(0, qd.min(x[i], most))] += 1

    clamped(split(8), split(8), 7)
    with pytest.raises(qd.OctantsDistributedError, match=r"clamped to 0 to 50, but this rank has only rows -2 to 9"):
        clamped(split(8), split(8), 50)


def test_rows_wrap_around_in_periodic_arrays():
    @qd.kernel
    def shift(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in y:
            y[i] = x[(i + 1) % x.shape[0]]

    @qd.kernel
    def by_constant(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in range(8):
            y[i] = x[(i + 1) % 8]

    x, y = split(8, periodic=True), split(8)
    x.from_numpy(np.arange(8, dtype=np.int32))
    for kernel in (shift, by_constant):
        y.fill(0)
        kernel(x, y)
        assert y.to_numpy().tolist() == [1, 2, 3, 4, 5, 6, 7, 0]
        with pytest.raises(qd.OctantsDistributedError, match=r"shape \(8,\): create the array with periodic=True"):
            kernel(split(8), y)

    @qd.kernel
    def add(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in x:
            y[(i + 1) % y.shape[0]] += x[i]

    around = split(8, periodic=True)
    for _ in range(20):
        around.fill(1)
        for rounds in (1, 2):
            add(x, around)
            assert around.to_numpy().tolist() == [1 + rounds * value for value in [7, 0, 1, 2, 3, 4, 5, 6]]
    with pytest.raises(qd.OctantsDistributedError, match="modulo 8 in an array with 9 rows"):
        by_constant(split(9, periodic=True), split(9))
    with qd.graph.capture() as graph:
        shift(x, y)
    x.from_numpy(np.arange(8, dtype=np.int32) * 2)
    graph.launch()
    assert y.to_numpy().tolist() == [2, 4, 6, 8, 10, 12, 14, 0]


def test_ghost_rows_are_summed_after_stream_parallel_blocks():
    rows = 20_000

    @qd.kernel
    def add(x: qd.types.ndarray(), y: qd.types.ndarray(), z: qd.types.ndarray()):
        with qd.stream_parallel():
            for i in x:
                y[(i + 1) % y.shape[0]] += x[i]
        with qd.stream_parallel():
            for i in x:
                late = x[i]
                for turn in range(100):
                    late = (late * 3 + turn) % 7
                z[(i + 1) % z.shape[0]] += x[i] + late // 7

    x, y, z = (split(rows, periodic=True) for _ in range(3))
    x.from_numpy(np.arange(rows, dtype=np.int32))
    for _ in range(10):
        y.fill(1)
        z.fill(1)
        for _ in range(2):
            add(x, y, z)
        expected = 1 + 2 * np.roll(np.arange(rows), 1)
        assert (y.to_numpy() == expected).all()
        assert (z.to_numpy() == expected).all()


def test_loops_with_wrapped_rows_run_over_rows():
    @qd.kernel
    def beyond(x: qd.types.ndarray(), y: qd.types.ndarray(), n: qd.i32):
        for i in range(n):
            y[i] = x[(i + 1) % x.shape[0]]

    assert "row indices of `x` wrap around, but the loop does not" in refused(
        beyond, split(8, periodic=True), split(8), 8
    )

    @qd.kernel
    def writes(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in x:
            y[(i + 1) % y.shape[0]] = x[i]

    assert "`y` is written at a row that does not follow from the loop variable" in refused(
        writes, split(8), split(8, periodic=True)
    )

    @qd.kernel
    def long(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in range(9):
            if i < 8:
                y[i] = x[(i + 1) % x.shape[0]]

    with pytest.raises(qd.OctantsDistributedError, match="a loop over rows up to 8 of an array with 8 rows"):
        long(split(8, periodic=True), split(8))


def test_debug_mode_checks_local_rows():
    @qd.kernel
    def scatter(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in x:
            y[qd.distributed.assume_local(y, x[i])] += 1

    x, y = split(8), split(8)
    x.from_numpy(np.array([0, 1, 1, 7, 3, 3, 3, 40], np.int32))
    scatter(x, y)
    assert y.to_numpy().tolist() == [1, 2, 0, 3, 0, 0, 0, 2]
    qd.reset()
    qd.init(arch=qd.cpu, debug=True)
    x, y = split(8), split(8)
    x.from_numpy(np.array([0, 1, 1, 7, 3, 3, 3, 40], np.int32))
    with pytest.raises(AssertionError, match="Row 40 of `y` is neither owned by this rank nor one of its.*0 to 7"):
        scatter(x, y)
    whole = qd.ndarray(qd.i32, shape=(8,))
    x.from_numpy(np.arange(8, dtype=np.int32))
    scatter(whole, qd.ndarray(qd.i32, shape=(8,)))


def test_rows_follow_one_axis_of_the_loop():
    @qd.kernel
    def transpose(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i, j in qd.ndrange(8, 8):
            y[i, j] = x[j, i]

    assert "are indexed by a different loop variable" in refused(transpose, split(8, 8), split(8, 8))


def test_other_arrays_are_not_written():
    @qd.kernel
    def copy(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in x:
            y[i] = x[i]

    text = refused(copy, split(8), qd.ndarray(qd.i32, shape=(8,)))
    assert "`y` is written in a loop over a split array, but is not split itself" in text


def test_old_values_of_sums_are_refused():
    @qd.kernel
    def compact(x: qd.types.ndarray(), n: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in x:
            at = qd.atomic_add(n[0], 1)
            x[i] = at

    ones = qd.ndarray(qd.i32, shape=(1,))
    assert "an atomic operation on `n` returns would depend on the other ranks" in refused(
        compact, split(8), ones, ones
    )


def test_serial_code_with_split_arrays_is_refused():
    @qd.kernel
    def first(x: qd.types.ndarray()) -> qd.i32:
        return x[0]

    @qd.kernel
    def in_order(x: qd.types.ndarray()):
        qd.loop_config(serialize=True)
        for i in range(1, 8):
            x[i] = x[i - 1]

    for kernel in (first, in_order):
        assert "is split over ranks but used outside of a parallel loop" in refused(kernel, split(8))


def test_clamping_to_a_row_other_than_the_last_is_refused():
    @qd.kernel
    def clamped(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in y:
            y[i] = x[qd.min(i + 1, 5)]

    with pytest.raises(
        qd.OctantsDistributedError, match="kernel `clamped`.*clamped to 5, but only clamping to the last row, 7"
    ):
        clamped(split(8), split(8))


def test_arrays_that_cannot_be_split_are_refused():
    for arguments, said in (
        ({"shape": (4, 4), "split": 2}, "split=2: must be the number of an axis, from 0 to 1"),
        ({"shape": (4, 4), "split": "w"}, "split='w': must be the number of an axis"),
        ({"shape": (4,), "split": True}, "split=True: must be the number of an axis"),
        ({"shape": (), "split": 0}, "a 0-dimensional array cannot be split"),
        ({"shape": (4,), "split": 0, "halo": -1}, "halo must be a number of rows"),
    ):
        with pytest.raises(ValueError, match=re.escape(said)):
            qd.ndarray(qd.f32, **arguments)
    with pytest.raises(qd.OctantsRuntimeError, match="i32 is not supported for ndarray with `needs_grad=True`"):
        qd.ndarray(qd.i32, (4,), True, split=0)
    with pytest.raises(qd.OctantsRuntimeError, match="but got order"):
        qd.field(qd.f32, shape=(4, 4), order="ji", split=0)
    with pytest.raises(qd.OctantsIndexError, match="out of bounds"):
        split(4)[4]
    with pytest.raises(ValueError, match="Mismatch shape"):
        split(4).from_numpy(np.zeros(3))


def test_arrays_of_one_loop_have_equal_row_counts():
    @qd.kernel
    def stagger(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in x:
            x[i] = y[i]

    with pytest.raises(qd.OctantsDistributedError, match=r"different numbers of rows \(\(8,\), \(9,\)\)"):
        stagger(split(8), split(9))


def test_accesses_stay_within_the_ghost_rows():
    @qd.kernel
    def far(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in range(3, 8):
            y[i] = x[i - 3]

    with pytest.raises(qd.OctantsDistributedError, match="with 2 ghost rows: create it with halo=3"):
        far(split(8), split(8))
    x, y = split(8, halo=3), split(8)
    x.from_numpy(np.arange(8, dtype=np.int32))
    far(x, y)
    assert y.to_numpy().tolist() == [0, 0, 0, 0, 1, 2, 3, 4]


def test_one_rank_captures_and_records_as_usual():
    @qd.kernel
    def add(x: qd.types.ndarray()):
        for i in x:
            x[i] += i

    x = split(8)
    add(x)
    with qd.graph.capture() as graph:
        add(x)
    graph.launch()
    assert x.to_numpy().tolist() == [2 * i for i in range(8)]


def test_a_gradient_that_keeps_values_of_a_loop_is_refused():
    x = qd.ndarray(qd.f32, shape=(8,), split=0, needs_grad=True)
    loss = qd.field(qd.f32, shape=(), needs_grad=True)

    @qd.kernel
    def powers(x: qd.types.ndarray(), n: qd.i32):
        for i in x:
            power = 1.0
            for _ in range(n):
                power = power * x[i]
            loss[None] += power

    x.fill(2.0)
    powers(x, 3)
    assert loss[None] == 64.0
    message = r"for _ in range\(n\):(.|\n)*keeps `power` of its iterations, whose number is known at run time only"
    with pytest.raises(qd.OctantsCompilationError, match=message):
        powers.grad(x, 3)
