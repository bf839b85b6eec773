"""Fixtures that start a program: with work in order, with real streams, under seeded schedules.

A GPU has real streams and no schedules: there, all tests run on real streams, and those of many seeds with a few.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from stream_kernels import MODES, has_schedules, seed_options

import octants as qd

SEEDS = int(os.environ.get("OCTANTS_TEST_SEEDS", "50"))


# The same on a device without schedules.
FEW_SEEDS = 3


def marked(mode: str) -> Any:
    return pytest.param(mode, marks=pytest.mark.in_order) if mode == "in order" else mode


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrizes the fixtures below, unless a test names the parameters itself."""
    seeded = has_schedules(metafunc.config)
    count = getattr(metafunc.module, "SEEDS", SEEDS)
    seeds = range(count if seeded else min(count, FEW_SEEDS))
    params = {
        "mode": [marked(mode) for mode in MODES] if seeded else ["streams"],
        "schedule": ["in order", "streams", *seeds] if seeded else ["streams", *seeds],
        "seed": seeds,
    }
    named = {name for mark in metafunc.definition.iter_markers("parametrize") for name in str(mark.args[0]).split(",")}
    for name, values in params.items():
        if name in metafunc.fixturenames and name not in named:
            metafunc.parametrize(name, values, indirect=True)


@pytest.fixture(scope="module", autouse=True)
def modes_share_kernels(shared_kernels: None) -> None:
    """All modes and seeds launch the same kernels."""


@pytest.fixture
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    qd.init(arch=qd.cpu, **MODES[request.param])
    yield request.param
    qd.reset()


@pytest.fixture
def real() -> Iterator[None]:
    qd.init(arch=qd.cpu, cpu_streams=True)
    yield
    qd.reset()


@pytest.fixture
def schedule(request: pytest.FixtureRequest) -> Iterator[int | str]:
    """The modes without a schedule, and those of many seeds."""
    at = request.param
    qd.init(arch=qd.cpu, **(MODES[at] if at in MODES else seed_options(request.config, at)))
    yield request.param
    qd.reset()


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> Iterator[int]:
    qd.init(arch=qd.cpu, **seed_options(request.config, request.param))
    yield request.param
    qd.reset()
