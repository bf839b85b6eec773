"""Types with DLPack's table of functions, as torch's tensors have since 2.10."""

from __future__ import annotations

import ctypes
from typing import Any

from other_library import DLTensor, capsule, described

Describe = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))


class Table(ctypes.Structure):
    """The table, with only the functions used here."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("others", ctypes.c_void_p * 4),
        ("describe", Describe),
        ("stream", ctypes.c_void_p),
    )


def tensor_type(device: tuple[int, int] = (1, 0), fails: bool = False, major: int = 1) -> Any:
    """A type whose objects wrap arrays: numpy's, or those of the stand-in for another one."""

    class Tensor:
        described = 0

        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack_device__(self) -> tuple[int, int]:
            return device

        def __dlpack__(self, **keywords: Any) -> Any:
            return self.array.__dlpack__(**keywords)

    def describe(tensor: Any, out: Any) -> int:
        Tensor.described += 1
        if fails:
            return -1
        array = tensor.array
        address = array.address if hasattr(array, "address") else array.ctypes.data
        out[0], tensor.lists = described(address, array, device)
        return 0

    Tensor.table = Table(major, 3, (ctypes.c_void_p * 4)(), Describe(describe), None)
    Tensor.__dlpack_c_exchange_api__ = capsule(ctypes.addressof(Tensor.table), b"dlpack_exchange_api")
    return Tensor
