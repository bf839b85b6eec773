"""The process that runs programs. It announces each program before it starts, so that the reader can attribute a crash.

Each line that it reads is JSON: `{"first", "step", "count", "configurations"}` asks for programs by seed,
`{"program", "options"}` for one program. Each line that it writes is a word (`begin`, `end`, `fail`, `done`, `found`,
`processors`) and JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from configurations import Options, draw, host_processors
from execute import Expected, Load, execute
from generator import generate
from language import InvalidProgramError
from programs import Program
from scalars import UnspecifiedError

GOOD = ("ok", "loose")


class Channel:
    """The channel for lines: the original standard output. Output of programs is discarded."""

    def __init__(self) -> None:
        self.out = os.fdopen(os.dup(1), "w")
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        sys.stdout = open(os.devnull, "w")

    def say(self, word: str, **what: Any) -> None:
        self.out.write(f"{word} {json.dumps(what)}\n")
        self.out.flush()


def run_seeds(channel: Channel, folder: Path, request: dict[str, Any], processors: list[str]) -> None:
    first, step = request["first"], request["step"]
    for seed in range(first, first + step * request["count"], step):
        drawn = draw(Random(seed), request["configurations"], processors, request["device"])
        run_seed(channel, folder, seed, drawn)


def run_seed(channel: Channel, folder: Path, seed: int, drawn: list[Options]) -> None:
    """A program under several options, the first failure ends it."""
    channel.say("begin", seed=seed, options=None)
    program = generate(seed)
    expected, load = Expected(program), None
    counts = dict.fromkeys([*GOOD, "rejected"], 0)
    used: dict[str, int] = {}
    for options in drawn:
        try:
            expected.of(options)
        except (InvalidProgramError, UnspecifiedError):
            counts["rejected"] += 1
            continue
        load = load or Load(program, folder)
        channel.say("begin", seed=seed, options=options)
        kind, what = execute(program, options, expected, load)
        if kind not in GOOD:
            channel.say("fail", seed=seed, options=options, kind=kind, what=what)
            break
        counts[kind] += 1
        for name, value in options.items() or [("default", "")]:
            text = f"{name}={str(value).split(':')[0].split(',')[0]}"
            used[text] = used.get(text, 0) + 1
    if load is not None:
        load.remove()
    channel.say("end", seed=seed, counts=counts, used=used)


def check(channel: Channel, folder: Path, request: dict[str, Any]) -> None:
    """One program under some options."""
    program = Program.from_json(request["program"])
    expected = Expected(program)
    try:
        expected.of(request["options"])
    except Exception as error:
        channel.say("found", kind="rejected", what=str(error))
        return
    load = None
    try:
        load = Load(program, folder)
        kind, what = execute(program, request["options"], expected, load)
    except Exception as error:
        kind, what = "rejected", str(error)
    if load is not None:
        load.remove()
    channel.say("found", kind=kind, what=what)


def main() -> None:
    np.seterr(all="ignore")
    sys.setrecursionlimit(20_000)
    channel = Channel()
    folder = Path(tempfile.mkdtemp(prefix="octants-fuzz-"))
    processors = None
    try:
        for line in sys.stdin:
            request = json.loads(line)
            if "program" in request:
                check(channel, folder, request)
                continue
            if processors is None:
                processors = [] if request["device"] else host_processors()
                channel.say("processors", names=processors)
            run_seeds(channel, folder, request, processors)
            channel.say("done")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
