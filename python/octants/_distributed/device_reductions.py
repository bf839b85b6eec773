"""Reductions over the devices of one process: each device has a partial result in its own memory."""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from functools import cache

import numpy as np

from octants import _octants
from octants._arrays.ndarrays import make_ndarray
from octants._distributed.device_blocks import as_block
from octants._language.kernel_decorators import library_kernel
from octants._language.ops import max as larger
from octants._language.ops import min as smaller
from octants._language.ops import static
from octants.types.annotations import ndarray
from octants.types.primitive import BY_NUMPY

__all__ = ["HostReduction", "PeerReduction"]

_NUMPY = {
    "add": np.add,
    "mul": np.multiply,
    "min": np.fmin,
    "max": np.fmax,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


class HostReduction:
    """A reduction in the host's memory."""

    def __init__(self, parts, op):
        """`parts`: the memory of each device."""
        self._parts, self._op = parts, _NUMPY[op]

    def run(self, streams):
        """Sets all parts to the result, in the order of the devices."""
        arrays = [part.numpy() for part in self._parts]
        total = arrays[0].copy()
        for array in arrays[1:]:
            self._op(total, array, out=total)
        for array in arrays:
            array[:] = total


class PeerReduction:
    """A reduction in the memory of devices: each copies the parts of all, and combines them in the same order."""

    def __init__(self, parts, op):
        """`parts`: the memory of each device."""
        self._parts, self._kernel = parts, _combine_kernel(op)
        count, itemsize = parts[0].count, parts[0].dtype.itemsize
        self._gathered, copies = [], []
        for number, part in enumerate(parts):
            with as_block(number):
                gathered = make_ndarray(BY_NUMPY[part.dtype], (len(parts), count))
            self._gathered.append(gathered)
            for other, source in enumerate(parts):
                to = (number, gathered.buffer, gathered._offset_in_memory + other * count * itemsize)
                copies.append((to, (other, *source.place), part.nbytes))
        self._exchange = _octants.PeerExchange(copies)

    def run(self, streams):
        """Queues the reduction."""
        self._exchange.begin(streams)
        self._exchange.finish(streams)
        for number, (part, gathered) in enumerate(zip(self._parts, self._gathered, strict=True)):
            with as_block(number):
                self._kernel(part.elements(), gathered, qd_stream=streams[number])


@cache
def _combine_kernel(op):
    @library_kernel
    def combine(to: ndarray(), parts: ndarray()):
        for i in to:
            total = parts[0, i]
            for part in range(1, parts.shape[0]):
                value = parts[part, i]
                if static(op == "add"):
                    total += value
                elif static(op == "mul"):
                    total *= value
                elif static(op == "min"):
                    total = smaller(total, value)
                elif static(op == "max"):
                    total = larger(total, value)
                elif static(op == "and"):
                    total = total & value
                elif static(op == "or"):
                    total = total | value
                else:
                    total = total ^ value
            to[i] = total

    return combine
