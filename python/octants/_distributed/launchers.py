"""The rank of this process, from the environment variables of its launcher."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from octants.exceptions import OctantsDistributedError

__all__ = ["Position", "find_position"]


class Position(NamedTuple):
    """The rank of this process, as its launcher assigned it."""

    rank: int
    """The rank, from 0."""

    size: int
    """Number of ranks."""

    local_rank: int
    """The rank among those on its host; also the number of its GPU."""

    launcher: str
    """The launcher; `""` for a process that was started without one."""


# Rank, number of ranks and local rank, as each launcher names them. The last may be missing.
_VARIABLES = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "MVAPICH": ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"),
    "MPICH": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    "Slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
}


def find_position(environment: Mapping[str, str] = os.environ) -> Position:
    """The position from the environment variables of the first launcher found: torchrun, Open MPI, MVAPICH, MPICH,
    Slurm.

    Ray and other programs set the variables of torchrun. Raises `OctantsDistributedError` if a variable holds no valid
    rank.
    """
    for launcher, (rank, size, local_rank) in _VARIABLES.items():
        if rank not in environment or size not in environment:
            continue
        try:
            number, count = int(environment[rank]), int(environment[size])
            local = int(environment.get(local_rank, number))
        except ValueError:
            raise OctantsDistributedError(
                f"{launcher}: {rank}={environment[rank]!r} and {size}={environment[size]!r} are not a "
                "valid rank and number of ranks"
            ) from None
        if not 0 <= number < count:
            raise OctantsDistributedError(f"{launcher}: rank {number} is out of range for {count} ranks")
        return Position(number, count, local, launcher)
    return Position(0, 1, 0, "")
