"""The objects that have names in `qd.graph.capture(name=object)`: where captured launches use them and their members.

A use is an argument of a launch, or a member of one. Uses are found once, when the capture ends. Later updates change
the arguments, but not the meaning of a name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

from octants import _octants
from octants._fields.fields import TensorField
from octants._streams.saved_graphs import Call, bare, member_names

_Path = tuple[str, ...]
"""A path of members from an object to one inside it."""
_DEEPEST = 8


class Use(NamedTuple):
    """An argument of a captured launch, or a member of one, that is a named object or a member of it."""

    call: int
    parameter: int
    within: _Path
    """From the argument to the object."""
    members: tuple[_Path, ...]
    """From the named object to the object. Several if the named object has it as several members."""


def find_uses(named: Any, calls: list[Call]) -> list[Use]:
    """The uses of a named object by captured launches."""
    members: dict[int, list[_Path]] = {id(bare(named)): [()]}
    for path, member in _members(named):
        members.setdefault(id(bare(member)), []).append(path)
    known: dict[int, list[tuple[_Path, list[_Path]]]] = {}

    def uses_in(argument: Any) -> list[tuple[_Path, list[_Path]]]:
        if id(bare(argument)) in members:
            return [((), members[id(bare(argument))])]
        found: list[tuple[_Path, list[_Path]]] = []
        for path, member in _members(argument, shadows=False):
            # A use of an object includes those of its members.
            if id(bare(member)) in members and not any(path[: len(p)] == p for p, _ in found):
                found.append((path, members[id(bare(member))]))
        return found

    uses = []
    for call, (_, _, args) in enumerate(calls):
        for parameter, argument in enumerate(args):
            if id(argument) not in known:
                known[id(argument)] = uses_in(argument)
            uses += [Use(call, parameter, within, tuple(paths)) for within, paths in known[id(argument)]]
    return uses


def paths_of_arrays(named: Any) -> dict[int, _Path]:
    """The paths from a named object to itself and to the arrays and objects in it, by their identity."""
    paths: dict[int, _Path] = {id(bare(named)): ()}
    for path, member in _members(named):
        paths.setdefault(id(bare(member)), path)
    return paths


def member_at(of: Any, path: _Path) -> Any:
    """The member at a path; None if there is none."""
    for part in path:
        of = getattr(bare(of), part, None)
    return bare(of)


def new_member(name: str, use: Use, value: Any) -> Any:
    """The replacement of a used object when `value` replaces the named one."""
    if use.members == ((),):
        return value
    found = []
    for path in use.members:
        member = value
        for part in path:
            member = getattr(bare(member), part, None)
        if member is None and path:
            raise TypeError(
                f"captured launches use `{'.'.join((name, *path))}`: it cannot be replaced by a "
                f"{type(value).__name__!r} object without it"
            )
        found.append(member)
    if any(bare(member) is not bare(found[0]) for member in found):
        paths = " and ".join(f"`{'.'.join((name, *path))}`" for path in use.members)
        raise TypeError(f"{paths} were one array when they were captured: they cannot be replaced by different ones")
    return found[0]


def with_member(name: str, kernel: str, argument: Any, within: _Path, value: Any) -> Any:
    """A copy of an argument with one member replaced, made by `dataclasses.replace`."""
    if not within:
        return value
    if not dataclasses.is_dataclass(argument) or getattr(argument, "_octants_data_oriented", False):
        raise TypeError(
            f"kernel `{kernel}` was given a {type(argument).__name__!r} object that holds `{name}`: only members of "
            "dataclasses can be replaced. Give the object itself a name, and update that"
        )
    member = with_member(name, kernel, getattr(argument, within[0]), within[1:], value)
    return dataclasses.replace(argument, **{within[0]: member})  # type: ignore[type-var]


def _members(of: Any, shadows: bool = True) -> Iterator[tuple[_Path, Any]]:
    """The arrays and objects in an object, in preorder. With `shadows`, gradients and duals of arrays too. For
    arguments these are left out, because launches usually do not use them.
    """
    seen: set[int] = set()

    def walk(thing: Any, path: _Path) -> Iterator[tuple[_Path, Any]]:
        thing = bare(thing)
        if isinstance(thing, (TensorField, _octants.Ndarray)):
            for shadow in ("grad", "dual") if shadows else ():
                member = getattr(thing, shadow, None)
                if member is not None:
                    yield (*path, shadow), member
            return
        is_data_oriented = getattr(thing, "_octants_data_oriented", False)
        if len(path) >= _DEEPEST or (is_data_oriented and id(thing) in seen):
            return
        # These may refer to one another.
        seen.update([id(thing)] if is_data_oriented else [])
        for name in member_names(thing):
            member = getattr(thing, name, None)
            if _is_array(member) or member_names(member):
                yield (*path, name), member
                yield from walk(member, (*path, name))

    yield from walk(of, ())


def _is_array(thing: Any) -> bool:
    """Whether it is an array, of Octants or of another library. Scalars and constants do not count: equal ones may
    share identity.
    """
    return isinstance(bare(thing), (TensorField, _octants.Ndarray)) or hasattr(type(thing), "__dlpack__")
