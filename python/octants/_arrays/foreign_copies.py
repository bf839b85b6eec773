"""Copies of arrays that another library has allocated on the GPU, for devices that share only their own memory with
other libraries. That library makes the copies, in memory of this program that it shares.

The memory of a small copy is kept while the other library's array lives, for the next launch that it is passed to.
"""

from __future__ import annotations

import math
import sys
import weakref
from typing import Any, NamedTuple

from octants import _octants
from octants._arrays.ndarrays import ndarray
from octants._program import program_events
from octants.types.primitive import BY_NAME

__all__ = ["Copy", "copy_back", "copy_in", "release"]

# Larger copies are not kept: copying takes much longer than allocating.
_LARGEST_KEPT = 16 << 20


class Copy(NamedTuple):
    """A copy in memory of this program."""

    made: Any
    """The ndarray."""
    target: Any
    """The other library's array in its memory."""
    form: tuple[int, str, tuple[int, ...]]
    """The program's serial number, the element type, and the shape."""
    stream: int
    """The other library's stream on which it was last used."""


# The kept copies that no launch uses, by the number of the original, with a reference that removes them.
_kept: dict[int, tuple[weakref.ref[Any], Copy]] = {}
program_events.ended.append(_kept.clear)


def _library_of(array: Any) -> str | None:
    for name, kind in ("torch", "Tensor"), ("cupy", "ndarray"):
        module = sys.modules.get(name)
        if module is not None and isinstance(array, getattr(module, kind)):
            return name
    return None


def _take(array: Any, form: tuple[int, str, tuple[int, ...]], stream: int) -> Copy | None:
    """The array's kept copy, for one launch."""
    kept = _kept.pop(id(array), None)
    if kept is None:
        return None
    reference, copy = kept
    # On another stream, the copy might be overwritten before it has been copied back.
    is_usable = reference() is array and (copy.form, copy.stream) == (form, stream)
    return copy if is_usable else None


def copy_in(array: Any, dtype_name: str, shape: tuple[int, ...]) -> tuple[Any, Copy, int] | None:
    """An ndarray of this program, the copy that it belongs to, and the handle of the stream on which the values are
    ready. None for an array of an unknown library.
    """
    library = _library_of(array)
    if library is None:
        return None
    module = sys.modules[library]
    if library == "torch":
        if array.requires_grad:
            raise ValueError(
                "a tensor with requires_grad=True cannot be copied for a launch, because its gradient would be lost: "
                "pass tensor.detach(), or an ndarray with needs_grad=True"
            )
        stream = int(module.cuda.current_stream(array.device).cuda_stream)
    else:
        stream = int(module.cuda.get_current_stream().ptr)
    form = (_octants.program_serial(), dtype_name, tuple(shape))
    copy = _take(array, form, stream)
    if copy is None:
        made = ndarray(BY_NAME[dtype_name], shape)
        copy = Copy(made, module.from_dlpack(made), form, stream)
    _assign(library, copy.target, array)
    return copy.made, copy, stream


def copy_back(array: Any, copy: Copy) -> None:
    """Copies the values of a copy to the original. The work that writes them is done."""
    _assign(_library_of(array), array, copy.target)


def release(array: Any, copy: Copy) -> None:
    """Keeps a copy for the next launch with the same array. The launch that used it is done."""
    serial, dtype_name, shape = copy.form
    if BY_NAME[dtype_name].nbytes * math.prod(shape) > _LARGEST_KEPT or serial != _octants.program_serial():
        return
    number = id(array)
    try:
        reference = weakref.ref(array, lambda _: _kept.pop(number, None))
    except TypeError:
        return
    _kept[number] = reference, copy


def _assign(library: str | None, to: Any, values: Any) -> None:
    if library == "torch":
        to.copy_(values)
    else:
        to[...] = values
