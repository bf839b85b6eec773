"""Shared arrays up to the device's shared memory per block, and beyond."""

from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.simt import block

KIB = 1 << 10


def reverse_in_blocks(words: int) -> None:
    """Writes an array of this many words of 4 bytes, and reads it from its other end."""

    @qd.kernel
    def k(x: qd.types.ndarray(dtype=qd.i32, ndim=1), y: qd.types.ndarray(dtype=qd.i32, ndim=1)):
        qd.loop_config(block_dim=256)
        for i in range(x.shape[0]):
            s = block.SharedArray(words, qd.i32)
            t = block.thread_idx()
            for j in range((words + 255 - t) // 256):
                s[j * 256 + t] = x[i] + j * 256
            block.sync()
            total = 0
            for j in range((words + 255 - t) // 256):
                total += s[words - 1 - j * 256 - t] * (j + 1)
            y[i] = total

    x = np.arange(768, dtype=np.int32)
    y = np.zeros_like(x)
    k(x, y)
    want = np.zeros_like(x)
    for b in range(3):
        s = np.arange(words) % 256 + 256 * b + np.arange(words) // 256 * 256
        for t in range(256):
            taken = s[::-1][t::256]
            want[b * 256 + t] = (taken * np.arange(1, len(taken) + 1)).sum()
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("kibibytes", [47, 49, 64, 96, 99, 163, 227])
def test_a_block_may_use_all_its_memory(group_size: int, kibibytes: int) -> None:
    most = qd.lang.impl.get_max_shared_memory_bytes()
    if kibibytes * KIB > most:
        with pytest.raises(qd.OctantsCompilationError, match=f"exceeds the {most} bytes of shared memory"):
            reverse_in_blocks(kibibytes * KIB // 4)
    else:
        reverse_in_blocks(kibibytes * KIB // 4)


def test_debug_mode_reserves_shared_memory_for_assertions() -> None:
    qd.init(arch=qd.cpu, debug=True)
    most = qd.lang.impl.get_max_shared_memory_bytes()
    reverse_in_blocks(most // 4)
    with pytest.raises(qd.OctantsCompilationError, match=f"exceeds the {most} bytes of shared memory"):
        reverse_in_blocks(most // 4 + 1)
    qd.reset()


def test_several_arrays_fit_together_or_not_at_all(group_size: int) -> None:
    half = qd.lang.impl.get_max_shared_memory_bytes() // 8

    @qd.kernel
    def k(y: qd.types.ndarray(dtype=qd.i32, ndim=1), more: qd.template()):
        qd.loop_config(block_dim=64)
        for i in range(y.shape[0]):
            a, b = block.SharedArray(half, qd.i32), block.SharedArray(half + more, qd.i32)
            t = block.thread_idx()
            a[half - 1 - t] = i
            b[half - 1 - t] = 2 * i
            block.sync()
            y[i] = a[half - 64 + t] + b[half - 64 + t]

    y = np.zeros(128, np.int32)
    k(y, 0)
    assert (y.reshape(2, 64) == 3 * np.arange(128).reshape(2, 64)[:, ::-1]).all()
    with pytest.raises(qd.OctantsCompilationError, match=f"plus {4 * half} bytes of other shared arrays"):
        k(y, 1)


def test_loops_of_one_kernel_have_separate_shared_memory(group_size: int) -> None:
    """Each loop may take nearly all of a block's memory, and one may take little."""
    words = qd.lang.impl.get_max_shared_memory_bytes() // 4 - 64

    @qd.kernel
    def k(x: qd.types.ndarray(dtype=qd.i32, ndim=1), y: qd.types.ndarray(dtype=qd.i32, ndim=1)):
        qd.loop_config(block_dim=64)
        for i in range(x.shape[0]):
            a = block.SharedArray(words, qd.i32)
            a[words - 1 - block.thread_idx()] = x[i]
            block.sync()
            x[i] = a[words - 64 + block.thread_idx()]
        qd.loop_config(block_dim=64)
        for i in range(x.shape[0]):
            b = block.SharedArray(64, qd.i32)
            c = block.SharedArray(words, qd.i32)
            b[63 - block.thread_idx()] = x[i]
            block.sync()
            c[words - 1 - block.thread_idx()] = b[63 - block.thread_idx()]
            block.sync()
            y[i] = c[words - 64 + block.thread_idx()]
        qd.loop_config(block_dim=64)
        for i in range(x.shape[0]):
            d = block.SharedArray(64, qd.i32)
            d[block.thread_idx()] = y[i]
            block.sync()
            y[i] = d[63 - block.thread_idx()]

    x, y = np.arange(192, dtype=np.int32), np.zeros(192, np.int32)
    k(x.copy(), y)
    assert (y == x.reshape(3, 64)[:, ::-1].reshape(-1)).all()


LARGEST = {"sm_70": 96, "sm_75": 64, "sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90": 227, "sm_100": 227, "sm_120": 99}


@pytest.mark.on_cpu
@pytest.mark.parametrize("target", [*LARGEST, "gfx90a", "gfx1100"])
def test_each_chip_has_its_own_limit(group_size: int, target: str) -> None:
    most = LARGEST.get(target, 64) * KIB

    def code(words: int) -> Any:
        @qd.kernel
        def k(y: qd.types.ndarray(dtype=qd.i32, ndim=1)):
            qd.loop_config(block_dim=64)
            for i in range(y.shape[0]):
                a = block.SharedArray(words, qd.i32)
                a[words - 1 - block.thread_idx()] = i
                block.sync()
                y[i] = a[words - 64 + block.thread_idx()]

        return qd.inspect(k, np.zeros(64, np.int32), emit="asm", target=target)

    # NVIDIA's code may declare 48 KiB, and launches ask for more.
    assert (".extern .shared" in code(most // 4)) == target.startswith("sm_")
    assert ".extern .shared" not in code(48 * KIB // 4)
    if most < 227 * KIB:
        with pytest.raises(
            qd.OctantsRuntimeError, match=f"uses {most + 4} bytes of shared memory in `k`.*supports {most} bytes"
        ):
            code(most // 4 + 1)
