"""Whether GPU memory is transferred by NCCL, through nccl4py."""

from __future__ import annotations

import importlib

import numpy as np

from octants._distributed.communicators import Communicator, failed
from octants._distributed.memory_ranges import range_of_numpy

__all__ = ["with_nccl"]


def with_nccl(host: Communicator, required: bool) -> Communicator:
    """A communicator with NCCL for the memory of NVIDIA GPUs and `host` for other memory; `host` itself if nccl4py is
    not installed on all ranks. All ranks must call it.

    Raises `OctantsDistributedError` in that case if NCCL is required.
    """
    if host.size == 1:
        return host
    what, why = "qd.distributed.init()", ""
    try:
        module = importlib.import_module("octants._distributed.nccl_communicator")
    except ImportError as error:
        why = f": {error}"
    found = np.array([not why], np.int32)
    host.all_reduce(range_of_numpy(found), "min", what)
    if found[0]:
        made: Communicator = module.NcclCommunicator(host, required)
        return made
    if required:
        raise failed(host, what, f"backend='nccl' needs nccl4py on all ranks: pip install nccl4py{why}")
    return host
