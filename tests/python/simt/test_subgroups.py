"""Subgroups: shuffles, votes, reductions, scans, sorts."""

from typing import Any

import lane_kernels
import numpy as np
import pytest
from lane_kernels import DTYPES, need_threads, numbers, per_thread

import octants as qd
from octants.simt import subgroup

N = 256
FOLDS: dict[str, Any] = {
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
BITS = ("and", "or", "xor")


def tiles(x: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
    return x.reshape(-1, size)


def identity(op: str, dtype: str) -> Any:
    np_type = DTYPES[dtype][1]
    if op in ("min", "max"):
        if dtype[0] == "f":
            return np.inf if op == "min" else -np.inf
        return np.iinfo(np_type).max if op == "min" else np.iinfo(np_type).min
    return {"mul": np_type(1), "and": ~np_type(0) if dtype[0] != "f" else 0}.get(op, np_type(0))


def test_sizes(group_size: int) -> None:
    assert group_size in ((4, 8, 16, 32, 64, 128) if qd.cfg.arch == qd.vulkan else (32, 64))
    assert 1 << subgroup.log2_group_size() == group_size

    @qd.kernel
    def sizes() -> qd.types.vector(2, qd.i32):
        return qd.Vector([subgroup.group_size(), qd.static(subgroup.log2_group_size())])

    assert list(sizes()) == [group_size, subgroup.log2_group_size()]


@pytest.mark.parametrize("dtype", DTYPES)
def test_shuffles(group_size: int, dtype: str) -> None:
    x = numbers(N, dtype)
    groups = tiles(x, group_size)
    lane = np.arange(group_size)
    assert (tiles(per_thread(subgroup.shuffle_xor, 64, dtype, x, extra=(5,)), group_size) == groups[:, lane ^ 5]).all()
    down = np.minimum(lane + 3, group_size - 1)
    down[-3:] = lane[-3:]
    assert (tiles(per_thread(subgroup.shuffle_down, 64, dtype, x, extra=(3,)), group_size) == groups[:, down]).all()
    up = np.where(lane >= 3, lane - 3, lane)
    assert (tiles(per_thread(subgroup.shuffle_up, 64, dtype, x, extra=(3,)), group_size) == groups[:, up]).all()
    for index in (0, 7):
        got = tiles(per_thread(subgroup.broadcast, 64, dtype, x, extra=(index,)), group_size)
        assert (got == groups[:, index : index + 1]).all()
    assert (tiles(per_thread(subgroup.broadcast_first, 64, dtype, x), group_size) == groups[:, :1]).all()
    order = np.random.default_rng(1).integers(0, group_size, N).astype(np.int32)
    got = per_thread(subgroup.shuffle, 64, dtype, x, order)
    assert (tiles(got, group_size) == np.take_along_axis(groups, tiles(order, group_size), axis=1)).all()


def test_votes(group_size: int) -> None:
    rng = np.random.default_rng(0)
    p = rng.integers(0, 2, N).astype(np.int32)
    p[:group_size] = 1
    p[group_size : 2 * group_size] = 0
    groups = tiles(p, group_size)
    weights = np.uint64(1) << np.arange(group_size, dtype=np.uint64)
    bits = (groups * weights).sum(axis=1, dtype=np.uint64).repeat(group_size)
    assert (per_thread(subgroup.ballot, 64, "u64", p * 7) == bits).all()
    for n in (1, 20, 32):
        assert (per_thread(subgroup.ballot_first_n, 64, "u32", p, extra=(n,)) == bits & np.uint64((1 << n) - 1)).all()
    assert (per_thread(subgroup.all_true, 64, "i32", p * 3) == groups.all(axis=1).repeat(group_size)).all()
    assert (per_thread(subgroup.any_true, 64, "i32", p * 3) == groups.any(axis=1).repeat(group_size)).all()
    equal = (groups == groups[:, :1]).all(axis=1).repeat(group_size)
    assert (per_thread(subgroup.all_equal, 64, "i32", p) == equal).all()
    for k in (k for k in (0, 2, 4) if 1 << k <= group_size):
        small = tiles(p, 1 << k)
        assert (per_thread(subgroup.all_true_tiled, 64, "i32", p, extra=(k,)) == small.all(axis=1).repeat(1 << k)).all()
        assert (per_thread(subgroup.any_true_tiled, 64, "i32", p, extra=(k,)) == small.any(axis=1).repeat(1 << k)).all()
        equal = (small == small[:, :1]).all(axis=1).repeat(1 << k)
        assert (per_thread(subgroup.all_equal_tiled, 64, "i32", p, extra=(k,)) == equal).all()


def test_lanes_and_masks(group_size: int) -> None:
    @qd.kernel
    def lanes(lane: qd.types.ndarray(), first: qd.types.ndarray(), masks: qd.types.ndarray()):
        qd.loop_config(block_dim=64)
        for i in range(lane.shape[0]):
            lane[i] = subgroup.invocation_id()
            first[i] = subgroup.elect()
            at = i % 32
            masks[i, 0] = subgroup.lanemask_lt(at)
            masks[i, 1] = subgroup.lanemask_le(at)
            masks[i, 2] = subgroup.lanemask_eq(at)
            masks[i, 3] = subgroup.lanemask_gt(at)
            masks[i, 4] = subgroup.lanemask_ge(at)
            subgroup.sync()
            subgroup.mem_fence()

    lane, first, masks = np.zeros(N, np.int32), np.zeros(N, np.int32), np.zeros((N, 5), np.uint32)
    lanes(lane, first, masks)
    assert (lane == np.arange(N) % group_size).all()
    assert (first == (lane == 0)).all()
    for i in range(32):
        bit, all_bits = 1 << i, (1 << 32) - 1
        below = bit - 1
        assert masks[i].tolist() == [below, below | bit, bit, all_bits & ~(below | bit), all_bits & ~below]


@pytest.mark.parametrize("k", [None, 0, 1, 3, 5])
@pytest.mark.parametrize("op", ["add", "min", "max"])
@pytest.mark.parametrize("dtype", ["i32", "f32", "u64"])
def test_reductions(group_size: int, dtype: str, op: str, k: int | None) -> None:
    need_threads(group_size, 1 << (k or 0))
    x = numbers(N, dtype)
    size = group_size if k is None else 1 << k
    name, extra = (op, ()) if k is None else (f"{op}_tiled", (k,))
    wanted = FOLDS[op].reduce(tiles(x, size), axis=1)
    got = per_thread(getattr(subgroup, f"reduce_{name}"), 64, dtype, x, extra=extra)
    assert (got[::size] == wanted).all()
    got = per_thread(getattr(subgroup, f"reduce_all_{name}"), 64, dtype, x, extra=extra)
    assert (got == wanted.repeat(size)).all()


@pytest.mark.parametrize("k", [None, 0, 2, 5])
@pytest.mark.parametrize("op", ["add", "min", "max"])
def test_segments(group_size: int, op: str, k: int | None) -> None:
    need_threads(group_size, 1 << (k or 0))
    x = numbers(N, "f32")
    heads = (np.random.default_rng(2).integers(0, 5, N) == 0).astype(np.int32) * 3
    size = group_size if k is None else 1 << k
    name, extra = (op, ()) if k is None else (f"{op}_tiled", (k,))
    wanted = np.empty_like(x)
    for i in range(N):
        wanted[i] = x[i] if heads[i] or i % size == 0 else FOLDS[op](wanted[i - 1], x[i])
    got = per_thread(getattr(subgroup, f"segmented_reduce_{name}"), 64, "f32", x, heads, extra=extra)
    assert (got == wanted).all()


@pytest.mark.parametrize("k", [None, 0, 3])
@pytest.mark.parametrize("op", FOLDS)
@pytest.mark.parametrize("dtype", ["i32", "u64", "f64"])
def test_scans(group_size: int, dtype: str, op: str, k: int | None) -> None:
    if dtype == "f64" and op in BITS:
        pytest.skip("bits are of integers")
    x = numbers(N, dtype)
    if op == "mul":
        x = np.where(x == 0, 1, x % 3 + (1 if dtype != "u64" else 0)).astype(x.dtype)
    size = group_size if k is None else 1 << k
    name, extra = (op, ()) if k is None else (f"{op}_tiled", (k,))
    wanted = FOLDS[op].accumulate(tiles(x, size), axis=1).astype(x.dtype)
    got = per_thread(getattr(subgroup, f"inclusive_{name}"), 64, dtype, x, extra=extra)
    assert (tiles(got, size) == wanted).all()
    before = np.roll(wanted, 1, axis=1)
    before[:, 0] = identity(op, dtype)
    got = per_thread(getattr(subgroup, f"exclusive_{name}"), 64, dtype, x, extra=extra)
    assert (tiles(got, size) == before).all()


@pytest.mark.parametrize("k", [None, 0, 1, 3, 5])
@pytest.mark.parametrize("dtype", ["f32", "i64"])
def test_sort(group_size: int, dtype: str, k: int | None) -> None:
    need_threads(group_size, 1 << (k or 0))
    keys, values = numbers(N, dtype), np.random.default_rng(3).permutation(N).astype(np.int32)
    size = group_size if k is None else 1 << k
    order = np.lexsort((values, keys, np.arange(N) // size))

    @qd.kernel
    def sort(keys: qd.types.ndarray(), values: qd.types.ndarray()):
        qd.loop_config(block_dim=64)
        for i in range(keys.shape[0]):
            if qd.static(k is None):
                keys[i], values[i] = subgroup.bitonic_sort_kv(keys[i], values[i])
            else:
                keys[i], values[i] = subgroup.bitonic_sort_kv_tiled(keys[i], values[i], k)

    wanted = keys[order], values[order]
    sort(keys, values)
    assert (keys == wanted[0]).all()
    assert (values == wanted[1]).all()


def test_shuffles_from_outside_the_subgroup_yield_the_own_value(group_size: int) -> None:
    @qd.kernel
    def beyond(x: qd.types.ndarray(), y: qd.types.ndarray()):
        qd.loop_config(block_dim=64)
        for i in range(x.shape[0]):
            lane = i % group_size
            y[i, 0] = subgroup.shuffle(x[i], lane + group_size)
            y[i, 1] = subgroup.shuffle(x[i], lane - group_size)
            y[i, 2] = subgroup.shuffle(x[i], group_size + 1)
            y[i, 3] = subgroup.shuffle(x[i], -1)
            y[i, 4] = subgroup.shuffle_xor(x[i], group_size + 1)
            y[i, 5] = subgroup.shuffle_xor(x[i], group_size + x[i] % 2)

    x, y = np.arange(N, dtype=np.int32), np.zeros((N, 6), np.int32)
    beyond(x, y)
    assert (y == x[:, None]).all()


@pytest.mark.parametrize("old", ["barrier", "memory_barrier", "ballot_full_subgroup"])
def test_old_names_warn_once(group_size: int, old: str) -> None:
    from octants.simt import old_names

    old_names._warned.clear()
    function = getattr(subgroup, old)

    @qd.kernel
    def old_name(out: qd.types.ndarray()):
        qd.loop_config(block_dim=64)
        for i in range(out.shape[0]):
            if qd.static(old == "ballot_full_subgroup"):
                out[i] = qd.cast(function(1), qd.i32)
            else:
                function()
                out[i] = -1

    out = np.zeros(N, np.int32)
    with pytest.warns(DeprecationWarning, match=old):
        old_name(out)
    # A bit for each thread of the subgroup: all bits of an i32 if there are 32 threads.
    is_ballot = old == "ballot_full_subgroup" and group_size < 32
    assert (out == ((1 << group_size) - 1 if is_ballot else -1)).all()


def test_warp_names(group_size: int) -> None:
    warp = qd.simt.warp
    x = numbers(N, "i32")
    if group_size != 32:
        with pytest.raises(qd.OctantsCompilationError, match="32 threads"):
            per_thread(lambda v: warp.ballot(v), 64, "i32", x)
        return
    full = 0xFFFFFFFF
    groups = tiles(x, 32)
    call = lane_kernels.per_thread

    @qd.func
    def ballot(v: Any) -> Any:
        return warp.ballot(v > 0)

    @qd.func
    def match(v: Any) -> Any:
        return warp.match_any(qd.u32(full), v)

    @qd.func
    def moved(v: Any) -> Any:
        return warp.shfl_up_i32(qd.u32(full), v, 1) + warp.shfl_xor_i32(qd.u32(full), v, 1)

    weights = np.uint64(1) << np.arange(32, dtype=np.uint64)
    bits = ((groups > 0) * weights).sum(axis=1, dtype=np.uint64).astype(np.uint32).view(np.int32).repeat(32)
    assert (call(ballot, 64, "i32", x) == bits).all()
    same = (groups[:, :, None] == groups[:, None, :]) * weights
    assert (tiles(call(match, 64, "u32", x), 32) == same.sum(axis=2, dtype=np.uint64)).all()
    lane = np.arange(32)
    wanted = groups[:, np.maximum(lane - 1, 0)] + groups[:, lane ^ 1]
    assert (tiles(call(moved, 64, "i32", x), 32) == wanted).all()
