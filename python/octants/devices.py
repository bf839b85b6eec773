"""The devices of this machine: `python -m octants.devices` prints those of all back ends.

The first column contains the numbers for `qd.init(device=...)`. `OCTANTS_VISIBLE_DEVICES=2,0`, or the option
`visible_devices`, makes only these two devices visible, renumbered from 0.
"""

from __future__ import annotations

from typing import NamedTuple

from octants import _octants

__all__ = ["Device", "list_devices", "main"]


class Device(NamedTuple):
    """A device for `qd.init(arch=..., device=...)`. If it is not usable, its note says why."""

    arch: str
    """The name of the backend, such as `"cuda"`."""
    number: int
    """The value for `qd.init(device=...)`."""
    name: str
    """The driver's name of the device."""
    memory_bytes: int | None
    """Memory size in bytes, if known."""
    note: str | None
    """Further information, such as why the device is not usable."""


def list_devices() -> tuple[list[Device], dict[str, str]]:
    """The devices of all backends; for a backend without any, an entry with the reason.

    Works without a running program, and does not disturb one. Honors `OCTANTS_VISIBLE_DEVICES`.
    """
    found, reasons = [], {}
    for arch, devices, reason in _octants.devices():
        if reason is not None:
            reasons[arch] = reason
        for number, (name, memory, note) in enumerate(devices):
            found.append(Device(arch, number, name, memory, note))
    return found, reasons


def main() -> None:
    """Prints a line for each device, and for each backend without devices the reason."""
    found, reasons = list_devices()
    for device in found:
        memory = f"{device.memory_bytes / 2**30:.1f} GiB" if device.memory_bytes else ""
        print(f"{device.arch:8} {device.number:3}  {', '.join(filter(None, [device.name, memory, device.note]))}")
    for arch, reason in reasons.items():
        print(f"{arch:8}   -  {reason}")


if __name__ == "__main__":
    main()
