"""Runs the examples on two packages, compares their results, and prints which is faster.

    python benches/compare.py                       octants against quadrants, every example
    python benches/compare.py mpm88 heat --frames 60

The files are the same: `--module` of an example picks the package. Results are compared at the small size that an
example's `--check` uses, to twice its tolerance (each package may be off by it once); speed is measured at the normal
size, the median of several processes taken in turn. Exit status 1 means that results differ.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

# Examples that the two packages cannot both run, and why.
LEFT_OUT = {"streams": "it draws `profiler.timeline`, which quadrants does not have"}


def example_names() -> list[str]:
    """Every example, in the order of the alphabet."""
    return sorted(p.stem for p in EXAMPLES.glob("*.py") if p.stem != "example_support")


def measure(name: str, module: str, *options: str) -> dict[str, np.ndarray]:
    """Runs an example in a separate process and returns the results of its `--measure`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.npz"
        command = [sys.executable, "-W", "ignore", str(EXAMPLES / f"{name}.py"), "--module", module, *options]
        done = subprocess.run([*command, "--measure", str(path)], capture_output=True, text=True, check=False)
        if done.returncode != 0 or not path.exists():
            # A diagnostic ends with its message, and indented lines after it.
            last = ([s for s in done.stderr.splitlines() if s[:1].strip()] or ["no output"])[-1]
            raise RuntimeError(f"{name} on {module}: exit {done.returncode}: {last}")
        with np.load(path) as saved:
            return {key: saved[key] for key in saved.files}


def difference(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> str | None:
    """The first result in which two runs differ by more than twice the example's tolerance."""
    for key, got in one.items():
        kind, _, name = key.partition(":")
        if kind != "result":
            continue
        want = other[key]
        if got.shape != want.shape:
            return f"{name}: shapes {got.shape} and {want.shape}"
        error = np.abs(got.astype(np.float64) - want.astype(np.float64))
        share = float(np.mean(~(error <= 2.0 * float(one[f"atol:{name}"]))))
        if share > 2.0 * float(one[f"allowed:{name}"]):
            return f"{name}: {share:.2%} of the elements differ, by up to {np.nanmax(error):.3g}"
    return None


def main() -> int:
    """Prints the table; 1 when results differ or an example failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples", nargs="*", help="names of examples (default: all)")
    parser.add_argument("--modules", nargs=2, default=["octants", "quadrants"], metavar="MODULE")
    parser.add_argument("--arch", default="cpu")
    parser.add_argument("--frames", type=int, default=30, help="frames per timed run (default: 30)")
    parser.add_argument("--runs", type=int, default=3, help="timed runs per package, in turn (default: 3)")
    parser.add_argument("--threads", type=int, help="most threads on the CPU")
    parser.add_argument("--no-speed", action="store_true", help="compare results only")
    args = parser.parse_args()
    absent = [m for m in args.modules if importlib.util.find_spec(m) is None]
    if absent:
        print(f"not installed for {sys.executable}: {', '.join(absent)}; nothing to compare")
        return 0
    options = ["--arch", args.arch] + ([] if args.threads is None else ["--threads", str(args.threads)])
    first, second = args.modules
    unknown = set(args.examples) - set(example_names())
    if unknown:
        parser.error(f"no such example: {', '.join(sorted(unknown))}; there are {', '.join(example_names())}")
    for name in LEFT_OUT.keys() & set(args.examples or example_names()):
        print(f"{name} is left out: {LEFT_OUT[name]}\n")
    heads = ["example", "results", f"{first} ms/frame", f"{second} ms/frame", "speed ratio", "first call ms (both)"]
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    failed = False
    for name in [e for e in args.examples or example_names() if e not in LEFT_OUT]:
        cells = [name]
        try:
            problem = difference(*(measure(name, m, *options, "--check") for m in args.modules))
            cells.append(problem or "agree")
            failed |= problem is not None
            if not args.no_speed:
                runs = [
                    [measure(name, m, *options, "--frames", str(args.frames)) for m in args.modules]
                    for _ in range(args.runs)
                ]
                frame = [statistics.median(float(run[k]["per_frame"]) for run in runs) * 1e3 for k in (0, 1)]
                call = [statistics.median(float(run[k]["first_call"]) for run in runs) * 1e3 for k in (0, 1)]
                cells += [f"{frame[0]:.2f}", f"{frame[1]:.2f}", f"{frame[1] / frame[0]:.2f}"]
                cells += [f"{call[0]:.0f}, {call[1]:.0f}"]
        except RuntimeError as error:
            failed = True
            cells.append(str(error))
        print("| " + " | ".join(cells + [""] * (len(heads) - len(cells))) + " |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
