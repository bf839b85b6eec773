"""Fixtures of the tests of reverse mode."""

import pytest
from gradient_fields import numbers_results_and_lengths

import octants as qd


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    yield
    qd.reset()


@pytest.fixture
def fields():
    return numbers_results_and_lengths()
