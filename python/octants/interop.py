"""Stream sharing with other libraries, under Quadrants' names."""

from __future__ import annotations

__all__ = ["get_mps_command_queue"]


def get_mps_command_queue() -> int:
    """The address of the command queue of torch's Metal device. It is 0, because Octants has no Metal backend. On the
    CPU and on NVIDIA and AMD GPUs, use `qd.init(follow_torch_stream=True)`."""
    return 0
