"""Tests of `qd.simt` run where threads form blocks, with `--arch amdgpu-standin` or `--arch cuda`."""

from typing import Any

import pytest

import octants as qd


@pytest.fixture
def group_size() -> Any:
    """Starts a program on the GPU; the threads of its subgroups."""
    qd.init(arch=qd.cpu)
    if qd.cfg.arch in (qd.x64, qd.arm64):
        pytest.skip("qd.simt needs a GPU")
    yield qd.simt.subgroup.group_size()
    qd.reset()
