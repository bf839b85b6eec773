"""Checks a device using only the installed package: `python -m octants.selftest --arch cpu`, or `cuda`, or `amdgpu`.

Each kind of device operation is compiled and run, and compared with numpy. Use it on machines that have not been
tested yet: the last lines say what to report.
"""

from __future__ import annotations

from octants.selftest.registry import CHECKS, Check, LeftOut
from octants.selftest.run import Outcome, main, run_checks

__all__ = ["CHECKS", "Check", "LeftOut", "Outcome", "main", "run_checks"]
