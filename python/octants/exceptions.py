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
        # SyntaxError would append a file and line of its own.
        return str(self.args[0]) if self.args else ""


class OctantsNameError(OctantsCompilationError, NameError):
    """A name in a kernel is not defined."""


class OctantsAttributeError(OctantsCompilationError, AttributeError):
    """An object that a kernel uses at compile time lacks an attribute."""


class OctantsIndexError(OctantsCompilationError, IndexError):
    """Wrong number of indices, or an index that is known to be outside."""


class OctantsTypeError(OctantsCompilationError, TypeError):
    """An operand, argument or assignment in a kernel has the wrong type."""


class OctantsValueError(OctantsCompilationError, ValueError):
    """A value of the right type that is not allowed where it is."""


class OctantsRuntimeError(RuntimeError):
    """A launch, or a use of the package from Python, went wrong."""


class OctantsCompileTimeError(OctantsCompilationError, OctantsRuntimeError):
    """Code that a kernel runs at compile time raised a RuntimeError."""


class OctantsDerivativeError(OctantsCompilationError, OctantsRuntimeError):
    """A kernel has no derivative that the compiler could make."""


class OctantsAssertionError(OctantsRuntimeError, AssertionError):
    """An `assert` in a kernel, or a check of debug mode, failed."""


class OctantsRaceError(OctantsRuntimeError):
    """Accesses of one element with no order between them: see `qd.init(check_races=...)`.

    `races` holds each of them as a `qd.Race`.
    """

    races: tuple[Race, ...]

    def __init__(self, message: str = "", races: tuple[Race, ...] = ()) -> None:
        super().__init__(message)
        self.races = tuple(races)


class OctantsDistributedError(OctantsRuntimeError):
    """A rank of a program of several processes does not answer, or does something else than this one."""


class OctantsRuntimeTypeError(OctantsRuntimeError, TypeError):
    """An argument of a launch has the wrong type."""


class OctantsScopeError(OctantsRuntimeError, AssertionError):
    """A function of the kernel language was called from Python."""


class OctantsOptionError(KeyError):
    """An unknown option of `init`."""

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
