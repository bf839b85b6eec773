"""The stand-in for HIP's library on a machine without an AMD GPU: builds it, and queries its records."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
CRATE = "octants-driver-hip-standin"
# Its name for `--arch`, and the name of the same library when it emulates the machine code of the chip in
# `HIP_STANDIN_ARCH`.
ARCH = "amdgpu-standin"
EMULATOR = "amdgpu-emulator"
ARCHS = (ARCH, EMULATOR)
CHIPS = ("gfx90a", "gfx942", "gfx1100", "gfx1200")
# Where AMD's library of math functions is, as folders and patterns below them.
DEVICE_LIBRARIES = (("/usr/lib", "*/amdgcn/bitcode/ocml.bc"), ("/opt", "rocm*/amdgcn/bitcode/ocml.bc"))


class Missing(Exception):
    """The library is not there, and cannot be built here. A build that fails is an error: tests fail."""


@cache
def path() -> Path:
    """The library, built where `OCTANTS_HIP_STANDIN` does not name one."""
    if given := os.environ.get("OCTANTS_HIP_STANDIN"):
        return Path(given)
    cargo = shutil.which("cargo")
    if cargo is None:
        raise Missing("cargo is not installed: the stand-in for HIP's library cannot be built")
    command = [cargo, "build", "--quiet", "--package", CRATE, "--message-format", "json"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and "cdylib" in message["target"]["kind"]:
            return next(Path(name) for name in message["filenames"] if name.endswith(".so"))
    raise RuntimeError(f"the stand-in for HIP's library cannot be built: {built.stderr.strip()[-2000:]}")


@cache
def library() -> ctypes.CDLL:
    """The library, loaded: the same that the driver loads."""
    return ctypes.CDLL(str(path()))


def set_seed(seed: int) -> None:
    """Makes streams sleep between pieces of work according to a seed; not at all for zero."""
    library().standin_set_seed(ctypes.c_uint64(seed))


def take_faults() -> str:
    """The faults since the last call, one per line."""
    text = ctypes.create_string_buffer(1 << 16)
    library().standin_take_faults.restype = ctypes.c_size_t
    library().standin_take_faults(text, ctypes.c_size_t(len(text)))
    return text.value.decode()


def counts() -> dict[str, int]:
    """How many objects there are, and launches so far."""
    numbers = (ctypes.c_uint64 * 8)()
    library().standin_count(numbers)
    names = ["streams", "events", "modules", "pools", "plain", "pooled", "pinned", "launches"]
    return dict(zip(names, numbers, strict=True))


def break_device(device: int, code: int) -> None:
    """Has every call on a device fail with a code from now on; zero mends it."""
    library().standin_break(device, code)
