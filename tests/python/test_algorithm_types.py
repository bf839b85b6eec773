"""Reductions, scans and sums by key of every element type, against numpy."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.algorithms import launch

SHORT = ["i8", "u8", "i16", "u16", "f16"]
NUMBERS = [*SHORT, "i32", "u32", "f32", "i64", "u64", "f64"]
# One element, around a subgroup's, more than a tile, more than a node of tiles.
LENGTHS = [1, 31, 1025, 20_001, 70_000]


@pytest.fixture(autouse=True)
def session() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level=qd.ERROR)
    yield
    qd.reset()


def numpy_type(name: str) -> Any:
    return np.dtype(name[0].replace("i", "int").replace("u", "uint").replace("f", "float") + name[1:])


def array(values: np.ndarray, name: str) -> Any:
    made = qd.ndarray(getattr(qd, name), len(values))
    made.from_numpy(values.astype(numpy_type(name)))
    return made


def numbers(name: str, n: int) -> np.ndarray:
    """Numbers whose sums are exact in f16; those of 64 bits do not fit into 32."""
    random = np.random.default_rng(n)
    values = random.integers(0 if name[0] == "u" else -3, 4, n)
    if name == "f16":
        values[random.random(n) < 0.97] = 0
    return values.astype(numpy_type(name)) * numpy_type(name).type(1 << 33 if name[1:] == "64" else 1)


@pytest.mark.parametrize("name", SHORT)
@pytest.mark.parametrize("n", LENGTHS)
def test_narrow_types_are_reduced_and_scanned(name: str, n: int) -> None:
    a = numbers(name, n)
    x, out, total = array(a, name), array(np.zeros(n), name), array(np.zeros(1), name)
    launch.reduce(x, total)
    assert total.to_numpy()[0] == a.sum(dtype=a.dtype)
    launch.reduce(x, total, "min")
    assert total.to_numpy()[0] == a.min()
    launch.inclusive_scan(x, out)
    np.testing.assert_array_equal(out.to_numpy(), np.cumsum(a, dtype=a.dtype))
    launch.exclusive_scan(x, out, "max")
    np.testing.assert_array_equal(out.to_numpy()[1:], np.maximum.accumulate(a)[:-1])
    lowest = -np.inf if name == "f16" else np.iinfo(a.dtype).min
    assert out.to_numpy()[0] == lowest


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("n", LENGTHS)
def test_sums_by_key_of_every_type(name: str, n: int) -> None:
    random = np.random.default_rng(n)
    keys = np.repeat(np.arange(n), random.integers(1, 40, n))[:n]
    values = numbers(name, n)
    sums, kept, count = array(np.zeros(n), name), array(np.zeros(n), "i64"), array(np.zeros(1), "i32")
    launch.reduce_by_key_add(array(keys, "i64"), array(values, name), kept, sums, count)
    starts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
    assert count.to_numpy()[0] == len(starts)
    np.testing.assert_array_equal(kept.to_numpy()[: len(starts)], keys[starts])
    want = np.add.reduceat(values, starts, dtype=values.dtype)
    np.testing.assert_array_equal(sums.to_numpy()[: len(starts)], want)


@pytest.mark.parametrize("scratch_name", ["u32", "u64"])
def test_sums_by_key_in_kernels_take_scratch_of_either_width(scratch_name: str) -> None:
    n = 9000
    slots = qd.algorithms.reduce_by_key_scratch_slots(n)
    Keys, Values = qd.types.ndarray(dtype=qd.i32, ndim=1), qd.types.ndarray(dtype=qd.f64, ndim=1)

    @qd.kernel
    def k(keys: Keys, values: Values, keys_out: Keys, sums: Values, runs: Keys, scratch: qd.types.ndarray(ndim=1)):
        qd.algorithms.reduce_by_key_add(keys, values, keys_out, sums, runs, scratch, n, qd.f64, 3)

    keys = np.arange(n) // 7
    sums, kept, runs = array(np.zeros(n), "f64"), array(np.zeros(n), "i32"), array(np.zeros(1), "i32")
    k(array(keys, "i32"), array(np.arange(n), "f64"), kept, sums, runs, array(np.zeros(slots), scratch_name))
    assert runs.to_numpy()[0] == keys[-1] + 1
    want = np.bincount(keys, np.arange(n))
    np.testing.assert_array_equal(sums.to_numpy()[: len(want)], want)
