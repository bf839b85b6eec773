"""Field constructors and options, under their import path in Quadrants."""

from octants import _octants
from octants._arrays.ndarrays import ndarray
from octants._fields.make_field import field
from octants._language.loop_ranges import ndrange
from octants._language.ops import grouped, static, static_assert, static_print
from octants._program.program_view import ProgramView as PyQuadrants
from octants._program.program_view import view
from octants._program.runtime import current_config as current_cfg
from octants.lang._public_names import public_names_of

__all__ = [
    "PyQuadrants",
    "current_cfg",
    "field",
    "get_cuda_compute_capability",
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


def get_cuda_compute_capability() -> int:
    """Compute capability of the running program's NVIDIA GPU, times ten: 90 for 9.0; 0 for any other device."""
    family, _, number = (_octants.device_processor() or "").partition("sm_")
    return int(number.rstrip("af")) if number and not family else 0


def get_max_shared_memory_bytes(is_lowerbound_ok: bool = False) -> int:
    """Shared memory per block in bytes: 64 KiB on AMD, 48 to 227 KiB on NVIDIA, depending on the chip, and 227 KiB on
    the CPU.
    """
    return _octants.max_shared_bytes()


__getattr__ = public_names_of(__name__)
