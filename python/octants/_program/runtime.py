"""The program: `qd.init`, `qd.reset`, `qd.sync`, and `qd.cfg`, the current options.

The extension module holds the options, their defaults, their checks and their environment variables
(`OCTANTS_<OPTION>`). This file passes them on and keeps the Python side consistent.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import Any

from octants import _logging, _octants
from octants._fields.placement_checks import refuse_unplaced_fields
from octants._fields.snode_trees import root
from octants._language.python_scope import only_in_python, runs_as_python
from octants._program import program_events
from octants._program.on_first_use import OnFirstUse
from octants._program.several_devices import devices_of_environment, leave_devices, named_devices, open_others
from octants.architectures import SUPPORTED, Arch, Extension, cpu, gpu
from octants.exceptions import OctantsOptionError, OctantsRuntimeError
from octants.types.primitive import BY_NAME, f32, i32, resolve_dtype, set_default_types
from octants.version import require_version

_list_devices = OnFirstUse("octants.devices", "list_devices")


class Config:
    """The options of the running program, by name: `qd.cfg`. Each device has its own.

    A change affects later compilations and launches; compiled kernels do not change. Raises `AttributeError` for
    options that are fixed at `qd.init` (`arch`, streams, the cache folder, ...) and for unknown names, and `ValueError`
    for invalid values.
    """

    def __init__(self, given: dict[str, Any], serial: int) -> None:
        object.__setattr__(self, "_given", given)
        object.__setattr__(self, "_serial", serial)
        self._refresh()

    def _refresh(self) -> None:
        with _octants.on_program(self._serial):
            values: dict[str, Any] = {**self._given, **_octants.config()}
        for name in ("default_fp", "default_ip", "default_up"):
            values[name] = BY_NAME[values[name]]
        values["check_out_of_bound"] = values["check_out_of_bound"] or values["debug"]
        # Kernels that run as Python have a program on the CPU.
        is_plain = self._given.get("arch") == Arch.python.name
        # A build may have back ends that are no member, such as those of tests: their name.
        arch = Arch.__members__.get(values["arch"], values["arch"])
        values["arch"] = Arch.python if is_plain else cpu if arch == "cpu" else arch
        object.__setattr__(self, "_values", values)
        set_default_types(values["default_ip"], values["default_fp"])

    def __getattr__(self, name: str) -> Any:
        values = object.__getattribute__(self, "_values")
        if name not in values:
            raise AttributeError(f"qd.cfg has no option {name!r}")
        return values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if _configs.get(self._serial) is not self or self._serial not in _octants.program_serials():
            raise AttributeError("these options belong to a program that has ended: use qd.cfg for the running one")
        if name not in self._values:
            raise AttributeError(f"qd.cfg has no option {name!r}")
        value = _arch_name(value) if name == "arch" else value
        for serial in _octants.program_serials() if name in _SHARED else [self._serial]:
            with _octants.on_program(serial):
                _octants.set_option(name, value)
            if serial in _configs:
                _configs[serial]._refresh()
        if name == "log_level":
            _logging.set_logging_level(self.log_level)

    def __dir__(self) -> list[str]:
        return sorted(self._values)

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"


_SHARED = ("default_fp", "default_ip", "log_level", "print_full_traceback")
"""Options shared by all devices: annotations, the log and tracebacks belong to no device."""
_configs: dict[int, Config] = {}
"""By program serial."""
_given: dict[str, Any] = {}
"""The options passed to `init`."""


@only_in_python
def init(arch: Any = None, default_fp: Any = None, default_ip: Any = None, **options: Any) -> None:
    """Starts a program and ends the previous one, whose fields, ndarrays and compiled kernels can no longer be used.

    `arch` is the target (`qd.cpu`, `qd.gpu`, ...). If it is not available, the program runs on the CPU unless
    `enable_fallback=False`. The other options are described in the user guide.

    `devices` is a number of devices, or a list of their names such as `["cuda:0", "cuda:1"]`. Arrays with `split=0` are
    then split over these devices, and kernels on them run on all devices. Everything else is on the first device.
    """
    global _given
    require_version(options.pop("require_version", None))
    if "default_up" in options:
        raise OctantsOptionError(
            "'default_up' is always the unsigned type of 'default_ip'. Please set 'default_ip' instead."
        )
    devices = options.pop("devices", None)
    given = {"default_fp": default_fp, "default_ip": default_ip, **options}
    given = {name: value for name, value in given.items() if value is not None}
    if arch is not None:
        given["arch"] = _arch_name(arch)
    elif _octants.requested_arch() == Arch.python.name:
        given["arch"] = Arch.python.name
    if devices is not None and given.get("arch") == Arch.python.name:
        raise OctantsOptionError("arch=qd.python has only one device")
    if devices is None and given.get("arch") != Arch.python.name:
        devices = devices_of_environment()
    if devices is not None:
        devices, of_first = named_devices(devices, given.get("arch"))
        given.update(of_first)
    for name in ("default_fp", "default_ip"):
        if name in given:
            given[name] = _default_type(name, given[name])
    for name, value in given.items():
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise OctantsOptionError(f"option `{name}`: {value} does not fit in 64 bits")
    _configs.clear()
    set_default_types(i32, f32)
    _leave_program()
    # Kernels that run as Python keep their fields and ndarrays in the memory of a program on the CPU.
    if covers_kernels():
        # Code with probes is for this program only.
        given["offline_cache"] = False
    is_plain = given.get("arch") == Arch.python.name
    notices = _octants.init({**given, "arch": "cpu"} if is_plain else given)
    root.forget()
    program_events.tell(program_events.ended)
    _given = given
    serial = _octants.program_serial()
    config = _configs[serial] = Config(given, serial)
    _logging.set_logging_level(config.log_level)
    if is_plain:
        from octants import plain_python

        plain_python.begin(config.random_seed)
    if covers_kernels():
        from octants._code import kernel_coverage

        kernel_coverage.begin()
    for notice in notices:
        _logging.warn(notice)
    if devices is not None:
        try:
            open_others(devices)
        except Exception:
            reset()
            raise


@only_in_python
def reset() -> None:
    """Ends the program on all of its devices. Its fields, ndarrays and compiled kernels can no longer be used."""
    _leave_program()
    _octants.reset()
    _configs.clear()
    root.forget()
    set_default_types(i32, f32)
    program_events.tell(program_events.ended)


def clock_freq_hz() -> float:
    """Nominal frequency in hertz of the clock that `qd.clock_counter()` reads on the running program's device.

    The actual clock of an NVIDIA GPU may run faster or slower. Raises `NotImplementedError` on other devices, whose
    drivers report no frequency, and `OctantsRuntimeError` before `qd.init`.
    """
    rate = _octants.clock_hz()
    if rate is None:
        raise NotImplementedError("clock_freq_hz() supports only NVIDIA GPUs: the clock rate of this device is unknown")
    return rate


def sync() -> None:
    """Waits for all work launched so far, on every stream of every device. Raises `OctantsRuntimeError` if the program
    has fields that were never placed.
    """
    refuse_unplaced_fields()
    _octants.sync()


def _end_program() -> None:
    """Ends the program at exit. The threads that serve streams must stop before the interpreter and the libraries are
    torn down. After a Ctrl-C that was not caught or that ended a wait, does not wait for queued work.
    """
    uncaught = getattr(sys, "last_value", None)
    _octants.end_process(wait=not isinstance(uncaught, KeyboardInterrupt))


atexit.register(_end_program)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_octants.before_fork,
        after_in_parent=_octants.after_fork_in_parent,
        after_in_child=_octants.after_fork_in_child,
    )


def current_config() -> Config | None:
    """The options in force on the current device; None before `qd.init()`."""
    if not _octants.is_initialized():
        return None
    serial = _octants.program_serial()
    if serial not in _configs:
        _configs[serial] = Config(_given, serial)
    return _configs[serial]


def is_extension_enabled(ext: Extension) -> bool:
    """Whether the current device supports the extension."""
    config = current_config()
    if config is None:
        raise OctantsRuntimeError("no program is running. Maybe you forgot to call `qd.init()` first?")
    return ext in SUPPORTED.get(config.arch, frozenset())


def dump_compile_config() -> None:
    """Prints the options in force."""
    print(current_config())


def covers_kernels() -> bool:
    """Whether the environment enables kernel coverage."""
    asked = os.environ.get("OCTANTS_KERNEL_COVERAGE", os.environ.get("QD_KERNEL_COVERAGE"))
    return asked == "1"


def _leave_program() -> None:
    """Cleans up on the Python side before a program ends."""
    leave_devices()
    if covers_kernels():
        from octants._code import kernel_coverage

        kernel_coverage.end_program()
    if runs_as_python():
        from octants import plain_python

        plain_python.end()


def _arch_name(arch: Any) -> str:
    """The arch as one name, for the extension module. For a list, the first one that is available here."""
    if isinstance(arch, (list, tuple)):
        return _first_available([_arch_name(item) for item in arch])
    if isinstance(arch, Arch):
        return "cpu" if arch in (Arch.x64, Arch.arm64) else arch.name
    if isinstance(arch, str):
        return arch
    raise TypeError(f"arch must be one of qd.cpu, qd.gpu, qd.cuda, ..., got {arch!r}")


def _first_available(names: list[str]) -> str:
    """Of several names, the first one whose device exists, or else the first one, which then falls back to the CPU."""
    known = {"cpu", "gpu", *Arch.__members__}
    if not names or not known.issuperset(names):
        raise ValueError(f"a list of architectures must name some of {', '.join(sorted(known))}; got {names}")
    if len(names) == 1 or set(names) == {item.name for item in gpu}:
        return names[0] if len(names) == 1 else "gpu"
    here = {"cpu", Arch.python.name, *(device.arch for device in _list_devices()[0])}
    return next((name for name in names if name in here), names[0])


def _default_type(name: str, dtype: Any) -> str:
    resolved = resolve_dtype(dtype)
    if resolved.is_float != (name == "default_fp"):
        raise ValueError(f"{name} must be {'a float' if name == 'default_fp' else 'an integer'} type, got {resolved}")
    if resolved.name.startswith("u"):
        raise ValueError(f"{name} must be qd.i32 or qd.i64, got {resolved}")
    return resolved.name
