"""Tests of `qd.simt` run on the CPU, and with `--arch amdgpu-standin` or `--arch cuda` on these devices."""

from typing import Any

import pytest

import octants as qd


@pytest.fixture
def group_size() -> Any:
    """Starts a program; the threads of its device's subgroups."""
    qd.init(arch=qd.cpu)
    yield qd.simt.subgroup.group_size()
    qd.reset()
