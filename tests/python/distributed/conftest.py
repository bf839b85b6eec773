"""Ranks share compiled kernels: the tests start many processes that run the same programs."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def shared_kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A disk cache for this test run, also for the processes that tests start. It begins empty, so that no kernel
    cached by an earlier build hides a bug of this one."""
    folder = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        folder = folder.parent
    options = {"OCTANTS_OFFLINE_CACHE": "1", "OCTANTS_OFFLINE_CACHE_FILE_PATH": str(folder / "kernels_of_ranks")}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in options.items():
            patch.setenv(name, value)
        yield
