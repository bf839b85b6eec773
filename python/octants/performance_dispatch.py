"""`qd.perf_dispatch`: several implementations of one operation, of which the fastest is measured and used.

Measuring goes round all compatible implementations: first `warmup` calls of each without a clock, then `active` timed
ones, with the device synchronised before and after. The fastest total wins for this geometry until the measurement is
repeated. Every call runs exactly one implementation, so implementations need not be idempotent, but must agree.
"""

from __future__ import annotations

import functools
import inspect
import os
import time
from collections.abc import Callable, Hashable
from typing import Any

from octants import _logging, _octants
from octants.exceptions import OctantsRuntimeError, OctantsSyntaxError

__all__ = ["perf_dispatch"]

DEFAULT_REPEAT_AFTER_COUNT = 300


class _Implementation:
    """One registered way to do the operation."""

    def __init__(self, function: Callable[..., Any], is_compatible: Callable[..., bool] | None) -> None:
        self.function = function
        self.name: str = getattr(function, "__name__", type(function).__name__)
        self.is_compatible = is_compatible


class _Measurement:
    """What is known of one geometry."""

    def __init__(self, candidates: list[_Implementation], first_warmup: int, active: int) -> None:
        self.candidates = candidates
        self.warmups_left = first_warmup * len(candidates)
        self.timed_left = active * len(candidates)
        self.turn = 0
        self.seconds = {id(c): 0.0 for c in candidates}
        self.winner: _Implementation | None = None
        self.calls_since = 0
        self.decided_at = 0.0


class PerformanceDispatcher:
    """Stands for the operation: called like its implementations, measures them, and uses the fastest."""

    def __init__(
        self,
        prototype: Callable[..., Any],
        get_geometry_hash: Callable[..., Hashable],
        *,
        first_warmup: int,
        warmup: int,
        active: int,
        repeat_after_count: int,
        repeat_after_seconds: float,
        clock: Callable[[], float],
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
        self.forced_name = _forced().get(self.name)
        self.warned_of_force = False

    def register(
        self, function: Callable[..., Any] | None = None, *, is_compatible: Callable[..., bool] | None = None
    ) -> Callable[..., Any]:
        """Adds an implementation: a kernel or a Python function with the prototype's parameter names.

        `is_compatible` takes the arguments of a call and says whether this implementation can serve it.

        Raises:
            OctantsSyntaxError: the parameter names differ from the prototype's.
        """
        if function is None:
            return functools.partial(self.register, is_compatible=is_compatible)
        wrapped: Callable[..., Any] = getattr(function, "__wrapped__", function)
        parameters = list(inspect.signature(wrapped).parameters)
        if parameters != self.parameters:
            raise OctantsSyntaxError(
                f"perf_dispatch `{self.name}`: an implementation takes the parameters {self.parameters}, "
                f"`{getattr(function, '__name__', function)}` takes {parameters} [PERFDISPATCH_ANNOTATION_SEQUENCE_MISMATCH]"
            )
        if inspect.isfunction(function):
            # A kernel made of it afterwards would not be what was registered: the decorators check for this mark.
            function._octants_registered = True  # type: ignore[attr-defined]
        implementation = _Implementation(function, is_compatible)
        self.implementations.append(implementation)
        self.measurements.clear()
        if _forced_text() is not None:
            print(f"perf_dispatch '{self.name}': registered '{implementation.name}'")
        return function

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        forced = self._forced_implementation()
        if forced is not None:
            return forced.function(*args, **kwargs)
        # The stream says where to run, not what: neither hashes nor compatibility depend on it.
        plain = {name: value for name, value in kwargs.items() if name != "qd_stream"}
        key = self.get_geometry_hash(*args, **plain)
        measurement = self.measurements.get(key)
        if measurement is None:
            measurement = self._start(key, args, plain, self.first_warmup)
        if measurement.winner is not None:
            if not self._is_stale(measurement):
                measurement.calls_since += 1
                return measurement.winner.function(*args, **kwargs)
            measurement = self._start(key, args, plain, self.warmup)
            if measurement.winner is not None:
                return measurement.winner.function(*args, **kwargs)
        return self._measure(measurement, args, kwargs)

    def _forced_implementation(self) -> _Implementation | None:
        if self.forced_name is None:
            return None
        for implementation in self.implementations:
            if implementation.name == self.forced_name:
                return implementation
        if not self.warned_of_force:
            self.warned_of_force = True
            names = [i.name for i in self.implementations]
            _logging.warn(
                f"perf_dispatch `{self.name}` has no implementation `{self.forced_name}` to force; it has {names}"
            )
        return None

    def _start(self, key: Hashable, args: Any, kwargs: Any, warmup: int) -> _Measurement:
        candidates = [i for i in self.implementations if i.is_compatible is None or i.is_compatible(*args, **kwargs)]
        if not candidates:
            names = [i.name for i in self.implementations]
            raise OctantsRuntimeError(
                f"perf_dispatch `{self.name}`: none of {names} is compatible with these arguments"
            )
        measurement = _Measurement(candidates, warmup, self.active)
        if len(candidates) == 1:
            measurement.winner = candidates[0]
            measurement.decided_at = self.clock()
        self.measurements[key] = measurement
        return measurement

    def _measure(self, m: _Measurement, args: Any, kwargs: Any) -> Any:
        candidate = m.candidates[m.turn % len(m.candidates)]
        m.turn += 1
        if m.warmups_left > 0:
            m.warmups_left -= 1
            return candidate.function(*args, **kwargs)
        _octants.sync()
        start = self.clock()
        result = candidate.function(*args, **kwargs)
        _octants.sync()
        m.seconds[id(candidate)] += self.clock() - start
        m.timed_left -= 1
        if m.timed_left <= 0:
            m.winner = min(m.candidates, key=lambda c: m.seconds[id(c)])
            m.calls_since = 0
            m.decided_at = self.clock()
            _logging.debug(f"perf_dispatch `{self.name}` chose `{m.winner.name}`")
        return result

    def _is_stale(self, m: _Measurement) -> bool:
        if len(m.candidates) == 1 and all(i.is_compatible is None for i in self.implementations):
            return False
        if 0 < self.repeat_after_count <= m.calls_since:
            return True
        return self.repeat_after_seconds > 0 and self.clock() - m.decided_at >= self.repeat_after_seconds


def perf_dispatch(
    *,
    get_geometry_hash: Callable[..., Hashable],
    first_warmup: int | None = None,
    warmup: int | None = None,
    active: int | None = None,
    repeat_after_count: int | None = None,
    repeat_after_seconds: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Callable[[Callable[..., Any]], PerformanceDispatcher]:
    """Makes a prototype function the dispatcher of implementations that are added with `.register`.

    Args:
        get_geometry_hash: maps the arguments of a call to what its speed depends on; each value is measured apart.
        first_warmup: untimed calls of each implementation before the first measurement of a geometry (1).
        warmup: untimed calls of each implementation before a repeated measurement (0).
        active: timed calls of each implementation (1).
        repeat_after_count: calls after which to measure again; 0 never. 300 if both triggers are left out.
        repeat_after_seconds: seconds after which to measure again; 0 never.
        clock: seconds, monotonic; tests pass their own.
    """
    if repeat_after_count is None:
        repeat_after_count = DEFAULT_REPEAT_AFTER_COUNT if repeat_after_seconds is None else 0
    return lambda prototype: PerformanceDispatcher(
        prototype,
        get_geometry_hash,
        first_warmup=1 if first_warmup is None else first_warmup,
        warmup=0 if warmup is None else warmup,
        active=max(1, 1 if active is None else active),
        repeat_after_count=repeat_after_count,
        repeat_after_seconds=repeat_after_seconds or 0.0,
        clock=clock,
    )


def _forced_text() -> str | None:
    return os.environ.get("OCTANTS_PERFDISPATCH_FORCE", os.environ.get("QD_PERFDISPATCH_FORCE"))


def _forced() -> dict[str, str]:
    """`dispatcher:implementation` pairs, separated by commas."""
    pairs = (entry.split(":", 1) for entry in (_forced_text() or "").split(","))
    return {pair[0].strip(): pair[1].strip() for pair in pairs if len(pair) == 2}
