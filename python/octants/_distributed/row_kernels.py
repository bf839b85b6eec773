"""Kernels that pack and unpack rows of a block, as tables of scalars."""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from functools import cache

from octants._language.kernel_decorators import library_kernel
from octants.types.annotations import ndarray


@cache
def take_rows(dtype):
    """A kernel that copies the rows with these indices from a table."""

    @library_kernel
    def take(to: ndarray(), source: ndarray(), rows: ndarray()):
        for k, c in to:
            to[k, c] = source[rows[k], c]

    return take


@cache
def put_rows(dtype):
    """A kernel that copies to the rows with these indices of a table."""

    @library_kernel
    def put(to: ndarray(), source: ndarray(), rows: ndarray()):
        for k, c in source:
            to[rows[k], c] = source[k, c]

    return put
