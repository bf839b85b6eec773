"""The benchmark scripts start, and tell equal results from different ones."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHES = Path(__file__).resolve().parents[2] / "benches"


@pytest.fixture(scope="module")
def compare():
    """The script `benches/compare.py` as a module."""
    spec = importlib.util.spec_from_file_location("compare", BENCHES / "compare.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def saved(values, atol, allowed=0.0):
    """What an example's `--measure` saves, for one result."""
    return {"result:x": np.array(values), "atol:x": np.array(atol), "allowed:x": np.array(allowed)}


@pytest.mark.parametrize(
    ("other", "agree"), [([1.0, 2.0], True), ([1.0, 2.15], True), ([1.0, 2.3], False), ([1.0, np.nan], False)]
)
def test_results_are_compared_to_twice_the_tolerance(compare, other, agree):
    problem = compare.difference(saved([1.0, 2.0], 0.1), saved(other, 0.1))
    assert (problem is None) == agree


def test_a_share_of_elements_may_differ(compare):
    one, other = np.zeros(100), np.zeros(100)
    other[:2] = 1.0
    assert compare.difference(saved(one, 0.0, 0.01), saved(other, 0.0, 0.01)) is None
    other[:3] = 1.0
    assert "3.00%" in compare.difference(saved(one, 0.0, 0.01), saved(other, 0.0, 0.01))


def test_shapes_are_compared(compare):
    assert "shapes" in compare.difference(saved([1.0], 0.1), saved([1.0, 1.0], 0.1))


def test_compares_a_package_with_itself():
    command = [sys.executable, str(BENCHES / "compare.py"), "heat", "--modules", "octants", "octants", "--no-speed"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "| heat | agree |" in done.stdout


@pytest.mark.parametrize("script", ["run.py", "compare.py"])
def test_help(script):
    done = subprocess.run(
        [sys.executable, str(BENCHES / script), "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--threads" in done.stdout
