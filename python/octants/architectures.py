"""The kinds of machine that `qd.init(arch=...)` accepts, and their capabilities."""

from __future__ import annotations

import platform
from enum import IntEnum


class Arch(IntEnum):
    """A target architecture. The values are those of Quadrants."""

    x64 = 0
    arm64 = 1
    python = 3
    cuda = 4
    metal = 5
    amdgpu = 7
    vulkan = 8

    def __str__(self) -> str:
        return f"Arch.{self.name}"

    __repr__ = __str__

    @classmethod
    def _missing_(cls, value: object) -> Arch | None:
        return cls.__members__.get(value) if isinstance(value, str) else None


class Extension(IntEnum):
    """An optional capability of an architecture. The values are those of Quadrants."""

    sparse = 0
    quant = 1
    mesh = 2
    quant_basic = 3
    data64 = 4
    adstack = 5
    bls = 6
    assertion = 7
    extfunc = 8

    def __repr__(self) -> str:
        return f"Extension.{self.name}"


x64 = x86_64 = Arch.x64
arm64 = Arch.arm64
python = Arch.python
cuda = Arch.cuda
metal = Arch.metal
vulkan = Arch.vulkan
amdgpu = Arch.amdgpu

cpu = Arch.arm64 if platform.machine().lower() in ("arm64", "aarch64") else Arch.x64
gpu = [Arch.cuda, Arch.metal, Arch.vulkan, Arch.amdgpu]

_EVERYWHERE = frozenset(
    {
        Extension.sparse,
        Extension.quant,
        Extension.mesh,
        Extension.quant_basic,
        Extension.data64,
        Extension.adstack,
        Extension.assertion,
    }
)
SUPPORTED: dict[Arch, frozenset[Extension]] = dict.fromkeys(
    (Arch.x64, Arch.arm64, Arch.cuda, Arch.amdgpu, Arch.vulkan), _EVERYWHERE
)
