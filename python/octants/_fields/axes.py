"""The axes of fields: `qd.i`, `qd.ij`, ..., `qd.axes(0, 2)`. Each is a tuple of `Axis`."""

from __future__ import annotations

from typing import Any

from octants.exceptions import OctantsSyntaxError

MAX_AXES = 12


class Axis:
    """One axis of index space."""

    __slots__ = ("value",)
    _octants_entity = "axis"

    def __init__(self, value: int) -> None:
        if not 0 <= value < MAX_AXES:
            raise ValueError(f"an axis must be a number from 0 to {MAX_AXES - 1}, got {value}")
        self.value = value

    def __repr__(self) -> str:
        return f"Axis({self.value})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Axis) and other.value == self.value

    def __hash__(self) -> int:
        return hash(("axis", self.value))


def axes(*numbers: int) -> tuple[Axis, ...]:
    """The axes with the given numbers; axis 0 is `qd.i`."""
    return tuple(Axis(number) for number in numbers)


def axis_numbers(value: Any) -> tuple[int, ...]:
    """The numbers of an `Axis` or a sequence of them."""
    if isinstance(value, Axis):
        return (value.value,)
    if isinstance(value, (tuple, list)) and value and all(isinstance(item, Axis) for item in value):
        return tuple(item.value for item in value)
    raise TypeError(f"expected axes such as qd.ij, got {value!r}")


def order_axes(order: str, ndim: int) -> tuple[int, ...]:
    """The axis numbers of a string such as "ji", outermost first. The string must name each of `ndim` axes once."""
    if not isinstance(order, str):
        raise OctantsSyntaxError(f'order must be a string of the axes, outermost first, such as "ji", got {order!r}')
    if len(order) != ndim:
        raise OctantsSyntaxError(
            f"The dimensionality of shape and order must be the same ({ndim} and {len(order)}: order={order!r})"
        )
    if len(set(order)) != ndim:
        raise OctantsSyntaxError(f"The axes in order must be different, got {order!r}")
    letters = [chr(ord("i") + number) for number in range(ndim)]
    for letter in order:
        if letter not in letters:
            raise OctantsSyntaxError(f"Invalid axis {letter} in order={order!r}: a field of {ndim} axes has {letters}")
    return tuple(letters.index(letter) for letter in order)


i, j, k, l = (axes(number) for number in range(4))  # noqa: E741
ij, ik, il, jk, jl, kl = axes(0, 1), axes(0, 2), axes(0, 3), axes(1, 2), axes(1, 3), axes(2, 3)
ijk, ijl, ikl, jkl = axes(0, 1, 2), axes(0, 1, 3), axes(0, 2, 3), axes(1, 2, 3)
ijkl = axes(0, 1, 2, 3)
