"""Copies of arrays that another library has allocated on the GPU, for devices that share only their own memory with
other libraries. That library makes the copies, in memory of this program that it shares.
"""

from __future__ import annotations

import sys
from typing import Any

from octants._arrays.ndarrays import ndarray
from octants.types.primitive import BY_NAME

__all__ = ["copy_back", "copy_in"]


def _library_of(array: Any) -> str | None:
    for name, kind in ("torch", "Tensor"), ("cupy", "ndarray"):
        module = sys.modules.get(name)
        if module is not None and isinstance(array, getattr(module, kind)):
            return name
    return None


def copy_in(array: Any, dtype_name: str, shape: tuple[int, ...]) -> tuple[Any, Any, int] | None:
    """An ndarray of this program, the other library's array in the same memory, and the handle of the stream on which
    the values are ready. None for an array of an unknown library.
    """
    library = _library_of(array)
    if library is None:
        return None
    module = sys.modules[library]
    made = ndarray(BY_NAME[dtype_name], shape)
    target = module.from_dlpack(made)
    if library == "torch":
        if array.requires_grad:
            raise ValueError(
                "a tensor with requires_grad=True cannot be copied for a launch, because its gradient would be lost: "
                "pass tensor.detach(), or an ndarray with needs_grad=True"
            )
        target.copy_(array)
        return made, target, int(module.cuda.current_stream(array.device).cuda_stream)
    target[...] = array
    return made, target, int(module.cuda.get_current_stream().ptr)


def copy_back(array: Any, target: Any) -> None:
    """Copies the values of `copy_in`'s second result to the original. The work that writes them is done."""
    if _library_of(array) == "torch":
        array.copy_(target)
    else:
        array[...] = target
