"""Devices of Vulkan: what is told when one is opened."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

LAVAPIPE = sorted(Path("/usr/share/vulkan/icd.d").glob("lvp_icd*.json"))

PROGRAM = """
import octants as qd

qd.init(arch=qd.vulkan, enable_fallback=False)
"""

# Some drivers cannot be loaded as often, and their libraries stay: no mapped file comes or goes after the first program.
MANY = """
import octants as qd

def libraries():
    return {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}

known = None
for number in range(40):
    qd.init(arch=qd.vulkan, enable_fallback=False, log_level="error", offline_cache=False)
    x = qd.field(qd.i32, 8)
    x.fill(number)
    assert x[3] == number
    qd.reset()
    known = known or libraries()
    assert libraries() == known, libraries() ^ known
"""


def run(program):
    """Runs a program on lavapipe."""
    if not LAVAPIPE:
        pytest.skip("Mesa's lavapipe is not installed")
    env = {**os.environ, "VK_ICD_FILENAMES": str(LAVAPIPE[0]), "VK_DRIVER_FILES": str(LAVAPIPE[0])}
    env.pop("QD_ARCH", None)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, check=False)
    if "there is no Vulkan library" in ran.stderr:
        pytest.skip("Vulkan's loader is not installed")
    assert ran.returncode == 0, ran.stderr
    return ran


def test_lavapipe_is_opened_with_the_limit_of_its_loops():
    assert run(PROGRAM).stderr.count("65535 rounds") == 1


def test_a_process_may_begin_many_programs():
    run(MANY)
