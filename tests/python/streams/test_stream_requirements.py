"""Every requirement has a test that names it, run with work in order and with real streams, and on the recording driver.

Of these the recording driver has nothing to show, since they end before the runtime or begin behind it:

- S3: the current stream is Python's own;
- S8: real streams on the CPU (`crates/octants-driver-host/tests/streams.rs`);
- S9, S10, S13, S20: what a kernel may say is decided when it is compiled;
- S14: `crates/octants-artifact` tests that artifacts tell their groups;
- S23: the drivers' own tests.
"""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RUNTIME = HERE.parents[2] / "crates/octants-runtime/tests"
NOT_RECORDED = {3, 8, 9, 10, 13, 14, 20, 23}


def numbers(names):
    return {int(n) for name in names for n in re.findall(r"(?:^|_)s(\d+)(?=_)", name)}


def test_each_is_tested_in_every_mode():
    text = "".join(path.read_text() for path in HERE.glob("test_*.py"))
    in_modes = re.findall(r"def test_(\w+)\((?:mode|schedule)\b", text)
    assert set(range(1, 23)) - numbers(in_modes) == set()


@pytest.mark.skipif(not RUNTIME.exists(), reason="without the sources of the runtime")
def test_each_is_tested_on_the_recording_driver():
    text = "".join(path.read_text() for path in RUNTIME.glob("*.rs"))
    recorded = numbers(re.findall(r"fn (\w+)\(", text))
    assert set(range(1, 25)) - recorded == NOT_RECORDED
