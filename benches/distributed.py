"""Scaling of the examples on several ranks.

    python benches/distributed.py --ranks 2 --launcher mpiexec
    python benches/distributed.py --ranks 2 --arch cuda --launcher torchrun --size 512 --steps 200

Weak scaling gives each rank the block that one rank has: efficiency is the speed of all ranks over that of one, divided
by their number. Strong scaling splits the block of one rank. Each number is the median of several runs.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "distributed"

# Name, and the size as a multiple of `--size`.
PROGRAMS = {
    "heat_3d": 1.0,
    "fdtd": 0.5,
    "jacobi": 32.0,
    "lattice_boltzmann": 0.5,
    "mpm_3d": 0.5,
    "cart_poles": 40_000.0,
    "pendulums": 8_000.0,
}


def command(launcher: str, ranks: int, program: list[str]) -> list[str]:
    """The command that starts a program with these arguments."""
    if ranks == 1:
        return [sys.executable, *program]
    if launcher == "torchrun":
        return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), *program]
    return [str(Path(sys.prefix) / "bin" / "mpiexec"), "-n", str(ranks), sys.executable, *program]


def speed(args: argparse.Namespace, name: str, ranks: int, weak: bool) -> float:
    """Updates per nanosecond."""
    size = str(int(args.size * PROGRAMS[name]))
    program = [str(EXAMPLES / f"{name}.py"), "--arch", args.arch, "--size", size, "--steps", str(args.steps)]
    found = []
    for _ in range(args.rounds):
        start = command(args.launcher, ranks, [*program, *["--weak"] * weak])
        done = subprocess.run(start, capture_output=True, text=True, check=False)
        said = re.search(r"ranks: ([\d.]+) G", done.stdout)
        if said is None:
            raise RuntimeError(done.stdout + done.stderr)
        found.append(float(said[1]))
    return statistics.median(found)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="cpu")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--launcher", choices=["mpiexec", "torchrun"], default="mpiexec")
    parser.add_argument("--size", type=int, default=96, help="extent of an axis of one rank's block (default: 96)")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=list(PROGRAMS), help="programs to run (default: all)")
    args = parser.parse_args()
    print(
        f"{'program':17} {'1 rank':>10} {'weak':>10} {'efficiency':>10} {'strong':>10} {'efficiency':>10}   G updates/s"
    )
    failed = False
    for name in args.only or PROGRAMS:
        try:
            one = speed(args, name, 1, False)
            weak, strong = speed(args, name, args.ranks, True), speed(args, name, args.ranks, False)
        except RuntimeError as error:
            print(f"{name:17} failed: {error}", flush=True)
            failed = True
            continue
        shares = [speed / one / args.ranks for speed in (weak, strong)]
        print(f"{name:17} {one:10.2f} {weak:10.2f} {shares[0]:10.1%} {strong:10.2f} {shares[1]:10.1%}", flush=True)
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
