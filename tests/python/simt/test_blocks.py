"""Blocks: shared memory, barriers, positions, reductions, scans, ranks."""

from typing import Any

import numpy as np
import pytest
from lane_kernels import numbers, per_thread

import octants as qd
from octants.simt import block, grid

N = 512
NUMPY = {"i32": np.int32, "f32": np.float32, "i64": np.int64}
FOLDS: dict[str, Any] = {"add": np.add, "min": np.minimum, "max": np.maximum}


def test_shared_array_reverses_blocks(group_size: int) -> None:
    @qd.kernel
    def reverse(x: qd.types.ndarray(), y: qd.types.ndarray()):
        qd.loop_config(block_dim=128)
        for i in range(x.shape[0]):
            s = block.SharedArray((128,), qd.f32)
            t = block.thread_idx()
            s[t] = x[i]
            block.sync()
            y[i] = s[127 - t]

    x, y = numbers(N, "f32"), np.zeros(N, np.float32)
    reverse(x, y)
    assert (y.reshape(-1, 128) == x.reshape(-1, 128)[:, ::-1]).all()


def test_shared_arrays_of_vectors_and_axes(group_size: int) -> None:
    @qd.kernel
    def turn(x: qd.types.ndarray(), y: qd.types.ndarray()):
        qd.loop_config(block_dim=64)
        for i in range(x.shape[0]):
            s = block.SharedArray([8, 8], qd.types.vector(2, qd.i32))
            t = block.thread_idx()
            s[t // 8, t % 8] = qd.Vector([x[i], -x[i]])
            block.sync()
            y[i, 0] = s[t % 8, t // 8][0]
            y[i, 1] = s[t % 8, t // 8, 1]

    x, y = numbers(N, "i32"), np.zeros((N, 2), np.int32)
    turn(x, y)
    turned = x.reshape(-1, 8, 8).transpose(0, 2, 1).ravel()
    assert (y == np.stack([turned, -turned], axis=1)).all()


def test_shared_arrays_in_functions(group_size: int) -> None:
    @qd.func
    def turn(v: Any) -> Any:
        s = block.SharedArray(64, qd.i32)
        s[block.thread_idx()] = v
        block.sync()
        return s[63 - block.thread_idx()]

    @qd.func
    def first(s: qd.template()) -> Any:
        return s[0]

    @qd.kernel
    def turns(x: qd.types.ndarray(), y: qd.types.ndarray()):
        qd.loop_config(block_dim=64)
        for i in range(x.shape[0]):
            s = block.SharedArray(1, qd.i32)
            if block.thread_idx() == 0:
                s[0] = x[i]
            block.sync()
            y[i] = turn(turn(x[i])) + turn(x[i]) * first(s)

    x, y = numbers(N, "i32"), np.zeros(N, np.int32)
    turns(x, y)
    blocks = x.reshape(-1, 64)
    assert (y == (blocks + blocks[:, ::-1] * blocks[:, :1]).ravel()).all()


@pytest.mark.parametrize("dtype", ["i32", "f32", "u64"])
def test_atomics_in_shared_memory(group_size: int, dtype: str) -> None:
    kind = getattr(qd, dtype)

    @qd.kernel
    def histogram(x: qd.types.ndarray(), h: qd.types.ndarray()):
        qd.loop_config(block_dim=64)
        for i in range(x.shape[0]):
            s = block.SharedArray(16, kind)
            t = block.thread_idx()
            if t < 16:
                s[t] = 0
            block.sync()
            qd.atomic_add(s[x[i]], 1)
            block.sync()
            if t < 16:
                h[t] += s[t]

    x = np.random.default_rng(0).integers(0, 16, N).astype(np.int32)
    h = np.zeros(16, numbers(1, dtype).dtype)
    histogram(x, h)
    assert (h == np.bincount(x, minlength=16)).all()


def test_exchange_and_compare_in_shared_memory(group_size: int) -> None:
    @qd.kernel
    def leaders(x: qd.types.ndarray(), y: qd.types.ndarray()):
        qd.loop_config(block_dim=64)
        for i in range(x.shape[0]):
            s = block.SharedArray(2, qd.i32)
            if block.thread_idx() == 0:
                s[0] = -1
                s[1] = 0
            block.sync()
            won = qd.atomic_cas(s[0], -1, i) == -1
            qd.atomic_or(s[1], 1 << (x[i] % 31))
            block.sync()
            y[i, 0] = s[0] == i
            y[i, 1] = won
            y[i, 2] = s[1]

    x, y = np.arange(N, dtype=np.int32) * 5 % 7, np.zeros((N, 3), np.int32)
    leaders(x, y)
    assert (y[:, 0] == y[:, 1]).all()
    assert (y[:, 0].reshape(-1, 64).sum(axis=1) == 1).all()
    assert (y[:, 2] == 0b1111111).all()


def test_counting_barriers(group_size: int) -> None:
    @qd.kernel
    def count(x: qd.types.ndarray(), y: qd.types.ndarray()):
        qd.loop_config(block_dim=128)
        for i in range(x.shape[0]):
            y[i, 0] = block.sync_count_nonzero(x[i])
            y[i, 1] = block.sync_any_nonzero(x[i]) != 0
            y[i, 2] = block.sync_all_nonzero(x[i]) != 0

    x, y = (numbers(N, "i32") > 3).astype(np.int32) * 5, np.zeros((N, 3), np.int32)
    x[:128], x[128:256] = 0, 3
    count(x, y)
    counts = (x != 0).reshape(-1, 128).sum(axis=1).repeat(128)
    assert (y == np.stack([counts, counts > 0, counts == 128], axis=1)).all()


@pytest.mark.on_cpu  # GPUs need whole blocks at barriers.
def test_counting_barriers_in_a_partial_block(group_size: int) -> None:
    @qd.kernel
    def count(x: qd.types.ndarray(), y: qd.types.ndarray()):
        qd.loop_config(block_dim=64)
        for i in range(x.shape[0]):
            y[i, 0] = block.sync_count_nonzero(x[i])
            y[i, 1] = block.sync_any_nonzero(x[i])
            y[i, 2] = block.sync_all_nonzero(x[i])
            y[i, 3] = block.sync_all_nonzero(1)

    for zero in (None, 3, 64, 99):
        x, y = np.full(100, 5, np.int32), np.zeros((100, 4), np.int32)
        if zero is not None:
            x[zero] = 0
        count(x, y)
        for part in (slice(64), slice(64, 100)):
            nonzero = x[part] != 0
            assert (y[part] == [nonzero.sum(), nonzero.any(), nonzero.all(), 1]).all()


def test_thread_indices_and_fences(group_size: int) -> None:
    @qd.kernel
    def positions(y: qd.types.ndarray()):
        qd.loop_config(block_dim=64)
        for i in range(y.shape[0]):
            y[i, 0] = block.thread_idx()
            y[i, 1] = block.global_thread_idx()
            y[i, 2] = qd.global_thread_idx()
            block.mem_fence()
            grid.mem_fence()

    y = np.zeros((N, 3), np.int32)
    positions(y)
    assert (y == np.stack([np.arange(N) % 64, np.arange(N), np.arange(N)], axis=1)).all()


def test_fences_do_not_wait_for_other_threads(group_size: int) -> None:
    total = qd.field(qd.i32, ())

    @qd.kernel
    def count(n: qd.i32, y: qd.types.ndarray()):
        for i in range(n):
            for j in range(i % 37):
                if (i + j) % 3 == 0:
                    y[i] += 1
                    block.mem_fence()
                    grid.mem_fence()
                total[None] += 1

    for n in [5, 100, N]:
        y = np.zeros(N, np.int32)
        total[None] = 0
        count(n, y)
        rounds = [range(i, i + i % 37) for i in range(n)]
        assert total[None] == sum(map(len, rounds))
        assert y[:n].tolist() == [sum(k % 3 == 0 for k in of_one) for of_one in rounds]


@pytest.mark.parametrize("module, old", [(block, "mem_sync"), (grid, "memfence")])
def test_old_names_warn(group_size: int, module: Any, old: str) -> None:
    from octants.simt import old_names

    old_names._warned.clear()
    function = getattr(module, old)

    @qd.kernel
    def fences(y: qd.types.ndarray()):
        for i in range(y.shape[0]):
            function()
            y[i] = 1

    y = np.zeros(N, np.int32)
    with pytest.warns(DeprecationWarning, match=old):
        fences(y)
    assert (y == 1).all()


@pytest.mark.parametrize("block_dim", [64, 256])
@pytest.mark.parametrize("op", FOLDS)
@pytest.mark.parametrize("dtype", ["i32", "f64", "u64"])
def test_reductions_and_scans(group_size: int, dtype: str, op: str, block_dim: int) -> None:
    x, kind = numbers(N, dtype), getattr(qd, dtype)
    blocks = x.reshape(-1, block_dim)
    extra = (block_dim, kind)
    total = FOLDS[op].reduce(blocks, axis=1)
    got = per_thread(getattr(block, f"reduce_{op}"), block_dim, dtype, x, extra=extra)
    assert (got[::block_dim] == total).all()
    got = per_thread(getattr(block, f"reduce_all_{op}"), block_dim, dtype, x, extra=extra)
    assert (got == total.repeat(block_dim)).all()
    wanted = FOLDS[op].accumulate(blocks, axis=1)
    got = per_thread(getattr(block, f"inclusive_{op}"), block_dim, dtype, x, extra=extra)
    assert (got == wanted.ravel()).all()
    got = per_thread(getattr(block, f"exclusive_{op}"), block_dim, dtype, x, extra=extra).reshape(-1, block_dim)
    assert (got[:, 1:] == wanted[:, :-1]).all()
    limit = np.finfo(x.dtype).max if dtype[0] == "f" else np.iinfo(x.dtype).max
    assert {"add": got[:, 0] == 0, "min": got[:, 0] >= limit, "max": got[:, 0] <= x.min()}[op].all()


def test_any_operator_in_a_loop(group_size: int) -> None:
    @qd.func
    def compose(a: Any, b: Any) -> Any:
        return (a * b) % 97

    @qd.kernel
    def fold(x: qd.types.ndarray(), y: qd.types.ndarray()):
        qd.loop_config(block_dim=128)
        for i in range(x.shape[0]):
            for k in range(3):
                y[i, 0] += block.reduce_all(x[i] + k, 128, compose, qd.i32)
                y[i, 1] += block.inclusive_scan(x[i] + k, 128, compose, qd.i32)
                y[i, 2] += block.exclusive_scan(x[i] + k, 128, compose, 1, qd.i32)
                y[i, 3] += block.reduce(x[i] + k, 128, compose, qd.i32)

    x, y = np.random.default_rng(1).integers(1, 97, N).astype(np.int32), np.zeros((N, 4), np.int32)
    fold(x, y)
    wanted = np.zeros((N, 4), np.int32)
    for b in range(0, N, 128):
        for k in range(3):
            so_far = 1
            for i in range(b, b + 128):
                wanted[i, 2] += so_far
                so_far = so_far * (int(x[i]) + k) % 97
                wanted[i, 1] += so_far
            wanted[b : b + 128, 0] += so_far
            wanted[b, 3] += so_far
    assert (y[:, :3] == wanted[:, :3]).all()
    assert (y[::128, 3] == wanted[::128, 3]).all()


def test_noncommutative_operators(group_size: int) -> None:
    @qd.func
    def compose(f: Any, g: Any) -> Any:
        # A number `97 a + b` encodes the function `x -> a x + b` of integers modulo 97: first `f`, then `g`.
        a = (f // 97) * (g // 97) % 97
        return 97 * a + ((f % 97) * (g // 97) + g % 97) % 97

    @qd.kernel
    def fold(x: qd.types.ndarray(), y: qd.types.ndarray()):
        qd.loop_config(block_dim=128)
        for i in range(x.shape[0]):
            y[i, 0] = block.reduce_all(x[i], 128, compose, qd.i32)
            y[i, 1] = block.reduce(x[i], 128, compose, qd.i32)

    x, y = np.random.default_rng(1).integers(97, 97 * 97, N).astype(np.int32), np.zeros((N, 2), np.int32)
    fold(x, y)
    for b in range(0, N, 128):
        wanted = int(x[b])
        for g in map(int, x[b + 1 : b + 128]):
            wanted = 97 * ((wanted // 97) * (g // 97) % 97) + ((wanted % 97) * (g // 97) + g % 97) % 97
        assert (y[b : b + 128, 0] == wanted).all()
        assert y[b, 1] == wanted


@pytest.mark.parametrize("radix_bits, start, bits", [(8, 0, 8), (8, 8, 5), (6, 3, 6)])
def test_radix_ranks(group_size: int, radix_bits: int, start: int, bits: int) -> None:
    threads = 1 << radix_bits
    if threads > group_size**2:
        pytest.skip(f"{threads} threads are more than {group_size} subgroups of {group_size}")

    @qd.kernel
    def rank(keys: qd.types.ndarray(), ranks: qd.types.ndarray(), counts: qd.types.ndarray()):
        qd.loop_config(block_dim=threads)
        for i in range(keys.shape[0]):
            bins = block.SharedArray((threads,), qd.i32)
            excl = block.SharedArray((threads,), qd.i32)
            ranks[i] = block.radix_rank_match_atomic_or(keys[i], threads, radix_bits, start, bits, bins, excl)
            counts[i, 0] = bins[block.thread_idx()]
            counts[i, 1] = excl[block.thread_idx()]

    keys = np.random.default_rng(2).integers(0, 1 << 32, N).astype(np.uint32)
    ranks, counts = np.zeros(N, np.int32), np.zeros((N, 2), np.int32)
    rank(keys, ranks, counts)
    for b in range(0, N, threads):
        digits = (keys[b : b + threads] >> np.uint32(start)) & np.uint32((1 << bits) - 1)
        order = np.argsort(digits, kind="stable")
        assert (ranks[b : b + threads][order] == np.arange(threads)).all()
        bins = np.bincount(digits, minlength=threads)
        assert (counts[b : b + threads, 0] == bins).all()
        assert (counts[b : b + threads, 1] == np.cumsum(bins) - bins).all()


def test_functions_with_barriers_return_from_branches(group_size: int) -> None:
    @qd.func
    def neighbor(t, s: qd.template()):
        block.sync()
        if t == 0:
            return -1
        if t > 40:
            if t > 50:
                return -2
        else:
            return s[t - 1]
        return -3

    @qd.kernel
    def neighbors(y: qd.types.ndarray()):
        qd.loop_config(block_dim=64)
        for i in range(y.shape[0]):
            s = block.SharedArray((64,), qd.i32)
            t = block.thread_idx()
            s[t] = i
            y[i] = neighbor(t, s)

    y = np.zeros(128, np.int32)
    neighbors(y)
    t = np.arange(128) % 64
    expected = np.where(t == 0, -1, np.where(t > 50, -2, np.where(t > 40, -3, np.arange(128) - 1)))
    assert (y == expected).all()


@pytest.mark.parametrize("block_dim", [1, 16, 31, 33, 48, 96, 100, 128])
@pytest.mark.parametrize("dtype", ["i32", "f32", "i64"])
def test_sums_in_blocks_with_a_partial_subgroup(group_size: int, dtype: str, block_dim: int) -> None:
    """The last subgroup of such a block lacks threads; a block may be smaller than a subgroup."""
    n, scalar = 3 * block_dim, getattr(qd, dtype)

    @qd.kernel
    def fold(x: qd.types.ndarray(dtype=scalar, ndim=1), out: qd.types.ndarray(dtype=scalar, ndim=1)):
        qd.loop_config(block_dim=block_dim)
        for i in range(n):
            out[0] += x[i]
            qd.atomic_max(out[1], x[i])
            qd.atomic_min(out[2], x[i])
            block.sync()

    x = ((np.arange(n) * 7) % 31 + 5).astype(NUMPY[dtype])
    out = np.array([0, 0, 1000], NUMPY[dtype])
    fold(x, out)
    assert out.tolist() == [x.sum(), x.max(), x.min()]


def test_sums_by_index_in_blocks(group_size: int) -> None:
    """Threads of a block that add to the same element are serialized."""

    @qd.kernel
    def scatter(bins: qd.types.ndarray(dtype=qd.i32, ndim=1)):
        qd.loop_config(block_dim=64)
        for i in range(256):
            t = block.thread_idx()
            bins[(t // 32 ^ t) % 4] += i
            block.sync()
            bins[4 + add_once(bins, t % 3)] += 1
            block.sync()

    bins = np.zeros(8, np.int32)
    scatter(bins)
    i = np.arange(256)
    t = i % 64
    want = [int(i[(t // 32 ^ t) % 4 == b].sum()) for b in range(4)]
    assert bins.tolist() == [*want, *[int((t % 3 == k).sum()) for k in range(3)], 256]


@qd.func
def add_once(bins: qd.template(), k: qd.i32) -> qd.i32:
    bins[7] += 1
    return k
