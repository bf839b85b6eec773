"""Deeply nested and very long sources compile or are refused; none crashes the process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import octants as qd

HEAD = """
import sys
import octants as qd

qd.init(arch=qd.cpu, offline_cache=False)
"""
TAIL = """
x = qd.ndarray(qd.f32, 4)
x.fill(1.0)
k(x)
print(x[3])
"""
KERNEL = "@qd.kernel\ndef k(x: qd.types.ndarray(dtype=qd.f32, ndim=1)):\n    for i in x:\n"


def chain(n):
    funcs = "@qd.func\ndef f0(a):\n    return a + 1.0\n"
    funcs += "".join(f"@qd.func\ndef f{i}(a):\n    return f{i - 1}(a) + 1.0\n" for i in range(1, n))
    return funcs + KERNEL + f"        x[i] = f{n - 1}(x[i])\n"


def elifs(n):
    branches = "".join(f"        elif x[i] == {j}.0:\n            x[i] = {j}.5\n" for j in range(1, n))
    return KERNEL + "        if x[i] == 0.0:\n            x[i] = 0.5\n" + branches


def long_sum(n):
    return KERNEL + "        x[i] = " + " + ".join(["x[i]"] * n) + "\n"


@pytest.mark.parametrize(
    ("body", "result"),
    [(chain(2000), 2001.0), (elifs(3000), 1.5), (long_sum(3000), 3000.0)],
    ids=["2000 functions", "3000 branches", "3000 terms"],
)
def test_deep_sources_compile(tmp_path, body, result):
    (tmp_path / "deep.py").write_text(HEAD + body + TAIL)
    # Python's own compiler goes no deeper than its limit of recursion lets it.
    run = f"import sys, runpy; sys.setrecursionlimit(50_000); runpy.run_path({str(tmp_path / 'deep.py')!r})"
    env = os.environ | {"PYTHONPATH": str(Path(qd.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, timeout=300, env=env)
    if sys.version_info < (3, 14):
        assert (done.returncode, done.stdout) == (0, f"{result}\n"), done.stderr[-2000:]
    else:
        assert done.returncode == 0 or "too deeply nested for the compiler" in done.stderr
