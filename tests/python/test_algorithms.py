"""`qd.algorithms` against numpy, on lengths around the number of chunks."""

import numpy as np
import pytest

import octants as qd
from octants.algorithms.tile_shapes import least_capacity

LENGTHS = [1, 2, 63, 64, 65, 1000, 20_000]
TYPES = {"i32": np.int32, "u32": np.uint32, "f32": np.float32, "i64": np.int64, "u64": np.uint64, "f64": np.float64}
LEVELS = 3
REST = 99


@pytest.fixture(autouse=True)
def session(shared_kernels):
    qd.init(arch=qd.cpu, log_level=qd.ERROR)
    yield
    qd.reset()


@pytest.fixture
def room(request):
    """The elements of the arrays for a length. The CPU and separate memory have arrays of that length. Elsewhere a
    kernel takes seconds to compile: one of each type serves all lengths, and leaves the rest of long arrays alone."""
    exact = request.config.getoption("--arch") in ("cpu", "cpu-separate")
    return lambda n: n if exact else max(LENGTHS)


def numbers(name, n, seed=0):
    low = 0 if name[0] == "u" else -50
    # Whole numbers, so that sums of floats are exact.
    return np.random.default_rng(seed).integers(low, 50, n).astype(TYPES[name])


def filled(name, values, size=None):
    """A field that begins with the values; `REST` follows them."""
    size = size or len(values)
    field = qd.field(getattr(qd, name), shape=size)
    field.from_numpy(np.concatenate([values, np.full(size - len(values), REST, values.dtype)]))
    return field


def taken(field, n):
    """The first `n` elements. The rest must be as `filled` left it."""
    values = field.to_numpy()
    assert (values[n:] == REST).all()
    return values[:n]


def scratch_of(name, slots):
    return qd.field(qd.u64 if name.endswith("64") else qd.u32, shape=slots)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", TYPES)
def test_reductions_and_scans(name, n, room):
    a = numbers(name, n)
    dtype = getattr(qd, name)
    arr, count = filled(name, a, room(n)), filled("i32", np.array([n], dtype=np.int32))
    results = [qd.field(dtype, shape=1) for _ in range(3)]
    scans = [filled(name, np.zeros_like(a), room(n)) for _ in range(3)]
    total, smallest, largest = results
    sums, minima, maxima = scans
    scratch = scratch_of(name, qd.algorithms.exclusive_scan_scratch_slots(room(n), LEVELS))

    @qd.kernel
    def run():
        qd.algorithms.reduce_add(arr, total, scratch, count[0], dtype, LEVELS)
        qd.algorithms.reduce_min(arr, smallest, scratch, count[0], dtype, LEVELS)
        qd.algorithms.reduce_max(arr, largest, scratch, count[0], dtype, LEVELS)
        qd.algorithms.exclusive_scan_add(arr, sums, scratch, count[0], dtype, LEVELS)
        qd.algorithms.exclusive_scan_min(arr, minima, scratch, count[0], dtype, LEVELS)
        qd.algorithms.exclusive_scan_max(arr, maxima, scratch, count[0], dtype, LEVELS)

    run()
    assert [r[0] for r in results] == [a.sum(dtype=a.dtype), a.min(), a.max()]
    info = np.finfo(a.dtype) if name[0] == "f" else np.iinfo(a.dtype)
    lowest, highest = (-np.inf, np.inf) if name[0] == "f" else (info.min, info.max)
    expected = [
        (sums, 0, np.cumsum(a, dtype=a.dtype)),
        (minima, highest, np.minimum.accumulate(a)),
        (maxima, lowest, np.maximum.accumulate(a)),
    ]
    for scan, first, inclusive in expected:
        assert taken(scan, n).tolist() == [first, *inclusive[:-1].tolist()]


@pytest.mark.parametrize("n", LENGTHS)
def test_select(n, room):
    a, flags = numbers("f32", n), np.random.default_rng(1).integers(0, 2, n).astype(np.int32)
    arr, chosen, out = (
        filled("f32", a, room(n)),
        filled("i32", flags, room(n)),
        filled("f32", np.zeros_like(a), room(n)),
    )
    found, count = qd.field(qd.i32, shape=1), filled("i32", np.array([n], dtype=np.int32))
    scratch = qd.field(qd.u32, shape=qd.algorithms.select_scratch_slots(room(n)))

    @qd.kernel
    def run():
        qd.algorithms.select(arr, chosen, out, found, scratch, count[0], LEVELS)

    run()
    assert found[0] == flags.sum()
    assert taken(out, n)[: found[0]].tolist() == a[flags == 1].tolist()


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", TYPES)
def test_sort_is_stable_and_carries_values(name, n, room):
    a = numbers(name, n)
    if name[0] == "f":
        a *= TYPES[name](0.37)
    dtype, width = getattr(qd, name), int(name[1:])
    keys, spare = filled(name, a, room(n)), qd.field(dtype, shape=room(n))
    values, spare_values = filled("i32", np.arange(n, dtype=np.int32), room(n)), qd.field(qd.i32, shape=room(n))
    count = qd.field(qd.i32, shape=())
    count[None] = n
    scratch = qd.field(qd.u32, shape=qd.algorithms.sort_scratch_slots(room(n), LEVELS))

    @qd.kernel
    def run():
        qd.algorithms.sort(keys, spare, values, spare_values, scratch, count, dtype, True, width, LEVELS)

    run()
    order = np.argsort(a, kind="stable")
    assert taken(keys, n).tolist() == a[order].tolist()
    assert taken(values, n).tolist() == order.tolist()


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("name", ["i64", "f32", "f64", "u32"])
def test_sort_of_crowded_digits(name, descending):
    """Passes in which all keys have one digit, or many: small integers in wide words, and special floats."""
    n, rng = 9000, np.random.default_rng(7)
    a = rng.choice([3, 3, 3, 3, 200, 70_000], n).astype(TYPES[name])
    if name[0] == "f":
        # NaN of either sign.
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, -3.0], dtype=a.dtype)
        a[::3] = rng.choice(special, a[::3].size)
    keys, values = filled(name, a), filled("i32", np.arange(n, dtype=np.int32))
    qd.algorithms.launch.sort(keys, values, descending=descending)
    order = np.argsort(a, kind="stable")
    if descending:
        # Equal keys stay in order, and NaN comes last.
        number = ~np.isnan(a)
        first = np.flatnonzero(number)[np.argsort(-a[number].astype(np.float64), kind="stable")]
        order = np.concatenate([first, np.flatnonzero(~number)])
    assert values.to_numpy().tolist() == order.tolist()
    assert np.array_equal(keys.to_numpy(), a[order], equal_nan=name[0] == "f")


def test_sort_of_ndarrays_by_low_bits():
    array = qd.types.ndarray(qd.u32, ndim=1)

    @qd.kernel
    def run(keys: array, spare: array, scratch: array, n: qd.types.ndarray(qd.i32, ndim=0)):
        qd.algorithms.sort(keys, spare, keys, spare, scratch, n, qd.u32, False, 16, LEVELS)

    a = np.random.default_rng(2).integers(0, 1 << 16, 500).astype(np.uint32)
    keys, spare = qd.ndarray(qd.u32, shape=500), qd.ndarray(qd.u32, shape=500)
    scratch = qd.ndarray(qd.u32, shape=qd.algorithms.sort_scratch_slots(500, LEVELS))
    n = qd.ndarray(qd.i32, shape=())
    keys.from_numpy(a)
    n.fill(500)
    run(keys, spare, scratch, n)
    assert keys.to_numpy().tolist() == np.sort(a).tolist()


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("distinct", [1, 7, 1000])
def test_reduce_by_key(n, distinct, room):
    rng = np.random.default_rng(n)
    k = np.sort(rng.integers(0, distinct, n)).astype(np.int32)
    v = numbers("f32", n)
    keys, values = filled("i32", k, room(n)), filled("f32", v, room(n))
    keys_out, values_out = filled("i32", np.zeros_like(k), room(n)), filled("f32", np.zeros_like(v), room(n))
    runs, count = qd.field(qd.i32, shape=1), filled("i32", np.array([n], dtype=np.int32))
    scratch = qd.field(qd.u32, shape=qd.algorithms.reduce_by_key_scratch_slots(room(n)))

    @qd.kernel
    def run():
        qd.algorithms.reduce_by_key_add(keys, values, keys_out, values_out, runs, scratch, count[0], qd.f32, LEVELS)

    run()
    unique, which = np.unique(k, return_inverse=True)
    assert runs[0] == len(unique)
    assert taken(keys_out, n)[: len(unique)].tolist() == unique.tolist()
    assert taken(values_out, n)[: len(unique)].tolist() == np.bincount(which, weights=v).tolist()


@pytest.mark.parametrize("n", [1, 2, 3, 100, 4097])
@pytest.mark.parametrize("offset", [0, -5, 7])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_host_side_algorithms(n, offset):
    a = np.random.default_rng(3).integers(-99, 99, n).astype(np.int32)
    keys, values = (qd.field(qd.i32, shape=n, offset=offset) for _ in range(2))
    keys.from_numpy(a)
    values.from_numpy(a * 2)
    qd.algorithms.parallel_sort(keys, values)
    assert keys.to_numpy().tolist() == np.sort(a).tolist()
    assert values.to_numpy().tolist() == (np.sort(a) * 2).tolist()

    keys.from_numpy(a)
    qd.algorithms.PrefixSumExecutor(n).run(keys)
    assert keys.to_numpy().tolist() == np.cumsum(a).tolist()


def test_arrays_without_elements():
    launch = qd.algorithms.launch
    none, counts = np.zeros(0, np.float32), np.full(1, 7, np.int32)
    launch.sort(none)
    launch.sort(none, np.zeros(0, np.int32), descending=True)
    launch.sort_segments(none, np.zeros(1, np.int32))
    launch.unique(none, none, counts)
    assert counts[0] == 0
    largest = np.full(2, 3.0, np.float32)
    launch.top_k(none, largest)
    launch.top_k(largest, none)
    assert largest.tolist() == [3.0, 3.0]


def test_minimum_capacity():
    assert [least_capacity(n) for n in (0, 1, 256, 257, 65_536, 65_537, 1 << 32)] == [1, 1, 1, 2, 2, 3, 4]


def test_refusals():
    with pytest.raises(ValueError, match="log256_max_n"):
        qd.algorithms.reduce_scratch_slots(10, 5)
    arr, out, scratch = qd.field(qd.u1, shape=4), qd.field(qd.u1, shape=1), qd.field(qd.u32, shape=64)

    @qd.kernel
    def run():
        qd.algorithms.reduce_add(arr, out, scratch, 4, qd.u1, 1)

    with pytest.raises(Exception, match="the algorithms support"):
        run()
