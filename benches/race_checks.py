"""The cost of `check_races="full"`: runs each example without and with it, in turn.

Run it as `python benches/race_checks.py [--rounds 3] [name ...]`. It prints the median ratio of the time per frame,
without first frames, for each example, and the median of all.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
APART = {"example_support", "torch_layer"}
FRAMES = {"julia": 60, "streams": 20, "diffmpm": 4, "tensor_matmul": 4}
RATE = re.compile(r"/s:\s*([\d.,]+)")


def frame_seconds(name: str, mode: str) -> float | None:
    """Seconds of a frame in a run of an example, as it prints them."""
    environment = dict(os.environ, OCTANTS_CHECK_RACES=mode)
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), "--frames", str(FRAMES.get(name, 40))]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    found = RATE.search(done.stdout)
    if done.returncode != 0 or found is None:
        print(f"{name} ({mode}): {done.stdout[-300:]}{done.stderr[-300:]}", file=sys.stderr)
        return None
    return 1.0 / float(found.group(1).replace(",", ""))


def main() -> None:
    """Runs the examples and prints ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    names = options.names or sorted(p.stem for p in EXAMPLES.glob("*.py") if p.stem not in APART)
    medians = []
    for name in names:
        ratios = []
        for _ in range(options.rounds):
            plain, full = frame_seconds(name, "off"), frame_seconds(name, "full")
            if plain and full:
                ratios.append(full / plain)
        if ratios:
            medians.append(statistics.median(ratios))
            print(f"{name:20} {medians[-1]:6.2f}  ({', '.join(f'{r:.2f}' for r in ratios)})", flush=True)
    if medians:
        print(f"{'median':20} {statistics.median(medians):6.2f}")


if __name__ == "__main__":
    main()
