"""What makes fields and reads the options, under its path in Quadrants."""

from octants.fields import field
from octants.loop_ranges import ndrange
from octants.ndarrays import ndarray
from octants.ops import grouped, static, static_assert, static_print
from octants.program_view import ProgramView as PyQuadrants
from octants.program_view import view
from octants.runtime import current_config as current_cfg

__all__ = [
    "PyQuadrants",
    "current_cfg",
    "field",
    "get_max_shared_memory_bytes",
    "get_runtime",
    "grouped",
    "ndarray",
    "ndrange",
    "static",
    "static_assert",
    "static_print",
]


def get_runtime() -> PyQuadrants:
    """The running program."""
    return view


def get_max_shared_memory_bytes(is_lowerbound_ok: bool = False) -> int:
    """Shared memory of a block of threads in bytes: none on the CPU."""
    return 0
