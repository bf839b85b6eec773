"""The program, its machines, axes and hints under their path in Quadrants."""

from octants._fields.axes import axes, i, ij, ijk, ijkl, ijl, ik, ikl, il, j, jk, jkl, jl, k, kl, l
from octants._language.ops import assume_in_range, block_local, cache_read_only, loop_config, loop_unique, no_activate
from octants._program.runtime import init, is_extension_enabled, reset
from octants.architectures import Extension as extension
from octants.architectures import amdgpu, arm64, cpu, cuda, gpu, metal, vulkan, x64
from octants.layouts import Layout

__all__ = [
    "Layout",
    "amdgpu",
    "arm64",
    "assume_in_range",
    "axes",
    "block_local",
    "cache_read_only",
    "cpu",
    "cuda",
    "extension",
    "gpu",
    "i",
    "ij",
    "ijk",
    "ijkl",
    "ijl",
    "ik",
    "ikl",
    "il",
    "init",
    "is_extension_enabled",
    "j",
    "jk",
    "jkl",
    "jl",
    "k",
    "kl",
    "l",
    "loop_config",
    "loop_unique",
    "metal",
    "no_activate",
    "reset",
    "vulkan",
    "x64",
]
