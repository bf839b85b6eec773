"""Updates of elements that only one iteration touches: not atomic if nothing else runs, with unchanged sums.

The code size of loops over many arrays grows linearly with their number, not quadratically."""

import dataclasses

import numpy as np
import pytest

import octants as qd

N = 1003
F32 = qd.types.ndarray(dtype=qd.f32, ndim=1)
I32 = qd.types.ndarray(dtype=qd.i32, ndim=1)
PLANE = qd.types.ndarray(dtype=qd.f32, ndim=2)
STREAMS = [False, True]

pytestmark = pytest.mark.on_cpu


@pytest.fixture(autouse=True)
def program():
    start()
    yield
    qd.reset()


def start(**options):
    qd.init(arch=qd.cpu, **{"cpu_max_num_threads": 4, **options})


def is_atomic(kernel, *args):
    code = qd.inspect(kernel, *args, emit="llvm")
    return "atomicrmw" in code or "cmpxchg" in code


def some(*shape):
    return np.random.default_rng(7).integers(0, 100, shape).astype(np.float32)


@pytest.mark.parametrize("streams", STREAMS)
def test_all_kinds_of_updates(streams):
    start(cpu_streams=streams)

    @qd.kernel
    def update(x: I32, f: F32, old: I32, seen: F32):
        for i in range(x.shape[0]):
            x[i] += i
            x[i] *= 3
            x[i] ^= 5
            x[i] -= 1
            f[i] = qd.atomic_max(f[i], 0.5 * i) + 1.0
            old[i] = qd.atomic_add(x[i], 10)
            seen[i] -= f[i]
            if i % 3 == 0:
                x[i] |= 1
                f[i] -= 2.0

    @qd.kernel
    def swap(swapped: I32):
        for i in range(swapped.shape[0]):
            qd.atomic_cas(swapped[i], 4, 7)

    start_x, start_f = some(N).astype(np.int32), some(N)
    x, f, old, seen = start_x.copy(), start_f.copy(), np.zeros(N, np.int32), np.ones(N, np.float32)
    swapped = (np.arange(N) % 5).astype(np.int32)
    assert is_atomic(update, x, f, old, seen) == streams
    update(x, f, old, seen)
    swap(swapped)
    i = np.arange(N)
    new_x = (((start_x + i) * 3) ^ 5) - 1
    assert np.array_equal(old, new_x)
    assert np.array_equal(x, np.where(i % 3 == 0, (new_x + 10) | 1, new_x + 10))
    assert np.array_equal(f, start_f + 1 - np.where(i % 3 == 0, 2, 0))
    assert np.array_equal(seen, 1 - (start_f + 1))
    assert np.array_equal(swapped, np.where(i % 5 == 4, 7, i % 5))


def test_indices_must_use_all_axes_of_the_loop():
    @qd.kernel
    def rows(a: PLANE, b: PLANE):
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                a[i, j] += b[j, i]

    @qd.kernel
    def elements(a: PLANE, b: PLANE):
        for i, j in qd.ndrange(a.shape[0], a.shape[1]):
            a[i, j] += b[j, i]
            a[i, j] -= 1.0

    @qd.kernel
    def columns(a: PLANE, b: PLANE):
        for i, j in qd.ndrange(a.shape[0], a.shape[1]):
            a[i, 0] += b[j, i]

    @qd.kernel
    def turned(a: PLANE, b: PLANE):
        for i, j in qd.ndrange(a.shape[0], a.shape[1]):
            a[i, j] += b[j, i]
            a[j, i] += b[i, j]

    @qd.kernel
    def grouped(a: PLANE, b: PLANE):
        for at in qd.grouped(a):
            a[at] += b[at[1], at[0]]

    a, b = some(33, 33), some(33, 33)
    changes = {rows: b.T, elements: b.T - 1, turned: 2 * b.T, grouped: b.T}
    sums = np.zeros((33, 33), np.float32)
    sums[:, 0] = b.sum(axis=0)
    changes[columns] = sums
    for kernel, change in changes.items():
        got = a.copy()
        assert is_atomic(kernel, got, b) == (kernel in (columns, turned)), kernel
        kernel(got, b)
        assert np.allclose(got, a + change, rtol=1e-6), kernel


def test_other_elements_of_the_same_array():
    @qd.kernel
    def beside(x: F32, at: I32, y: F32):
        for i in range(x.shape[0]):
            x[i] += 1.0
            x[at[i]] += 1.0
            y[at[i]] += 2.0

    @qd.kernel
    def behind(x: F32, at: I32, y: F32):
        for i in range(x.shape[0] - 1):
            x[i] += 1.0
            x[i + 1] += y[i]

    at = np.random.default_rng(1).integers(0, N, N).astype(np.int32)
    counts = np.bincount(at, minlength=N)
    x, y = np.zeros(N, np.float32), np.zeros(N, np.float32)
    assert is_atomic(beside, x, at, y)
    beside(x, at, y)
    assert np.array_equal(x, 1 + counts)
    assert np.array_equal(y, 2 * counts)
    x, y = np.zeros(N, np.float32), some(N)
    assert is_atomic(behind, x, at, y)
    behind(x, at, y)
    assert np.array_equal(x, np.r_[np.ones(N - 1), 0] + np.r_[0, y[:-1]])


@pytest.mark.parametrize("streams", STREAMS)
def test_identical_and_overlapping_arrays(streams):
    start(cpu_streams=streams)

    @qd.kernel
    def both(x: F32, y: F32):
        for i in range(x.shape[0]):
            x[i] += 1.0
            y[i] += 2.0

    x = np.zeros(N, np.float32)
    both(x, x)
    assert np.array_equal(x, np.full(N, 3))
    x = np.zeros(N + 1, np.float32)
    both(x[:-1], x[1:])
    assert np.array_equal(x, np.r_[1, np.full(N - 1, 3), 2])
    # Elements that are one and the same.
    spread = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (N,), (0,))
    with pytest.raises(ValueError, match="elements of the array given for `x` share memory"):
        both(spread, x[:-1])


def test_components_of_fields_alias_the_field():
    v, lone = qd.Vector.field(2, qd.f32, shape=N), qd.field(qd.f32, shape=N)
    second = v.get_scalar_field(1)

    @qd.kernel
    def update():
        for i in v:
            v[i] += 1.0
            second[N - 1 - i] += 2.0
            lone[i] += 1.0

    update()
    assert np.array_equal(v.to_numpy(), np.tile([1.0, 3.0], (N, 1)))
    assert np.array_equal(lone.to_numpy(), np.ones(N))


def test_functions_that_access_the_array():
    @qd.func
    def spread(x: qd.template(), at):
        k = at
        while k > 0:
            k //= 2
            x[k] += 1.0
        return k

    @qd.kernel
    def run(x: F32, y: F32, n: qd.i32):
        for i in range(n):
            x[i] += 1.0
            y[i] += 1.0
            spread(x, i)
            if i % 2 == 0:
                spread(x, i // 2)

    x, y = np.zeros(N, np.float32), np.zeros(N, np.float32)
    run(x, y, N)
    expected = np.ones(N)
    for i in range(N):
        for start_at in (i, i // 2) if i % 2 == 0 else (i,):
            k = start_at
            while k > 0:
                k //= 2
                expected[k] += 1
    assert np.array_equal(x, expected)
    assert np.array_equal(y, np.ones(N))


def test_the_value_is_computed_before_the_index():
    @qd.kernel
    def update(x: qd.types.ndarray(dtype=qd.i32, ndim=1)):
        for i in range(1):
            a = 2
            x[a] += qd.atomic_add(a, 1) + 10
            v = qd.Vector([1, 2, 3])
            v[v[0]] += qd.atomic_add(v[0], 1) + 60
            for j in qd.static(range(3)):
                x[4 + j] = v[j]

    x = qd.ndarray(qd.i32, 7)
    update(x)
    assert list(x.to_numpy()) == [0, 0, 0, 12, 2, 2, 64]


def test_updates_combined_with_scattered_sums():
    """Private copies cover only scattered memory."""

    @qd.kernel
    def count(own: F32, bins: I32, hits: F32):
        for i in range(own.shape[0]):
            own[i] += 3.0
            hits[bins[i]] += own[i]

    bins = (np.arange(1 << 16) % 8).astype(np.int32)
    own, hits = np.zeros(1 << 16, np.float32), np.zeros(8, np.float32)
    for _ in range(2):
        count(own, bins, hits)
    assert np.array_equal(own, np.full(1 << 16, 6))
    assert np.array_equal(hits, np.full(8, (1 << 13) * 9))


def test_random_loops():
    """Updates at own and other indices, in any order, on arrays and fields."""
    places = ["i", "N - 1 - i", "at[i]", "i", "i"]
    for seed in range(12):
        rng = np.random.default_rng(seed)
        n, m = 64, 6
        lines = []
        for _ in range(8):
            target, place, source = rng.integers(m), places[rng.integers(len(places))], rng.integers(m)
            # Memory that is read is never written, and sums are exact in any order.
            lines.append((int(target), place, int(source), "+-"[rng.integers(2)]))
        arrays = ", ".join(f"a{k}: F32" for k in range(m))
        reads = ", ".join(f"r{k}: F32" for k in range(m))
        text = [f"def kernel(at: I32, {arrays}, {reads}):", "    for i in range(N):"]
        text += [f"        a{t}[{p}] {op}= r{s}[i]" for t, p, s, op in lines]
        kernel = from_source("\n".join(text), N=n)
        at = rng.integers(0, n, n).astype(np.int32)
        a, r = [some(n) + k for k in range(m)], [some(n) * (k + 1) for k in range(m)]
        expected = [x.astype(np.float64) for x in a]
        for t, p, s, op in lines:
            where = {"i": np.arange(n), "N - 1 - i": n - 1 - np.arange(n), "at[i]": at}[p]
            np.add.at(expected[t], where, r[s] if op == "+" else -r[s])
        kernel(at, *a, *r)
        for got, want in zip(a, expected, strict=True):
            assert np.array_equal(got, want), (seed, text)


def from_source(text, **names):
    """A kernel from text, which must be in a file."""
    import linecache

    name = f"<own updates {hash(text)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope = {"qd": qd, "F32": F32, "I32": I32, **names}
    exec(compile(text, name, "exec"), scope)
    return qd.kernel(scope["kernel"])


SHAPES = {
    "updates": "a{k}[i] += 1.0",
    "stores": "a{k}[i] = 1.0",
    "from one to the next": "a{k}[i] = a{next}[i] + 1.0",
    "under conditions": "a{k}[i] = a{next}[i] if a{next}[i] > 0.5 else 1.0",
    "scattered": "a{k}[i // 2] += 1.0",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_code_grows_with_the_number_of_arrays(shape):
    def length(n, form):
        params = ", ".join(f"a{k}: F32" for k in range(n))
        body = [f"        {SHAPES[shape].format(k=k, next=(k + 1) % n)}" for k in range(n)]
        kernel = from_source("\n".join([f"def kernel({params}):", "    for i in range(64):", *body]))
        return len(qd.inspect(kernel, *(qd.ndarray(qd.f32, 64) for _ in range(n)), emit=form))

    for form in ("ir", "llvm", "asm"):
        few, many = length(60, form), length(240, form)
        assert many < 5 * few, form


def test_members_of_a_dataclass_are_updated_in_vectors():
    names = [f"a{k}" for k in range(24)]
    arrays = dataclasses.make_dataclass("Arrays", [(name, qd.Tensor) for name in names], frozen=True)
    text = ["def kernel(s: Arrays):", "    for i in range(64):"]
    kernel = from_source("\n".join([*text, *(f"        s.{name}[i] += 1.0" for name in names)]), Arrays=arrays)
    s = arrays(*(qd.tensor(qd.f32, (64,), backend=qd.Backend.NDARRAY) for _ in names))
    assert not is_atomic(kernel, s)
    assert "x float>" in qd.inspect(kernel, s, emit="llvm")
    kernel(s)
    assert all(np.array_equal(getattr(s, name).to_numpy(), np.ones(64)) for name in names)
