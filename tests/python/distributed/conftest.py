"""Ranks share compiled kernels: the tests start many processes that run the same programs."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def ranks_share_kernels(shared_kernels: None) -> None:
    """Sets up the cache for the processes that tests start, too."""
