"""Micro-benchmarks: host time of launches, compile time of processes and how it grows, throughput of small programs,
gradients.

    python benches/run.py                           everything, on every system that is installed
    python benches/run.py throughput --threads 1 --only triad sum
    python benches/run.py launch --systems octants quadrants
    python benches/run.py gradients --arch cuda

Every measurement happens in a process of its own; systems take turns, and the table shows the median of all rounds.
The last column relates octants to the best of the others in the same run. C is compiled at -O3 for this machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import c_kernels
from compile_case import CASES, GROWTH

HERE = Path(__file__).resolve().parent
GROUPS = ("launch", "compile", "growth", "throughput", "gradients")

# Seconds after which a case of growth is given up.
LONGEST = 300.0


def installed(system: str) -> bool:
    """Whether a system can be measured here."""
    return c_kernels.available() if system == "c" else importlib.util.find_spec(system) is not None


def records(
    script: str, *arguments: str, threads: int | None = None, limit: float | None = None
) -> Iterator[dict[str, Any]]:
    """The results that a script of this folder prints when run in a separate process for at most this many seconds."""
    environment = dict(os.environ)
    if threads is not None:
        environment |= {"OMP_NUM_THREADS": str(threads), "NUMBA_NUM_THREADS": str(threads)}
    command = [sys.executable, "-W", "ignore", str(HERE / script), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        print(f"note: {script} {' '.join(arguments)}: given up after {limit} s", file=sys.stderr)
        return
    if done.returncode != 0:
        last = ([s for s in done.stderr.splitlines() if s[:1].strip()] or ["no output"])[-1]
        print(f"note: {script} {' '.join(arguments)}: exit {done.returncode}: {last}", file=sys.stderr)
    for line in done.stdout.splitlines():
        if line.startswith("@@"):
            yield json.loads(line[2:])


class Table:
    """Values by row and system, over several rounds."""

    def __init__(self, title: str, systems: list[str], *, higher_is_better: bool) -> None:
        self.title, self.systems, self.higher_is_better = title, systems, higher_is_better
        self.values: dict[str, dict[str, list[float]]] = {}

    def add(self, row: str, system: str, value: float) -> None:
        """Adds one measurement."""
        self.values.setdefault(row, {}).setdefault(system, []).append(value)

    def print(self) -> None:
        """Prints medians, and how the first system compares with the best of the others."""
        subject, *others = self.systems
        heads = [self.title, *self.systems] + ([f"{subject} vs best"] if others else [])
        print("\n| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
        for row, by_system in self.values.items():
            medians = {s: statistics.median(v) for s, v in by_system.items()}
            cells = [f"{medians[s]:.3g}" if s in medians else "-" for s in self.systems]
            rest = [medians[s] for s in others if s in medians]
            if rest and subject in medians:
                better = medians[subject] / max(rest) if self.higher_is_better else min(rest) / medians[subject]
                cells.append(f"{better:.2f}")
            elif others:
                cells.append("-")
            print("| " + " | ".join([row, *cells]) + " |", flush=True)


def run_throughput(args: argparse.Namespace, systems: list[str]) -> list[Table]:
    """Rates by number of threads; reports systems whose results differ."""
    tables = []
    for threads in args.threads:
        table = Table(f"throughput, threads: {threads}", systems, higher_is_better=True)
        sums: dict[str, dict[str, float]] = {}
        for _ in range(args.rounds):
            for system in systems:
                for r in records("worker.py", system, "throughput", str(threads), *args.only, threads=threads):
                    table.add(f"{r['name']} ({r['unit']})", system, r["value"])
                    sums.setdefault(r["name"], {})[system] = r["checksum"]
        report_differences(sums)
        table.print()
        tables.append(table)
    return tables


def report_differences(sums: dict[str, dict[str, float]]) -> None:
    """Notes the programs for which systems got different results."""
    for name, by_system in sums.items():
        low, high = min(by_system.values()), max(by_system.values())
        if high - low > 2e-3 * abs(high):
            print(f"note: {name}: results differ: {by_system}", file=sys.stderr)


def run_launch(args: argparse.Namespace, systems: list[str]) -> list[Table]:
    """Host microseconds per launch."""
    systems = [s for s in systems if s not in ("c", "numba")]
    table = Table("launch, host us", systems, higher_is_better=False)
    for _ in range(args.rounds):
        for system in systems:
            for r in records("worker.py", system, "launch", "1", *args.only):
                table.add(r["name"], system, r["value"])
    table.print()
    return [table]


def run_compile(args: argparse.Namespace, systems: list[str]) -> list[Table]:
    """Milliseconds of fresh processes: with an empty cache, then with the cache that run left."""
    systems = [s for s in systems if s not in ("c", "numba")]
    table = Table("fresh process, ms", systems, higher_is_better=False)
    processor = Table("fresh process, processor ms", systems, higher_is_better=False)
    for case in [c for c in CASES if not args.only or c in args.only]:
        for _ in range(args.rounds):
            for system in systems:
                with tempfile.TemporaryDirectory() as cache:
                    for state in ("cold", "warm"):
                        os.environ["BENCH_MODULE"] = system
                        for r in records("compile_case.py", system, case, cache):
                            if case == next(iter(CASES)) and state == "cold":
                                table.add("import", system, r["import"] * 1e3)
                                table.add("init", system, r["init"] * 1e3)
                            table.add(f"{case}, {state}", system, r["first"] * 1e3)
                            table.add(f"{case}, {state}: its front end", system, r["front end"] * 1e3)
                            processor.add(f"{case}, {state}", system, r["processor"] * 1e3)
    table.print()
    processor.print()
    return [table, processor]


def run_growth(args: argparse.Namespace, systems: list[str]) -> list[Table]:
    """Seconds of the processor, and memory, for kernels of growing size. One that takes a system too long ends its
    shape."""
    systems = [s for s in systems if s not in ("c", "numba")]
    time = Table("compilation, processor s", systems, higher_is_better=False)
    caller = Table("compilation, processor s of the calling thread", systems, higher_is_better=False)
    memory = Table("compilation, MB", systems, higher_is_better=False)
    too_long: set[tuple[str, str]] = set()
    for case in [c for c in GROWTH if not args.only or c in args.only]:
        shape = case.split(",")[0]
        for _ in range(args.rounds):
            for system in [s for s in systems if (s, shape) not in too_long]:
                with tempfile.TemporaryDirectory() as cache:
                    found = list(records("compile_case.py", system, case, cache, limit=LONGEST))
                if not found:
                    too_long.add((system, shape))
                for r in found:
                    time.add(case, system, r["processor"])
                    caller.add(case, system, r["caller"])
                    memory.add(case, system, r["megabytes"])
    time.print()
    caller.print()
    memory.print()
    return [time, caller, memory]


def run_gradients(args: argparse.Namespace, systems: list[str]) -> list[Table]:
    """Programs and their gradients: time of a call, their ratio, and what the first call takes more; by number of
    threads."""
    systems = [s for s in systems if s not in ("c", "numba")]
    os.environ["BENCH_ARCH"] = args.arch
    tables: list[Table] = []
    for threads in args.threads if args.arch == "cpu" else [0]:
        of = f"threads: {threads}" if threads else args.arch
        names = (
            "forward, us",
            "reverse, us",
            "reverse over forward",
            "compilation forward, ms",
            "compilation reverse, ms",
        )
        group = {n: Table(f"{n}, {of}", systems, higher_is_better=False) for n in names}
        sums: dict[str, dict[str, float]] = {}
        for _ in range(args.rounds):
            for system in systems:
                forward = 0.0
                for r in records("worker.py", system, "gradients", str(threads), *args.only):
                    name, way, seconds = r["name"], r["way"], r["seconds"]
                    group[f"{way}, us"].add(name, system, seconds * 1e6)
                    group[f"compilation {way}, ms"].add(name, system, r["first"] * 1e3)
                    if way == "forward":
                        forward = seconds
                    else:
                        group["reverse over forward"].add(name, system, seconds / forward)
                        sums.setdefault(name, {})[system] = r["checksum"]
        report_differences(sums)
        for table in group.values():
            table.print()
        tables += group.values()
    return tables


def main() -> None:
    """Runs the groups that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", default=GROUPS, metavar="GROUP", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--systems", nargs="+", default=["octants", "quadrants", "numba", "c"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, os.cpu_count() or 1])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[], help="names of benchmarks")
    parser.add_argument("--arch", choices=["cpu", "cuda", "amdgpu"], default="cpu", help="of the group gradients")
    parser.add_argument("--json", type=Path, help="write all measurements there as well")
    args = parser.parse_args()
    unknown = set(args.groups) - set(GROUPS)
    if unknown:
        parser.error(f"no such group: {', '.join(sorted(unknown))}")
    systems = [s for s in args.systems if installed(s)]
    absent = [s for s in args.systems if s not in systems]
    if absent:
        print(f"not installed here: {', '.join(absent)}")
    runners = {
        "launch": run_launch,
        "compile": run_compile,
        "growth": run_growth,
        "throughput": run_throughput,
        "gradients": run_gradients,
    }
    tables = [table for group in args.groups for table in runners[group](args, systems)]
    if args.json:
        args.json.write_text(json.dumps({t.title: t.values for t in tables}, indent=1))


if __name__ == "__main__":
    main()
