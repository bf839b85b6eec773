"""Arrays between guard pages: an access outside the array, even a read, is a segmentation fault.

An array is adjacent to the guard page after it or before it. The rest of its pages contains a pattern, which `check`
verifies.
"""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

PAGE = mmap.PAGESIZE
PATTERN = 0xA5

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class GuardedMemory:
    """`array`: numbers of a type between two guard pages."""

    def __init__(self, dtype: np.dtype, values: list, at_end: bool) -> None:
        data = np.array(values, dtype)
        self.bytes = data.nbytes
        pages = max(1, -(-self.bytes // PAGE))
        self.length = (pages + 2) * PAGE
        protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        base = _libc.mmap(None, self.length, protection, flags, -1, 0)
        if base in (None, ctypes.c_void_p(-1).value):
            raise MemoryError("mmap")
        self.base = base
        for page in (base, base + (pages + 1) * PAGE):
            if _libc.mprotect(page, PAGE, 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        inner = np.frombuffer((ctypes.c_char * (pages * PAGE)).from_address(base + PAGE), np.uint8)
        inner[:] = PATTERN
        start = pages * PAGE - self.bytes if at_end else 0
        self.before, self.behind = inner[:start], inner[start + self.bytes :]
        self.array = inner[start : start + self.bytes].view(dtype)
        self.array[:] = data

    def check(self) -> str | None:
        """A description of writes outside the array."""
        for name, part in (("before", self.before), ("behind", self.behind)):
            wrong = np.flatnonzero(part != PATTERN)
            if len(wrong):
                return f"{len(wrong)} bytes {name} the array were written"
        return None

    def release(self) -> None:
        """Gives the memory back: the array must not be used after."""
        del self.before, self.behind, self.array
        _libc.munmap(self.base, self.length)
