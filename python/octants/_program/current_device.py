"""The devices that this process uses: `qd.device`, `qd.current_device`, and the argument `device=`."""

from __future__ import annotations

import contextlib
from typing import Any

from octants import _octants
from octants._language.python_scope import only_in_python
from octants.architectures import Arch
from octants.exceptions import OctantsRuntimeError

__all__ = ["current_device", "device", "on"]

_NOWHERE: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()


@only_in_python
def device(name: Any, /, **options: Any) -> _octants.Device:
    """The device with a name such as `"cuda:1"`, opened on the first call.

    A name is a kind, as in `qd.init(arch=...)`, and optionally a number: `"cuda:1"`, `"amdgpu:0"`, `"cpu"`. Without a
    number it is the device that `qd.init` takes. `"cpu:1"` and so on are further devices on the processor. The same
    name returns the same device until `qd.init()` or `qd.reset()` closes all devices.

    A device takes the options of `qd.init`, except for those given here.

        second = qd.device("cuda:1")
        x = qd.field(qd.f32, shape=n, device=second)
        with second:
            step(x)

    Raises:
        OctantsRuntimeError: there is no such device, or `qd.init()` was not called.
        OctantsOptionError: the device is already open with other options.
    """
    if isinstance(name, _octants.Device):
        if options:
            raise OctantsRuntimeError(
                f"options can only be passed with the name of a device, not with the device object of {name.name}"
            )
        return name
    if isinstance(name, Arch):
        name = "cpu" if name in (Arch.x64, Arch.arm64) else name.name
    if not isinstance(name, str):
        raise TypeError(f'a device name must be a kind and a number, as in "cuda:1"; got {name!r}')
    return _octants.open_device(name, options)


def current_device() -> _octants.Device:
    """The device of this thread's innermost `with device:` block; outside such blocks, the device of `qd.init`."""
    return _octants.current_device()


def on(chosen: Any) -> contextlib.AbstractContextManager[Any]:
    """The scope for a `device=` argument: makes the device current; None keeps the current one."""
    if chosen is None:
        return _NOWHERE
    if not isinstance(chosen, (str, Arch, _octants.Device)):
        raise TypeError(f"device= must be a qd.device() or its name; got {chosen!r}")
    return device(chosen)
