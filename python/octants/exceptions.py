"""The exceptions that kernels and the package raise.

A mistake that is found at compile time raises an `OctantsCompilationError` or one of its subclasses. These also derive
from the corresponding Python exception: `except TypeError` catches an `OctantsTypeError`. A mistake that is found at
run time raises an `OctantsRuntimeError`. Most classes have an alias `Quadrants...`, under which programs written for
Quadrants catch them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octants._streams.races import Race

__all__ = [
    "OctantsAssertionError",
    "OctantsAttributeError",
    "OctantsCompilationError",
    "OctantsCompileTimeError",
    "OctantsDerivativeError",
    "OctantsDistributedError",
    "OctantsIndexError",
    "OctantsNameError",
    "OctantsOptionError",
    "OctantsOutOfBoundsError",
    "OctantsRaceError",
    "OctantsRuntimeError",
    "OctantsRuntimeTypeError",
    "OctantsScopeError",
    "OctantsSyntaxError",
    "OctantsTypeError",
    "OctantsValueError",
    "QuadrantsAssertionError",
    "QuadrantsCompilationError",
    "QuadrantsIndexError",
    "QuadrantsNameError",
    "QuadrantsRuntimeError",
    "QuadrantsRuntimeTypeError",
    "QuadrantsSyntaxError",
    "QuadrantsTypeError",
    "QuadrantsValueError",
    "RaceError",
]


class OctantsCompilationError(Exception):
    """A kernel cannot be compiled."""


class OctantsSyntaxError(OctantsCompilationError, SyntaxError):
    """A statement, declaration or call is not part of the kernel language."""

    def __str__(self) -> str:
        # SyntaxError would append another file and line.
        return str(self.args[0]) if self.args else ""


class OctantsNameError(OctantsCompilationError, NameError):
    """A name in a kernel is not defined."""


class OctantsAttributeError(OctantsCompilationError, AttributeError):
    """A kernel uses an attribute that a compile-time object lacks."""


class OctantsIndexError(OctantsCompilationError, IndexError):
    """Wrong number of indices, or a constant index out of bounds."""


class OctantsTypeError(OctantsCompilationError, TypeError):
    """An operand, argument or assignment in a kernel has the wrong type."""


class OctantsValueError(OctantsCompilationError, ValueError):
    """A value of the right type that is not allowed in its context."""


class OctantsRuntimeError(RuntimeError):
    """An error in a launch, or in a use of the package from Python."""


class OctantsCompileTimeError(OctantsCompilationError, OctantsRuntimeError):
    """Compile-time code in a kernel raised a RuntimeError."""


class OctantsDerivativeError(OctantsCompilationError, OctantsRuntimeError):
    """The compiler cannot differentiate a kernel."""


class OctantsAssertionError(OctantsRuntimeError, AssertionError):
    """A failed `assert` in a kernel, or a failed check of debug mode."""


class OctantsRaceError(OctantsRuntimeError):
    """Unordered accesses to the same element: see `qd.init(check_races=...)`.

    `races` holds one `qd.Race` per pair of accesses.
    """

    races: tuple[Race, ...]

    def __init__(self, message: str = "", races: tuple[Race, ...] = ()) -> None:
        super().__init__(message)
        self.races = tuple(races)


class OctantsDistributedError(OctantsRuntimeError):
    """A rank of a distributed program does not respond, or does something else than this one."""


class OctantsRuntimeTypeError(OctantsRuntimeError, TypeError):
    """An argument of a launch has the wrong type."""


class OctantsOutOfBoundsError(OctantsAssertionError, IndexError):
    """An index outside of a field or an ndarray, in Python."""


class OctantsScopeError(OctantsSyntaxError, OctantsRuntimeError, AssertionError):
    """A function of the kernel language was called from Python."""


class OctantsOptionError(KeyError):
    """An unknown option of `init`, or one in conflict with an open device."""

    def __str__(self) -> str:
        # KeyError would show the message in quotes.
        return str(self.args[0]) if self.args else ""


RaceError = OctantsRaceError

QuadrantsCompilationError = OctantsCompilationError
QuadrantsSyntaxError = OctantsSyntaxError
QuadrantsNameError = OctantsNameError
QuadrantsIndexError = OctantsIndexError
QuadrantsTypeError = OctantsTypeError
QuadrantsValueError = OctantsValueError
QuadrantsRuntimeError = OctantsRuntimeError
QuadrantsAssertionError = OctantsAssertionError
QuadrantsRuntimeTypeError = OctantsRuntimeTypeError
