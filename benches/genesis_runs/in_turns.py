"""Steps one scene on several packages in turns, so that other work on the machine slows all of them equally.

Each package has a process that waits while another one steps. All make the same steps, so the numbers of contacts
agree.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from typing import Any

Result = dict[str, Any]


class Stepper:
    """A process of `one_scene.py` that steps on request."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
        )

    def answer(self) -> Result:
        """The next protocol line that it writes; `failed` if it has ended."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("@@"):
                answer: Result = json.loads(line[2:])
                return answer
        return {"failed": f"exit {self.process.wait()}"}

    def step(self) -> Result:
        """One round of steps: the seconds that it took."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return {"failed": f"exit {self.process.wait()}"}
        return self.answer()

    def end(self) -> None:
        """Lets the process end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def step_in_turns(commands: dict[str, tuple[list[str], dict[str, str]]], steps: int, rounds: int) -> Result:
    """Steps per processor second of each package, and the median and quartiles of the first package's speedup per
    round. Contains `failed` if a process ended early."""
    steppers: dict[str, Stepper] = {}
    found: Result = {}
    try:
        for module, (command, environment) in commands.items():
            steppers[module] = Stepper([*command, "--steps", str(steps), "--rounds", str(rounds)], environment)
            if "failed" in (ready := steppers[module].answer()):
                return {"failed": f"{module}: {ready['failed']}"}
        seconds: dict[str, list[float]] = {module: [] for module in steppers}
        for _ in range(rounds):
            for module, stepper in steppers.items():
                if "failed" in (spent := stepper.step()):
                    return {"failed": f"{module}: {spent['failed']}"}
                seconds[module].append(spent["round cpu"])
    finally:
        for stepper in steppers.values():
            stepper.end()
    for module, times in seconds.items():
        found[module] = round(steps * rounds / sum(times), 2)
    if len(seconds) == 2:
        one, other = seconds.values()
        ratios = [b / a for a, b in zip(one, other, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4) if rounds > 1 else ratios * 3
        found |= {"times better": round(middle, 3), "quartiles": [round(low, 3), round(high, 3)]}
    return found
