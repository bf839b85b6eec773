"""Race reports.

    qd.init(check_races="static")
    try:
        kernel(x)
    except qd.RaceError as error:
        for race in error.races:
            print(race.kind, race.buffer, race.index, race.first.at, race.second.at)

`qd.init(check_races="static")` finds races that can be proved, when a kernel is compiled and when it is launched.
`check_races="full"` also instruments kernels to find the others at run time. Either way a race raises an
`OctantsRaceError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from octants.exceptions import OctantsRaceError

__all__ = ["Race", "RaceAccess"]


@dataclass(frozen=True)
class RaceAccess:
    """One of the two accesses of a race."""

    touch: str
    """`"read"`, `"write"`, or `"update"` for an atomic operation."""
    at: str
    """`path:line` of the access: in a kernel, or in the program where the host touches the element."""
    by: str
    """The origin of the access, such as an iteration, a kernel on a stream, or the host."""
    launched_at: str | None = None
    """`path:line` of the launch in the program, for races between launches and with the host."""

    @property
    def line(self) -> int:
        """The line in `at`; 0 if unknown."""
        number = self.at.rpartition(":")[2]
        return int(number) if number.isdigit() else 0

    def __str__(self) -> str:
        launched = "" if self.launched_at is None else f", launched at {self.launched_at}"
        return f"{self.at}: {self.by} {self.touch}s{launched}"


@dataclass(frozen=True)
class Race:
    """Two unordered accesses to the same element, at least one of which is a write or an update."""

    kind: str
    """`"iterations"` or `"local"` (of a parallel loop that share an element or a variable), `"sections"`, `"launches"`
    (on different streams) or `"host"` (the host and a launch)."""
    buffer: str
    """The name of the array, field or variable."""
    index: tuple[int, ...] | None
    """An element that both access, if known."""
    first: RaceAccess
    """The earlier access."""
    second: RaceAccess
    """The later access."""
    cure: str
    """How to remove the race: the missing wait, atomic or option."""

    def __str__(self) -> str:
        where = "" if self.index is None else f" at index {list(self.index)}"
        return f"{self.kind} race on `{self.buffer}`{where}\n  {self.first}\n  {self.second}\n  help: {self.cure}"


_Side = tuple[str, str, str, "str | None"]
_Parts = tuple[str, str, "Sequence[int] | None", _Side, _Side, str]


def race_of(parts: _Parts) -> Race:
    """A race from its parts, in the format of the extension module."""
    kind, buffer, index, first, second, cure = parts
    known = None if index is None else tuple(index)
    return Race(kind, buffer, known, RaceAccess(*first), RaceAccess(*second), cure)


def race_error(message: str, races: Sequence[_Parts]) -> OctantsRaceError:
    """The error that reports races."""
    return OctantsRaceError(message, tuple(race_of(parts) for parts in races))
