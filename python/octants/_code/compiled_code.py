"""Inspection of a kernel's compiled code, for this machine's device or any other, which need not be present."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

from octants import _octants
from octants.architectures import Arch

__all__ = ["FORMS", "inspect"]

Form = Literal["access", "ir", "schedule", "llvm", "llvm-lowered", "asm", "object"]

FORMS: tuple[Form, ...] = ("access", "ir", "schedule", "llvm", "llvm-lowered", "asm", "object")
"""The forms that `inspect` can emit."""


@overload
def inspect(
    kernel: Any, *args: Any, arch: Any = None, target: str | None = None, emit: Literal["object"], **kwargs: Any
) -> bytes: ...


@overload
def inspect(
    kernel: Any,
    *args: Any,
    arch: Any = None,
    target: str | None = None,
    emit: Literal["access", "ir", "schedule", "llvm", "llvm-lowered", "asm"] = "asm",
    **kwargs: Any,
) -> str: ...


@overload
def inspect(
    kernel: Any, *args: Any, arch: Any = None, target: str | None = None, emit: Sequence[Form], **kwargs: Any
) -> dict[str, str | bytes]: ...


def inspect(
    kernel: Any,
    *args: Any,
    arch: Any = None,
    target: str | None = None,
    emit: Form | Sequence[Form] = "asm",
    **kwargs: Any,
) -> str | bytes | dict[str, str | bytes]:
    """The code of `kernel` for a call with these arguments. The call is not made: nothing runs, and no device is
    needed.

        qd.inspect(saxpy, 2.0, x, y, target="gfx90a", emit="asm")

    `target` names a chip: `gfx90a` and so on for AMD GPUs, `sm_90` and so on for NVIDIA's, `cpu` for this machine's
    processor, LLVM's names for others (`x86-64-v3`, `znver4`, `aarch64`, `neoverse-n1`, ...). `arch` alone
    (`qd.amdgpu`, `"cuda"`, ...) selects a common chip of that kind; without both, the target is the program's device.
    The options of `qd.init` (`fast_math`, `debug`, ...) apply.

    `emit` selects the form: `"ir"` the program of tasks, `"llvm"` LLVM's text after optimization, `"llvm-lowered"`
    before it, `"asm"` assembly, `"object"` the bytes that the driver loads (an object file for the CPU, PTX text for
    NVIDIA, linked code for AMD), `"access"` which elements of which arrays and fields each task reads, writes and
    updates atomically, as ranges of indices in terms of the call's arguments, `"schedule"` how each task runs on the
    machine: which iterations run concurrently, which loops are unrolled, what is copied. Several forms give a
    dictionary."""
    if isinstance(arch, Arch):
        arch = arch.name
    seen = _octants.PreparedCall(kernel, args, kwargs).inspect()

    def one(form: str) -> str | bytes:
        code, _ = seen.emit(form, arch, target)
        return code if form == "object" else code.decode()

    return one(emit) if isinstance(emit, str) else {form: one(form) for form in emit}
