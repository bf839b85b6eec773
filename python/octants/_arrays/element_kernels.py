"""Kernels that fill and copy elements with gaps between them: adjacent struct members, nested blocks.

They take the components of the elements as strided arrays, so one kernel per scalar type and number of axes serves all
layouts.
"""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from functools import cache

from octants import _octants
from octants._language.kernel_decorators import library_kernel
from octants._language.ops import cast, grouped
from octants.exceptions import OctantsRuntimeError
from octants.types.annotations import ndarray
from octants.types.primitive import BY_NUMPY


def fill_parts(stream, to, components):
    """Queues kernels that set each element to these components."""
    dtype = BY_NUMPY[to.dtype]
    fill = fill_kernel(dtype)
    step = _octants.common_step(to.placements)
    if step is not None and (components == components[0]).all():
        groups = [(to.placements[0], (len(components), [step]), components[0])]
    else:
        groups = [(placement, None, value) for placement, value in zip(to.placements, components, strict=True)]
    for placement, inner, value in groups:
        axes = _octants.shared_axes([placement], inner)
        fill(_view(to, placement.base, axes, 0), value.item(), qd_stream=stream)


def copy_parts(stream, to, source, copy=None):
    """Queues kernels that copy all elements, with conversion; `copy` replaces the copy kernel. Returns False when one
    strided view cannot describe both layouts.
    """
    copy = copy or copy_kernel(BY_NUMPY[to.dtype])
    steps = _octants.common_step(to.placements), _octants.common_step(source.placements)
    if None in steps:
        pairs = [(a, b, None) for a, b in zip(to.placements, source.placements, strict=True)]
    else:
        inner = (len(to.placements), steps)
        pairs = [(to.placements[0], source.placements[0], inner)]
    launches = []
    for a, b, inner in pairs:
        axes = _octants.shared_axes([a, b], inner)
        if axes is None:
            return False
        launches.append((_view(to, a.base, axes, 0), _view(source, b.base, axes, 1)))
    for target, origin in launches:
        copy(target, origin, qd_stream=stream)
    return True


def add_back(to, source):
    """Queues a kernel that adds the elements of `source` to those of `to`, and then zeroes `source`."""
    if not copy_parts(None, to._elements(), source._elements(), _add_back(source.dtype)):
        raise OctantsRuntimeError(
            "the gradient of a copy between these layouts cannot be captured: copy with a kernel instead"
        )


def copy_array(stream, buffer, dtype, place, source):
    """Queues a copy of another library's array. `place`: byte offset, extents and byte strides in the buffer."""
    offset, shape, strides = place
    to = _octants.ElementView(buffer, BY_NUMPY[dtype].name, offset, shape, strides)
    copy_kernel(BY_NUMPY[dtype])(to, source, qd_stream=stream)


@cache
def fill_kernel(dtype):
    """A kernel that sets all elements to one value."""

    @library_kernel
    def fill_elements(to: ndarray(), value: dtype):
        for index in grouped(to):
            to[index] = value

    return fill_elements


@cache
def copy_kernel(dtype):
    """A kernel that copies an array of the same shape, with conversion."""

    @library_kernel
    def copy_elements(to: ndarray(), source: ndarray()):
        for index in grouped(to):
            to[index] = cast(source[index], dtype)

    return copy_elements


@cache
def add_kernel(dtype):
    """A kernel that adds an array of the same type and shape."""

    @library_kernel
    def add_elements(to: ndarray(), source: ndarray()):
        for index in grouped(to):
            to[index] = to[index] + source[index]

    return add_elements


@cache
def _add_back(dtype):
    @library_kernel
    def add_back_elements(to: ndarray(), source: ndarray()):
        for index in grouped(to):
            value = to[index]
            to[index] = 0
            # Only now, because both may be the same array.
            source[index] += cast(value, dtype)

    return add_back_elements


def _view(elements, base, axes, which):
    shape = [extent for extent, _ in axes]
    strides = [strides[which] for _, strides in axes]
    return _octants.ElementView(elements.buffer, BY_NUMPY[elements.dtype].name, base, shape, strides)
