"""Tests of `qd.simt` run where threads form blocks, with `--arch amdgpu-standin` or `--arch cuda`."""

from typing import Any

import pytest

import octants as qd


@pytest.fixture
def group_size() -> Any:
    """Starts a program on the GPU; the threads of its subgroups."""
    qd.init(arch=qd.cpu)
    yield qd.simt.subgroup.group_size()
    qd.reset()
