"""Fixtures that start a program: with work in order, with real streams, under seeded schedules."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from stream_kernels import MODES

import octants as qd

SEEDS = int(os.environ.get("OCTANTS_TEST_SEEDS", "50"))


def marked(mode: str) -> Any:
    return pytest.param(mode, marks=pytest.mark.in_order) if mode == "in order" else mode


@pytest.fixture(params=[marked(mode) for mode in MODES])
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    qd.init(arch=qd.cpu, **MODES[request.param])
    yield request.param
    qd.reset()


@pytest.fixture
def real() -> Iterator[None]:
    qd.init(arch=qd.cpu, cpu_streams=True)
    yield
    qd.reset()


@pytest.fixture(params=["in order", "streams", *range(SEEDS)])
def schedule(request: pytest.FixtureRequest) -> Iterator[int | str]:
    """The modes without a schedule, and those of many seeds."""
    seeded = {"cpu_streams": True, "cpu_stream_schedule": f"seed:{request.param}"}
    qd.init(arch=qd.cpu, **MODES.get(request.param, seeded))
    yield request.param
    qd.reset()


@pytest.fixture(params=range(SEEDS))
def seed(request: pytest.FixtureRequest) -> Iterator[int]:
    qd.init(arch=qd.cpu, cpu_streams=True, cpu_stream_schedule=f"seed:{request.param}")
    yield request.param
    qd.reset()
