"""Random kernels against the reference interpreter of `tests/fuzz`: `OCTANTS_TEST_SEEDS` of them; by default 300 on the
CPU, and 40 on each chip of the emulator of AMD GPUs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import hip_standin
import pytest

RUN = Path(__file__).parents[1] / "fuzz" / "run.py"
PROGRAMS = int(os.environ.get("OCTANTS_TEST_SEEDS", "300"))
AT_ONCE = 75


def run(folder, first, count, *more):
    options = ["--seed", str(first), "--programs", str(count), "--configurations", "2", "--timeout", "120"]
    options += ["--failures", str(folder), "--report", str(folder / "report.json"), *more]
    # In a separate process, which runs programs in another one, so that no kernel can harm the tests.
    ran = subprocess.run([sys.executable, str(RUN), *options], capture_output=True, text=True)
    report = json.loads((folder / "report.json").read_text())
    small = "".join(path.read_text().split("\n# options:")[0] for path in sorted(folder.glob("seed_*.py"))[:3])
    assert report["failures"] == [], f"{ran.stdout}\n{ran.stderr}\n{small}"
    assert report["programs"] == count
    assert report["runs"]["ok"] > count


@pytest.mark.on_cpu
@pytest.mark.parametrize("first", range(0, PROGRAMS, AT_ONCE))
def test_random_kernels(tmp_path, first):
    run(tmp_path, first, min(AT_ONCE, PROGRAMS - first))


def test_random_kernels_in_the_emulator(tmp_path, request):
    if request.config.getoption("--arch") != hip_standin.EMULATOR:
        pytest.skip("no emulator of machine code")
    # Other programs for each chip.
    first = 1000 * (1 + hip_standin.CHIPS.index(os.environ["HIP_STANDIN_ARCH"]))
    count = int(os.environ.get("OCTANTS_TEST_SEEDS", "40"))
    run(tmp_path, first, count, "--arch", "amdgpu", "--driver-library", str(hip_standin.path()))
