"""`qd.algorithms.launch` and the operators, against numpy: types, lengths around a tile's, streams, counts in
memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.algorithms import launch, sort_in_tiles

# Around a subgroup's threads, a tile of 2,048 or 4,096 elements, and as many tiles as a subgroup has threads.
LENGTHS = [1, 31, 64, 2049, 4096, 20_001, 140_000]
SCANNED = ["i32", "u32", "f32", "i64", "u64", "f64"]
KEYS = ["i8", "u8", "i16", "u16", "f16", *SCANNED]
UFUNCS: dict[str, Any] = {
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


@pytest.fixture(autouse=True)
def session() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level=qd.ERROR)
    yield
    qd.reset()


def numpy_type(name: str) -> Any:
    return np.dtype(name[0].replace("i", "int").replace("u", "uint").replace("f", "float") + name[1:]).type


def array(values: Any, name: str) -> Any:
    made = qd.ndarray(getattr(qd, name), len(values))
    made.from_numpy(np.asarray(values, numpy_type(name)))
    return made


def zeros(n: int, name: str) -> Any:
    return qd.ndarray(getattr(qd, name), n)


def keys_of(name: str, n: int, seed: int = 0) -> np.ndarray:
    """Keys with many equal ones; of floats zeros of both signs, infinities and NaNs of both signs."""
    random = np.random.default_rng(seed)
    keys = random.integers(0 if name[0] == "u" else -100, 100, n).astype(numpy_type(name))
    if name[0] == "f":
        odd = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan], keys.dtype)
        places = random.random(n) < 0.1
        keys[places] = random.choice(odd, places.sum())
    return keys


def stable_order(keys: np.ndarray, descending: bool = False) -> np.ndarray:
    if not descending:
        return np.argsort(keys, kind="stable")
    if keys.dtype.kind == "f":
        return np.lexsort((np.arange(len(keys)), -keys, np.isnan(keys)))
    return np.argsort(-keys.astype(object), kind="stable").astype(np.int64)


@pytest.mark.parametrize("op", UFUNCS)
@pytest.mark.parametrize("name", ["i32", "u64", "f64"])
def test_reductions_and_scans_by_each_operator(name: str, op: str) -> None:
    n = 5000
    low = 1 if name[0] == "u" else -2
    # Few factors other than one, so that products of floats are finite and exact.
    a = np.random.default_rng(1).integers(low, 3, n).astype(numpy_type(name))
    if op == "mul":
        a[np.random.default_rng(2).random(n) < 0.99] = 1
    x, total, inclusive, exclusive = array(a, name), zeros(1, name), zeros(n, name), zeros(n, name)
    if name[0] == "f" and op in ("and", "or", "xor"):
        with pytest.raises(TypeError, match="supports only integers"):
            launch.reduce(x, total, op)
        return
    launch.reduce(x, total, op)
    launch.inclusive_scan(x, inclusive, op)
    launch.exclusive_scan(x, exclusive, op)
    expected = UFUNCS[op].accumulate(a, dtype=a.dtype)
    assert total[0] == expected[-1]
    assert inclusive.to_numpy().tolist() == expected.tolist()
    assert exclusive.to_numpy()[1:].tolist() == expected[:-1].tolist()
    launch.reduce(x, total, op, n=0)
    assert total[0] == exclusive[0]
    assert UFUNCS[op](a, numpy_type(name)(exclusive[0])).tolist() == a.tolist()


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", SCANNED)
def test_sums_of_all_lengths(name: str, n: int) -> None:
    a = np.random.default_rng(n).integers(0, 50, n).astype(numpy_type(name))
    x, total = array(a, name), zeros(1, name)
    launch.reduce(x, total)
    launch.inclusive_scan(x, x)
    assert total[0] == a.sum(dtype=a.dtype)
    assert (x.to_numpy() == np.cumsum(a, dtype=a.dtype)).all()


def test_scan_keeps_the_order_of_operands() -> None:
    @qd.func
    def compose(a: Any, b: Any) -> Any:
        """The map x -> high * x + low, modulo 2**32, of `a`, then that of `b`."""
        low = qd.u64(0xFFFF_FFFF)
        factor = ((a >> qd.u64(32)) * (b >> qd.u64(32))) & low
        return (factor << qd.u64(32)) | (((b >> qd.u64(32)) * (a & low) + (b & low)) & low)

    maps = np.random.default_rng(3).integers(0, 1 << 63, 10_000).astype(np.uint64)
    x = array(maps, "u64")
    launch.inclusive_scan(x, x, compose, identity=1 << 32)
    factor, term, expected = 1, 0, []
    for value in maps.tolist():
        factor, term = (factor * (value >> 32)) % 2**32, ((value >> 32) * term + value) % 2**32
        expected.append((factor << 32) | term)
    assert x.to_numpy().tolist() == expected


def test_sums_of_floats_are_the_same_each_time() -> None:
    a = np.random.default_rng(4).standard_normal(140_000).astype(np.float32)
    x = array(a, "f32")
    results = []
    for _ in range(3):
        out, total = zeros(len(a), "f32"), zeros(1, "f32")
        launch.inclusive_scan(x, out)
        launch.reduce(x, total)
        results.append((out.to_numpy().tobytes(), total.to_numpy().tobytes()))
    assert len(set(results)) == 1
    assert np.allclose(np.frombuffer(results[0][0], np.float32), np.cumsum(a, dtype=np.float64), atol=0.05)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("name", KEYS)
def test_sort_of_each_type(name: str, descending: bool) -> None:
    n = 9001
    a = keys_of(name, n)
    keys, values = array(a, name), array(np.arange(n), "u32")
    launch.sort(keys, values, descending=descending)
    order = stable_order(a, descending)
    assert values.to_numpy().tolist() == order.tolist()
    assert keys.to_numpy().tobytes() == a[order].tobytes()
    alone = array(a, name)
    launch.sort(alone, descending=descending)
    assert alone.to_numpy().tobytes() == a[order].tobytes()


@pytest.mark.parametrize("n", LENGTHS)
def test_sort_of_each_length_with_values_of_other_widths(n: int) -> None:
    a = np.random.default_rng(n).integers(-(1 << 31), 1 << 31, n).astype(np.int32)
    keys, values = array(a, "i32"), array(np.arange(n) * 1.5, "f64")
    launch.sort(keys, values)
    order = np.argsort(a, kind="stable")
    assert keys.to_numpy().tolist() == a[order].tolist()
    assert values.to_numpy().tolist() == (order * 1.5).tolist()


def test_sort_with_counts_of_two_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort_in_tiles, "_COUNTS_OF_WORD", 1000)
    a = np.random.default_rng(5).integers(0, 300, 50_000).astype(np.uint32)
    keys, values = array(a, "u32"), array(np.arange(len(a)), "u32")
    launch.sort(keys, values)
    assert values.to_numpy().tolist() == np.argsort(a, kind="stable").tolist()


@pytest.mark.parametrize("name", ["i32", "f32", "u64"])
def test_sort_of_segments(name: str) -> None:
    n = 20_000
    a = keys_of(name, n)
    offsets = np.sort(np.random.default_rng(6).integers(0, n, 300))
    offsets[0], offsets[-1] = 0, n  # the last segment is empty
    keys, values = array(a, name), array(np.arange(n), "u32")
    launch.sort_segments(keys, array(offsets, "i32"), values)
    order = np.concatenate([s + stable_order(a[s:e]) for s, e in zip(offsets, [*offsets[1:], n], strict=True)])
    assert values.to_numpy().tolist() == order.tolist()
    assert keys.to_numpy().tobytes() == a[order].tobytes()


@pytest.mark.parametrize("n", LENGTHS)
def test_runs(n: int) -> None:
    a = np.sort(np.random.default_rng(n).integers(0, max(1, n // 7), n)).astype(np.int32)
    v = np.random.default_rng(7).integers(0, 9, n).astype(np.float32)
    keys, lengths, sums, count = zeros(n, "i32"), zeros(n, "i32"), zeros(n, "f32"), zeros(1, "i32")
    expected, which, sizes = np.unique(a, return_inverse=True, return_counts=True)
    launch.unique(array(a, "i32"), keys, count)
    assert keys.to_numpy()[: count[0]].tolist() == expected.tolist()
    launch.run_length_encode(array(a, "i32"), keys, lengths, count)
    assert keys.to_numpy()[: count[0]].tolist() == expected.tolist()
    assert lengths.to_numpy()[: count[0]].tolist() == sizes.tolist()
    launch.reduce_by_key_add(array(a, "i32"), array(v, "f32"), keys, sums, count)
    assert sums.to_numpy()[: count[0]].tolist() == np.bincount(which, weights=v).tolist()


@pytest.mark.parametrize("n", [7, 5000])
@pytest.mark.parametrize("value_name", ["i32", "f64"])
@pytest.mark.parametrize("name", ["f16", "f32", "f64"])
def test_runs_of_floats(name: str, value_name: str, n: int) -> None:
    """Subnormals differ from zero, zeros of either sign are equal, and each NaN is a separate run."""
    dtype = numpy_type(name)
    info = np.finfo(dtype)
    tiny = info.smallest_subnormal
    few = np.array([0.0, -0.0, tiny, -tiny, info.tiny, info.max, np.inf, -np.inf, np.nan, -np.nan], dtype)
    random = np.random.default_rng(n)
    a = np.repeat(random.choice(few, n), random.integers(1, 4, n))[:n]
    a[:4] = -0.0, 0.0, tiny, 0.0
    heads = np.append(True, a[1:] != a[:-1])
    starts = np.flatnonzero(heads)
    values = random.integers(0, 9, n)
    keys, lengths, sums, count = zeros(n, name), zeros(n, "i32"), zeros(n, value_name), zeros(1, "i32")
    x = array(a, name)

    def check() -> None:
        assert count[0] == len(starts)
        # The first element of each run, bit by bit.
        assert keys.to_numpy()[: len(starts)].tobytes() == a[starts].tobytes()
        keys.fill(7)

    launch.unique(x, keys, count)
    check()
    launch.run_length_encode(x, keys, lengths, count)
    check()
    assert lengths.to_numpy()[: len(starts)].tolist() == np.diff(starts, append=n).tolist()
    launch.reduce_by_key_add(x, array(values, value_name), keys, sums, count)
    check()
    assert sums.to_numpy()[: len(starts)].tolist() == np.add.reduceat(values, starts).tolist()


@pytest.mark.parametrize("n", LENGTHS)
def test_select_and_its_count_as_the_next_length(n: int) -> None:
    a = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    flags = (a > 0.2).astype(np.int32)
    out, count, total = zeros(n, "f32"), zeros(1, "i64"), zeros(1, "f32")
    launch.select(array(a, "f32"), array(flags, "i32"), out, count)
    chosen = a[flags == 1]
    assert count[0] == len(chosen)
    assert out.to_numpy()[: count[0]].tolist() == chosen.tolist()
    launch.sort(out, descending=True, n=count)
    launch.reduce(out, total, "max", n=count)
    assert out.to_numpy()[: count[0]].tolist() == np.sort(chosen)[::-1].tolist()
    assert total[0] == chosen.max(initial=-np.inf)


@pytest.mark.parametrize("n", [1, 257, 5000])
def test_select_structs(n: int) -> None:
    struct = qd.types.struct(number=qd.i32, half=qd.f64, at=qd.types.vector(3, qd.f32))
    x, out, count = struct.field(shape=n), struct.field(shape=n), zeros(1, "i32")
    numbers = np.arange(n, dtype=np.int32)
    x.number.from_numpy(numbers)
    x.half.from_numpy(numbers / 2)
    x.at.from_numpy((numbers[:, None] + np.arange(3)).astype(np.float32))
    flags = np.random.default_rng(n).integers(0, 2, n).astype(np.int32)
    for size in (n, n // 2, array(np.array([n // 3], np.int32), "i32")):
        launch.select(x, array(flags, "i32"), out, count, n=size)
        wanted = np.flatnonzero(flags[: size if isinstance(size, int) else n // 3])
        found = len(wanted)
        assert count[0] == found
        assert (out.number.to_numpy()[:found] == wanted).all()
        assert (out.half.to_numpy()[:found] == wanted / 2).all()
        assert (out.at.to_numpy()[:found] == wanted[:, None] + np.arange(3)).all()


@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("n", [10, 9000])
def test_select_vectors(n: int, components: int) -> None:
    random = np.random.default_rng(n)
    a = random.random((n, components), dtype=np.float32)
    flags = random.integers(0, 2, n, dtype=np.int32)
    x, out = (qd.Vector.ndarray(components, qd.f32, n) for _ in range(2))
    count = zeros(1, "i32")
    x.from_numpy(a)
    launch.select(x, array(flags, "i32"), out, count)
    kept = int(count.to_numpy()[0])
    assert kept == flags.sum()
    np.testing.assert_array_equal(out.to_numpy()[:kept], a[flags != 0])


# Also more counts than fit into a block. The ranges end at multiples of 1/100, so that rounding does not matter.
@pytest.mark.parametrize("bins", [1, 12, 6000])
@pytest.mark.parametrize("name", ["i32", "f32", "u8"])
def test_histogram(name: str, bins: int) -> None:
    for n in (1, 255, 2049, 30_000):
        a = np.random.default_rng(8).integers(0, 100, n).astype(numpy_type(name))
        counts = array([9] * bins, "i64")
        launch.histogram(array(a, name), counts, 10, 70)
        assert counts.to_numpy().tolist() == np.histogram(a, bins, (10, 70))[0].tolist()
    launch.histogram(array(a, name), counts, 10, 70, n=0)
    assert not counts.to_numpy().any()


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("name", ["i8", "f16", "i32", "f32", "f64", "u64"])
def test_top_k(name: str, largest: bool) -> None:
    a = keys_of(name, 10_000)
    order = stable_order(a, descending=largest)
    for k in (1, 100, 5000):
        out, indices = zeros(k, name), zeros(k, "u32")
        launch.top_k(array(a, name), out, indices, largest=largest)
        assert indices.to_numpy().tolist() == order[:k].tolist()
        assert out.to_numpy().tobytes() == a[order[:k]].tobytes()
    out = array([7] * 5, name)
    launch.top_k(array(a, name), out, largest=largest, n=2)
    assert out.to_numpy()[2:].tolist() == [7] * 3
    assert out.to_numpy()[:2].tobytes() == a[:2][stable_order(a[:2], largest)].tobytes()


def test_empty_inputs() -> None:
    x, out, count = array([3, 1, 2], "i32"), array([5, 5, 5], "i32"), array([8], "i32")
    for call in (
        lambda: launch.inclusive_scan(x, out, n=0),
        lambda: launch.sort(x, n=0),
        lambda: launch.select(x, x, out, count, n=0),
        lambda: launch.unique(x, out, count, n=0),
        lambda: launch.run_length_encode(x, out, out, count, n=0),
        lambda: launch.top_k(x, out, n=0),
    ):
        call()
        assert x.to_numpy().tolist() == [3, 1, 2]
        assert out.to_numpy().tolist() == [5, 5, 5]
    assert count[0] == 0


def test_fields_and_arrays_of_numpy() -> None:
    a = np.random.default_rng(9).integers(-5, 5, 3000).astype(np.int32)
    field = qd.field(qd.i32, shape=len(a), offset=-3)
    field.from_numpy(a)
    launch.sort(field)
    assert field.to_numpy().tolist() == np.sort(a).tolist()
    host, total = a.copy(), np.zeros(1, np.int32)
    launch.inclusive_scan(host, host)
    launch.reduce(a, total)
    assert host.tolist() == np.cumsum(a).tolist()
    assert total[0] == a.sum()


def test_streams_have_separate_scratch_memory() -> None:
    random = np.random.default_rng(10)
    given = [random.integers(0, 1 << 30, 60_000).astype(np.int32) for _ in range(4)]
    arrays = [array(a, "i32") for a in given]
    sums = [zeros(1, "i32") for _ in given]
    streams = [qd.create_stream() for _ in given]
    for _ in range(3):
        for x, total, stream in zip(arrays, sums, streams, strict=True):
            launch.sort(x, qd_stream=stream)
            with qd.stream_scope(stream):
                launch.reduce(x, total, "xor")
    for a, x, total, stream in zip(given, arrays, sums, streams, strict=True):
        stream.synchronize()
        assert x.to_numpy().tolist() == np.sort(a).tolist()
        assert total[0] == np.bitwise_xor.reduce(a)
        stream.destroy()


def test_algorithms_in_data_dependent_loops() -> None:
    array_of = qd.types.ndarray(dtype=qd.i32, ndim=1)
    words = qd.types.ndarray(dtype=qd.u32, ndim=1)

    @qd.kernel(graph=True)
    def thin_out(
        x: array_of,
        flags: array_of,
        out: array_of,
        count: array_of,
        scratch: words,
        going: qd.types.ndarray(qd.i32, ndim=0),
    ):
        while qd.graph.do_while(going):
            for i in range(count[0]):
                flags[i] = x[i] % 3 != 0
                out[i] = x[i] // 3
            qd.algorithms.select(out, flags, x, count, scratch, count[0], 3)
            going[()] = count[0] > 10

    a = np.random.default_rng(11).integers(1, 1 << 30, 9000).astype(np.int32)
    x, flags, out, count = array(a, "i32"), zeros(9000, "i32"), zeros(9000, "i32"), array([9000], "i32")
    going = qd.ndarray(qd.i32, ())
    scratch = zeros(qd.algorithms.select_scratch_slots(9000), "u32")
    thin_out(x, flags, out, count, scratch, going)
    while len(a) > 10:
        a = (a // 3)[a % 3 != 0]
    assert count[0] == len(a)
    assert x.to_numpy()[: len(a)].tolist() == a.tolist()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: launch.reduce(x, x, "pow"), ValueError, "`op` must be one of add"),
        (lambda x: launch.reduce(x, x, max), ValueError, "needs `identity`"),
        (lambda x: launch.reduce(zeros(4, "u1"), x), NotImplementedError, "not u1"),
        (lambda x: launch.inclusive_scan(qd.Vector.field(2, qd.i32, 8), x), NotImplementedError, "vectors or matrices"),
        (lambda x: launch.sort(x, zeros(3, "i32")), ValueError, "`values` has 3 elements, but 4 are needed"),
        (lambda x: launch.sort(x, n=5), ValueError, "must be from 0 to 4"),
        (lambda x: launch.sort(qd.ndarray(qd.i32, (2, 2))), ValueError, "one-dimensional"),
        (lambda x: launch.histogram(x, x, 3, 3), ValueError, "`upper` must be larger"),
        (lambda x: launch.reduce([1, 2], x), TypeError, "`arr` must be a field, an ndarray or an array of .*list"),
        (lambda x: launch.inclusive_scan(x, 5), TypeError, "`out` must be a field, an ndarray or an array of .*int"),
        (lambda x: launch.sort(x, n=2.5), TypeError, "`n` must be a field"),
    ],
)
def test_refusals(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call(zeros(4, "i32"))


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("out", lambda x, short, n: launch.inclusive_scan(x, short, n=n)),
        ("out", lambda x, short, n: launch.exclusive_scan(x, short, n=n)),
        ("values", lambda x, short, n: launch.sort(x, short, n=n)),
        ("flags", lambda x, short, n: launch.select(x, short, x, x, n=n)),
        ("out", lambda x, short, n: launch.select(x, x, short, x, n=n)),
        ("out", lambda x, short, n: launch.unique(x, short, x, n=n)),
        ("unique_out", lambda x, short, n: launch.run_length_encode(x, short, x, x, n=n)),
        ("counts_out", lambda x, short, n: launch.run_length_encode(x, x, short, x, n=n)),
        ("values", lambda x, short, n: launch.reduce_by_key_add(x, short, x, x, x, n=n)),
        ("keys_out", lambda x, short, n: launch.reduce_by_key_add(x, x, short, x, x, n=n)),
        ("values_out", lambda x, short, n: launch.reduce_by_key_add(x, x, x, short, x, n=n)),
        ("indices", lambda x, short, n: launch.top_k(x, zeros(9, "i32"), short, n=n)),
    ],
)
def test_short_arrays(name: str, call: Any) -> None:
    for n, needed in ((None, 8), (5, 5), (array([2], "i32"), 8)):
        short = zeros(needed - 1, "u32" if name == "indices" else "i32")
        with pytest.raises(ValueError, match=f"`{name}` has {needed - 1} elements, but {needed} are needed"):
            call(zeros(8, "i32"), short, n)


def test_arrays_without_elements() -> None:
    x, none = np.zeros(4, np.int32), np.zeros(0, np.int32)
    for name, call in (
        ("out", lambda: launch.reduce(x, none)),
        ("n", lambda: launch.reduce(x, x, n=none)),
        ("num_out", lambda: launch.select(x, x, x, none)),
        ("num_out", lambda: launch.unique(x, x, none)),
        ("num_runs", lambda: launch.run_length_encode(x, x, x, none)),
        ("num_runs", lambda: launch.reduce_by_key_add(x, x, x, x, none)),
        ("counts", lambda: launch.histogram(x, none, 0, 1)),
        ("offsets", lambda: launch.sort_segments(x, none)),
    ):
        with pytest.raises(ValueError, match=f"`{name}` has 0 elements, but 1 are needed"):
            call()


def test_outputs_are_as_long_as_the_processed_part() -> None:
    x, out, count = array([3, 3, 1, 2, 2], "i32"), zeros(3, "i32"), zeros(1, "i32")
    launch.unique(x, out, count, n=3)
    assert count[0] == 2
    assert out.to_numpy()[:2].tolist() == [3, 1]
    launch.inclusive_scan(x, out, n=3)
    assert out.to_numpy().tolist() == [3, 6, 7]
    values = array([0, 1, 2], "i32")
    launch.sort(x, values, n=3)
    assert x.to_numpy().tolist() == [1, 3, 3, 2, 2]
    assert values.to_numpy().tolist() == [2, 0, 1]


@pytest.mark.parametrize("largest", [False, True])
def test_top_k_of_fewer_elements(largest: bool) -> None:
    out, indices = array([7] * 6, "i32"), zeros(2, "u32")
    launch.top_k(array([4, 5], "i32"), out, indices, largest=largest)
    assert out.to_numpy().tolist() == [*((5, 4) if largest else (4, 5)), 7, 7, 7, 7]
    assert indices.to_numpy().tolist() == ([1, 0] if largest else [0, 1])


@pytest.mark.parametrize(
    ("offsets", "result"), [([0, 6], [3, 4, 5, 9, 9, 9]), ([-1, 2], [4, 5, 3, 9, 9, 9]), ([1], [3, 4, 5, 9, 9, 9])]
)
def test_segments_outside_the_keys(offsets: list[int], result: list[int]) -> None:
    keys = np.array([5, 4, 3, 9, 9, 9], np.int32)
    launch.sort_segments(keys[:3], np.array(offsets, np.int32))
    assert keys.tolist() == result


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scratch_slots_suffice_for_long_arrays() -> None:
    n = 1 << 32
    assert qd.algorithms.exclusive_scan_scratch_slots(n, 4) >= 2 * (n // 4096)
    assert qd.algorithms.sort_scratch_slots(n, 4) >= 4 * 256 * (n // 4096)
    assert sort_in_tiles.words_of_state((1 << 30) - 1) == 1
    assert sort_in_tiles.words_of_state(1 << 30) == 2
