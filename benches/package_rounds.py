"""Runs one benchmark on this package and on others of the same interface, and prints a table.

Each package runs in a separate process, in turn, for several rounds. Prints the medians of the rounds, or another
statistic that a benchmark chooses, and the ratio of the last package to the first.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable


def compare(
    description: str,
    file: str,
    measure: Callable[[str, int], dict[str, float]],
    unit: str = "ms",
    of_rounds: Callable[[Iterable[float]], float] = statistics.median,
) -> None:
    """The main function of a benchmark: `measure` returns times by case, in the given unit, given a package and the
    number of runs of a case."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", metavar="PACKAGE=PYTHON", help="what to run it with")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=15, help="runs of a case in a round")
    parser.add_argument("--package", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.package:
        print(json.dumps(measure(options.package, options.repeat)))
        return
    pythons = dict(given.split("=", 1) for given in options.python or [f"octants={sys.executable}"])
    rounds: dict[str, list[dict[str, float]]] = {package: [] for package in pythons}
    for _ in range(options.rounds):
        for package, python in pythons.items():
            command = [python, file, "--package", package, "--repeat", str(options.repeat)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            rounds[package].append(json.loads(done.stdout.splitlines()[-1]))
    print(f"| case | {' | '.join(f'{package}, {unit}' for package in pythons)} | ratio |")
    print(f"|---|{'---:|' * (len(pythons) + 1)}")
    for case in rounds[next(iter(pythons))][0]:
        times = [of_rounds(r[case] for r in of_package) for of_package in rounds.values()]
        print(f"| {case} | {' | '.join(f'{t:.3g}' for t in times)} | {times[-1] / times[0]:.3g} |")
