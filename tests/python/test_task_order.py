"""Kernels of several loops: a graph runs independent loops concurrently, with the same results."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import octants as qd

N = 96
ARRAYS = 5
# Array 0 of the three is written. Numbers stay small.
FORMS = (
    "{0}[i] = ({1}[i] * 3 + {2}[i]) % 1009",
    "{0}[i] = ({0}[i] + {1}[({2}[i] & 7) + i // 2]) % 1013",
    "qd.atomic_max({0}[i // 3], {1}[i])",
    "{0}[i] = {0}[i] // 2 + 1",
)
# Launches after which a kernel is a graph, and some more.
LAUNCHES = 12


@pytest.fixture(autouse=True)
def begun() -> Iterator[None]:
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


def loops_of(seed: int) -> str:
    """Loops in random forms, over random arrays and ranges."""
    pick = random.Random(seed)
    names = [f"a{k}" for k in range(ARRAYS)]
    text = ""
    for _ in range(pick.randrange(3, 14)):
        begin, end = sorted(pick.sample(range(N + 1), 2)) if pick.random() < 0.4 else (0, N)
        text += f"    for i in range({begin}, {end}):\n        {pick.choice(FORMS).format(*pick.sample(names, 3))}\n"
    return text


def kernel_of(loops: str, folder: Path) -> Any:
    params = ", ".join(f"a{k}: qd.types.ndarray(dtype=qd.i64, ndim=1)" for k in range(ARRAYS))
    file = folder / "loops.py"
    file.write_text(f"import octants as qd\n\n\n@qd.kernel\ndef k({params}):\n{loops}")
    spec = spec_from_file_location("loops", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.k


def plain_of(loops: str) -> Callable[..., None]:
    """The same for lists."""

    class Plain:
        @staticmethod
        def atomic_max(a: list[int], at: int, value: int) -> None:
            a[at] = max(a[at], value)

    text = "".join(
        line.replace("[i // 3], ", ", i // 3, ") if "atomic_max" in line else line for line in loops.splitlines(True)
    )
    scope: dict[str, Any] = {"qd": Plain}
    exec(f"def k({', '.join(f'a{k}' for k in range(ARRAYS))}):\n{text}", scope)
    plain: Callable[..., None] = scope["k"]
    return plain


@pytest.mark.parametrize("seed", range(16))
def test_random_loops(seed: int, tmp_path: Path) -> None:
    loops = loops_of(seed)
    kernel, plain = kernel_of(loops, tmp_path), plain_of(loops)
    wanted = [[(7 * i + 13 * k) % 101 for i in range(N)] for k in range(ARRAYS)]
    arrays = [qd.ndarray(qd.i64, shape=N) for _ in range(ARRAYS)]
    for array, values in zip(arrays, wanted, strict=True):
        array.from_numpy(np.array(values))
    for _ in range(LAUNCHES):
        kernel(*arrays)
        plain(*wanted)
    for array, values in zip(arrays, wanted, strict=True):
        np.testing.assert_array_equal(array.to_numpy(), values, err_msg=loops)


def test_one_array_for_two_parameters(tmp_path: Path) -> None:
    loops = "    for i in range(96):\n        a0[i] = a1[i] + 1\n    for i in range(96):\n        a2[i] = a3[i] * 2\n"
    kernel = kernel_of(loops, tmp_path)
    x, y, z = (qd.ndarray(qd.i64, shape=N) for _ in range(3))
    for launch in range(LAUNCHES):
        # The second loop reads data that the first one writes, through another parameter.
        kernel(x, y, z, x, y)
        y.fill(launch + 1)
        assert (z.to_numpy() == 2 * (launch + 1)).all()
