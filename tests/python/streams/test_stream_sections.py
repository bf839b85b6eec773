"""`stream_parallel`: S9, S10, S13, S15."""

import warnings

import numpy as np
import pytest
from stream_kernels import Ints, both, ints, n

import octants as qd
from octants import cache


@pytest.mark.parametrize("container", ["field", "ndarray", "numpy"])
def test_s10_groups_work_on_fields_ndarrays_and_numpy(mode, container):
    make = {"field": lambda: qd.field(qd.i32, shape=n), "ndarray": ints, "numpy": lambda: np.zeros(n, np.int32)}
    a, b = make[container](), make[container]()
    Array = qd.template() if container == "field" else Ints

    @qd.kernel
    def run(x: Array, y: Array, m: qd.i32):
        with qd.stream_parallel():
            for i in range(m):
                x[i] = i
            for i, j in qd.ndrange(m // 2, 2):
                x[2 * i + j] += 1
        with qd.stream_parallel():
            k = m - 1
            for i in y:
                y[i] = -i
            y[0] = k

    with qd.create_stream() as s:
        for m in (n, 10):
            run(a, b, m, qd_stream=s)
        s.synchronize()
    got = a if container == "numpy" else a.to_numpy()
    assert (got[:n] == np.arange(n) + 1).all()
    got = b if container == "numpy" else b.to_numpy()
    assert got[0] == 9
    assert (got[1:] == -np.arange(1, n)).all()


def test_s9_s10_empty_blocks_and_docstrings(mode):
    x = ints()

    @qd.kernel
    def run(x: Ints):
        """Documented."""
        with qd.stream_parallel():
            pass
        with qd.stream_parallel():
            for i in x:
                x[i] = 1

    run(x)
    assert (x.to_numpy() == 1).all()


def test_s9_misuse(mode):
    x = ints()

    def refused(kernel, match):
        with pytest.raises(qd.QuadrantsSyntaxError, match=match) as caught:
            kernel(x)
        assert "test_stream_sections.py" in str(caught.value), "the user's line is named"

    @qd.kernel
    def mixed(x: Ints):
        with qd.stream_parallel():
            for i in x:
                x[i] = 1
        for i in x:
            x[i] = 2

    refused(mixed, "all top-level statements must be")

    @qd.kernel
    def nested(x: Ints):
        with qd.stream_parallel():
            with qd.stream_parallel():
                for i in x:
                    x[i] = 1

    refused(nested, "Nested")

    @qd.kernel
    def in_loop(x: Ints):
        for i in range(3):
            with qd.stream_parallel():
                x[i] = 1

    refused(in_loop, "must be at the top level of the kernel")

    @qd.kernel
    def in_branch(x: Ints):
        if x[0] == 0:
            with qd.stream_parallel():
                for i in x:
                    x[i] = 1

    refused(in_branch, "must be at the top level of the kernel")

    @qd.func
    def helper(x: qd.template()):
        with qd.stream_parallel():
            for i in x:
                x[i] = 1

    @qd.kernel
    def in_func(x: Ints):
        helper(x)

    refused(in_func, "can only be used inside @qd.kernel, not @qd.func")

    @qd.kernel
    def named(x: Ints):
        with qd.stream_parallel() as s:
            for i in x:
                x[i] = 1

    refused(named, "'with ... as ...' is not supported")

    @qd.kernel
    def several(x: Ints):
        with qd.stream_parallel(), qd.stream_parallel():
            for i in x:
                x[i] = 1

    refused(several, "only supports a single context manager")

    @qd.kernel
    def returns(x: Ints) -> qd.i32:
        with qd.stream_parallel():
            for i in x:
                x[i] = 1
        return 3

    refused(returns, "all top-level statements must be")

    @qd.kernel
    def returns_within(x: Ints) -> qd.i32:
        with qd.stream_parallel():
            return 3

    refused(returns_within, "`return` is not supported in a kernel with")

    @qd.kernel(graph=True)
    def graph(x: Ints):
        with qd.stream_parallel():
            for i in x:
                x[i] = 1

    refused(graph, "not compatible with graph=True")

    @qd.kernel
    def option(x: Ints):
        with qd.stream_parallel(overlap=True):
            for i in x:
                x[i] = 1

    refused(option, "takes no arguments except `allow_overlap`")
    with pytest.raises(qd.OctantsScopeError, match="belongs in a kernel"):
        qd.stream_parallel()
    assert x[0] == 0


def test_s13_sections_that_provably_conflict(mode):
    x, y = ints(), ints()
    f = qd.field(qd.i32, shape=n)
    v = qd.Vector.ndarray(2, qd.i32, shape=n)

    @qd.kernel
    def same(x: Ints, y: Ints):
        with qd.stream_parallel():
            for i in x:
                x[i] = 1
        with qd.stream_parallel():
            for i in x:
                x[i] = 2

    @qd.kernel
    def reads(x: Ints, y: Ints):
        with qd.stream_parallel():
            for i in range(100):
                x[i + 50] = 1
        with qd.stream_parallel():
            for i in range(100):
                y[i] = x[i]

    @qd.kernel
    def field(x: Ints, y: Ints):
        with qd.stream_parallel():
            for i in f:
                f[i] = 1
        with qd.stream_parallel():
            f[0] = 2

    for kernel, match in [
        (same, "two .* write the same elements of `x`"),
        (reads, "writes elements of `x` that another reads"),
        (field, "`f`"),
    ]:
        with pytest.raises(qd.QuadrantsSyntaxError, match=match) as caught:
            kernel(x, y)
        assert "allow_overlap=True" in str(caught.value)
        assert "test_stream_sections.py" in str(caught.value)


def test_s13_sections_that_may_conflict(mode):
    x, y = ints(), ints()

    @qd.kernel
    def conditional(x: Ints, y: Ints):
        with qd.stream_parallel():
            for i in x:
                if i < 10:
                    x[i] = 1
        with qd.stream_parallel():
            for i in x:
                if i >= 10:
                    x[i] = 2

    @qd.kernel
    def indirect(x: Ints, y: Ints):
        with qd.stream_parallel():
            for i in x:
                x[i] = 1
        with qd.stream_parallel():
            for i in range(3):
                y[i] = x[y[i + 5]]

    for kernel in (conditional, indirect):
        with pytest.warns(UserWarning, match=r"qd.stream_parallel\(\) block.* may write .*`x`"):
            kernel(x, y)
        if kernel is conditional:
            assert x.to_numpy().tolist() == [1] * 10 + [2] * (n - 10), "a warning does not keep the kernel from running"


def test_s13_updates_by_different_operations_may_conflict(mode):
    """Their order may matter. If different operations set and clear different bits, it does not."""
    x = ints()

    @qd.kernel
    def add_and_multiply(x: Ints):
        with qd.stream_parallel():
            for i in x:
                x[i] += 1
        with qd.stream_parallel():
            for i in x:
                x[i] *= 2

    @qd.kernel
    def add_and_subtract(x: Ints):
        with qd.stream_parallel():
            for i in x:
                x[i] += 3
        with qd.stream_parallel():
            for i in x:
                x[i] -= 1

    with pytest.warns(UserWarning, match=r"qd.stream_parallel\(\) block.* may write .*`x`"):
        add_and_multiply(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x.fill(0)
        add_and_subtract(x)
    assert x.to_numpy().tolist() == [2] * n


@pytest.mark.filterwarnings("error")
def test_s13_strides_and_rows_chosen_by_an_argument_do_not_conflict(mode):
    x, rows = ints(), qd.field(qd.i32, shape=(4, n))
    t = qd.field(qd.i32, shape=())

    @qd.kernel
    def steps(x: Ints):
        with qd.stream_parallel():
            for i in range(100):
                x[2 * i] = 1
        with qd.stream_parallel():
            for i in range(100):
                x[4 * i + 1] = 2
                x[8 * i + 3] = 3

    @qd.kernel
    def by_argument(k: qd.i32):
        with qd.stream_parallel():
            for i in range(n):
                rows[k, i] = 1
        with qd.stream_parallel():
            for i in range(n):
                rows[k + 1, i] = 2

    @qd.kernel
    def by_memory():
        with qd.stream_parallel():
            for i in range(n):
                rows[t[None] + 1, i] = 3
        with qd.stream_parallel():
            for i in range(n):
                rows[t[None], i] = 4

    @qd.kernel
    def in_turns():
        with qd.stream_parallel():
            for i in range(n):
                rows[(t[None] + 1) % 2, i] = 5
        with qd.stream_parallel():
            for i in range(n):
                rows[t[None] % 2, i] += 6

    steps(x)
    assert x.to_numpy()[:4].tolist() == [1, 2, 1, 3]
    by_argument(1)
    t[None] = 2
    by_memory()
    assert rows.to_numpy()[:, n - 1].tolist() == [0, 1, 4, 3]
    in_turns()
    assert rows.to_numpy()[:, 0].tolist() == [6, 5, 4, 3]


def test_s13_rows_chosen_by_an_argument_conflict(mode):
    rows = qd.field(qd.i32, shape=(4, n))
    t = qd.field(qd.i32, shape=())

    @qd.kernel
    def same():
        with qd.stream_parallel():
            for i in range(n):
                rows[t[None] + 1, i] = 1
        with qd.stream_parallel():
            for i in range(n):
                rows[1 + t[None], i] = 2

    with pytest.raises(qd.QuadrantsSyntaxError, match="write the same elements of `rows`"):
        same()


@pytest.mark.filterwarnings("error")
def test_s13_one_array_passed_for_two_parameters(mode):
    x, y, z = ints(), ints(), ints()

    @qd.kernel
    def run(x: Ints, y: Ints, z: Ints):
        with qd.stream_parallel():
            for i in range(100):
                x[i] = 1
        with qd.stream_parallel():
            for i in range(100):
                y[i] = z[i]

    @qd.kernel
    def apart(x: Ints, y: Ints):
        with qd.stream_parallel():
            for i in range(100):
                x[i] = 1
        with qd.stream_parallel():
            for i in range(100, x.shape[0]):
                y[i] = 2

    def refused(match, *args):
        with pytest.raises(qd.QuadrantsSyntaxError, match=match) as caught:
            run(*args)
        assert "allow_overlap=True" in str(caught.value)
        assert "y[i] = z[i]" in str(caught.value), "the user's line is shown"

    run(x, y, y)  # one block may use it as often as it likes
    for _ in range(2):
        refused(r"two .* blocks write the same elements of `x` and `y` \(the same memory in this call\)", x, x, z)
        refused(
            r"one .* block writes elements of `x` and `z` \(the same memory in this call\) that another reads", x, y, x
        )
        run(x, y, z)
    apart(x, x)
    assert (x.to_numpy() == np.where(np.arange(n) < 100, 1, 2)).all()

    # Views that share a part: equal indices need not be equal elements.
    host = np.zeros(2 * n, np.int32)
    with pytest.warns(UserWarning, match="blocks may write the same elements of `x` and `y`"):
        run(host[:n], host[50 : n + 50], z)
    run(host[:n], host[n:], z)


@pytest.mark.filterwarnings("error")
def test_s13_sections_without_conflicts_and_allowed_ones(mode):
    x, y = ints(), ints()
    v = qd.Vector.ndarray(2, qd.i32, shape=n)

    @qd.kernel
    def apart(x: Ints, y: Ints, v: qd.types.ndarray(dtype=qd.types.vector(2, qd.i32), ndim=1)):
        with qd.stream_parallel():
            for i in range(100):
                x[i] = y[i]
            for i in range(100):
                x[i] += 1
            for i in v:
                v[i][0] = 1
        with qd.stream_parallel():
            for i in range(100, 200):
                x[i] = y[i]
            for i in v:
                v[i][1] = 2
        with qd.stream_parallel():
            x[500] = 3

    apart(x, y, v)
    assert x[0] == 1
    assert x[100] == 0
    assert x[500] == 3
    assert v[4][0] == 1
    assert v[4][1] == 2

    @qd.kernel
    def counted(x: Ints, y: Ints):
        with qd.stream_parallel():
            for i in range(100):
                qd.atomic_add(y[i % 3], 1)
        with qd.stream_parallel():
            for i in range(100):
                qd.atomic_add(y[i % 3], 1)

    counted(x, y)
    assert y.to_numpy().sum() == 200

    @qd.kernel
    def meant(x: Ints, y: Ints):
        with qd.stream_parallel(allow_overlap=True):
            for i in x:
                x[i] = 7
        with qd.stream_parallel():
            for i in x:
                x[i] = 7

    meant(x, y)
    assert (x.to_numpy() == 7).all()


@qd.kernel
def in_one_section_or_two(x: Ints, y: Ints, apart: qd.template()):
    with qd.stream_parallel():
        for i in x:
            x[i] = 1
        if qd.static(not apart):
            for i in y:
                y[i] = 2
    with qd.stream_parallel():
        if qd.static(apart):
            for i in y:
                y[i] = 2


def test_s14_code_that_differs_only_in_sections_is_not_shared(mode):
    x, y = ints(), ints()
    forks = 0 if mode == "in order" else 1
    before = qd.stream_pool_stats()
    for apart in (False, True, False, True):
        x.fill(0)
        y.fill(0)
        in_one_section_or_two(x, y, apart)
        assert (x.to_numpy() == 1).all()
        assert (y.to_numpy() == 2).all()
        after = qd.stream_pool_stats()
        taken = after["created"] + after["reused"] - before["created"] - before["reused"]
        assert taken == (forks if apart else 0), "the loops run side by side where the sections say so"
        before = after


def test_s15_the_pool_grows_to_the_largest_demand(mode):
    x, y = ints(), ints()
    before = qd.stream_pool_stats()
    assert before == {"created": 0, "in_use": 0, "idle": 0, "reused": 0}
    for value in range(5):
        both(x, y, value)
        assert x[0] == value + 1
        assert y[0] == 2 * value
    workers = 0 if mode == "in order" else 1
    # CUDA launches the sections as branches of a graph from the third time on.
    again = 1 if qd.cfg.arch == qd.cuda else 4
    assert qd.stream_pool_stats() == {"created": workers, "in_use": 0, "idle": workers, "reused": again * workers}
    qd.trim_stream_pool()
    assert qd.stream_pool_stats()["idle"] == 0


def test_s14_cached_code_keeps_its_sections(tmp_path):
    options = {"cpu_streams": True, "offline_cache": True, "offline_cache_file_path": str(tmp_path)}

    for found in (0, 2):
        qd.init(arch=qd.cpu, **options)
        x, y = ints(), ints()
        in_one_section_or_two(x, y, False)
        assert qd.stream_pool_stats()["created"] == 0
        in_one_section_or_two(x, y, True)
        assert qd.stream_pool_stats()["created"] == 1, "its sections run side by side"
        assert (x[3], y[3]) == (1, 2)
        assert cache.counts()["hits"] == found, "each is found under a key of its own"
    qd.reset()


def test_s9_compile_time_statements_are_allowed_between_blocks(mode):
    x = qd.ndarray(qd.i32, 4)

    @qd.kernel
    def sections(x: qd.types.ndarray(), extra: qd.template()):
        qd.static_assert(True, "never told")
        with qd.stream_parallel():
            x[0] = 1
        if qd.static(extra):
            with qd.stream_parallel():
                x[1] = 2
        else:
            pass
        for k in qd.static(range(2)):
            with qd.stream_parallel():
                x[2 + k] = 3 + k

    sections(x, False)
    assert x.to_numpy().tolist() == [1, 0, 3, 4]
    sections(x, True)
    assert x.to_numpy().tolist() == [1, 2, 3, 4]

    @qd.kernel
    def run_time(x: qd.types.ndarray(), extra: qd.template()):
        if qd.static(extra):
            with qd.stream_parallel():
                x[1] = 2
        x[0] = 1

    with pytest.raises(qd.OctantsSyntaxError, match="all top-level statements"):
        run_time(x, True)
