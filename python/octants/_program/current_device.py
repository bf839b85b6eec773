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
    """The device of a name such as `"cuda:1"`, which begins to be used at the first call.

    The name is that of a kind, as `qd.init(arch=...)` takes it, and a number behind a colon: `"cuda:1"`, `"amdgpu:0"`,
    `"cpu"`. Without a number it is the device that `qd.init` takes. `"cpu:1"` and so on are further devices on the
    processor. The same name gives the same device until `qd.init()` or `qd.reset()` ends all of them.

    A device has the options of `qd.init`, apart from those that are given here.

        second = qd.device("cuda:1")
        x = qd.field(qd.f32, shape=n, device=second)
        with second:
            step(x)

    Raises:
        OctantsRuntimeError: the device is not there, or `qd.init()` was not called.
        OctantsOptionError: the device is in use with other options.
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
    """The device of the innermost `with device:` block that this thread is in; outside of them that of `qd.init`."""
    return _octants.current_device()


def on(chosen: Any) -> contextlib.AbstractContextManager[Any]:
    """The scope in which what takes `device=` makes an object: None leaves the current device."""
    if chosen is None:
        return _NOWHERE
    if not isinstance(chosen, (str, Arch, _octants.Device)):
        raise TypeError(f"device= must be a qd.device() or its name; got {chosen!r}")
    return device(chosen)
