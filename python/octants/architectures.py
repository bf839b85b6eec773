"""The kinds of machine that `qd.init(arch=...)` names, and what each is able to do."""

from __future__ import annotations

import platform
from enum import Enum


class Arch(Enum):
    """A kind of machine."""

    x64 = "x64"
    arm64 = "arm64"
    python = "python"
    cuda = "cuda"
    metal = "metal"
    vulkan = "vulkan"
    amdgpu = "amdgpu"

    def __repr__(self) -> str:
        return f"Arch.{self.name}"

    def __int__(self) -> int:
        return _NUMBERS[self]

    @classmethod
    def _missing_(cls, value: object) -> Arch | None:
        return next((arch for arch, number in _NUMBERS.items() if number == value), None)


# `int(arch)`, and back by `Arch(number)`: the numbers that Quadrants gives them.
_NUMBERS = {
    Arch.x64: 0,
    Arch.arm64: 1,
    Arch.python: 3,
    Arch.cuda: 4,
    Arch.metal: 5,
    Arch.amdgpu: 7,
    Arch.vulkan: 8,
}


class Extension(Enum):
    """An ability that not every kind of machine has."""

    sparse = "sparse"
    quant = "quant"
    mesh = "mesh"
    quant_basic = "quant_basic"
    data64 = "data64"
    adstack = "adstack"
    bls = "bls"
    assertion = "assertion"
    extfunc = "extfunc"


x64 = x86_64 = Arch.x64
arm64 = Arch.arm64
python = Arch.python
cuda = Arch.cuda
metal = Arch.metal
vulkan = Arch.vulkan
amdgpu = Arch.amdgpu

cpu = Arch.arm64 if platform.machine().lower() in ("arm64", "aarch64") else Arch.x64
gpu = [Arch.cuda, Arch.metal, Arch.vulkan, Arch.amdgpu]

SUPPORTED: dict[Arch, frozenset[Extension]] = {
    Arch.x64: frozenset({Extension.data64, Extension.assertion}),
    Arch.arm64: frozenset({Extension.data64, Extension.assertion}),
    Arch.cuda: frozenset({Extension.data64, Extension.assertion}),
    Arch.amdgpu: frozenset({Extension.data64, Extension.assertion}),
}
