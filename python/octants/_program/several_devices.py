"""The devices of `qd.init(devices=...)`: their names, and opening them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from octants import _octants
from octants._program.on_first_use import OnFirstUse
from octants.exceptions import OctantsOptionError

__all__ = ["devices_of_environment", "leave_devices", "named_devices", "open_others"]


world = OnFirstUse("octants._distributed.world", "world")


def named_devices(devices: Any, arch: str | None) -> tuple[int | list[str], dict[str, Any]]:
    """The argument as a number of devices or as their names, and the options of the first device that follow from it.
    `arch` is the one that the program names.
    """
    if isinstance(devices, int) and not isinstance(devices, bool):
        if devices < 1:
            raise OctantsOptionError(f"devices must be at least 1, got {devices}")
        return devices, {}
    if isinstance(devices, (str, bytes)) or not isinstance(devices, Sequence) or not devices:
        raise OctantsOptionError(
            f'devices must be a number or a list of names such as ["cuda:0", "cuda:1"]; {devices!r}'
        )
    names = [device.name if isinstance(device, _octants.Device) else device for device in devices]
    for name in names:
        kind, _, number = name.partition(":") if isinstance(name, str) else ("", "", "")
        if not (kind and number.isdecimal()):
            raise OctantsOptionError(f'devices: a name must be a kind and a number, as in "cuda:1"; got {name!r}')
    if len(set(names)) < len(names):
        raise OctantsOptionError(f"devices: {names} names a device twice")
    kinds = {name.partition(":")[0] for name in names}
    if len(kinds) > 1:
        raise OctantsOptionError(f"devices must be of one kind, got {' and '.join(sorted(kinds))}")
    kind, _, number = names[0].partition(":")
    if arch not in (None, kind) and not (arch == "gpu" and kind != "cpu"):
        raise OctantsOptionError(f"arch is {arch!r}, but devices are of kind {kind!r}")
    if kind == "cpu":
        if number != "0":
            raise OctantsOptionError(f'devices: the first one must be "cpu:0", got {names[0]!r}')
        return names, {"arch": kind}
    return names, {"arch": kind, "device": int(number), "enable_fallback": False}


def devices_of_environment() -> int | list[str] | None:
    """The value of `OCTANTS_DEVICES`: a number, or names with commas between them."""
    text = os.environ.get("OCTANTS_DEVICES", "")
    if not text:
        return None
    return int(text) if text.strip().isdecimal() else [name.strip() for name in text.split(",")]


def open_others(devices: int | list[str]) -> None:
    """Opens all devices but the first, which is open, and makes them the devices of split arrays."""
    first = _octants.current_device()
    if isinstance(devices, int):
        kind, _, number = first.name.partition(":")
        start = int(number or 0)
        names = [f"{kind}:{start + n}" for n in range(1, devices)]
    else:
        names = devices[1:]
    if not names:
        return
    if world().size > 1:
        raise OctantsOptionError("devices: a program with several processes has one device in each process")
    opened = [first, *(_octants.open_device(name) for name in names)]
    processors = []
    for device in opened:
        with _octants.on_program(device.serial):
            processors.append(_octants.device_processor())
    if len(set(processors)) > 1:
        raise OctantsOptionError(f"devices must have the same processor, got {', '.join(map(str, processors))}")
    _octants.set_device_group([device.serial for device in opened])


def leave_devices() -> None:
    """The program has one device from now on."""
    _octants.set_device_group([])
