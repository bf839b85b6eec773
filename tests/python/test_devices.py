"""`python -m octants.devices` and the choice among devices."""

import os
import subprocess
import sys

import pytest

import octants as qd
from octants.devices import list_devices


def run(**variables):
    env = {**{k: v for k, v in os.environ.items() if k != "OCTANTS_VISIBLE_DEVICES"}, **variables}
    ran = subprocess.run([sys.executable, "-m", "octants.devices"], capture_output=True, text=True, env=env, check=True)
    return ran.stdout.splitlines()


def test_each_kind_has_a_line_for_each_device_or_a_reason():
    lines = run()
    kinds = [line.split()[0] for line in lines]
    assert kinds[0] == "cpu"
    assert {"cuda", "amdgpu", "vulkan"} <= set(kinds)
    found, reasons = list_devices()
    assert len(lines) == len(found) + len(reasons)
    numbers = [d.number for d in found if d.arch == "cpu"]
    assert numbers == [0]
    assert found[0].memory_bytes > 2**20
    assert all(reasons.values())


def test_hidden_devices_are_not_listed():
    shown = [line for line in run(OCTANTS_VISIBLE_DEVICES="77") if line.split()[1] != "-"]
    assert [line.split()[0] for line in shown] == ["cpu"], "the host's processor cannot be hidden"


def test_numbers_of_visible_devices_are_checked():
    with pytest.raises(ValueError, match=r"numbers between commas, such as `2,0`, got `x`"):
        qd.init(arch=qd.vulkan, visible_devices="1,x")
    init = getattr(qd.init, "original", qd.init)
    with pytest.raises(RuntimeError, match=r"no device 2: `visible_devices` \(1,0\) shows 2"):
        init(arch=qd.cuda, visible_devices="1,0", device=2, enable_fallback=False)
    # The CPU has no numbers.
    init(arch=qd.cpu, visible_devices="7")
