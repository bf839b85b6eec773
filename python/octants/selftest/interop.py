"""Arrays of other libraries, if these are installed."""

# mypy: ignore-errors
# Kernels are Python in form only.

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

import octants as qd
from octants.selftest.registry import LeftOut, check, equal, on_gpu


@qd.kernel
def square(x: qd.types.ndarray(dtype=qd.f32, ndim=1)):
    """Squares all elements."""
    for i in x:
        x[i] = x[i] * x[i]


@check()
def numpy_arrays_come_back_changed() -> None:
    """Kernels update numpy arrays in place, and do not write outside of them."""
    x = np.arange(10, dtype=np.float32)
    square(x[2:8])
    want = np.arange(10.0)
    want[2:8] **= 2
    equal(x, want, "x")


@check()
def tensors_of_torch() -> str:
    """Torch tensors: without a copy on the device, if torch supports it; else on the host."""
    if importlib.util.find_spec("torch") is None:
        raise LeftOut("torch is not installed")
    torch: Any = __import__("torch")
    gpu = on_gpu() and torch.cuda.is_available()
    # ROCm's torch calls its devices cuda, too.
    x = torch.arange(1000, dtype=torch.float32, device="cuda" if gpu else "cpu")
    square(x)
    if gpu:
        qd.sync()
    equal(x.cpu().numpy(), np.arange(1000, dtype=np.float32) ** 2, "x")
    return f"on {x.device}"


class Shown:
    """Another library's array, accessible through DLPack only."""

    def __init__(self, array: Any) -> None:
        self.__dlpack__ = array.__dlpack__
        self.__dlpack_device__ = array.__dlpack_device__


@check()
def arrays_shown_by_dlpack() -> str:
    """DLPack in both directions: arrays exported to other libraries, and passed to a kernel as foreign ones."""
    x = qd.ndarray(qd.f32, shape=16)
    x.fill(3.0)
    square(Shown(x))
    qd.sync()
    equal(x.to_numpy(), np.full(16, 9.0), "x")
    if not on_gpu():
        equal(np.from_dlpack(x), np.full(16, 9.0), "x")
        return "kernel, numpy"
    torch: Any = __import__("torch") if importlib.util.find_spec("torch") else None
    if torch is None or not torch.cuda.is_available():
        return "kernel"
    equal(torch.from_dlpack(x).cpu().numpy(), np.full(16, 9.0), "x")
    return "kernel, torch"
