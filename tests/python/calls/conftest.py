"""A program for each test."""

from collections.abc import Iterator

import pytest

import octants as qd


@pytest.fixture(autouse=True)
def program() -> Iterator[None]:
    qd.init(arch=qd.cpu)
    yield
    qd.reset()
