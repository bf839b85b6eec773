"""One compile-time case in a fresh process: imports the package, initialises it, runs the case's kernels once.

Prints a line of JSON with the seconds of each. Usage: compile_case.py MODULE CASE CACHE_FOLDER
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

TRIVIAL = """
@qd.kernel
def k0(a: qd.types.ndarray(dtype=qd.f32, ndim=1)):
    for i in range(a.shape[0]):
        a[i] = a[i] * 2.0 + 1.0
"""


def small_kernels(count: int) -> str:
    """`count` different kernels of a few statements."""
    return "".join(
        f"""
@qd.kernel
def k{n}(a: qd.types.ndarray(dtype=qd.f32, ndim=1)):
    for i in range(a.shape[0]):
        v = a[i] + {n}.0
        if v > {n}.5:
            v = v * {n + 1}.0 - 1.0
        a[i] = qd.sqrt(v * v + 1.0)
"""
        for n in range(count)
    )


def long_kernel(statements: int) -> str:
    """One kernel of `statements` statements that depend on each other."""
    lines = [f"        v{n} = v{n - 1} * 0.{1 + n % 4} + v{max(0, n - 3)} * 0.5 + {n}.0" for n in range(1, statements)]
    head = "@qd.kernel\ndef k0(a: qd.types.ndarray(dtype=qd.f32, ndim=1)):\n    for i in range(a.shape[0]):\n"
    return head + "        v0 = a[i]\n" + "\n".join(lines) + f"\n        a[i] = v{statements - 1}\n"


CASES = {
    "trivial kernel": (TRIVIAL, 1),
    "50 small kernels": (small_kernels(50), 50),
    "200 statements": (long_kernel(200), 1),
    "mpm88": (None, 1),
}


def run(module: str, case: str, cache: str) -> dict[str, float]:
    """Seconds of import, initialisation, and from there to the last result."""
    import numpy as np  # not part of what is measured

    text, count = CASES[case]
    started = time.perf_counter()
    qd: Any = importlib.import_module(module)
    imported = time.perf_counter()
    qd.init(arch=qd.cpu, offline_cache_file_path=cache)
    ready = time.perf_counter()
    if text is None:
        import package_kernels

        call, result = package_kernels.prepare("mpm88")
        qd.sync()
        first = time.perf_counter()
        call()
        qd.sync()
        assert np.isfinite(result()).all()
    else:
        path = Path(cache) / f"case_{module}.py"
        path.write_text(f"import {module} as qd\n{text}")
        spec = importlib.util.spec_from_file_location("case", path)
        assert spec is not None
        assert spec.loader is not None
        kernels = importlib.util.module_from_spec(spec)
        array = np.ones(16, np.float32)
        first = time.perf_counter()
        spec.loader.exec_module(kernels)
        for n in range(count):
            getattr(kernels, f"k{n}")(array)
        qd.sync()
        assert (array != 1.0).any()
    return {"import": imported - started, "init": ready - imported, "first": time.perf_counter() - first}


if __name__ == "__main__":
    print("@@" + json.dumps(run(*sys.argv[1:4])))
