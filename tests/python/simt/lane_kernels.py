"""Kernels that call a function of `qd.simt` on each element of arrays, one thread per element."""

from typing import Any

import numpy as np
import pytest

import octants as qd

DTYPES = {
    "i32": (qd.i32, np.int32),
    "u32": (qd.u32, np.uint32),
    "i64": (qd.i64, np.int64),
    "u64": (qd.u64, np.uint64),
    "f32": (qd.f32, np.float32),
    "f64": (qd.f64, np.float64),
}


def per_thread(
    function: Any, block_dim: int, result: str, *inputs: np.ndarray[Any, Any], extra: tuple[Any, ...] = ()
) -> np.ndarray[Any, Any]:
    """What `function(x, ..., *extra)` gives for each element; `extra` is known at compile time."""
    out = np.zeros(len(inputs[0]), DTYPES[result][1])

    @qd.kernel
    def one(x: qd.types.ndarray(), y: qd.types.ndarray()):
        qd.loop_config(block_dim=block_dim)
        for i in range(x.shape[0]):
            y[i] = function(x[i], *extra)

    @qd.kernel
    def two(x: qd.types.ndarray(), z: qd.types.ndarray(), y: qd.types.ndarray()):
        qd.loop_config(block_dim=block_dim)
        for i in range(x.shape[0]):
            y[i] = function(x[i], z[i], *extra)

    (one if len(inputs) == 1 else two)(*inputs, out)
    return out


def numbers(n: int, dtype: str, seed: int = 0) -> np.ndarray[Any, Any]:
    """Random numbers whose sums and products of 64 are exact."""
    rng = np.random.default_rng(seed)
    low = 0 if dtype[0] == "u" else -9
    return rng.integers(low, 10, n).astype(DTYPES[dtype][1])


def need_threads(group_size: int, count: int) -> None:
    """Skips a test with tiles of this many threads if subgroups are smaller."""
    if group_size < count:
        pytest.skip(f"tiles of {count} threads: subgroups of this device have {group_size}")
