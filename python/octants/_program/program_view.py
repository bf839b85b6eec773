"""The running program as programs written for Quadrants use it: default types, synchronization, and two hooks.

`ProgramView.materialize` is called after memory of fields was allocated, `ProgramView.clear` when a program has ended.
Both do nothing; a program may replace them on the class.
"""

from __future__ import annotations

from typing import Any

from octants import _octants
from octants._arrays.ndarrays import live_ndarrays
from octants._program import program_events
from octants._program.runtime import current_config
from octants.profiler import compile_report
from octants.types import primitive

__all__ = ["ProgramView", "view"]


class ProgramView:
    """What `qd.lang.impl.get_runtime()` returns."""

    @property
    def default_fp(self) -> Any:
        """The type of float literals."""
        return primitive.default_fp()

    @default_fp.setter
    def default_fp(self, dtype: Any) -> None:
        self._set("default_fp", dtype)

    @property
    def default_ip(self) -> Any:
        """The type of integer literals. A running program may also take an unsigned one."""
        return primitive.default_ip()

    @default_ip.setter
    def default_ip(self, dtype: Any) -> None:
        self._set("default_ip", dtype)

    def set_default_fp(self, dtype: Any) -> None:
        """Sets the type of float literals in what is compiled from now on."""
        self.default_fp = dtype

    def set_default_ip(self, dtype: Any) -> None:
        """Sets the type of integer literals in what is compiled from now on."""
        self.default_ip = dtype

    @property
    def default_up(self) -> Any:
        """The unsigned type of programs written for Quadrants; nothing has it without being given it."""
        return self.config().default_up

    def _set(self, option: str, dtype: Any) -> None:
        setattr(self.config(), option, primitive.resolve_dtype(dtype))

    @property
    def print_non_pure(self) -> bool:
        """Whether the names of kernels are printed that are not declared pure."""
        return bool(self.config().print_non_pure)

    @property
    def ndarrays(self) -> list[Any]:
        """The ndarrays of this program that are alive, their gradients too."""
        return live_ndarrays()

    def _get_num_ndarrays(self) -> int:
        return len(self.ndarrays)

    @property
    def prog(self) -> ProgramView:
        """The program: this object."""
        return self

    def synchronize(self) -> None:
        """Waits until everything launched before is done."""
        _octants.sync()

    def sync(self) -> None:
        """Waits until everything launched before is done."""
        _octants.sync()

    def config(self) -> Any:
        """The options in force: `qd.cfg`."""
        return current_config()

    def finalize(self) -> None:
        """Waits for the program's work."""
        _octants.sync()

    def get_num_compiled_functions(self) -> int:
        """How many specializations of kernels this program has compiled."""
        return _octants.compiled_count()

    def get_num_offloaded_tasks_on_last_call(self) -> int:
        """How many tasks the last kernel has that this thread has launched."""
        return _octants.last_task_count()

    def get_total_compilation_time(self) -> float:
        """Seconds that this program has spent on compiling kernels."""
        return sum(one.ms for one in compile_report().compilations) / 1e3

    def materialize(self) -> None:
        """Called after memory of fields was allocated."""

    def clear(self) -> None:
        """Called when a program has ended."""


view = ProgramView()
program_events.allocated.append(lambda: ProgramView.materialize(view))
program_events.ended.append(lambda: ProgramView.clear(view))
