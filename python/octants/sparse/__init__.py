"""Sparse grids: structs in the cells of a bitmasked level."""

from __future__ import annotations

from typing import Any

from octants._fields.axes import axes
from octants._fields.snode_trees import root
from octants._fields.struct import Struct, StructField
from octants.exceptions import OctantsValueError
from octants.sparse.usage_kernel import share_of_active_cells

__all__ = ["grid", "usage"]


def grid(field_dict: dict[str, Any], shape: tuple[int, ...]) -> StructField:
    """A field of structs of two or three axes, each element a cell of a bitmasked level under `qd.root`.

    Args:
        field_dict: names and types of the members.
        shape: extents of the two or three axes.

    Raises:
        OctantsValueError: another number of axes.
    """
    if len(shape) not in (2, 3):
        raise OctantsValueError(f"a sparse grid must have two or three axes, not {len(shape)}")
    made = Struct.field(field_dict)
    root.bitmasked(axes(*range(len(shape))), shape).place(made)
    return made


def usage(x: StructField) -> float:
    """The fraction of a sparse grid's cells that are active, from 0 to 1."""
    return share_of_active_cells(x)
