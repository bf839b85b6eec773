"""Arrays to and from numpy, torch and DLPack. Torch is imported by the first call that needs it, never before."""

from __future__ import annotations

from typing import Any

import numpy as np

from octants.types.primitive import DataType

CPU_DEVICE = (1, 0)


def converted(arr: np.ndarray[Any, Any], dtype: DataType) -> np.ndarray[Any, Any]:
    """`arr` in the field's type: as numpy casts, with floats truncated for integer types."""
    if arr.dtype == dtype.numpy:
        return arr
    if arr.dtype.kind not in "biuf":
        raise TypeError(f"an array of numbers is needed, got dtype {arr.dtype}")
    with np.errstate(invalid="ignore", over="ignore"):
        return arr.astype(dtype.numpy)


def to_torch(arr: np.ndarray[Any, Any], device: Any, copy: bool | None) -> Any:
    """A torch tensor of the array: `arr` itself is used as the tensor's memory."""
    import torch

    if arr.dtype.kind == "u" and arr.dtype.itemsize > 1 and not hasattr(torch, arr.dtype.name):
        raise TypeError(f"this torch has no type for {arr.dtype}")
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


def to_dlpack(arr: np.ndarray[Any, Any], versioned: bool) -> Any:
    """A capsule of the array's memory: of DLPack 1.x where `versioned`, else of the older form."""
    return export_dlpack(arr, {"max_version": (1, 0)} if versioned else {})


def export_dlpack(arr: np.ndarray[Any, Any], keywords: dict[str, Any]) -> Any:
    """numpy's own export, with the consumer's keywords."""
    keywords = dict(keywords)
    if keywords.get("stream") is not None:
        raise BufferError("memory of the CPU has no streams")
    try:
        return arr.__dlpack__(**keywords)
    except TypeError:
        return arr.__dlpack__()
