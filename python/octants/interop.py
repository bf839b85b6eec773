"""Stream sharing with other libraries, under Quadrants' names."""

from __future__ import annotations

from octants.exceptions import OctantsRuntimeError

__all__ = ["get_mps_command_queue"]


def get_mps_command_queue() -> int:
    """The command queue of torch's Metal device. Always raises `OctantsRuntimeError`: Octants has no Metal backend."""
    raise OctantsRuntimeError(
        "Octants does not support Metal, so it cannot share torch's MPS command queue; on the CPU and on "
        "NVIDIA and AMD GPUs, use qd.init(follow_torch_stream=True)"
    )
