"""Describes this machine, for bug reports: `python -m octants.tools.diagnose`."""

from __future__ import annotations

import os
import platform

import numpy as np

from octants import _octants
from octants._program.runtime import init, reset
from octants.architectures import Arch, cpu, cuda
from octants.architectures import amdgpu as amd
from octants.exceptions import OctantsRuntimeError
from octants.version import VERSION_TEXT

__all__ = ["main"]


def _device(arch: Arch) -> list[str]:
    """A line about a device, or the reason it is missing, and about its sparse matrix libraries."""
    try:
        init(arch=arch, enable_fallback=False, offline_cache=False, log_level="error")
    except OctantsRuntimeError as error:
        return [f"no: {error}"]
    try:
        works = () if arch is cpu else ("products", "solvers")
        libraries = {work: _octants.missing_sparse_library(work) for work in works}
        told = (f"  sparse {work}: {reason or 'by the library of its vendor'}" for work, reason in libraries.items())
        return [_octants.device_processor() or "yes", *told]
    finally:
        reset()


def main() -> None:
    """Prints installed versions, relevant environment variables, and devices."""
    print(f"octants {VERSION_TEXT}, python {platform.python_version()}, numpy {np.__version__}")
    print(f"system: {platform.platform()}, {' '.join(platform.libc_ver())}, {os.cpu_count()} processors")
    print(f"installed in {os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}")
    for name, value in sorted(os.environ.items()):
        if name.startswith(("OCTANTS_", "QD_", "CUDA_", "ROCM_", "HIP_")) or name == "LD_LIBRARY_PATH":
            print(f"{name}={value}")
    for arch in (cpu, cuda, amd):
        first, *others = _device(arch)
        print(f"{arch.name}: {first}", *others, sep="\n")


if __name__ == "__main__":
    main()
