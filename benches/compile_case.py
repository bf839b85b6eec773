"""One compile-time case in a fresh process: imports the package, initializes it, runs the case's kernels once.

Prints a line of JSON with the seconds of each; of the last also the front end's, the processor's, the calling thread's
among these, and the megabytes by which the process grew. Usage: compile_case.py MODULE CASE CACHE_FOLDER
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import resource
import sys
import time
from collections.abc import Callable
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


HEAD = "@qd.kernel\ndef k0(a: qd.types.ndarray(dtype=qd.f32, ndim=1)):\n"


def branching_kernel(statements: int) -> str:
    """One kernel of `statements` statements in one loop: a branch, an assignment in it, a store and a load, over and
    over."""
    lines = [
        f"        if v > {n}.5:\n            v = v * 0.5 + {n}.0\n        a[i] = v + 1.0\n        v += a[i] * 0.25\n"
        for n in range(statements // 4)
    ]
    return f"{HEAD}    for i in range(a.shape[0]):\n        v = a[i]\n{''.join(lines)}"


def many_loops(statements: int) -> str:
    """One kernel of `statements` statements in loops of 20."""
    loops = [
        "    for i in range(a.shape[0]):\n        v0 = a[i]\n"
        + "".join(f"        v{k} = v{k - 1} * 0.{1 + k % 4} + {n}.0\n" for k in range(1, 18))
        + "        a[i] = v17\n"
        for n in range(statements // 20)
    ]
    return HEAD + "".join(loops)


def many_fields(count: int) -> str:
    """One kernel that updates `count` fields in one loop."""
    fields = "".join(f"x{n} = qd.field(qd.f32, 16)\n" for n in range(count))
    updates = "".join(f"        x{n}[i] = v + {n}.0\n        v += x{n}[i] * 0.5\n" for n in range(count))
    return f"{fields}\n\n{HEAD}    for i in range(16):\n        v = a[i]\n{updates}        a[i] = v\n"


def call_tree(width: int, levels: int) -> str:
    """One kernel that calls `width` functions, each of which calls two of the next level, and so on."""
    text = ""
    for level in reversed(range(levels)):
        for n in range(width):
            text += f"@qd.func\ndef f{level}_{n}(x):\n    y = x * 0.{1 + n % 5} + {level}.0\n"
            text += f"    if y > {n}.0:\n        y = y * 0.5 - x\n"
            if level + 1 < levels:
                below = f"f{level + 1}_{n}(y) * 0.5", f"f{level + 1}_{(n + 1) % width}(x)"
                text += f"    y += {below[0]}\n    y -= {below[1]}\n"
            text += "    return y\n\n\n"
    calls = "".join(f"        v += f0_{n}(v)\n" for n in range(width))
    return f"{text}{HEAD}    for i in range(a.shape[0]):\n        v = a[i]\n{calls}        a[i] = v\n"


def many_arrays(count: int, place: str) -> str:
    """One loop that updates `count` arrays, all of them arguments, at the same place."""
    arrays = ", ".join(f"a{n}: qd.types.ndarray(dtype=qd.f32, ndim=1)" for n in range(count))
    body = "".join(f"        a{n}[{place}] += 1.0\n" for n in range(count))
    return f"@qd.kernel\ndef k0({arrays}):\n    for i in range(a0.shape[0]):\n{body}"


SIZES = (200, 2_000, 20_000)
ARRAYS = (10, 100, 200, 500)

GROWTH = {
    **{f"one long loop, {n:,} statements": (long_kernel(n), 1) for n in SIZES},
    **{f"branches, {n:,} statements": (branching_kernel(n), 1) for n in SIZES},
    **{f"loops of 20, {n:,} statements": (many_loops(n), 1) for n in SIZES},
    **{f"fields in one loop, {n:,}": (many_fields(n), 1) for n in SIZES[:2]},
    **{f"arrays in one loop, {n}": (many_arrays(n, "i"), 1) for n in ARRAYS},
    **{f"arrays that a loop scatters to, {n}": (many_arrays(n, "i // 2"), 1) for n in ARRAYS[:3]},
    "call tree, 60 functions, 6 deep": (call_tree(10, 6), 1),
    "call tree, 300 functions, 6 deep": (call_tree(50, 6), 1),
}

CASES: dict[str, tuple[str | None, int]] = {
    "trivial kernel": (TRIVIAL, 1),
    "50 small kernels": (small_kernels(50), 50),
    # Required by Quadrants to skip its front end; no effect in Octants.
    "50 small kernels, fastcache": (small_kernels(50).replace("@qd.kernel", "@qd.kernel(fastcache=True)"), 50),
    "200 statements": (long_kernel(200), 1),
    "mpm88": (None, 1),
}


def peak() -> float:
    """The most memory that this process has held, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def front_end(module: str, qd: Any) -> Callable[[], float]:
    """The seconds of parsing and lowering so far, or of the work that replaces them in a warm start."""
    if module == "octants":

        def of_report() -> float:
            steps = [step for one in qd.profiler.compile_report().compilations for step in one.steps]
            return float(sum(s.ms for s in steps if s.phase in ("parse", "lower") or s.name == "ask again") / 1e3)

        return of_report
    kernel = importlib.import_module(f"{module}.lang.kernel").Kernel
    inner, taken = kernel.materialize, [0.0]

    def timed(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        try:
            return inner(*args, **kwargs)
        finally:
            taken[0] += time.perf_counter() - started

    kernel.materialize = timed
    return lambda: taken[0]


def run(module: str, case: str, cache: str) -> dict[str, float]:
    """Seconds of import, initialization, and from there to the last result."""
    import numpy as np  # not measured

    text, count = (CASES | GROWTH)[case]
    started = time.perf_counter()
    qd: Any = importlib.import_module(module)
    imported = time.perf_counter()
    qd.init(arch=qd.cpu, offline_cache_file_path=cache)
    ready = time.perf_counter()
    front_end_seconds = front_end(module, qd)
    if text is None:
        import package_kernels

        call, result = package_kernels.prepare("mpm88")
        qd.sync()
        memory, processor, caller = peak(), time.process_time(), time.thread_time()
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
        others = [np.ones(16, np.float32) for _ in range(text.count("ndarray(") - 1)] if count == 1 else []
        memory, processor, caller = peak(), time.process_time(), time.thread_time()
        first = time.perf_counter()
        spec.loader.exec_module(kernels)
        for n in range(count):
            getattr(kernels, f"k{n}")(array, *others)
        qd.sync()
        assert (array != 1.0).any()
    taken = {"import": imported - started, "init": ready - imported, "first": time.perf_counter() - first}
    taken |= {"processor": time.process_time() - processor, "caller": time.thread_time() - caller}
    taken |= {"megabytes": peak() - memory}
    return taken | {"front end": front_end_seconds()}


if __name__ == "__main__":
    print("@@" + json.dumps(run(*sys.argv[1:4])))
