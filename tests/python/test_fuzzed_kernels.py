"""Random kernels against the reference interpreter of `tests/fuzz`: `OCTANTS_TEST_SEEDS` of them, 300 where that is
not set."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[1] / "fuzz" / "run.py"
PROGRAMS = int(os.environ.get("OCTANTS_TEST_SEEDS", "300"))
AT_ONCE = 75

pytestmark = pytest.mark.on_cpu


@pytest.mark.parametrize("first", range(0, PROGRAMS, AT_ONCE))
def test_random_kernels(tmp_path, first):
    count = min(AT_ONCE, PROGRAMS - first)
    options = ["--seed", str(first), "--programs", str(count), "--configurations", "2", "--timeout", "120"]
    options += ["--failures", str(tmp_path), "--report", str(tmp_path / "report.json")]
    # In a process of its own, whose programs are in another one: nothing that a kernel does harms the tests.
    ran = subprocess.run([sys.executable, str(RUN), *options], capture_output=True, text=True)
    report = json.loads((tmp_path / "report.json").read_text())
    small = "".join(path.read_text().split("\n# options:")[0] for path in sorted(tmp_path.glob("seed_*.py"))[:3])
    assert report["failures"] == [], f"{ran.stdout}\n{ran.stderr}\n{small}"
    assert report["programs"] == count
    assert report["runs"]["ok"] > count
