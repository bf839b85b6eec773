"""The keywords that distribute a new array over ranks: `split`, `halo` and `periodic`."""

from __future__ import annotations

from typing import Any, NamedTuple

from octants.exceptions import OctantsRuntimeError

__all__ = ["SplitOptions", "refuse_with_split", "take_split"]


class SplitOptions(NamedTuple):
    """How an array is distributed over ranks."""

    axis: int | str
    """The axis that is split."""
    halo: int = 2
    """Ghost rows on each side."""
    periodic: bool = False
    """The first row follows the last one."""


def take_split(what: str, kwargs: dict[str, Any]) -> SplitOptions | None:
    """Takes these keywords out of those of the constructor `what`; None without `split`.

    Raises a `TypeError` for other keywords.
    """
    given = {name: kwargs.pop(name) for name in ("halo", "periodic") if name in kwargs}
    axis = kwargs.pop("split", None)
    if unknown := sorted([*kwargs, *(given if axis is None else ())]):
        needs = " without `split`" if axis is None and given else ""
        raise TypeError(f"{what}() has no keyword {', '.join(f'`{name}`' for name in unknown)}{needs}")
    return None if axis is None else SplitOptions(axis, **given)


def refuse_with_split(shape: Any, keywords: dict[str, Any]) -> None:
    """Raises unless there is a shape and no keyword that split arrays do not have."""
    given = [name for name, value in keywords.items() if value]
    if given or shape is None:
        what = ", ".join(f"{name}=" for name in given) or "no shape"
        raise OctantsRuntimeError(
            "a field that is split over ranks takes a shape, halo=, periodic=, name=, needs_grad= and device=, but got "
            f"{what}"
        )
