"""Trip counts that come from memory are recomputed if and only if that memory may have been written to since."""

import numpy as np
import pytest

import octants as qd
from octants import cache

N = 6
LENGTHS = np.array([0, 1, 3, 2, 5, 4], dtype=np.int32)


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu, default_fp=qd.f64, cpu_separate_memory=True, kernel_profiler=True)
    yield
    qd.reset()


class Carried:
    """Sums that take their values from one iteration to the next, with lengths in `n`."""

    def __init__(self, n):
        self.x = x = qd.field(qd.f64, shape=N, needs_grad=True)
        self.loss = loss = qd.field(qd.f64, shape=(), needs_grad=True)
        self.n = n
        x.from_numpy(np.linspace(0.4, 1.3, N))
        n.from_numpy(LENGTHS)

        @qd.kernel
        def carried(n: qd.template()):
            for i in x:
                s = x[i]
                for _ in range(n[i]):
                    s = s * s * 0.9
                loss[None] += s

        @qd.kernel
        def carried_in_array(n: qd.types.ndarray()):
            for i in x:
                s = x[i]
                for _ in range(n[i]):
                    s = s * s * 0.9
                loss[None] += s

        self.kernel = carried if isinstance(n, qd.Field) else carried_in_array

    def check(self, lengths, n=None):
        """That the gradient with these lengths is right."""
        self.x.grad.fill(0)
        self.loss.grad[None] = 1
        self.kernel.grad(self.n if n is None else n)
        s = self.x.to_numpy()
        expected = np.ones(N)
        for k in range(max(lengths)):
            runs = np.asarray(lengths) > k
            expected = np.where(runs, expected * 1.8 * s, expected)
            s = np.where(runs, s * s * 0.9, s)
        np.testing.assert_allclose(self.x.grad.to_numpy(), expected, rtol=1e-12)

    def launched(self, what):
        """The number of launches of kernels derived from this one."""
        qd.sync()
        return qd.profiler.query_kernel_profiler_info(f"{self.kernel.__name__}_{what}").counter

    def counts(self):
        return self.launched("grad_count")


@qd.kernel
def add_to(n: qd.template(), k: qd.i32):
    for i in n:
        n[i] += k


@qd.kernel
def add_to_array(n: qd.types.ndarray(), k: qd.i32):
    for i in range(n.shape[0]):
        n[i] += k


def by_kernel(n):
    (add_to if isinstance(n, qd.Field) else add_to_array)(n, 2)
    return LENGTHS + 2


def by_element(n):
    n[2] = 7
    return [0, 1, 7, 2, 5, 4]


def by_numpy(n):
    n.from_numpy(LENGTHS + 1)
    return LENGTHS + 1


def by_fill(n):
    n.fill(4)
    return [4] * N


def by_copy(n):
    other = qd.field(qd.i32, shape=N) if isinstance(n, qd.Field) else qd.ndarray(qd.i32, shape=N)
    other.fill(3)
    n.copy_from(other)
    return [3] * N


def by_stream(n):
    with qd.create_stream() as stream:
        n.fill(6, qd_stream=stream)
        stream.synchronize()
    return [6] * N


def by_import_on_stream(n):
    with qd.create_stream() as stream:
        n.from_numpy(LENGTHS[::-1].copy(), qd_stream=stream)
        stream.synchronize()
    return LENGTHS[::-1]


def by_gradient(n):
    """A launch that is recorded."""
    loss = qd.field(qd.f64, shape=(), needs_grad=True)
    with qd.ad.Tape(loss):
        (add_to if isinstance(n, qd.Field) else add_to_array)(n, 1)
    return LENGTHS + 1


WRITES = [by_kernel, by_element, by_numpy, by_fill, by_copy, by_stream, by_import_on_stream, by_gradient]


@pytest.mark.parametrize("kind", ["field", "ndarray"])
@pytest.mark.parametrize("write", WRITES)
def test_trip_counts_are_recomputed_after_a_write(kind, write):
    n = qd.field(qd.i32, shape=N) if kind == "field" else qd.ndarray(qd.i32, shape=N)
    carried = Carried(n)
    for _ in range(3):
        carried.check(LENGTHS)
    assert carried.counts() == 1
    lengths = write(n)
    for _ in range(3):
        carried.check(lengths)
    assert carried.counts() == 2


def test_writes_through_another_array_of_the_same_memory_are_seen():
    n = qd.ndarray(qd.i32, shape=N)
    carried = Carried(n)
    carried.check(LENGTHS)
    add_to_array(n[2:4], 1)
    for _ in range(2):
        carried.check(LENGTHS + [0, 0, 1, 1, 0, 0])
    assert carried.counts() == 2


def test_writes_through_a_field_of_the_same_tree_are_seen():
    n, other = qd.field(qd.i32), qd.field(qd.i32)
    qd.root.dense(qd.i, N).place(n, other)
    carried = Carried(n)
    for _ in range(2):
        carried.check(LENGTHS)
    assert carried.counts() == 1
    other.fill(1)
    carried.check(LENGTHS)
    assert carried.counts() == 2, "nobody knows which of a tree's fields was written to"


def test_arrays_with_other_memory_are_distinguished():
    n = qd.ndarray(qd.i32, shape=N)
    carried = Carried(n)
    for k in range(4):
        other = qd.ndarray(qd.i32, shape=N)
        other.fill(k)
        for _ in range(2):
            carried.check([k] * N, other)
            carried.check(LENGTHS)
        del other  # its memory may come again
    assert carried.counts() == 5


def test_trip_counts_in_foreign_memory_are_recomputed_each_time():
    carried = Carried(qd.ndarray(qd.i32, shape=N))
    n = LENGTHS.copy()
    for k in range(3):
        n[:] = LENGTHS + k
        carried.check(n, n)
    assert carried.counts() == 3


def test_a_live_stream_may_write_later():
    n = qd.field(qd.i32, shape=N)
    carried = Carried(n)
    with qd.create_stream() as stream:
        for k in (2, 3):
            n.fill(k, qd_stream=stream)
            stream.synchronize()
            for _ in range(2):
                carried.check([k] * N)
        assert carried.counts() == 4
        # Reading delays no one.
        other = qd.field(qd.i32, shape=N)
        other.copy_from(n, qd_stream=stream)
        stream.synchronize()
    for _ in range(2):
        carried.check([3] * N)
    assert carried.counts() == 5


@qd.kernel
def address_of(n: qd.template()) -> qd.u64:
    return qd.get_addr(n, 0)


@pytest.mark.parametrize("tell", [lambda n: n._elements().buffer.ptr, address_of], ids=["attribute", "kernel"])
def test_exported_memory_may_change_unseen(tell):
    n = qd.field(qd.i32, shape=N)
    carried = Carried(n)
    carried.check(LENGTHS)
    carried.check(LENGTHS)
    assert carried.counts() == 1
    assert tell(n)
    for k in (1, 2):
        carried.check(LENGTHS)
        assert carried.counts() == 1 + k


def test_cached_code_of_an_earlier_process_behaves_the_same(tmp_path):
    recalled = []
    for _ in range(2):
        options = {"offline_cache": True, "offline_cache_file_path": str(tmp_path)}
        qd.init(arch=qd.cpu, default_fp=qd.f64, cpu_separate_memory=True, kernel_profiler=True, **options)
        carried = Carried(qd.field(qd.i32, shape=N))
        for _ in range(3):
            with qd.ad.Tape(carried.loss):
                carried.kernel(carried.n)
        assert (carried.launched("trips"), carried.counts()) == (1, 1)
        assert address_of(carried.n)
        for _ in range(2):
            carried.check(LENGTHS)
        assert carried.counts() == 3
        recalled.append(cache.counts()["recalled"])
    assert recalled[0] == 0 < recalled[1]


@pytest.mark.on_cpu
@pytest.mark.parametrize("view", ["view", "element"])
def test_trip_counts_in_host_addressable_memory_are_recomputed_each_time(view):
    qd.init(arch=qd.cpu, default_fp=qd.f64, cpu_streams=True, kernel_profiler=True)
    n = qd.ndarray(qd.i32, shape=N)
    carried = Carried(n)
    seen = n.to_numpy(copy=False)
    for k in range(3):
        if view == "view":
            seen[1] = k
        else:
            n[1] = k
        carried.check([0, k, 3, 2, 5, 4])
    assert carried.counts() == 3


# Tapes


def test_a_tape_records_unchanged_trip_counts_once():
    n = qd.field(qd.i32, shape=N)
    carried = Carried(n)
    for _ in range(2):
        with qd.ad.Tape(carried.loss):
            for _ in range(5):
                carried.kernel(n)
    assert (carried.launched("trips"), carried.counts()) == (1, 1)
    n[0] = 2
    with qd.ad.Tape(carried.loss):
        carried.kernel(n)
    assert (carried.launched("trips"), carried.counts()) == (2, 2)
    changed = pytest.raises(RuntimeError, match="ran 17 times in total, but would run 16 times now")
    with changed, qd.ad.Tape(carried.loss):
        carried.kernel(n)
        n[0] = 1
    assert carried.launched("trips") == 3


def test_a_tape_records_launches_with_other_arguments_separately():
    x = qd.field(qd.f64, shape=N, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)
    n = qd.field(qd.i32, shape=N)
    n.from_numpy(LENGTHS)
    x.fill(1.0)

    @qd.kernel
    def step(t: qd.i32, weight: qd.f64):
        for i in range(n[t]):
            loss[None] += weight * x[i]

    for _ in range(2):
        with qd.ad.Tape(loss):
            for t in range(N):
                step(t, 0.5 * t)
                step(t, 1.0)  # a number that no length depends on
    qd.sync()
    assert qd.profiler.query_kernel_profiler_info("step_trips").counter == N
    expected = [sum(1 + 0.5 * t for t in range(N) if LENGTHS[t] > i) for i in range(N)]
    np.testing.assert_allclose(x.grad.to_numpy(), expected)


@pytest.mark.filterwarnings("ignore:the gradient will be wrong")
def test_lengths_that_a_kernel_writes_itself_are_recorded_each_time():
    x = qd.field(qd.f64, shape=N, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)
    n = qd.field(qd.i32, shape=())
    x.fill(1.0)

    @qd.kernel
    def grow():
        for i in range(n[None]):
            loss[None] += x[i]
        n[None] += 1

    n[None] = 2
    changed = pytest.raises(RuntimeError, match="ran 3 times in total, but would run 4 times now")
    with changed, qd.ad.Tape(loss):
        grow()
        grow()
    qd.sync()
    assert qd.profiler.query_kernel_profiler_info("grow_trips").counter == 2
