"""The program, its machines, axes and hints under their path in Quadrants."""

from octants._fields.axes import axes, i, ij, ijk, ijkl, ijl, ik, ikl, il, j, jk, jkl, jl, k, kl, l
from octants._language.ops import assume_in_range, block_local, cache_read_only, loop_config, loop_unique, no_activate
from octants._program.runtime import init, is_extension_enabled, reset
from octants.architectures import SUPPORTED, Arch, amdgpu, arm64, cpu, cuda, gpu, metal, vulkan, x64
from octants.architectures import Extension as extension
from octants.devices import list_devices
from octants.lang._public_names import public_names_of
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
    "get_host_arch_list",
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
    "is_arch_supported",
    "is_extension_enabled",
    "is_extension_supported",
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


def get_host_arch_list() -> list[Arch]:
    """The architecture of the host's processor, in a list."""
    return [cpu]


def is_arch_supported(arch: Arch) -> bool:
    """Whether this host has a device for `qd.init(arch=arch)`."""
    if arch in (cpu, Arch.python):
        return True
    name = arch.name if isinstance(arch, Arch) else arch
    return any(device.arch == name for device in list_devices()[0])


def is_extension_supported(arch: Arch, ext: extension) -> bool:
    """Whether an architecture supports an extension, regardless of the devices of this host."""
    return ext in SUPPORTED.get(arch, frozenset())


__getattr__ = public_names_of(__name__)
