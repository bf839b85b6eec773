"""Checks of a device with the installed package alone: `python -m octants.selftest --arch cpu`, or `cuda`, or `amdgpu`.

Every kind of thing that a program asks of a device is compiled and run there, and compared with numpy. It is for
whoever has a machine that nobody has tried yet: the last lines say what to report.
"""

from __future__ import annotations

from octants.selftest.registry import CHECKS, Check, LeftOut
from octants.selftest.run import Outcome, main, run_checks

__all__ = ["CHECKS", "Check", "LeftOut", "Outcome", "main", "run_checks"]
