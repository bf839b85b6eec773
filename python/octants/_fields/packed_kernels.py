"""Kernels with which the host reads and writes elements of quantized types."""

# mypy: ignore-errors
# Kernels are Python in form only: their annotations are values.

from functools import cache

from octants._language.kernel_decorators import library_kernel
from octants._language.ops import cast, grouped, static
from octants.types.annotations import ndarray, template
from octants.types.primitive import i32
from octants.types.tensor_types import vector
from octants.types.values import Vector


@library_kernel
def read_elements(x: template(), values: ndarray(), first: template()):
    """Copies the elements of a field to an array with zero-based indices."""
    for index in grouped(x):
        if static(any(first)):
            values[index - Vector(first)] = x[index]
        else:
            values[index] = x[index]


@cache
def copy_elements(dtype):
    """A kernel that copies all elements of a field. `shift` is the difference of the first indices."""

    @library_kernel
    def copy_packed_elements(to: template(), source: template(), shift: template()):
        for index in grouped(to):
            if static(any(shift)):
                to[index] = cast(source[index + Vector(shift)], dtype)
            else:
                to[index] = cast(source[index], dtype)

    return copy_packed_elements


@cache
def read_element(dtype, axes):
    """A kernel that returns one element of a field with that many axes."""
    if axes == 0:

        @library_kernel
        def read_packed_element(x: template()) -> dtype:
            return x[None]

    else:

        @library_kernel
        def read_packed_element(x: template(), index: vector(axes, i32)) -> dtype:
            return x[index]

    return read_packed_element


@cache
def write_element(dtype, axes):
    """A kernel that sets one element of a field with that many axes."""
    if axes == 0:

        @library_kernel
        def write_packed_element(x: template(), value: dtype):
            x[None] = value

    else:

        @library_kernel
        def write_packed_element(x: template(), index: vector(axes, i32), value: dtype):
            x[index] = value

    return write_packed_element
