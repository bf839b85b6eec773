"""Every requirement has a test that names it, run with work in order and with real streams, and on the recording driver.

These have nothing to show there, since nothing below Python knows of them:

- S3: a thread's scopes are kept with Python's objects, and the runtime is told a stream with every call;
- S20: tapes and forward mode are of the package (`test_tape.py`).
"""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CRATES = HERE.parents[2] / "crates"
RECORDED = [*(CRATES / "octants-runtime/tests").glob("*.rs"), CRATES / "octants-engine/tests/recorded_streams.rs"]
NOT_RECORDED = {3, 20}


def numbers(names):
    return {int(n) for name in names for n in re.findall(r"(?:^|_)s(\d+)(?=_)", name)}


def test_each_is_tested_in_every_mode():
    text = "".join(path.read_text() for path in HERE.glob("test_*.py"))
    in_modes = re.findall(r"def test_(\w+)\((?:mode|schedule)\b", text)
    assert set(range(1, 23)) - numbers(in_modes) == set()


@pytest.mark.skipif(not CRATES.exists(), reason="without the sources in Rust")
def test_each_is_tested_on_the_recording_driver():
    text = "".join(path.read_text() for path in RECORDED)
    recorded = numbers(re.findall(r"fn (\w+)\(", text))
    assert set(range(1, 25)) - recorded == NOT_RECORDED
