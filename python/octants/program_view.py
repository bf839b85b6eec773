"""The running program as programs written for Quadrants look at it: default types, synchronising, and two moments they hook.

`ProgramView.materialize` is called after memory of fields was allocated, `ProgramView.clear` when a program has ended. Both
do nothing; a program may replace them on the class.
"""

from __future__ import annotations

from typing import Any

from octants import _octants
from octants.types import primitive

__all__ = ["ProgramView", "view"]


class ProgramView:
    """What `qd.lang.impl.get_runtime()` returns."""

    @property
    def default_fp(self) -> Any:
        """The type of float literals."""
        return primitive.default_fp()

    @property
    def default_ip(self) -> Any:
        """The type of integer literals."""
        return primitive.default_ip()

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
        from octants.runtime import current_config

        return current_config()

    def finalize(self) -> None:
        """Waits for the program's work."""
        _octants.sync()

    def get_num_compiled_functions(self) -> int:
        """How many specialisations of kernels this program has compiled."""
        return _octants.compiled_count()

    def materialize(self) -> None:
        """Called after memory of fields was allocated."""

    def clear(self) -> None:
        """Called when a program has ended."""


view = ProgramView()
