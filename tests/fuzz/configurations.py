"""The options under which a program runs. Every program runs under several combinations, drawn from its seed."""

from __future__ import annotations

import platform
import re
from random import Random
from typing import Any

import octants as qd

Options = dict[str, Any]

PROCESSORS = ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "znver4", "znver5"]

# The feature that marks a level of vector instructions. Processors without it are not tested.
VECTORS = {"avx2", "fma", "avx512f", "avx512vl", "avx512bw", "avx512dq", "avx512cd"}


def host_processors(wanted: list[str] = PROCESSORS) -> list[str]:
    """The processors whose code this machine can run, if necessary without the instructions that it lacks."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return []
    found = []
    for name in wanted:
        for _ in range(2):
            try:
                qd.init(arch=qd.cpu, cpu_target=name, offline_cache=False, log_level=qd.ERROR)
                found.append(name)
                break
            except ValueError as error:
                lacks = re.search("it lacks (.*)", str(error))
                missing = lacks.group(1).split(", ") if lacks else []
                if not missing or VECTORS & set(missing):
                    break
                name = ",".join([name, *(f"-{f}" for f in missing)])
    qd.reset()
    return found


def draw(random: Random, count: int, processors: list[str], device: Options | None = None) -> list[Options]:
    """Some of all combinations; the first is the default that users run. `device` names a device other than the CPU,
    which supports fewer options."""
    if device:
        return draw_for_device(random, count, device)
    drawn: list[Options] = [{}]
    while len(drawn) < count:
        options: Options = {}
        if processors and random.random() < 0.5:
            options["cpu_target"] = random.choice(processors)
        options |= draw_for_all_devices(random)
        if random.random() < 0.5:
            options["cpu_max_num_threads"] = random.choice([1, 2, 3])
        kind = random.random()
        if kind < 0.12:
            options["cpu_streams"] = True
            options["cpu_stream_schedule"] = f"seed:{random.randrange(1000)}"
        elif kind < 0.2:
            options["cpu_streams"] = True
        elif kind < 0.3:
            options["cpu_separate_memory"] = True
        if options not in drawn:
            drawn.append(options)
    # The default is the widest supported machine; a program need not run twice under nearly the same options.
    return drawn


def draw_for_all_devices(random: Random) -> Options:
    """Options of the language and of optimization."""
    options: Options = {}
    if random.random() < 0.35:
        options["fast_math"] = False
    if random.random() < 0.3:
        options["opt_level"] = random.choice([0, 1, 2])
    if random.random() < 0.15:
        options["debug"] = True
    elif random.random() < 0.1:
        options["check_out_of_bound"] = True
    if random.random() < 0.15:
        options["default_ip"] = "i64"
    if random.random() < 0.15:
        options["default_fp"] = "f64"
    return options


def draw_for_device(random: Random, count: int, device: Options) -> list[Options]:
    """Some of all combinations, on another device."""
    drawn = [device]
    while len(drawn) < count:
        options = device | draw_for_all_devices(random)
        if options not in drawn:
            drawn.append(options)
    return drawn


def defaults_of(options: Options) -> tuple[str, str]:
    """The types of integer and of float literals."""
    return options.get("default_ip", "i32"), options.get("default_fp", "f32")
