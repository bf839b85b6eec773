"""The pytest plugin: `pytest --cov` measures the lines of kernels too, unless `QD_KERNEL_COVERAGE=0` is set.

Pytest loads it through the package's entry point. It imports nothing from the package, so it adds no start-up time to
tests that do not use Octants.
"""

from __future__ import annotations

import os
from typing import Any

_NAMES = ("OCTANTS_KERNEL_COVERAGE", "QD_KERNEL_COVERAGE")


def pytest_configure(config: Any) -> None:
    """Enables kernel coverage through an environment variable when pytest-cov is active."""
    if not config.pluginmanager.hasplugin("_cov") or not getattr(config.option, "cov_source", None):
        return
    if getattr(config.option, "no_cov", False) or any(name in os.environ for name in _NAMES):
        return
    os.environ["QD_KERNEL_COVERAGE"] = "1"
    os.environ.setdefault("_QD_KCOV_ARC", "1" if getattr(config.option, "cov_branch", False) else "0")
