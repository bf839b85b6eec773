"""Arrays that are split over several devices of one process."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np

from octants import _octants
from octants._distributed.device_blocks import as_block, current_block
from octants._distributed.split_ndarrays import SplitNdarray, make_block, rows_outermost
from octants.types.values import Matrix

__all__ = ["DevicesNdarray", "devices_ndarray"]

Array = np.ndarray[Any, Any]

_numbers = itertools.count()


class DevicesNdarray(SplitNdarray):
    """An array whose first axis is split over the devices of `qd.init(devices=...)`. This process has all rows."""

    def _setup_parts(self, parts: tuple[SplitNdarray, ...]) -> None:
        self._parts = parts
        first = parts[0]
        self._axis = first._axis
        self._local, self._rows = first._local, (0, self._extent)
        self._halo, self._periodic = first._halo, first._periodic
        self._valid_ghosts = (0, 0)
        # The plans of launches whose first split array this is; used by `device_launches`.
        self._device_plans: dict[tuple[Any, ...], Any] = {}
        self._device_number = next(_numbers)

    # Kernels read them for `assume_local`, at each launch or for each device.

    @property
    def _first_local_row(self) -> int:  # type: ignore[override]
        return self._part_here()._first_local_row

    @property
    def _last_local_row(self) -> int:  # type: ignore[override]
        return self._part_here()._last_local_row

    def _part_here(self) -> SplitNdarray:
        block = current_block()
        return self._parts[0 if block is None else block.rank]

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """The rows `[first, end)` of each device."""
        return tuple(part._rows for part in self._parts)

    def block(self, rank: int) -> tuple[int, int]:
        """The rows `[first, end)` of a device."""
        return self._parts[rank]._rows

    # What launches need

    def forget_ghosts(self) -> None:
        """Invalidates the ghost rows on all devices, because the owners' rows are about to change."""
        self._valid_ghosts = (0, 0)

    def lacks_ghosts(self, before: int, after: int) -> bool:
        """Whether these ghost rows must be copied; marks them valid, because the caller copies them."""
        valid = self._valid_ghosts
        if before <= valid[0] and after <= valid[1]:
            return False
        self._valid_ghosts = (max(before, valid[0]), max(after, valid[1]))
        return True

    # Whole arrays

    def to_numpy(self, *, gather: bool = True) -> Array:
        """The whole array."""
        rows = np.concatenate([part._own_rows() for part in self._parts])
        return np.ascontiguousarray(np.moveaxis(rows, 0, self._axis))

    def _fill(self, value: Any, stream: Any) -> None:
        for part in self._parts:
            part._local.fill(value)
        self.forget_ghosts()

    def _blocks_here(self) -> list[tuple[int, SplitNdarray]]:
        return list(enumerate(self._parts))

    def _locals(self) -> list[Any]:
        return [part._local for part in self._parts]

    def _has_ghosts(self) -> bool:
        return True

    def copy_from(self, other: SplitNdarray) -> None:
        """Sets the elements from another array that is split the same way."""
        if not isinstance(other, DevicesNdarray) or other._form() != self._form():
            raise ValueError("copy_from() needs a split array of the same shape, axis and halo")
        if not self._captures_copy(other):
            self._copy(other, None)

    def _copy(self, other: SplitNdarray, stream: Any) -> None:
        assert isinstance(other, DevicesNdarray)
        for part, source in zip(self._parts, other._parts, strict=True):
            part._local.copy_from(source._local)
        self.forget_ghosts()

    def __getitem__(self, key: Any) -> Any:
        index = self._index(key)
        part = self._part_with(index[self._axis])
        element = part._local[part._in_memory(index)]
        if not self.element_shape:
            return element

        def write_back(component: Any, number: Any) -> None:
            part._local[part._in_memory(index)][component] = number
            self.forget_ghosts()

        return Matrix._around(element.to_numpy(), self.dtype, write_back)

    def __setitem__(self, key: Any, value: Any) -> None:
        index = self._index(key)
        part = self._part_with(index[self._axis])
        part._local[part._in_memory(index)] = value
        self.forget_ghosts()

    def __repr__(self) -> str:
        return f"<qd.ndarray of shape {self.shape}, split over {len(self._parts)} devices>"

    def _part_with(self, row: int) -> SplitNdarray:
        return next(part for part in self._parts if part._rows[0] <= row < part._rows[1])

    def _set_rows(self, rows: Array) -> None:
        for part in self._parts:
            part._set_rows(rows[part._rows[0] : part._rows[1]])
        self.forget_ghosts()


def devices_ndarray(
    dtype: Any, extents: tuple[int, ...], axis: int, halo: int, periodic: bool, needs_grad: bool = False
) -> DevicesNdarray:
    """An array of zeros whose first axis is split over the devices of this process."""
    parts = []
    for number in range(len(_octants.device_group())):
        with as_block(number):
            make = partial(make_block, dtype, extents, axis, halo, periodic, needs_grad)
            # A graph that this thread captures owns memory of the first device only.
            parts.append(_octants.uncaptured(make))
    made = _around(tuple(parts))
    if needs_grad:
        made.grad = _around(tuple(part.grad for part in parts if part.grad is not None))
    if _octants.capturing():
        # Each launch of the graph finds them zeroed.
        made.fill(0)
        if made.grad is not None:
            made.grad.fill(0)
    return made


def _around(parts: tuple[SplitNdarray, ...]) -> DevicesNdarray:
    first = parts[0]
    described = (first.dtype_name, tuple(first.element_shape), first.shape, first.needs_grad)
    made = DevicesNdarray(*described, first._local, 0, first._rows[0] - first._halo, first._axis)
    rows_outermost(made, first._axis)
    made._setup_parts(parts)
    return made
