"""Options of the test run.

`--arch cuda` (or another device) runs the tests there: `qd.init(arch=qd.cpu, ...)` of a test means that device, unless
the test asks for a schedule or another test bed that only the CPU has. Without the device, tests fail rather than pass
on the CPU. Tests marked `on_cpu` are about the CPU: they access its memory directly, or use its name. With `--arch
cpu-separate`, the CPU emulates a device whose memory the host cannot address. `--arch amdgpu-standin` runs on the
second device of a library that replaces HIP's, so that a call on the wrong current device is detected; its streams
follow seeded schedules. `--arch amdgpu-emulator` runs on the same library, which then emulates the machine code of the
chip that `HIP_STANDIN_ARCH` names (gfx90a by default). `--arch vulkan-portability` runs on a Vulkan device with the
features and limits that Vulkan has on Metal. A test is skipped there when a kernel is refused because it needs another
feature.

Tests marked `in_place` are about memory that the host addresses, those marked `in_order` about launches that return
after their work: both are left out elsewhere.

The disk cache of compiled kernels is off, unless `OCTANTS_OFFLINE_CACHE=1` is set, or a test uses `shared_kernels`.
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hip_standin
import pytest

import octants as qd

# Tests compile all kernels, so that no kernel cached by an earlier build hides a bug of this one, and the home folder
# is not touched. Tests of the cache use separate folders.
os.environ.setdefault("OCTANTS_OFFLINE_CACHE", "0")

TEST_BEDS = {"cpu_stream_schedule", "cpu_separate_memory"}
SEPARATE = "cpu-separate"
STANDINS = hip_standin.ARCHS
PORTABILITY = "vulkan-portability"
# The compile-time error for what such a device lacks, and the names of these types.
LACKS = re.compile(r"this device has no (64-bit floats in shaders|atomic operations on [iuf]64|clock)[^\n]*")
WIDE = re.compile(r"[iuf]64|float64|int64|clock")
ONLY_CPU = {
    "in_place": "the host cannot address this memory",
    "in_order": "launches return before their work is done",
    "on_cpu": "this is not the CPU",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    beds = ", ".join(["cpu", SEPARATE, *STANDINS, "cuda", "vulkan", PORTABILITY])
    parser.addoption("--arch", default="cpu", help=f"where the tests run: {beds}, ...")


def pytest_configure(config: pytest.Config) -> None:
    for name, reason in ONLY_CPU.items():
        config.addinivalue_line("markers", f"{name}: not where {reason}")
    arch = config.getoption("--arch")
    if arch == "cpu":
        return
    if arch == hip_standin.EMULATOR:
        os.environ.setdefault("HIP_STANDIN_ARCH", hip_standin.CHIPS[0])
    original = qd.init

    def init(*args: Any, **options: Any) -> Any:
        asked = args[0] if args else options.get("arch", qd.cpu)
        if asked is qd.cpu and arch == SEPARATE:
            options.setdefault("cpu_separate_memory", True)
        elif asked is qd.cpu and arch in STANDINS:
            args = args[1:]
            schedule = options.get("cpu_stream_schedule", "")
            options = {name: value for name, value in options.items() if not name.startswith("cpu_")}
            hip_standin.set_seed(int(schedule.removeprefix("seed:")) + 1 if schedule else 0)
            options |= {"arch": qd.amdgpu, "device": 1, "driver_library": str(hip_standin.path())}
            options.setdefault("enable_fallback", False)
        elif asked is qd.cpu and not TEST_BEDS.intersection(options):
            args = args[1:]
            # A device has its own streams.
            options.pop("cpu_streams", None)
            options.pop("cpu_max_num_threads", None)
            options["arch"] = qd.vulkan if arch == PORTABILITY else getattr(qd, arch)
            if arch == PORTABILITY:
                options["vulkan_portability"] = True
            options.setdefault("enable_fallback", False)
        return original(*args, **options)

    init.original = original  # type: ignore[attr-defined]
    qd.init = init


@pytest.fixture(autouse=True)
def no_faults(request: pytest.FixtureRequest) -> Any:
    """Fails a test that violates HIP's rules, as far as the stand-in detects it."""
    yield
    if request.config.getoption("--arch") in STANDINS:
        assert hip_standin.take_faults() == ""


@pytest.fixture(scope="module")
def shared_kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A disk cache for this test run, for tests that launch the same kernels many times: under many seeds, or in many
    processes. The cache begins empty, so that no kernel cached by an earlier build hides a bug of this one."""
    folder = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        folder = folder.parent
    options = {"OCTANTS_OFFLINE_CACHE": "1", "OCTANTS_OFFLINE_CACHE_FILE_PATH": str(folder / "shared_kernels")}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in options.items():
            patch.setenv(name, value)
        yield


def skip_if_refused(item: pytest.Item, report: Any, error: str) -> None:
    """Skips a test of which a kernel needs a feature that Vulkan lacks on Metal. A test that names no such type must
    not need one."""
    lacks = LACKS.search(error)
    if lacks and WIDE.search(Path(item.path).read_text(encoding="utf-8")):
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {lacks.group()}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    outcome = yield
    report = outcome.get_result()
    if report.failed and call.excinfo is not None and item.config.getoption("--arch") == PORTABILITY:
        skip_if_refused(item, report, str(call.excinfo.value))
    # A process that has lost its device can run no further test there: pytest-xdist starts another in its place.
    if report.failed and "is lost to this process" in str(report.longrepr) and os.environ.get("PYTEST_XDIST_WORKER"):
        print(report.longreprtext[-2000:], file=sys.stderr, flush=True)
        os._exit(3)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--arch") == "cpu":
        return
    if config.getoption("--arch") in STANDINS:
        try:
            hip_standin.path()
        except hip_standin.Missing as missing:
            for item in items:
                item.add_marker(pytest.mark.skip(reason=str(missing)))
    for item in items:
        for name, reason in ONLY_CPU.items():
            if item.get_closest_marker(name) and (name, config.getoption("--arch")) != ("on_cpu", SEPARATE):
                item.add_marker(pytest.mark.skip(reason=reason))
