"""Dump files with the code of each compiled kernel, for `print_kernel_asm` and related options and for `QD_DUMP_IR`.

The extension module calls `write` once per compilation while one of the options is on.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

from octants._profiling.written_files import write_whole
from octants._program.runtime import current_config

__all__ = ["write"]

_numbers = itertools.count()

_STAGES = ("ir", "schedule", "llvm-lowered", "llvm")

_VENDORS = {"cuda": "nvptx", "amdgpu": "amdgcn"}


def write(inspection: Any, stages: bool) -> None:
    """Writes the dumps that the options request for one compilation; `stages` holds the IR after each stage.

    Dumps requested by options go to the working directory, under the file names that Quadrants uses. The stages go to
    the folder `debug_dump_path`. Raises `OSError` if a file cannot be written.
    """
    config = current_config()
    if config is None:
        return
    number = next(_numbers)
    arch = "cpu" if config.arch.name in ("x64", "arm64") else config.arch.name
    vendor = _VENDORS.get(arch)
    if config.print_kernel_llvm_ir:
        _save(inspection, "llvm-lowered", f"quadrants_kernel_generic_llvm_ir_{number:04}")
    if config.print_kernel_llvm_ir_optimized:
        _save(inspection, "llvm", f"quadrants_kernel_{arch}_llvm_ir_optimized_{number:04}")
    if config.print_kernel_asm and vendor is None:
        _save(inspection, "asm", f"quadrants_kernel_{arch}_llvm_ir_optimized_asm_{number:04}")
    elif config.print_kernel_asm or (config.print_kernel_amdgcn and vendor == "amdgcn"):
        _save(inspection, "asm", f"quadrants_kernel_{vendor}_{number:04}")
    if stages:
        folder = config.debug_dump_path
        for place, form in enumerate(_STAGES):
            _save(inspection, form, os.path.join(folder, f"{inspection.kernel}_{number:04}_{place}_{form}"))


def _save(inspection: Any, form: str, path: str) -> None:
    code, ending = inspection.emit(form)
    write_whole(f"{path}.{ending}", code)
