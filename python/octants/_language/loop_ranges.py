"""`qd.ndrange`: the product of several ranges as one loop. In Python it iterates over tuples; in kernels it is built
in."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from octants._language.ops import known_to_compiler
from octants.exceptions import OctantsSyntaxError, OctantsTypeError

_FORM = "Every argument of ndrange should be an integer scalar or a tuple/list of (int, int)"


class Ndrange:
    """A Cartesian product of ranges. `axes` lists them outermost first, if that is not the given order."""

    def __init__(self, *args: Any, axes: Any = None) -> None:
        self.bounds = [_bounds(arg) for arg in args]
        self.axes: tuple[int, ...] | None = None
        if axes is not None:
            order = tuple(axes)
            for axis in order:
                if not isinstance(axis, (int, np.integer)) or isinstance(axis, bool):
                    raise OctantsTypeError(
                        f"qd.ndrange(axes={order}) entries must be Python ints; got {type(axis).__name__} ({axis!r})"
                    )
            if len(order) != len(args):
                raise OctantsSyntaxError(
                    f"qd.ndrange(axes={order}) has {len(order)} entries but ndrange was called with {len(args)} "
                    "dimension argument(s); they must match"
                )
            if sorted(order) != list(range(len(args))):
                raise OctantsSyntaxError(f"qd.ndrange(axes={order}) is not a permutation of range({len(args)})")
            self.axes = order

    @property
    def dimensions(self) -> list[int]:
        """Length of each range."""
        return [end - begin for begin, end in self.bounds]

    @property
    def _octants_ndrange(self) -> tuple[Any, Any]:
        """Bounds of each axis, and the axes outermost first: the protocol for objects that kernels loop over."""
        return tuple(self.bounds), self.axes or tuple(range(len(self.bounds)))

    def __iter__(self) -> Iterator[Any]:
        ranges = [range(begin, end) for begin, end in self.bounds]
        if self.axes is None:
            yield from itertools.product(*ranges)
            return
        place = [self.axes.index(axis) for axis in range(len(ranges))]
        for values in itertools.product(*(ranges[axis] for axis in self.axes)):
            yield tuple(values[number] for number in place)

    def __len__(self) -> int:
        total = 1
        for extent in self.dimensions:
            total *= extent
        return total

    def __repr__(self) -> str:
        return f"qd.ndrange({', '.join(map(str, self.bounds))})"


@known_to_compiler("ndrange")
def ndrange(*args: Any, axes: Any = None) -> Ndrange:
    """A loop over the Cartesian product of ranges. Each argument is an end or a pair (begin, end)."""
    return Ndrange(*args, axes=axes)


def _bounds(arg: Any) -> tuple[int, int]:
    if isinstance(arg, (tuple, list)):
        if len(arg) != 2:
            raise OctantsSyntaxError(
                f"Every argument of ndrange should be a scalar or a tuple/list like (begin, end), got {arg!r}"
            )
        begin, end = arg
    else:
        begin, end = 0, arg
    for bound in (begin, end):
        if isinstance(bound, str):
            raise OctantsSyntaxError(f"{_FORM}, got {arg!r}")
        if isinstance(bound, float) or not hasattr(bound, "__index__"):
            raise OctantsTypeError(f"{_FORM}, got {arg!r}")
    begin, end = begin.__index__(), end.__index__()
    return begin, max(begin, end)
