"""Conversion of arrays to and from numpy, torch and DLPack. Torch is imported by the first call that needs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from octants import _octants
from octants.types.primitive import BY_NUMPY

CPU_DEVICE = (1, 0)


def converted(arr: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """`arr` converted to `dtype` with numpy's casts; floats are truncated for integer types."""
    if arr.dtype == dtype:
        return arr
    if arr.dtype.kind not in "biuf":
        raise TypeError(f"expected an array of numbers, got dtype {arr.dtype}")
    with np.errstate(invalid="ignore", over="ignore"):
        return arr.astype(dtype)


def to_torch(arr: np.ndarray[Any, Any], device: Any, copy: bool | None) -> Any:
    """A torch tensor that shares the memory of `arr`; on another device than the CPU, a copy."""
    import torch

    if arr.dtype.kind == "u" and arr.dtype.itemsize > 1 and not hasattr(torch, arr.dtype.name):
        raise TypeError(f"this version of torch has no type for {arr.dtype}")
    tensor = torch.from_numpy(arr)
    if device is None or torch.device(device).type == "cpu":
        return tensor
    if copy is False:
        raise ValueError(f"copy=False: the memory is on the CPU, not on {device}")
    return tensor.to(device)


def from_torch(tensor: Any) -> np.ndarray[Any, Any]:
    """The tensor's values as a numpy array."""
    if isinstance(tensor, np.ndarray):
        return tensor
    if not hasattr(tensor, "detach"):
        raise TypeError(f"from_torch() takes a torch tensor, got {type(tensor).__name__}")
    values: np.ndarray[Any, Any] = tensor.detach().cpu().numpy()
    return values


def device_to_torch(whole: Any, device: Any, copy: bool | None) -> Any:
    """A torch tensor of a field or ndarray in device memory. Shares the memory unless `copy` or `device` needs a
    copy.
    """
    import torch

    wanted = None if device is None else torch.device(device)
    if copy is True and (wanted is None or wanted.type == "cpu"):
        return to_torch(whole.to_numpy(), None, None)
    if wanted is not None and wanted.type == "cpu" and whole.__dlpack_device__() != CPU_DEVICE:
        if copy is False:
            raise ValueError(f"copy=False: the memory is not on {device}")
        return to_torch(whole.to_numpy(), None, None)
    tensor = torch.from_dlpack(whole)
    if copy is True:
        return tensor.to(wanted, copy=True)
    if wanted is not None and (wanted.type, wanted.index or 0) != (tensor.device.type, tensor.device.index or 0):
        if copy is False:
            raise ValueError(f"copy=False: the memory is on {tensor.device}, not on {device}")
        return tensor.to(wanted)
    return tensor


def dlpack_keywords(versioned: bool) -> dict[str, Any]:
    """The keywords that request a DLPack 1.x capsule, or an unversioned one."""
    return {"max_version": (1, 0)} if versioned else {}


def export_dlpack(arr: np.ndarray[Any, Any], keywords: dict[str, Any]) -> Any:
    """Numpy's own export, with the consumer's keywords."""
    keywords = dict(keywords)
    if keywords.get("stream") is not None:
        raise BufferError("CPU memory has no streams: pass stream=None")
    try:
        return arr.__dlpack__(**keywords)
    except TypeError:
        return arr.__dlpack__()


def export_device(
    buffer: _octants.Buffer,
    place: tuple[int, tuple[int, ...], tuple[int, ...]],
    dtype: np.dtype[Any],
    keywords: dict[str, Any],
    read: Callable[[], np.ndarray[Any, Any]],
) -> Any:
    """A capsule of device memory. `place`: offset, shape and byte strides; `read` copies all of it to the host."""
    unknown = set(keywords) - {"stream", "max_version", "dl_device", "copy"}
    if unknown:
        raise TypeError(f"__dlpack__() got unexpected keyword arguments {sorted(unknown)}")
    wanted, copy = keywords.get("dl_device"), keywords.get("copy")
    if wanted is not None and tuple(wanted) != buffer.dlpack_device:
        if tuple(wanted) != CPU_DEVICE or copy is False:
            raise BufferError(f"the memory is on device {buffer.dlpack_device}, not on {tuple(wanted)}")
        return export_dlpack(read(), {"max_version": keywords.get("max_version")})
    if copy is True:
        raise BufferError(
            "__dlpack__(copy=True) is not supported: copy the imported tensor, or use to_torch(copy=True)"
        )
    version = keywords.get("max_version")
    versioned = version is not None and version[0] >= 1
    return buffer.dlpack(place, BY_NUMPY[dtype].name, versioned, keywords.get("stream"))
