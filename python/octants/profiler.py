"""Profiling of kernels: not supported yet. Programs that print a profile still run, and are told once."""

from __future__ import annotations

from typing import Any

from octants import _logging
from octants.exceptions import OctantsRuntimeError

_told = False


def _tell() -> None:
    global _told
    if not _told:
        _told = True
        _logging.warn("kernel profiling is not supported yet: nothing was measured")


def print_kernel_profiler_info(mode: str = "count") -> None:
    """Not supported yet: logs a warning."""
    _tell()


def print_scoped_profiler_info() -> None:
    """Not supported yet: logs a warning."""
    _tell()


def print_memory_profiler_info() -> None:
    """Not supported yet: logs a warning."""
    _tell()


def clear_kernel_profiler_info() -> None:
    """Nothing is kept, so nothing is cleared."""


def clear_scoped_profiler_info() -> None:
    """Nothing is kept, so nothing is cleared."""


def query_kernel_profiler_info(name: str) -> Any:
    """Not supported yet."""
    raise OctantsRuntimeError(
        "kernel profiling is not supported yet: measure with time.perf_counter() around qd.sync()"
    )


def get_kernel_profiler_total_time() -> float:
    """Not supported yet."""
    raise OctantsRuntimeError(
        "kernel profiling is not supported yet: measure with time.perf_counter() around qd.sync()"
    )
