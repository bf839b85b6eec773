"""Options of the test run.

`--arch cuda` (or another device) runs the tests there: `qd.init(arch=qd.cpu, ...)` of a test means that device, unless the
test asks for a schedule or another test bed that only the CPU has. Without the device tests fail rather than pass on the CPU.
Tests marked `on_cpu` are about the CPU: they look into its memory, or say its name.
`--arch cpu-separate` lets the CPU play such a device, whose memory the host cannot address.

Tests marked `in_place` are about memory that the host addresses, those marked `in_order` about launches that return after their
work: both are left out elsewhere.

Compiled kernels are not kept on disk, nor looked for there, unless `OCTANTS_OFFLINE_CACHE=1` is set.
"""

import os
import sys
from typing import Any

import pytest

import octants as qd

# Tests compile what they test, so that no kernel kept by an earlier build hides a fault of this one, and the home folder is
# left alone. Tests of keeping kernels use folders of their own.
os.environ.setdefault("OCTANTS_OFFLINE_CACHE", "0")

TEST_BEDS = {"cpu_stream_schedule", "cpu_separate_memory"}
SEPARATE = "cpu-separate"
ONLY_CPU = {
    "in_place": "the host cannot address this memory",
    "in_order": "launches return before their work is done",
    "on_cpu": "this is not the CPU",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--arch", default="cpu", help=f"where the tests run: cpu, {SEPARATE}, cuda, ...")


def pytest_configure(config: pytest.Config) -> None:
    for name, reason in ONLY_CPU.items():
        config.addinivalue_line("markers", f"{name}: not where {reason}")
    arch = config.getoption("--arch")
    if arch == "cpu":
        return
    original = qd.init

    def init(*args: Any, **options: Any) -> Any:
        asked = args[0] if args else options.get("arch", qd.cpu)
        if asked is qd.cpu and arch == SEPARATE:
            options.setdefault("cpu_separate_memory", True)
        elif asked is qd.cpu and not TEST_BEDS.intersection(options):
            args = args[1:]
            # A device has streams of its own.
            options.pop("cpu_streams", None)
            options.pop("cpu_max_num_threads", None)
            options["arch"] = getattr(qd, arch)
            options.setdefault("enable_fallback", False)
        return original(*args, **options)

    init.original = original  # type: ignore[attr-defined]
    qd.init = init


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    outcome = yield
    report = outcome.get_result()
    # A process that has lost its device can run no further test there: pytest-xdist starts another in its place.
    if report.failed and "is lost to this process" in str(report.longrepr) and os.environ.get("PYTEST_XDIST_WORKER"):
        print(report.longreprtext[-2000:], file=sys.stderr, flush=True)
        os._exit(3)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--arch") == "cpu":
        return
    for item in items:
        for name, reason in ONLY_CPU.items():
            if item.get_closest_marker(name) and (name, config.getoption("--arch")) != ("on_cpu", SEPARATE):
                item.add_marker(pytest.mark.skip(reason=reason))
