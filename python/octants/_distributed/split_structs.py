"""Fields of structs whose members are split over ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from octants._arrays.split_options import SplitOptions
from octants._distributed.split_ndarrays import split_ndarray
from octants._fields.struct import StructField
from octants.types.primitive import resolve_dtype
from octants.types.struct_type import StructType
from octants.types.tensor_types import MatrixType

__all__ = ["SplitStructField", "make_split_struct"]


class SplitStructField(StructField):
    """A field of structs whose members are `SplitNdarray`s. Made by `qd.Struct.field(..., split=0)`.

    Methods are collective: all ranks call them, in the same order.
    """

    @property
    def rows(self) -> tuple[int, int]:
        """The rows `[first, end)` that this rank owns."""
        rows: tuple[int, int] = self._leaves()[0].rows  # type: ignore[attr-defined]
        return rows

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """The rows `[first, end)` of each rank or device that the field is split over."""
        blocks: tuple[tuple[int, int], ...] = self._leaves()[0].blocks  # type: ignore[attr-defined]
        return blocks

    @property
    def grad(self) -> SplitStructField | None:
        """The gradients of the floating-point members."""
        found = {key: member.grad for key, member in self.field_dict.items() if member.grad is not None}
        return SplitStructField(found, self.struct_type, f"{self._name}.grad") if found else None

    @property
    def dual(self) -> None:
        """None: arrays that are split over ranks have no duals."""
        return

    def has_dual(self) -> bool:
        """False."""
        return False

    def to_numpy(self, *, gather: bool = True) -> dict[str, Any]:  # type: ignore[override]
        """A dict of the members' whole arrays, on each rank; with `gather=False`, of the rows of this rank."""
        return {name: member.to_numpy(gather=gather) for name, member in self.field_dict.items()}

    def from_numpy(  # type: ignore[override]
        self, array_dict: dict[str, np.ndarray[Any, Any]], *, local: bool = False
    ) -> None:
        """Sets all elements from a dict of the members' whole arrays; with `local=True`, of the rows of this rank."""
        self._check_members(array_dict)
        for name, member in self.field_dict.items():
            member.from_numpy(array_dict[name], local=local)

    def fill(self, val: Any) -> None:  # type: ignore[override]
        """Sets all elements: each member to one scalar, or to its value in a dict or a Struct."""
        given = getattr(val, "entries", val)
        for name, member in self.field_dict.items():
            member.fill(given[name] if isinstance(given, dict) else given)

    def __str__(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        return f"<qd.Struct.field {', '.join(self.field_dict)}, of shape {self.shape}, split over ranks>"


def _is_float(element: Any) -> bool:
    scalar = resolve_dtype(element._stored if isinstance(element, MatrixType) else element)
    return bool(scalar.is_float)


def make_split_struct(
    struct_type: StructType, shape: Any, split: SplitOptions, name: str, needs_grad: bool = False
) -> SplitStructField:
    """A field of structs with one split array for each member. Floating-point members may have gradients."""
    members = {
        key: make_split_struct(type_, shape, split, f"{name}.{key}", needs_grad)
        if isinstance(type_, StructType)
        else split_ndarray(type_, shape, split, needs_grad and _is_float(type_))
        for key, type_ in struct_type._declared.items()
    }
    return SplitStructField(members, struct_type, name)
