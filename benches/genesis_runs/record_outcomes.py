"""A pytest plugin for Genesis' own tests: one JSON line for each test as it starts and ends, and no access to a
network.

`own_tests.py` loads it into the processes it starts. The environment says what to do:

- `GENESIS_MODULE` is the package to test.
- `GENESIS_RECORD` takes the lines, `GENESIS_DONE` lists tests to leave out, `GENESIS_ONLY` lists the tests to run.
- `GENESIS_NUMBA` names the folder in which Numba keeps its code from one process to the next.
- A process that has grown past `GENESIS_MEMORY` megabytes ends after its current test; the runner starts the next one.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

# Before any test imports it: pytest, which has started by now, would find an installed Quadrants first.
if (_module := os.environ["GENESIS_MODULE"]) != "quadrants":
    importlib.import_module(f"{_module}.as_quadrants").install()

NO_NETWORK = "needs files from the network"


def _write(**values: Any) -> None:
    """Appends a line to the record."""
    with Path(os.environ["GENESIS_RECORD"]).open("a") as record:
        record.write(json.dumps(values) + "\n")


def _listed(variable: str) -> set[str] | None:
    """The lines of the file that an environment variable names."""
    name = os.environ.get(variable)
    return set(Path(name).read_text().splitlines()) if name else None


def _add_older_names() -> None:
    """Adds names to an installed Genesis 1.x that the test set-up of 0.4.5, the newest public checkout, uses.

    Tests that use other changed names fail alike on all packages. Does nothing without Genesis.
    """
    if importlib.util.find_spec("genesis") is None:
        return
    constants = importlib.import_module("genesis.constants")
    morphs = importlib.import_module("genesis.options.morphs")
    for name in ("GLTF_FORMATS", "MESH_FORMATS", "MJCF_FORMAT", "URDF_FORMAT", "USD_FORMATS"):
        if not hasattr(morphs, name) and hasattr(constants, name):
            setattr(morphs, name, getattr(constants, name))
    misc: Any = importlib.import_module("genesis.utils.misc")
    if not hasattr(misc, "get_gnd_cache_dir"):
        misc.get_gnd_cache_dir = str
    tools: Any = importlib.import_module("genesis.utils.tools")
    if not hasattr(tools, "FPSTracker"):
        tools.FPSTracker = None  # two tests of its own fail; the others of their file run
    options = importlib.import_module("genesis.options.solvers").RigidOptions
    if "prefer_parallel_linesearch" not in options.model_fields:
        options.prefer_parallel_linesearch = False


def pytest_configure(config: pytest.Config) -> None:
    """Fits the installed Genesis to the tests, and turns a download of assets into a skip."""
    _add_older_names()
    try:
        import huggingface_hub
    except ImportError:
        return
    huggingface_hub.snapshot_download = lambda *args, **options: pytest.skip(NO_NETWORK)


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Keeps Numba's code: Genesis' own set-up gives each session an empty folder for it."""
    if "GENESIS_NUMBA" in os.environ:
        os.environ["NUMBA_CACHE_DIR"] = os.environ["GENESIS_NUMBA"]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the tests that are still to run."""
    done, only = _listed("GENESIS_DONE") or set(), _listed("GENESIS_ONLY")
    kept = [i for i in items if i.nodeid not in done and (only is None or i.nodeid in only)]
    items[:] = kept
    _write(collected=[i.nodeid for i in kept], package=importlib.import_module("quadrants").__name__)


def pytest_runtest_logstart(nodeid: str) -> None:
    """Names the test that is about to run: it is the culprit when the process ends without another line."""
    _write(start=nodeid, wall=time.time(), processor=time.process_time())


class _Outcome:
    """The results of the current test's three phases so far."""

    current = ("passed", "")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Combines the phases of a test: the first that did not pass decides."""
    if report.when == "setup":
        _Outcome.current = ("passed", "")
    if _Outcome.current[0] != "passed" or report.outcome == "passed":
        if report.when == "call" and hasattr(report, "wasxfail") and report.outcome == "passed":
            _Outcome.current = ("xpassed", "")
        return
    if report.outcome == "skipped":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _Outcome.current = ("xfailed" if hasattr(report, "wasxfail") else "skipped", reason[-300:])
        return
    crash = getattr(report.longrepr, "reprcrash", None)
    message = f"{crash.path}:{crash.lineno}: {crash.message}" if crash is not None else str(report.longrepr)
    _Outcome.current = ("failed" if report.when == "call" else "error", message[:2000])


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Writes the outcome, and ends a process that uses too much memory."""
    outcome, message = _Outcome.current
    _write(end=nodeid, outcome=outcome, message=message, wall=time.time(), processor=time.process_time())
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if Path("/proc/self/statm").exists() else 0
    if pages * 4096 > float(os.environ.get("GENESIS_MEMORY", "4000")) * 2**20:
        pytest.exit("the process has grown too large; the next one goes on", returncode=0)
