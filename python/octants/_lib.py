"""Import paths that programs written for Quadrants use for its extension module, such as `qd._lib.core.Arch`.

Every name here belongs to another module, or describes this machine. New programs do not need this module.
"""

import ctypes
from types import SimpleNamespace

from octants.architectures import Arch


def _is_there(*libraries: str) -> bool:
    for library in libraries:
        try:
            ctypes.CDLL(library)
        except OSError:
            continue
        return True
    return False


core = SimpleNamespace(
    Arch=Arch,
    with_cuda=lambda: _is_there("libcuda.so.1"),
    with_amdgpu=lambda: _is_there(*(f"libamdhip64.so{version}" for version in (".7", ".6", ".5", ""))),
    # No other class is created for this one.
    with_metal=lambda: False,
    with_vulkan=lambda: _is_there("libvulkan.so.1"),
)
