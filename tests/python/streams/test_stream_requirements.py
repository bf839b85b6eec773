"""Checks that every requirement has a test named after it: with work in order, with real streams, on the recording
driver, and among the tests that `make test` runs on Vulkan.

Most of the latter tests are in Rust; decisions made in Python (scopes, tapes) are recorded from Python.
"""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CRATES = HERE.parents[2] / "crates"
RECORDED = [*(CRATES / "octants-runtime/tests").glob("*.rs"), CRATES / "octants-engine/tests/recorded_streams.rs"]
MAKEFILE = HERE.parents[2] / "Makefile"
FROM_PYTHON = HERE / "test_stream_recorded.py"


def numbers(names):
    return {int(n) for name in names for n in re.findall(r"(?:^|_)s(\d+)(?=_)", name)}


def test_each_requirement_is_tested_in_every_mode():
    text = "".join(path.read_text() for path in HERE.glob("test_*.py"))
    in_modes = re.findall(r"def test_(\w+)\((?:mode|schedule)\b", text)
    assert set(range(1, 23)) - numbers(in_modes) == set()


@pytest.mark.skipif(not CRATES.exists(), reason="without the sources in Rust")
def test_each_requirement_is_tested_on_the_recording_driver():
    text = "".join(path.read_text() for path in RECORDED)
    names = re.findall(r"fn (\w+)\(", text) + re.findall(r"def test_(\w+)\(recorder\b", FROM_PYTHON.read_text())
    assert set(range(1, 25)) - numbers(names) == set()


@pytest.mark.skipif(not MAKEFILE.exists(), reason="without the Makefile")
def test_each_requirement_is_tested_on_vulkan():
    listed = re.search(r"^VULKAN_TESTS := (.*?)^$", MAKEFILE.read_text(), re.DOTALL | re.MULTILINE).group(1)
    files = [HERE / name for name in re.findall(r"streams/(test_\w+\.py)", listed)]
    text = "".join(path.read_text() for path in files)
    elsewhere = re.findall(r"@pytest\.mark\.(?:on_cpu|in_order)\ndef test_(\w+)", text)
    names = set(re.findall(r"^def test_(\w+)\(", text, re.MULTILINE)) - set(elsewhere)
    # 23 and 24 are about the table of the vendors' libraries and about the recording driver.
    assert set(range(1, 23)) - numbers(names) == set()
