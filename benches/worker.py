"""Runs one group of benchmarks on one system in this process; each result is a line `@@` and JSON.

Usage: worker.py SYSTEM GROUP THREADS [NAME ...]; the device's architecture comes from the environment (BENCH_ARCH).
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

import measuring
import numpy as np


def emit(**record: object) -> None:
    """Prints a result."""
    print("@@" + json.dumps(record), flush=True)


def throughput(system: Any, names: list[str]) -> None:
    """The rate of each benchmark, and a checksum of the results of its first call."""
    for name in names or measuring.THROUGHPUT:
        call, result = system.prepare(name)
        call()
        system.wait()
        checksum = float(np.mean(np.abs(result()), dtype=np.float64))
        amount, unit = measuring.work(name)
        seconds = measuring.seconds_per_call(call, system.wait)
        emit(name=name, value=amount / seconds, unit=unit, checksum=checksum)


def launch(system: Any, names: list[str]) -> None:
    """Host time of launches."""
    for name, call in system.launches().items():
        if not names or name in names:
            emit(name=name, value=measuring.host_microseconds(call, system.wait), unit="us")


def gradients(system: Any, arch: str, names: list[str]) -> None:
    """For each program and its gradient, the first call, which compiles, and later ones; a checksum of the first
    gradient."""
    for name in names or system.PROGRAMS:
        program = system.prepare(name, arch)
        system.wait()
        for way, call in (("forward", program.forward), ("reverse", program.reverse)):
            first = measuring.burst(call, system.wait, 1)
            checksum = float(np.mean(np.abs(program.gradient()), dtype=np.float64)) if way == "reverse" else 0.0
            seconds = measuring.fastest_seconds(call, system.wait)
            emit(name=name, way=way, first=first - seconds, seconds=seconds, checksum=checksum)


def main() -> None:
    """Runs the benchmarks named on the command line."""
    name, group, threads, *only = sys.argv[1:]
    if group == "gradients":
        os.environ["BENCH_MODULE"] = name
        system, arch = importlib.import_module("gradient_kernels"), os.environ.get("BENCH_ARCH", "cpu")
        system.start(arch, int(threads))
        gradients(system, arch, only)
        return
    if name in ("c", "numba"):
        system = importlib.import_module(f"{name}_kernels")
    else:
        os.environ["BENCH_MODULE"] = name
        system = importlib.import_module("package_kernels")
    system.start(int(threads))
    {"throughput": throughput, "launch": launch}[group](system, only)


if __name__ == "__main__":
    main()
