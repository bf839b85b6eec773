"""Operations of a rank on its own rows during a launch on split arrays: directly in host memory, or by kernels on the
launch's stream in device memory.
"""

from __future__ import annotations

import numpy as np

from octants import _octants
from octants._arrays.element_kernels import add_kernel, copy_kernel, fill_kernel
from octants._distributed.memory_ranges import MemoryRange
from octants.types.primitive import BY_NUMPY

__all__ = ["add_rows", "clear_rows", "copy_rows"]


def clear_rows(rows: MemoryRange, stream: _octants.Stream) -> None:
    """Sets all elements to zero."""
    if rows.on_host:
        rows.numpy()[:] = 0
    else:
        fill_kernel(BY_NUMPY[rows.dtype])(rows.elements(), 0, qd_stream=stream)


def add_rows(rows: MemoryRange, values: MemoryRange, stream: _octants.Stream) -> None:
    """Adds the same number of values of the same type. Integers wrap around."""
    if rows.on_host:
        sums = rows.numpy()
        np.add(sums, values.numpy(), out=sums)
    else:
        add_kernel(BY_NUMPY[rows.dtype])(rows.elements(), values.elements(), qd_stream=stream)


def copy_rows(rows: MemoryRange, values: MemoryRange, stream: _octants.Stream) -> None:
    """Copies the same number of values of the same type."""
    if rows.on_host:
        rows.numpy()[:] = values.numpy()
    else:
        copy_kernel(BY_NUMPY[rows.dtype])(rows.elements(), values.elements(), qd_stream=stream)
