"""Per-thread state: random numbers, exits from functions, the clock."""

from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.simt import block, subgroup

N = 192


def draw_numbers(how: str) -> list[np.ndarray[Any, Any]]:
    """Three numbers of each iteration of a program's first launch."""
    qd.init(arch=qd.cpu, random_seed=7)

    @qd.func
    def draw():
        return qd.random(qd.f64)

    @qd.kernel
    def k(x: qd.types.ndarray(), y: qd.types.ndarray(), z: qd.types.ndarray()):
        qd.loop_config(block_dim=64)
        for i in range(x.shape[0]):
            x[i] = qd.random(qd.f32)
            if qd.static(how == "barrier"):
                block.sync()
            elif qd.static(how == "index"):
                x[i] += block.thread_idx() * 0.0
            y[i] = draw()
            if i % 3 == 0:
                z[i] = qd.random(qd.i32)

    made = [np.zeros(N, np.float32), np.zeros(N, np.float64), np.zeros(N, np.int32)]
    k(*made)
    return made


@pytest.mark.parametrize("how", ["barrier", "index"])
def test_cooperating_threads_draw_different_random_numbers(group_size: int, how: str) -> None:
    alone, together = draw_numbers("alone"), draw_numbers(how)
    for x, y in zip(alone, together, strict=True):
        np.testing.assert_array_equal(x, y)
    assert len(np.unique(alone[1])) == N


def test_loops_of_draws_between_barriers(group_size: int) -> None:
    """Barriers between draws do not change the random numbers of threads, even if threads draw different numbers of
    values."""

    def run(meets: bool) -> np.ndarray[Any, Any]:
        qd.init(arch=qd.cpu, random_seed=3)

        @qd.kernel
        def k(y: qd.types.ndarray()):
            qd.loop_config(block_dim=32)
            for i in range(y.shape[0]):
                total = 0.0
                for round in range(3):
                    for j in range((i + round) % 5):
                        total += qd.random() * (j + 1)
                    if qd.static(meets):
                        block.sync()
                y[i] = total

        y = np.zeros(96, np.float32)
        k(y)
        return y

    np.testing.assert_allclose(run(True), run(False), rtol=1e-6)


def test_functions_with_shared_memory_return_from_loops(group_size: int) -> None:
    @qd.func
    def place(s: qd.template(), value):
        for j in range(32):
            if s[j] == value:
                for k in range(3):
                    if k == 2:
                        return j * 10 + k
            if s[j] == 2 * value:
                return -j
        return -1

    @qd.kernel
    def search(y: qd.types.ndarray()):
        qd.loop_config(block_dim=32)
        for i in range(y.shape[0]):
            s = block.SharedArray(32, qd.i32)
            s[block.thread_idx()] = 2 * block.thread_idx()
            block.sync()
            y[i] = place(s, block.thread_idx())

    y = np.zeros(64, np.int32)
    search(y)
    want = [t // 2 * 10 + 2 if t % 2 == 0 else -t for t in range(32)]
    assert y.tolist() == 2 * want


def test_a_function_returns_from_a_loop_with_shuffles(group_size: int) -> None:
    @qd.func
    def first_large(value, limit):
        while True:
            value += 1
            if subgroup.all_true(value > limit):
                return value
        return -1

    @qd.kernel
    def k(y: qd.types.ndarray()):
        qd.loop_config(block_dim=64)
        for i in range(y.shape[0]):
            y[i] = first_large(i % group_size, 40)

    y = np.zeros(128, np.int32)
    k(y)
    np.testing.assert_array_equal(y, np.arange(128) % group_size + 41)


def test_the_clock_advances(group_size: int) -> None:
    @qd.kernel
    def k(y: qd.types.ndarray(), x: qd.types.ndarray()):
        for i in range(y.shape[0]):
            start = qd.clock_counter()
            total = x[i]
            for j in range(1000):
                total = qd.sin(total) + 1e-3
            x[i] = total
            y[i] = qd.clock_counter() - start

    y, x = np.zeros(16, np.int64), np.ones(16, np.float32)
    k(y, x)
    # Some microseconds, and the slowest counter has a hundred ticks in one.
    assert (y > 100).all()


def test_the_clock_rate_is_known_only_on_nvidia_gpus(group_size: int) -> None:
    if qd.cfg.arch == qd.cuda:
        assert 1e8 < qd.clock_freq_hz() < 5e9
    else:
        with pytest.raises(NotImplementedError, match="NVIDIA"):
            qd.clock_freq_hz()


def test_gradients_do_not_depend_on_the_clock(group_size: int) -> None:
    x = qd.field(qd.f32, 8, needs_grad=True)
    y = qd.field(qd.f32, 8, needs_grad=True)

    @qd.kernel
    def k():
        for i in x:
            if qd.clock_counter() % 2 == 0:
                y[i] = x[i] * x[i]

    with pytest.raises(qd.OctantsCompilationError, match="depends on the clock"):
        k.grad()


TARGETS = ["gfx90a", "gfx942", "gfx1100", "gfx1200", "sm_80", "sm_90", "neoverse-n1", "apple-m1"]


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_has_a_clock(group_size: int, target: str) -> None:
    @qd.kernel
    def k(y: qd.types.ndarray(dtype=qd.i64, ndim=1)):
        for i in range(y.shape[0]):
            y[i] = qd.clock_counter()

    code = qd.inspect(k, np.zeros(8, np.int64), emit="asm", target=target).lower()
    assert any(word in code for word in ("s_memtime", "s_getreg", "s_sendmsg_rtn", "clock64", "cntvct", "\tmrs"))
    # Programs may not read AArch64's counter of cycles.
    assert "pmccntr" not in code
