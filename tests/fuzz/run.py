"""Runs random kernels on the CPU and compares the results with an interpreter's.

    python tests/fuzz/run.py --seconds 500 --jobs 16

Each program runs under several options: optimization levels, `fast_math`, debug mode, default types, threads, streams,
separate memory, other processors. A failure, including a crash or hang of the process, is shrunk and written to a
standalone file.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import numpy as np
from execute import Expected
from generator import generate
from language import InvalidProgramError
from programs import Program
from reproducer import read, text_of
from scalars import UnspecifiedError
from shrink import shrink

HERE = Path(__file__).parent

# Parts of errors about a device that a process can no longer use.
LOST = "is lost to this process"


class Worker:
    """A process that runs programs, with the lines that it writes."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        self.lines: Queue[str | None] = Queue()
        self.errors: list[str] = []
        threading.Thread(target=self.read, daemon=True).start()
        threading.Thread(target=self.read_errors, daemon=True).start()

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors = [*self.errors[-20:], line]

    def ask(self, **request: Any) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def answer(self, seconds: float) -> tuple[str, dict[str, Any]]:
        """The next line; `died` if the process has ended, `hang` after a timeout."""
        try:
            line = self.lines.get(timeout=seconds)
        except Empty:
            self.end()
            return "hang", {}
        if line is None:
            code = self.process.wait()
            name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            return "died", {"what": name, "errors": "".join(self.errors)[-800:]}
        word, _, rest = line.partition(" ")
        return word, json.loads(rest)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Fuzzer:
    """A run with its results."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.begun = time.monotonic()
        self.lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.used: Counter[str] = Counter()
        self.failures: list[dict[str, Any]] = []
        self.signatures: Counter[str] = Counter()
        self.processors: list[str] = []
        self.next = options.seed
        self.stop = False
        self.device: dict[str, Any] = {} if options.arch == "cpu" else {"arch": options.arch}
        if options.driver_library:
            self.device |= {"driver_library": options.driver_library, "device": 1}

    def over(self) -> bool:
        spent = time.monotonic() - self.begun
        return self.stop or (self.options.seconds is not None and spent > self.options.seconds)

    def take(self) -> tuple[int, int] | None:
        """The next programs: the first seed, and how many."""
        with self.lock:
            if self.over():
                return None
            count = 10
            if self.options.programs is not None:
                count = min(count, self.options.seed + self.options.programs - self.next)
                if count <= 0:
                    return None
            first, self.next = self.next, self.next + count
            return first, count

    def job(self) -> None:
        np.seterr(all="ignore")  # Of this thread.
        worker, runs = Worker(), 0
        while (taken := self.take()) is not None:
            first, count = taken
            runs += count
            if runs > 1000:
                # The state that programs leave in a process ends with it.
                worker.end()
                worker, runs = Worker(), 0
            while count > 0 and not self.over():
                configurations = self.options.configurations
                worker.ask(first=first, step=1, count=count, configurations=configurations, device=self.device)
                finished, worker = self.follow(worker, first)
                count -= finished + 1 - first
                first = finished + 1
        worker.end()

    def follow(self, worker: Worker, first: int) -> tuple[int, Worker]:
        """Reads until the programs or the process have ended. Returns the last seed, and the process to continue
        with."""
        seed, options = first, None
        while True:
            word, what = worker.answer(self.options.timeout)
            if word == "processors":
                self.processors = what["names"]
            elif word == "begin":
                seed, options = what["seed"], what["options"]
            elif word == "end":
                with self.lock:
                    self.counts["programs"] += 1
                    self.counts.update(what["counts"])
                    self.used.update(what["used"])
                if self.over():
                    worker.end()
                    return seed, Worker()
            elif word == "fail":
                self.failure(what["seed"], what["options"], what["kind"], what["what"])
                if LOST in what["what"]:
                    worker.end()
                    return seed, Worker()
            elif word == "done":
                return seed, worker
            elif word in ("died", "hang"):
                kind = what["what"] if word == "died" else "hang"
                with self.lock:
                    self.counts["programs"] += 1
                self.failure(seed, options, kind, what.get("errors", ""))
                return seed, Worker()

    def failure(self, seed: int, options: dict[str, Any] | None, kind: str, what: str) -> None:
        """Notes a failure, and makes its program small."""
        signature = kind + " " + re.sub(r"[0-9.]+|/\S+", "#", what)[:60] if kind != "wrong result" else kind
        with self.lock:
            self.counts["failures"] += 1
            self.signatures[signature] += 1
            often = self.signatures[signature]
        print(f"seed {seed} {options}: {kind}: {what.strip()[-300:]}", flush=True)
        entry = {"seed": seed, "options": options, "kind": kind, "what": what}
        self.failures.append(entry)
        if options is None:
            return
        program = generate(seed)
        if self.options.shrink > 0 and often <= 6:
            checker = Checker(self.options.timeout)
            program = shrink(program, lambda p: checker.kind(p, options) == kind, self.time_to_shrink())
            what = checker.what or what
            checker.end()
        try:
            expected = Expected(program).of(options)[0]
        except (InvalidProgramError, UnspecifiedError):
            expected = None
        folder = Path(self.options.failures)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"seed_{seed}.py"
        path.write_text(text_of(program, options, expected, kind, what))
        entry["file"] = str(path)
        print(f"  written to {path}", flush=True)

    def time_to_shrink(self) -> float:
        """A run of limited time ends soon after it."""
        if self.options.seconds is None:
            return self.options.shrink
        left = self.options.seconds - (time.monotonic() - self.begun)
        return min(self.options.shrink, max(left, 0.0) + 20.0)

    def write_report(self) -> dict[str, Any]:
        report = self.report()
        if self.options.report:
            Path(self.options.report).write_text(json.dumps(report, indent=1))
        return report

    def report(self) -> dict[str, Any]:
        return {
            "programs": self.counts["programs"],
            "first_seed": self.options.seed,
            "seconds": round(time.monotonic() - self.begun, 1),
            "runs": {k: self.counts[k] for k in ("ok", "loose", "rejected")},
            "failures": self.failures,
            "kinds": dict(Counter(f["kind"] for f in self.failures)),
            "failing_processors": dict(
                Counter((f["options"] or {}).get("cpu_target", "default").split(",")[0] for f in self.failures)
            ),
            "options": dict(sorted(self.used.items())),
            "processors": self.processors,
        }


class Checker:
    """Asks another process whether a program still fails."""

    def __init__(self, timeout: float) -> None:
        self.timeout = min(timeout, 20.0)
        self.worker = Worker()
        self.what = ""

    def kind(self, program: Program, options: dict[str, Any]) -> str:
        try:
            # Cheap, and most candidates are invalid programs.
            Expected(program).of(options)
        except Exception:
            return "rejected"
        self.worker.ask(program=program.to_json(), options=options)
        word, what = self.worker.answer(self.timeout)
        if word == "found":
            if LOST in what["what"]:
                self.worker.end()
                self.worker = Worker()
            if what["kind"] not in ("ok", "loose", "rejected"):
                self.what = what["what"]
            return what["kind"]
        self.worker = Worker()
        return what["what"] if word == "died" else "hang"

    def end(self) -> None:
        self.worker.end()


def table(report: dict[str, Any]) -> str:
    runs = report["runs"]
    lines = [
        "",
        f"programs        {report['programs']}  (seeds from {report['first_seed']}, {report['seconds']} s)",
        f"runs compared   {runs['ok']}",
        f"runs only held against guards (floats in another order)   {runs['loose']}",
        f"runs left out (no single result)   {runs['rejected']}",
        f"processors      {', '.join(p.split(',')[0] for p in report['processors']) or 'none but the default'}",
    ]
    lines += [f"  {k:<34}{v}" for k, v in report["options"].items()]
    lines.append(f"failures        {len(report['failures'])}")
    lines += [f"  {k:<34}{v}" for k, v in report["kinds"].items()]
    lines += [f"  on processor {k:<21}{v}" for k, v in report["failing_processors"].items()]
    return "\n".join(lines)


def replay(path: Path) -> int:
    program, options = read(path.read_text())
    checker = Checker(60.0)
    kind = checker.kind(program, options)
    print(kind, checker.what)
    checker.end()
    return int(kind not in ("ok", "loose"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="the first program")
    parser.add_argument("--programs", type=int, help="how many; without it and --seconds, until interrupted")
    parser.add_argument("--seconds", type=float, help="how long")
    parser.add_argument("--forever", action="store_true", help="until interrupted")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--configurations", type=int, default=4, help="options that each program runs under")
    parser.add_argument("--arch", default="cpu", help="the device: cpu, cuda, amdgpu, vulkan")
    parser.add_argument("--driver-library", help="a stand-in for the driver's library, whose second device is used")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds after which a run is a hang")
    parser.add_argument(
        "--shrink", type=float, default=90.0, help="seconds to make a failing program small, 0 for not at all"
    )
    parser.add_argument("--failures", default="fuzz-failures", help="the folder for failing programs")
    parser.add_argument("--report", help="a file for the results, as JSON")
    parser.add_argument("--replay", type=Path, help="run the program of a failure again")
    parser.add_argument("--show", action="store_true", help="print the program of --seed")
    options = parser.parse_args()
    np.seterr(all="ignore")
    if options.replay is not None:
        return replay(options.replay)
    if options.show:
        print(generate(options.seed).source)
        return 0
    if options.forever:
        options.seconds = options.programs = None
    fuzzer = Fuzzer(options)
    threads = [threading.Thread(target=fuzzer.job, daemon=True) for _ in range(options.jobs)]
    for t in threads:
        t.start()
    try:
        said = time.monotonic()
        while any(t.is_alive() for t in threads):
            time.sleep(0.2)
            if time.monotonic() - said > 60:
                said = time.monotonic()
                print(f"{fuzzer.counts['programs']} programs, {len(fuzzer.failures)} failures", flush=True)
                fuzzer.write_report()
    except KeyboardInterrupt:
        fuzzer.stop = True
    report = fuzzer.write_report()
    print(table(report))
    return int(bool(report["failures"]))


if __name__ == "__main__":
    sys.exit(main())
