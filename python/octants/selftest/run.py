"""Runs each check in a separate program, and prints a table."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import re
import sys
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

import octants as qd
from octants import _octants
from octants.selftest.registry import CHECKS, Check, LeftOut, on_gpu

GROUPS = ("arithmetic", "memory", "sums", "order", "gradients", "messages", "interop")
# The compile-time error for a feature that the device does not have.
_LACKS = re.compile(r"this device has no [^\n(]*[^\n( ]")


@dataclass(frozen=True)
class Outcome:
    """The outcome of a check."""

    check: Check
    state: str
    """`passed`, `FAILED` or `left out`."""
    seconds: float
    remark: str = ""
    """The remark of the check, or the first line of the error."""
    details: str = ""
    """The full error."""


def device_description() -> str:
    """The running program's device, its target chip, and its driver."""
    info = _octants.memory_info()
    if not on_gpu():
        return f"{platform.processor() or platform.machine()}, {os.cpu_count()} processors"
    words = [str(info["device"]), str(_octants.device_processor())]
    if software := info["software"]:
        words.append(f"{software[0]} driver {_version(*software)}")
    return ", ".join(words)


def _version(api: str, number: int) -> str:
    """The version of a driver in the usual notation."""
    if api == "CUDA":
        return f"{number // 1000}.{number % 1000 // 10}"
    if api == "HIP":
        return f"{number // 10**7}.{number // 10**5 % 100}.{number % 10**5}"
    return str(number)


def all_checks() -> list[Check]:
    """All checks, in execution order."""
    for group in GROUPS:
        importlib.import_module(f"octants.selftest.{group}")
    return sorted(CHECKS, key=lambda check: GROUPS.index(check.group))


def run_one(check: Check, arch: str) -> Outcome:
    """Runs a check in a separate program."""
    start = time.perf_counter()
    state, remark, details = "passed", "", ""
    try:
        qd.init(arch=getattr(qd, arch), enable_fallback=False, offline_cache=False, log_level="warn", **check.options)
        remark = check.run() or ""
    except LeftOut as e:
        state, remark = "left out", str(e)
    except Exception as e:
        lacks = _LACKS.search(str(e))
        if lacks:
            return Outcome(check, "left out", time.perf_counter() - start, lacks.group(), "")
        state, details = "FAILED", traceback.format_exc()
        remark = f"{type(e).__name__}: {e}".splitlines()[0]
    finally:
        qd.reset()
    return Outcome(check, state, time.perf_counter() - start, remark, details)


def run_checks(arch: str, only: str = "") -> Iterable[Outcome]:
    """Runs the checks whose group or name contains `only`."""
    for check in all_checks():
        if only in check.group or only in check.name:
            yield run_one(check, arch)


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m octants.selftest", description="Check that a device computes correct results."
    )
    parser.add_argument(
        "--arch", default="gpu", help="cpu, cuda, amdgpu, vulkan, or gpu for the best available one (default)"
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="run only checks whose name or group contains this text"
    )
    given = parser.parse_args(argv)
    if given.arch not in ("cpu", "gpu", "cuda", "amdgpu", "vulkan"):
        parser.error(f"--arch: `{given.arch}` is not one of cpu, gpu, cuda, amdgpu, vulkan")
    try:
        qd.init(arch=getattr(qd, given.arch), enable_fallback=False, offline_cache=False, log_level="warn")
    except RuntimeError as e:
        print(f"{given.arch} cannot be checked here: {e}", file=sys.stderr)
        return 2
    arch, device = qd.cfg.arch.name if on_gpu() else "cpu", device_description()
    print(f"octants {_octants.__version__} on {arch}: {device}\n")
    outcomes = []
    for outcome in run_checks(arch, given.only):
        outcomes.append(outcome)
        name = f"{outcome.check.group}: {outcome.check.name}"
        print(f"{name:56} {outcome.state:9} {outcome.seconds:7.2f} s  {outcome.remark}"[:200].rstrip(), flush=True)
    states = [outcome.state for outcome in outcomes]
    print(f"\n{states.count('passed')} passed, {states.count('FAILED')} failed, {states.count('left out')} left out")
    failed = [outcome for outcome in outcomes if outcome.state == "FAILED"]
    if failed:
        _say_what_to_report(arch, device, failed)
    return 1 if failed or not outcomes else 0


def _say_what_to_report(arch: str, device: str, failed: list[Outcome]) -> None:
    print("\nPlease report this with all of the text below, and if possible with the code of a kernel that failed")
    print(f"(`python -m octants.selftest --arch {arch} --only NAME` runs a single check):\n")
    print(f"    octants {_octants.__version__}, Python {platform.python_version()}, numpy {np.__version__}")
    print(f"    {platform.platform()}")
    print(f"    {arch}: {device}")
    for outcome in failed:
        print(f"\n--- {outcome.check.group}: {outcome.check.name}\n{outcome.details}")
