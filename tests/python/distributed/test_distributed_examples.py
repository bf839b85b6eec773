"""The distributed examples agree with numpy, on one rank and on several."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples" / "distributed"
NAMES = sorted(p.stem for p in EXAMPLES.glob("*.py") if p.stem != "rank_support")
MPIEXEC = Path(sys.prefix) / "bin" / "mpiexec"

pytest.importorskip("mpi4py", reason="mpi4py is not installed")
pytestmark = pytest.mark.skipif(not MPIEXEC.exists(), reason="mpich is not installed")


def check(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_numpy(name, ranks):
    start = [str(MPIEXEC), "-n", str(ranks)] if ranks > 1 else []
    said = check([*start, sys.executable, str(EXAMPLES / f"{name}.py"), "--check"])
    assert f"agrees with numpy: {ranks} ranks" in said


def test_torchrun_starts_the_ranks():
    pytest.importorskip("torch", reason="torch is not installed")
    said = check(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            "2",
            str(EXAMPLES / "heat_3d.py"),
            "--check",
        ]
    )
    assert "agrees with numpy: 2 ranks" in said
