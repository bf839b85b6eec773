"""Options of the test run.

`--arch cuda` (or another device) runs the tests there: `qd.init(arch=qd.cpu, ...)` of a test means that device, unless the
test asks for something that only the CPU has. Without the device the run stops with an error rather than passing on the CPU.
"""

from typing import Any

import pytest

import octants as qd


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--arch", default="cpu", help="where the tests run: cpu, cuda, ...")


def pytest_configure(config: pytest.Config) -> None:
    arch = config.getoption("--arch")
    if arch == "cpu":
        return
    original = qd.init

    def init(*args: Any, **options: Any) -> Any:
        asked = args[0] if args else options.get("arch", qd.cpu)
        if asked is qd.cpu and not any(name.startswith("cpu_") for name in options):
            args = args[1:]
            options["arch"] = getattr(qd, arch)
            options.setdefault("enable_fallback", False)
        return original(*args, **options)

    qd.init = init
