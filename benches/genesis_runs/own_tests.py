"""Runs the tests of a checkout of Genesis on two packages and lists the tests whose outcomes differ.

Each test file runs in a process of its own. A test that ends the process counts as `crash`, one that takes longer than
the limit as `hang`; both cost one test, because the next process continues after it. A test that did not pass runs once
more in a fresh process, and its second outcome counts. Tests that want assets from a network skip on both packages. The
record (`--out`) is read first: a run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

# Outcomes that need no second look.
SETTLED = ("passed", "skipped", "xfailed", "xpassed")

# Additional seconds for importing Genesis and collecting tests.
STARTING = 300.0

# Pytest's exit status when no test is left to run.
NOTHING_SELECTED = 5

# Initialization of each process: tests, and processes that they start, select Quadrants' cache by its variables.
# Genesis 0.4.5 requests a graph by the name that `graph=True` had in Quadrants 0.5.
HOOK = """
import os
for name in ("OFFLINE_CACHE", "OFFLINE_CACHE_FILE_PATH"):
    if "QD_" + name in os.environ:
        os.environ["{prefix}_" + name] = os.environ["QD_" + name]
import {module}, {module}.as_quadrants

def rename_options(kernel):
    def renamed(fn=None, /, *, gpu_graph=False, **options):
        return kernel(fn, **options, **(dict(graph=True) if gpu_graph else dict()))
    return renamed

{module}.kernel = rename_options({module}.kernel)
"""

Outcome = dict[str, Any]


def cache_environment(folder: Path) -> dict[str, str]:
    """The environment with every cache below the folder, and without a network."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ)
    for variable, name in {
        "QD_OFFLINE_CACHE_FILE_PATH": "kernels",
        "OCTANTS_OFFLINE_CACHE_FILE_PATH": "kernels",
        "GS_CACHE_FILE_PATH": "assets",
        "XDG_CACHE_HOME": "home",
        "NUMBA_CACHE_DIR": "numba",
    }.items():
        environment[variable] = str(folder / name)
    return environment | {"HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}


def search_path(module: str, folder: Path) -> str:
    """A `PYTHONPATH` that makes `import quadrants` find a package, in processes that tests start too.

    For Octants a `sitecustomize` in the folder sets the alias up.
    """
    parts = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    if module != "quadrants":
        hook = folder / "alias"
        hook.mkdir(parents=True, exist_ok=True)
        (hook / "sitecustomize.py").write_text(HOOK.format(module=module, prefix=module.upper()))
        parts.insert(0, str(hook))
    return os.pathsep.join(parts)


def finished(lines: Iterable[str]) -> tuple[dict[str, Outcome], str | None]:
    """The outcomes in a record, and the test that has started but not ended."""
    outcomes: dict[str, Outcome] = {}
    running: Outcome | None = None
    for line in lines:
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:  # the process was ended while it wrote
            continue
        if "start" in entry:
            running = entry
        elif "end" in entry and running is not None:
            seconds, processor = entry["wall"] - running["wall"], entry["processor"] - running["processor"]
            outcomes[entry["end"]] = {
                "outcome": entry["outcome"],
                "message": entry["message"],
                "seconds": round(seconds, 2),
                "processor": round(processor, 2),
            }
            running = None
    return outcomes, None if running is None else running["start"]


def differences(one: dict[str, Outcome], other: dict[str, Outcome]) -> list[tuple[str, str, str]]:
    """The tests that both packages ran with different outcomes: name, first outcome, second outcome.

    Failing in the body of a test and in its set-up is the same here.
    """

    def kind(outcome: str) -> str:
        return "failed" if outcome == "error" else outcome

    return [
        (name, one[name]["outcome"], other[name]["outcome"])
        for name in one
        if name in other and kind(one[name]["outcome"]) != kind(other[name]["outcome"])
    ]


class Runner:
    """Runs test files of one checkout on one package."""

    def __init__(self, checkout: Path, module: str, folder: Path, args: argparse.Namespace) -> None:
        self.checkout, self.module, self.args = checkout, module, args
        self.folder = folder / module
        self.environment = cache_environment(self.folder) | {"PYTHONPATH": search_path(module, self.folder)}

    def process(self, file: str, done: set[str], only: set[str] | None) -> tuple[dict[str, Outcome], bool]:
        """Runs one process on the remaining tests of a file. Also returns whether there are more."""
        record, left_out, chosen = (self.folder / n for n in ("record", "done", "only"))
        record.write_text("")
        left_out.write_text("\n".join(done))
        environment = self.environment | {
            "GENESIS_MODULE": self.module,
            "GENESIS_RECORD": str(record),
            "GENESIS_DONE": str(left_out),
            "GENESIS_NUMBA": self.environment["NUMBA_CACHE_DIR"],
        }
        if only is not None:
            chosen.write_text("\n".join(only))
            environment["GENESIS_ONLY"] = str(chosen)
        command = [sys.executable, "-W", "ignore", "-m", "pytest", "-p", "record_outcomes", "-p", "no:cacheprovider"]
        command += ["--numprocesses=0", "--backend=cpu", "-q"]
        command += ["-k", self.args.select] if self.args.select else []
        command += ["-m", self.args.marks] if self.args.marks else []
        with (self.folder / "log").open("a") as log:
            child = subprocess.Popen(
                [*command, file],
                cwd=self.checkout,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            hung = self.watch(child, record)
        lines = record.read_text().splitlines()
        outcomes, running = finished(lines)
        self.confirm_package(lines)
        collected = [json.loads(s)["collected"] for s in lines if s.startswith('{"collected"')]
        if running is not None:
            status = f"exit status {child.returncode}" if not hung else f"no end after {self.args.limit} s"
            outcomes[running] = {"outcome": "hang" if hung else "crash", "message": status}
        elif not outcomes and (hung or not collected or child.returncode not in (0, 1, NOTHING_SELECTED)):
            outcomes[f"{file}::(collection)"] = {"outcome": "error", "message": f"exit status {child.returncode}"}
            return outcomes, False
        return outcomes, bool(outcomes) and not set(collected[0]) <= set(outcomes)

    def confirm_package(self, lines: list[str]) -> None:
        """Refuses outcomes that came from another package than the one to test."""
        packages = {json.loads(line)["package"] for line in lines if line.startswith('{"collected"')}
        if packages - {self.module}:
            raise RuntimeError(f"the tests found {packages.pop()} instead of {self.module}")

    def watch(self, child: subprocess.Popen[bytes], record: Path) -> bool:
        """Waits for a process. Ends it if its record has not grown within the limit, and returns whether it did."""
        while child.poll() is None:
            time.sleep(0.2)
            if time.time() - record.stat().st_mtime > self.args.limit + (0 if record.stat().st_size else STARTING):
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                return True
        return False

    def file(
        self, file: str, done: set[str], only: set[str] | None, keep: Callable[[dict[str, Outcome]], None]
    ) -> dict[str, Outcome]:
        """The outcomes of a file's tests except `done`, with a second try of those that did not pass.

        `keep` gets the outcomes of each process as it ends.
        """
        outcomes: dict[str, Outcome] = {}
        more = True
        while more:
            new, more = self.process(file, done | set(outcomes), only)
            outcomes |= new
            keep(new)
        again = {n for n, o in outcomes.items() if o["outcome"] not in SETTLED and not n.endswith("(collection)")}
        tried: dict[str, Outcome] = {}
        while again - set(tried):
            new, more = self.process(file, set(tried), again)
            tried |= new
            if not more:
                break
        repeated = {n: o | {"first": outcomes[n]["outcome"]} for n, o in tried.items() if n in again}
        keep(repeated)
        return outcomes | repeated


def read_record(path: Path | None) -> dict[str, dict[str, Outcome]]:
    """The records of an earlier run, by module."""
    found: dict[str, dict[str, Outcome]] = {}
    if path is not None and path.exists():
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if "test" in entry:
                found.setdefault(entry["module"], {})[entry["test"]] = entry
    return found


def print_summary(modules: list[str], found: dict[str, dict[str, Outcome]]) -> bool:
    """Prints the counts and the tests that differ; whether any does."""
    print(f"\n| package | {' | '.join(kinds := [*SETTLED, 'failed', 'error', 'crash', 'hang'])} |")
    print("|---" * (len(kinds) + 1) + "|")
    for module in modules:
        counts = [sum(o["outcome"] == k for o in found.get(module, {}).values()) for k in kinds]
        print(f"| {module} | {' | '.join(map(str, counts))} |")
    if len(modules) < 2:
        return False
    one, other = ({n: o for n, o in found.get(m, {}).items() if o["outcome"]} for m in modules)
    listed = differences(one, other)
    print(f"\n{len(listed)} tests differ, of {len(set(one) & set(other))} that ran on both")
    for name, first, second in listed:
        print(f"- {name}: {modules[0]} {first}, {modules[1]} {second}")
        for outcome in (one[name], other[name]):
            if outcome["outcome"] not in SETTLED:
                print("    " + outcome["message"].replace("\n", "\n    ")[:600])
    return bool(listed)


def run_tests(checkout: Path, modules: list[str], args: argparse.Namespace) -> int:
    """Runs the tests that the arguments select; returns 1 if outcomes differ."""
    tests = checkout / "tests"
    files = sorted(str(p.relative_to(checkout)) for p in tests.rglob("test_*.py"))
    if not files:
        print(f"no tests in {tests}: give the root of a checkout of Genesis")
        return 2
    if args.files:
        files = [f for f in files if any(Path(f).name == Path(g).name or f == g for g in args.files)]
    found = read_record(args.out)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (args.caches or Path(temporary)).resolve()
        for file in files:
            for module in modules:
                known = found.setdefault(module, {})
                done, only = {n for n in known if n.startswith(file + "::")}, None
                if args.failed_only and module != modules[0]:
                    only = {
                        n
                        for n, o in found[modules[0]].items()
                        if n.startswith(file + "::") and o["outcome"] not in SETTLED and n not in done
                    }
                if f"{file}::(all)" in done or (only is not None and not only):
                    continue

                def keep(outcomes: dict[str, Outcome], module: str = module) -> None:
                    found[module].update(outcomes)
                    if args.out is not None:
                        with args.out.open("a") as record:
                            for name, outcome in outcomes.items():
                                record.write(json.dumps({"module": module, "test": name} | outcome) + "\n")

                started = time.perf_counter()
                outcomes = Runner(checkout, module, folder, args).file(file, done, only, keep)
                collected = f"{file}::(collection)" not in outcomes
                if only is None and not args.select and collected:
                    keep({f"{file}::(all)": {"outcome": "", "message": ""}})
                failed = sum(o["outcome"] not in SETTLED for o in outcomes.values())
                spent = time.perf_counter() - started
                print(f"{file} on {module}: {len(outcomes)} tests, {failed} did not pass, {spent:.0f} s", flush=True)
    return int(print_summary(modules, found))
