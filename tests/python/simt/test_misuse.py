"""Misuse is refused with the line of the program."""

from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.simt import block, subgroup


def test_names_of_kernels_cannot_be_called_from_python(group_size: int) -> None:
    for name, args in (("shuffle", (1, 0)), ("ballot", (1,)), ("invocation_id", ())):
        with pytest.raises(qd.OctantsScopeError):
            getattr(subgroup, name)(*args)
    with pytest.raises(qd.OctantsScopeError):
        block.SharedArray(4, qd.f32)


MISUSE = [
    ("", "block.SharedArray(4, qd.f32)", "only be used inside a parallel loop"),
    ("", "block.sync()", "only be used inside a parallel loop"),
    ("for i in range(64):", "s = block.SharedArray(n, qd.f32)", "known at compile time"),
    ("for i in range(64):", "s = block.SharedArray((4, i), qd.f32)", "known at compile time"),
    ("for i in range(64):", "s = block.SharedArray(0, qd.f32)", "positive integers"),
    ("for i in range(64):", "s = block.SharedArray((), qd.f32)", "one or more positive"),
    ("for i in range(64):", "s = block.SharedArray(4)", "takes a shape and a type"),
    ("for i in range(64):", "s = block.SharedArray(4, 5)", "is not a type"),
    ("for i in range(64):", "s = block.SharedArray(4, qd.f32)[0, 0]", "takes 1 indices"),
    ("for i in range(64):", "s = block.SharedArray((4, 4), qd.f32)[0]", "takes 2 indices"),
    ("for i in range(64):", "s = block.SharedArray(4, qd.f32)[0.5]", "must be integers"),
    ("for i in range(64):", "s = block.SharedArray(4, qd.f32)[0:2]", "cannot be sliced"),
    ("for i in range(64):", "s = block.SharedArray(4, qd.f32); s = 1.0", "cannot be assigned"),
    ("for i in range(64):", "s = block.SharedArray(1 << 20, qd.f32)", "of 4194304 bytes exceeds"),
    ("for i in range(64):", "subgroup.shuffle(1.0, 0.5)", "thread index or offset must be an integer"),
    ("for i in range(64):", "subgroup.shuffle(1.0)", "takes a value and an index"),
    ("for i in range(64):", "block.reduce_add(1, 12, qd.i32)", r"multiple of the \d+ threads of a subgroup"),
    ("for i in range(64):", "subgroup.ballot_first_n(1, 33)", "1 to 32 threads"),
    ("for i in range(64):", "subgroup.reduce_add_tiled(i, -1)", "log2_size must be from 0"),
    ("for i in range(64):", "subgroup.inclusive_max_tiled(i, 9)", "log2_size must be from 0"),
    ("for i in range(64):", "subgroup.segmented_reduce_add_tiled(i, 1, -1)", "log2_size must be from 0"),
    ("for i in range(64):", "subgroup.bitonic_sort_kv_tiled(i, 1, -1)", "log2_size must be from 0"),
    ("for i in range(64):", "subgroup.all_equal_tiled(i, -1)", "log2_size must be from 0"),
]


@pytest.mark.parametrize("loop, statement, text", MISUSE)
def test_misuse_names_its_line(group_size: int, loop: str, statement: str, text: str, tmp_path: Any) -> None:
    source = f"""import octants as qd
from octants.simt import block, subgroup
@qd.kernel
def k(n: qd.i32, x: qd.types.ndarray()):
    {loop or "x[0] = 0"}
    {"    " if loop else ""}{statement}
"""
    file = tmp_path / "program.py"
    file.write_text(source)
    names: dict[str, Any] = {}
    exec(compile(source, str(file), "exec"), names)
    with pytest.raises(qd.OctantsCompilationError, match=text) as caught:
        names["k"](4, np.zeros(4, np.float32))
    assert "program.py" in str(caught.value)
    assert 'program.py", line 6' in str(caught.value)


OTHER_SIZES = [
    ("x[i] = block.reduce_all_add(x[i], 128, qd.i32)", "blocks of 128 threads, but the blocks of the loop have 64"),
    ("x[i] = block.reduce_max(x[i], 128, qd.i32)", "blocks of 128 threads"),
    ("x[i] = block.exclusive_min(x[i], 256, qd.i32)", "blocks of 256 threads"),
    ("x[i] = block.inclusive_scan(x[i], 128, block.add, qd.i32)", "blocks of 128 threads"),
    ("x[i] = nested(x[i])", "blocks of 128 threads"),
    ("x[i] = block.radix_rank_match_atomic_or(x[i], 128, 7, 0, 7, s, s)", "blocks of 128 threads"),
]


def kernel_with(statement: str, path: Any) -> Any:
    """A kernel with a loop over blocks of 64 threads, from a file; the statement is line 11."""
    source = f"""import octants as qd
from octants.simt import block
from octants.simt.identities import add
block.add = add
@qd.func
def nested(v): return block.inclusive_add(v, 128, qd.i32)
@qd.kernel
def k(x: qd.types.ndarray()):
    qd.loop_config(block_dim=64)
    for i in range(x.shape[0]):
        s = block.SharedArray(256, qd.i32); {statement}
"""
    file = path / "program.py"
    file.write_text(source)
    names: dict[str, Any] = {}
    exec(compile(source, str(file), "exec"), names)
    return names["k"]


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("statement, text", OTHER_SIZES)
def test_the_size_of_other_blocks_is_an_error(statement: str, text: str, debug: bool, tmp_path: Any) -> None:
    qd.init(arch=qd.cpu, debug=debug, log_level=qd.ERROR)
    k = kernel_with(statement, tmp_path)
    with pytest.raises(qd.OctantsCompilationError, match=text) as caught:
        k(np.zeros(256, np.int32))
    assert 'program.py", line 11' in str(caught.value)
    qd.reset()


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("size", [64, 256])
def test_loops_without_block_dim_get_that_of_their_operations(size: int, debug: bool) -> None:
    qd.init(arch=qd.cpu, debug=debug, log_level=qd.ERROR)

    @qd.func
    def nested(v):
        return block.inclusive_add(v, size, qd.i32)

    @qd.kernel
    def total(y: qd.types.ndarray()):
        for i in range(y.shape[0]):
            y[i] = nested(1) + block.reduce_all_add(1, size, qd.i32)

    y = np.zeros(512, np.int32)
    total(y)
    assert (y == np.arange(512) % size + 1 + size).all()

    @qd.kernel
    def two_sizes(y: qd.types.ndarray()):
        for i in range(y.shape[0]):
            y[i] = nested(1) + block.reduce_all_add(1, 128, qd.i32)

    with pytest.raises(qd.OctantsCompilationError, match="another operation of the same loop"):
        two_sizes(y)
    qd.reset()


@pytest.mark.parametrize("how", ["barrier", "array", "fence"])
def test_gradients_are_refused(group_size: int, how: str) -> None:
    x = qd.field(qd.f32, 64, needs_grad=True)
    y = qd.field(qd.f32, 64, needs_grad=True)

    @qd.kernel
    def k():
        qd.loop_config(block_dim=64)
        for i in x:
            v = x[i]
            if qd.static(how == "barrier"):
                block.sync()
            elif qd.static(how == "fence"):
                block.mem_fence()
            else:
                s = block.SharedArray(64, qd.f32)
                s[i] = v
                v = s[i]
            y[i] = v * v

    k()
    with pytest.raises(qd.OctantsCompilationError, match="shared memory or barriers.*cannot be differentiated"):
        k.grad()


def test_blocks_have_the_requested_size(group_size: int) -> None:
    @qd.kernel
    def places(y: qd.types.ndarray()):
        qd.loop_config(block_dim=16)
        for i in range(y.shape[0]):
            y[i] = block.thread_idx() + 100 * block.sync_count_nonzero(1)

    y = np.zeros(80, np.int32)
    places(y)
    assert (y == np.arange(80) % 16 + 1600).all()

    @qd.kernel
    def too_many(y: qd.types.ndarray()):
        qd.loop_config(block_dim=4096)
        for i in range(y.shape[0]):
            block.sync()
            y[i] = 1

    with pytest.raises(qd.OctantsRuntimeError, match="blocks of 4096 cooperating threads"):
        too_many(np.zeros(4096, np.int32))


@pytest.mark.on_cpu
def test_recursive_functions_with_shared_memory_are_refused(group_size: int) -> None:
    @qd.real_func
    def place(s: qd.types.ndarray(dtype=qd.i32, ndim=1), value: qd.i32) -> qd.i32:
        block.sync()
        if value > 3:
            return value
        return place(s, value + 1)

    @qd.kernel
    def search(y: qd.types.ndarray(dtype=qd.i32, ndim=1)):
        qd.loop_config(block_dim=32)
        for i in range(y.shape[0]):
            y[i] = place(y, 0)

    with pytest.raises(qd.OctantsRuntimeError, match="recursive function `place`"):
        search(np.zeros(64, np.int32))
