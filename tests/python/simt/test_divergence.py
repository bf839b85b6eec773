"""Barriers and exchanges that only some of the threads reach."""

from typing import Any

import numpy as np
import pytest

import octants as qd

KNOWN = [
    "if block.thread_idx() < 5:\n block.sync()",
    "if block.thread_idx() % 2 == 0:\n x[i] = 1\nelse:\n block.sync()",
    "if subgroup.invocation_id() == 0:\n x[i] = block.sync_count_nonzero(1)",
    "for j in range(block.thread_idx()):\n block.sync()",
    "if block.thread_idx() < 5:\n helper()",
    "helper_of_some()",
    "t = block.thread_idx()\nif t != 0:\n x[i] = block.reduce_all_add(x[i], 64, qd.i32)",
]


def kernel_of(body: str, path: Any) -> Any:
    """A kernel whose parallel loop has this body, from a file."""
    source = """import octants as qd
from octants.simt import block, subgroup
@qd.func
def helper():
    block.sync()
@qd.func
def helper_of_some():
    if block.thread_idx() == 3:
        block.sync()
@qd.kernel
def k(x: qd.types.ndarray(dtype=qd.i32, ndim=1), n: qd.i32):
    qd.loop_config(block_dim=64)
    for i in range(x.shape[0]):
"""
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


FINE = [
    "if block.thread_idx() < 64:\n block.sync()",
    "if n > 2:\n block.sync()",
    "for j in range(n):\n block.sync()",
    "if block.thread_idx() < 32:\n x[i] = 5\nblock.sync()",
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
