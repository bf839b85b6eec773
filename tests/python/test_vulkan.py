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


@pytest.mark.skipif(not LAVAPIPE, reason="Mesa's lavapipe is not installed")
def test_lavapipe_is_opened_with_the_limit_of_its_loops():
    env = {**os.environ, "VK_ICD_FILENAMES": str(LAVAPIPE[0]), "VK_DRIVER_FILES": str(LAVAPIPE[0])}
    env.pop("QD_ARCH", None)
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=env, check=False)
    if "there is no Vulkan library" in ran.stderr:
        pytest.skip("Vulkan's loader is not installed")
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("65535 rounds") == 1, ran.stderr
