"""The running program as programs written for Quadrants use it: default types, synchronization, and two hooks.

`ProgramView.materialize` is called after memory of fields was allocated, `ProgramView.clear` when a program has ended.
Both do nothing; a program may replace them on the class.
"""

from __future__ import annotations

from typing import Any

from octants import _octants
from octants._arrays.ndarrays import live_ndarrays
from octants._program import program_events
from octants._program.on_first_use import OnFirstUse
from octants._program.runtime import current_config
from octants.types import primitive

__all__ = ["ProgramView", "view"]

_compile_report = OnFirstUse("octants.profiler", "compile_report")


class ProgramView:
    """The result of `qd.lang.impl.get_runtime()`."""

    @property
    def default_fp(self) -> Any:
        """The type of float literals."""
        return primitive.default_fp()

    @default_fp.setter
    def default_fp(self, dtype: Any) -> None:
        self._set("default_fp", dtype)

    @property
    def default_ip(self) -> Any:
        """The type of integer literals. After `qd.init`, an unsigned type can be set, too."""
        return primitive.default_ip()

    @default_ip.setter
    def default_ip(self, dtype: Any) -> None:
        self._set("default_ip", dtype)

    def set_default_fp(self, dtype: Any) -> None:
        """Sets the type of float literals for later compilations."""
        self.default_fp = dtype

    def set_default_ip(self, dtype: Any) -> None:
        """Sets the type of integer literals for later compilations."""
        self.default_ip = dtype

    @property
    def default_up(self) -> Any:
        """The default unsigned type of Quadrants. Octants never uses it implicitly."""
        return self.config().default_up

    def _set(self, option: str, dtype: Any) -> None:
        setattr(self.config(), option, primitive.resolve_dtype(dtype))

    @property
    def print_non_pure(self) -> bool:
        """Whether to print the names of kernels that are not declared pure."""
        return bool(self.config().print_non_pure)

    @property
    def ndarrays(self) -> list[Any]:
        """The live ndarrays of this program, including gradients."""
        return live_ndarrays()

    def _get_num_ndarrays(self) -> int:
        return len(self.ndarrays)

    @property
    def prog(self) -> ProgramView:
        """The program view itself: programs written for Quadrants expect the program here."""
        return self

    def synchronize(self) -> None:
        """Waits for all work launched so far."""
        _octants.sync()

    def sync(self) -> None:
        """Waits for all work launched so far."""
        _octants.sync()

    def config(self) -> Any:
        """The options in force: `qd.cfg`."""
        return current_config()

    def finalize(self) -> None:
        """Waits for all work of the program."""
        _octants.sync()

    def get_num_compiled_functions(self) -> int:
        """Number of kernel specializations that this program has compiled."""
        return _octants.compiled_count()

    def get_num_offloaded_tasks_on_last_call(self) -> int:
        """Number of tasks of the kernel that was launched last."""
        return _octants.last_task_count()

    def get_total_compilation_time(self) -> float:
        """Seconds that this program has spent compiling kernels."""
        return sum(one.ms for one in _compile_report().compilations) / 1e3

    def materialize(self) -> None:
        """Called after fields were allocated."""

    def clear(self) -> None:
        """Called after a program has ended."""


view = ProgramView()
program_events.allocated.append(lambda: ProgramView.materialize(view))
program_events.ended.append(lambda: ProgramView.clear(view))
