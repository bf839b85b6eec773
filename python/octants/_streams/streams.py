"""Streams and events.

    with qd.create_stream() as s:
        step(qd_stream=s)       # returns immediately if streams are real
        other()                 # may run concurrently
                                # leaving the block waits for the stream's work

Every kernel takes `qd_stream=`. On the CPU work runs in order unless the program began with `qd.init(arch=qd.cpu,
cpu_streams=True)`; the calls are the same in both cases.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from octants._language.ops import known_to_compiler
from octants._language.python_scope import STAND_INS
from octants._octants import (
    Event,
    Stream,
    create_event,
    create_stream,
    current_stream,
    default_stream,
    stream_pool_stats,
    stream_scope,
    trim_stream_pool,
)
from octants.exceptions import OctantsScopeError

__all__ = [
    "Event",
    "Stream",
    "create_event",
    "create_stream",
    "current_stream",
    "default_stream",
    "stream_parallel",
    "stream_pool_stats",
    "stream_scope",
    "trim_stream_pool",
]


@known_to_compiler("stream_parallel")
def stream_parallel(*, allow_overlap: bool = False) -> AbstractContextManager[None]:
    """In a kernel, `with qd.stream_parallel():` marks a block whose loops run concurrently with those of adjacent
    blocks. All top-level statements of the kernel must be such blocks. Blocks that access the same memory are an error
    or a warning, unless `allow_overlap=True` permits it.
    """
    if "stream_parallel" in STAND_INS:
        block: AbstractContextManager[None] = STAND_INS["stream_parallel"]()
        return block
    raise OctantsScopeError("qd.stream_parallel() belongs in a kernel: with qd.stream_parallel(): ...")
