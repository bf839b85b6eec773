"""`qd.perf_dispatch`: measures several implementations of one operation, and uses the fastest.

The measurement cycles through the implementations that are compatible with a call: some unmeasured calls of each, then
timed ones. The implementation with the least mean time is used for this geometry until the measurement is repeated.
Every call runs exactly one implementation, so the implementations need not be idempotent, but they must be equivalent.

A timed call is measured by events on its stream. The stream is drained first, so that host work of the implementation
counts as well; other streams continue.
"""

from __future__ import annotations

import functools
import inspect
import os
import time
from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import Any

from octants import _logging, _octants
from octants.exceptions import OctantsRuntimeError, OctantsSyntaxError

__all__ = ["perf_dispatch"]

DEFAULT_REPEAT_AFTER_COUNT = 300


class _Implementation:
    """A registered implementation."""

    def __init__(self, function: Callable[..., Any], is_compatible: Callable[..., bool] | None, scoped: bool) -> None:
        self.function = function
        self.name: str = getattr(function, "__name__", type(function).__name__)
        self.is_compatible = is_compatible
        self.call = self._call_in_scope if scoped else function
        """Takes `qd_stream` too. A function without that parameter runs with the stream as the current one."""

    def serves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return self.is_compatible is None or bool(self.is_compatible(*args, **kwargs))

    def _call_in_scope(self, *args: Any, qd_stream: Any = None, **kwargs: Any) -> Any:
        if qd_stream is None:
            return self.function(*args, **kwargs)
        with _octants.stream_scope(qd_stream):
            return self.function(*args, **kwargs)


class _Measurement:
    """The measurements of one geometry."""

    def __init__(self, warmup: int) -> None:
        self.warmup = warmup
        self.trials: defaultdict[_Implementation, int] = defaultdict(int)
        self.seconds: defaultdict[_Implementation, float] = defaultdict(float)
        self.winner: _Implementation | None = None
        self.calls_since = 0
        self.decided_at = 0.0


class PerformanceDispatcher:
    """Callable like its implementations: measures them and uses the fastest."""

    def __init__(
        self,
        prototype: Callable[..., Any],
        get_geometry_hash: Callable[..., Hashable],
        *,
        first_warmup: int,
        warmup: int,
        active: int,
        repeat_after_count: int | None,
        repeat_after_seconds: float | None,
        clock: Callable[[], float] | None,
    ) -> None:
        functools.update_wrapper(self, prototype)
        self.name = prototype.__name__
        self.parameters = list(inspect.signature(prototype).parameters)
        self.get_geometry_hash = get_geometry_hash
        self.first_warmup, self.warmup, self.active = first_warmup, warmup, active
        self.repeat_after_count, self.repeat_after_seconds = repeat_after_count, repeat_after_seconds
        self.clock = clock
        self.implementations: list[_Implementation] = []
        self.measurements: dict[Hashable, _Measurement] = {}
        self._elsewhere: dict[int, dict[Hashable, _Measurement]] = {}
        self._last: tuple[Hashable, _Measurement] | None = None
        self._generation = -1
        self._serial = 0
        force = _setting("FORCE")
        self._announces = bool(force) or _setting("PRINT_DEBUG") == "1"
        self._lists_names = bool(force)
        self._forced_name = _forced(force).get(self.name)

    def register(
        self, function: Callable[..., Any] | None = None, *, is_compatible: Callable[..., bool] | None = None
    ) -> Callable[..., Any]:
        """Adds an implementation: a kernel or a Python function with the parameter names of the prototype.

        `is_compatible` takes the arguments of a call and returns whether this implementation supports them.

        Raises:
            OctantsSyntaxError: the parameter names differ from those of the prototype.
        """
        if function is None:
            return functools.partial(self.register, is_compatible=is_compatible)
        wrapped: Callable[..., Any] = getattr(function, "__wrapped__", function)
        parameters = list(inspect.signature(wrapped).parameters)
        if parameters != self.parameters:
            raise OctantsSyntaxError(
                f"perf_dispatch `{self.name}`: an implementation must take the parameters {self.parameters}, but "
                f"`{getattr(function, '__name__', function)}` takes {parameters} "
                "[PERFDISPATCH_ANNOTATION_SEQUENCE_MISMATCH]"
            )
        plain = inspect.isfunction(function)
        if plain:
            # Decorators check this mark: a kernel made from the function now would not be the registered one.
            function._octants_registered = True  # type: ignore[attr-defined]
        implementation = _Implementation(function, is_compatible, scoped=plain and "qd_stream" not in parameters)
        self.implementations.append(implementation)
        self._forget()
        self._announce(f"registered '{implementation.name}'")
        return function

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._lists_names:
            self._list_names()
        if self._forced_name is not None:
            forced = self._forced_implementation()
            if forced is not None:
                return forced.call(*args, **kwargs)
        # The stream says where to run, not what: neither hashes nor compatibility depend on it.
        plain = kwargs
        if "qd_stream" in kwargs and "qd_stream" not in self.parameters:
            plain = {name: value for name, value in kwargs.items() if name != "qd_stream"}
        key = self.get_geometry_hash(*args, **plain)
        if self._serial != _octants.program_serial():
            self._change_device()
        measurement = self._measurement(key)
        if measurement is not None and measurement.winner is not None and not self._is_due(measurement):
            return measurement.winner.call(*args, **kwargs)

        compatible = [i for i in self.implementations if i.serves(args, plain)]
        if not compatible:
            names = [i.name for i in self.implementations]
            raise OctantsRuntimeError(
                f"perf_dispatch `{self.name}`: none of {names} is compatible with these arguments"
            )
        if measurement is None or measurement.winner is not None:
            warmup = self.first_warmup if measurement is None else self.warmup
            measurement = self.measurements[key] = _Measurement(warmup)
            self._last = key, measurement
        return self._measure(measurement, compatible, args, kwargs)

    def _change_device(self) -> None:
        """Switches to the measurements of the current device. There are none after `qd.init`."""
        if self._generation != _octants.generation():
            self._generation = _octants.generation()
            self._elsewhere.clear()
        elif self._serial:
            self._elsewhere[self._serial] = self.measurements
        self._serial = _octants.program_serial()
        self.measurements = self._elsewhere.pop(self._serial, {})
        self._last = None

    def _measurement(self, key: Hashable) -> _Measurement | None:
        """The measurements of a geometry.

        Most calls repeat the last geometry. Comparing keys is fast, because identical items count as equal; hashing
        visits the whole key, such as hundreds of dataclass members.
        """
        last = self._last
        if last is not None and last[0] == key:
            return last[1]
        measurement = self.measurements.get(key)
        if measurement is not None:
            self._last = key, measurement
        return measurement

    def _forget(self) -> None:
        """Drops all measurements."""
        self._elsewhere.clear()
        self.measurements.clear()
        self._last = None

    def _is_due(self, m: _Measurement) -> bool:
        """Counts a call that could use the winner. Returns whether to measure again instead."""
        m.calls_since += 1
        if 0 < (self.repeat_after_count or 0) <= m.calls_since:
            return True
        seconds = self.repeat_after_seconds or 0.0
        return seconds > 0 and self._now() - m.decided_at >= seconds

    def _measure(self, m: _Measurement, compatible: list[_Implementation], args: Any, kwargs: Any) -> Any:
        if len(compatible) == 1:
            self._decide(m, compatible[0], "the only compatible one")
            return compatible[0].call(*args, **kwargs)
        candidate = min(compatible, key=lambda i: m.trials[i])
        if m.trials[candidate] < m.warmup:
            result = candidate.call(*args, **kwargs)
        else:
            result, seconds = self._timed(candidate, args, kwargs)
            m.seconds[candidate] += seconds
        # A call that raised is not counted: it would have passed for a quick one.
        m.trials[candidate] += 1
        if all(m.trials[i] >= m.warmup + self.active for i in compatible):
            fastest = min(compatible, key=lambda i: m.seconds[i] / (m.trials[i] - m.warmup))
            self._decide(m, fastest, f"the fastest of {len(compatible)}")
        return result

    def _timed(self, candidate: _Implementation, args: Any, kwargs: Any) -> tuple[Any, float]:
        stream = kwargs.get("qd_stream")
        with _octants.create_event(timing=True) as begin, _octants.create_event(timing=True) as end:
            begin.record(stream)
            begin.synchronize()
            if self.clock is None:
                begin.record(stream)
            else:
                start = self.clock()
            result = candidate.call(*args, **kwargs)
            end.record(stream)
            end.synchronize()
            return result, begin.elapsed_ms(end) / 1e3 if self.clock is None else self.clock() - start

    def _decide(self, m: _Measurement, winner: _Implementation, why: str) -> None:
        m.winner = winner
        m.calls_since = 0
        m.decided_at = self._now()
        text = f"perf_dispatch '{self.name}': chose '{winner.name}', {why} ({len(self.implementations)} registered)"
        _logging.debug(text)
        if _setting("PRINT_DEBUG") == "1":
            print(text)

    def _now(self) -> float:
        return time.monotonic() if self.clock is None else self.clock()

    def _announce(self, what: str) -> None:
        text = f"perf_dispatch '{self.name}': {what}"
        _logging.debug(text)
        if self._announces:
            print(text)

    def _list_names(self) -> None:
        self._lists_names = False
        self._announce(f"available implementations: {[i.name for i in self.implementations]}")

    def _forced_implementation(self) -> _Implementation | None:
        for implementation in self.implementations:
            if implementation.name == self._forced_name:
                return implementation
        names = [i.name for i in self.implementations]
        _logging.warn(
            f"perf_dispatch `{self.name}` has no implementation `{self._forced_name}` to force; it has "
            f"{', '.join(names)}"
        )
        self._forced_name = None
        return None


def perf_dispatch(
    *,
    get_geometry_hash: Callable[..., Hashable],
    first_warmup: int | None = None,
    warmup: int | None = None,
    active: int | None = None,
    repeat_after_count: int | None = None,
    repeat_after_seconds: float | None = None,
    clock: Callable[[], float] | None = None,
) -> Callable[[Callable[..., Any]], PerformanceDispatcher]:
    """Turns a prototype function into the dispatcher of the implementations added with `.register`.

    Args:
        get_geometry_hash: maps the arguments of a call to what its speed depends on; each value is measured apart.
        first_warmup: untimed calls of each implementation before the first measurement of a geometry (1).
        warmup: untimed calls of each implementation before a repeated measurement (0).
        active: timed calls of each implementation (1).
        repeat_after_count: calls between a decision and the next measurement; 0 for never. 300 without both triggers.
        repeat_after_seconds: seconds after which to measure again; 0 for never.
        clock: a monotonic clock in seconds, instead of stream events. For tests, which need reproducible timings.
    """
    if repeat_after_count is None and repeat_after_seconds is None:
        repeat_after_count = DEFAULT_REPEAT_AFTER_COUNT
    return lambda prototype: PerformanceDispatcher(
        prototype,
        get_geometry_hash,
        first_warmup=1 if first_warmup is None else first_warmup,
        warmup=0 if warmup is None else warmup,
        active=max(1, 1 if active is None else active),
        repeat_after_count=repeat_after_count,
        repeat_after_seconds=repeat_after_seconds,
        clock=clock,
    )


def _setting(name: str) -> str:
    name = f"PERFDISPATCH_{name}"
    return os.environ.get(f"OCTANTS_{name}", os.environ.get(f"QD_{name}", ""))


def _forced(text: str) -> dict[str, str]:
    """Comma-separated `dispatcher:implementation` pairs. Any other entry makes dispatchers print their names."""
    pairs = (entry.split(":", 1) for entry in text.split(","))
    return {pair[0].strip(): pair[1].strip() for pair in pairs if len(pair) == 2}
