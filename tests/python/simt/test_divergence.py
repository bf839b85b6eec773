"""Barriers and exchanges that only some of the threads reach."""

from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.simt import block

KNOWN = [
    "if block.thread_idx() < 5:\n block.sync()",
    "if block.thread_idx() % 2 == 0:\n x[i] = 1\nelse:\n block.sync()",
    "if subgroup.invocation_id() == 0:\n x[i] = block.sync_count_nonzero(1)",
    "for j in range(block.thread_idx()):\n block.sync()",
    "if block.thread_idx() < 5:\n helper()",
    "helper_of_some()",
    "t = block.thread_idx()\nif t != 0:\n x[i] = block.reduce_all_add(x[i], 64, qd.i32)",
    "if i % 64 < 5:\n block.sync()",
    "if i % 2 == 0:\n block.sync()\nelse:\n block.sync()",
    "if i % 3 == 0:\n continue\nblock.sync()",
    "while True:\n if block.thread_idx() > 5:\n  break\n block.sync()",
    "x[i] = early(block.thread_idx())",
]

OF_SUBGROUPS = [
    "if i % 2 == 0:\n x[i] = subgroup.shuffle(x[i], 0)",
    "if subgroup.invocation_id() == 0:\n x[i] = subgroup.reduce_all_add(x[i])",
    "if block.thread_idx() < 3:\n x[i] = subgroup.all_true(x[i])",
    "if i % 2 == 0:\n x[i] = subgroup.ballot(1)\nelse:\n x[i] = subgroup.ballot(0)",
    "if i % 5 != 0:\n subgroup.sync()",
    "for j in range(i % 4):\n x[i] = subgroup.inclusive_add(x[i])",
    "if i % 4 == 1:\n continue\nx[i] = subgroup.reduce_all_max(x[i])",
    "if i % 2 == 1:\n sums += left @ right",
    "if i % 2 == 1:\n tile.cholesky_(1.0)",
    "if i % 2 == 1:\n tile.solve_triangular_(tile)",
    "if i % 2 == 1:\n tile -= qd.outer(1.0, 1.0)",
    "if i % 2 == 1:\n tile -= tile @ tile",
    "if (i & 1) == 1 and subgroup.any_true(x[i]) == 1:\n x[i] = 1",
]


def kernel_of(body: str, path: Any) -> Any:
    """A kernel whose parallel loop has this body, from a file."""
    source = """import octants as qd
from octants.simt import block, subgroup
product = qd.simt.MatrixProduct(qd.f32)
@qd.func
def helper():
    block.sync()
@qd.func
def helper_of_some():
    if block.thread_idx() == 3:
        block.sync()
@qd.func
def early(t):
    if t < 7:
        return 1
    return block.sync_count_nonzero(1)
@qd.kernel
def k(x: qd.types.ndarray(dtype=qd.i32, ndim=1), n: qd.i32):
    qd.loop_config(block_dim=64)
    for i in range(x.shape[0]):
"""
    if "@ right" in body:
        source += "        left, right, sums = product.a.zeros(), product.b.zeros(), product.sums.zeros()\n"
    if "tile" in body:
        source += "        tile = qd.simt.Tile16x16.zeros(qd.f32)\n"
    source += "\n".join("        " + line for line in body.split("\n")) + "\n"
    file = path / "program.py"
    file.write_text(source)
    names: dict[str, Any] = {}
    exec(compile(source, str(file), "exec"), names)
    return names["k"]


@pytest.mark.parametrize("body", KNOWN)
def test_provable_divergence_is_an_error(group_size: int, body: str, tmp_path: Any) -> None:
    with pytest.raises(qd.OctantsCompilationError, match="a barrier waits for all threads") as caught:
        kernel_of(body, tmp_path)(np.zeros(64, np.int32), 3)
    assert "program.py" in str(caught.value) or "octants" in str(caught.value)


@pytest.mark.parametrize("body", OF_SUBGROUPS)
def test_provable_divergence_of_a_subgroup_is_an_error(group_size: int, body: str, tmp_path: Any) -> None:
    if "tile" in body and group_size < 16:
        pytest.skip("subgroups are smaller than tiles")
    k = kernel_of(body, tmp_path)
    with pytest.raises(qd.OctantsCompilationError, match="all threads of the subgroup execute it together") as caught:
        k(np.zeros(64, np.int32), 3)
    assert "program.py" in str(caught.value)


def test_divergence_of_some_blocks_is_an_error(group_size: int) -> None:
    @qd.kernel
    def k(x: qd.types.ndarray(dtype=qd.i32, ndim=2), first: qd.template()):
        qd.loop_config(block_dim=64)
        for i, j in qd.ndrange(4, 64):
            if 64 * i + j < first:
                block.sync()
            x[i, j] = 1

    # The cut is between two blocks.
    x = np.zeros((4, 64), np.int32)
    k(x, 128)
    assert x.all()
    with pytest.raises(qd.OctantsCompilationError, match="a barrier waits for all threads"):
        k(x, 130)


FINE = [
    "if block.thread_idx() < 64:\n block.sync()",
    "if n > 2:\n block.sync()",
    "for j in range(n):\n block.sync()",
    "if block.thread_idx() < 32:\n x[i] = 5\nblock.sync()",
    "if i % 64 < 64:\n block.sync()",
    "if i // 64 == 0:\n block.sync()",
    "if i % 2 == 0:\n x[i] = 5\nx[i] = subgroup.reduce_all_add(x[i])",
    "if block.thread_idx() >= 0:\n x[i] = subgroup.reduce_all_add(x[i])",
    "while True:\n if block.sync_any_nonzero(x[i] < 5) == 0:\n  break\n x[i] += 1",
]


@pytest.mark.parametrize("body", FINE)
def test_uniform_control_flow_is_accepted(body: str, tmp_path: Any) -> None:
    results = []
    for debug in (False, True):
        qd.init(arch=qd.cpu, debug=debug)
        x = np.zeros(64, np.int32)
        kernel_of(body, tmp_path)(x, 3)
        results.append(x.tolist())
    assert results[0] == results[1]


FOUND = [
    ("if x[i] > 5:\n block.sync()", "of a block disagree on a condition around a barrier"),
    ("for j in range(x[i] // 8):\n block.sync()", "of a block disagree on a bound of the loop around a barrier"),
    ("if x[i] % 2 == 0:\n x[i] = subgroup.shuffle(x[i], 0)", "of a subgroup disagree on a condition"),
    ("while True:\n if x[i] > 9:\n  break\n block.sync()\n x[i] += 1", "of a block disagree on a condition"),
    ("if x[i] > 60:\n continue\nblock.sync()", "of a block disagree on a condition"),
    ("if x[i] == 3:\n helper()", "of a block disagree on a condition"),
]


@pytest.mark.parametrize("body, text", FOUND)
def test_debug_mode_finds_data_dependent_divergence(body: str, text: str, tmp_path: Any) -> None:
    qd.init(arch=qd.cpu, debug=True)
    k = kernel_of(body, tmp_path)
    # Threads that agree cause no error.
    k(np.full(128, 4, np.int32) if "shuffle" in body else np.full(128, 63, np.int32), 3)
    with pytest.raises(qd.OctantsAssertionError, match=text) as caught:
        k(np.arange(128, dtype=np.int32) % 64, 3)
    assert "program.py" in str(caught.value)
