"""Runs the programs of this folder on several ranks."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
MPIEXEC = Path(sys.prefix) / "bin" / "mpiexec"


def run(ranks, program, folder, *options, script="split_programs.py", limit=120):
    """Runs a program; its output when it failed."""
    command = [sys.executable, str(HERE / script), program, str(folder), *options]
    if ranks > 1:
        command = [str(MPIEXEC), "-n", str(ranks), *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)


def torchrun(ranks, script, *options, limit=120):
    """Runs a program, started by torchrun if there are several ranks."""
    start = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    command = [sys.executable, *start, str(HERE / script), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
