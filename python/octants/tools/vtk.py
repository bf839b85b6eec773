"""Files for viewers of scientific data: `write_vtk`."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

__all__ = ["write_vtk"]

_TYPES = {"f": "Float", "i": "Int", "u": "UInt"}


def write_vtk(scalar_field: Any, filename: str) -> str:
    """Writes a field, ndarray or array of scalars with two or three axes as cell data of a grid, to `filename` with
    `.vtr`.

    Cells are unit squares or cubes; the first axis is x. The data array is named `filename`. The format is VTK XML for
    rectilinear grids. Returns the path. Raises `ValueError` for another number of axes, and for vectors.
    """
    values = np.asarray(scalar_field.to_numpy() if hasattr(scalar_field, "to_numpy") else scalar_field)
    if values.ndim not in (2, 3) or values.dtype.kind not in "fiu":
        raise ValueError(
            f"write_vtk needs a 2- or 3-dimensional array of numbers, got {values.dtype} of shape {values.shape}"
        )
    cells = values if values.ndim == 3 else values[:, :, np.newaxis]
    extent = " ".join(f"0 {count}" for count in cells.shape)
    axes = [np.arange(count + 1, dtype=np.float64) for count in cells.shape]
    if values.ndim == 2:
        axes[2] = np.zeros(2)
    lines = [
        '<VTKFile type="RectilinearGrid" version="1.0" byte_order="LittleEndian" header_type="UInt64">',
        f'<RectilinearGrid WholeExtent="{extent}">',
        f'<Piece Extent="{extent}">',
        "<Coordinates>",
        *(_array(name, axis) for name, axis in zip(("x", "y", "z"), axes, strict=True)),
        "</Coordinates>",
        f'<CellData scalars="{filename}">',
        _array(filename, cells.ravel(order="F")),
        "</CellData>",
        "</Piece>",
        "</RectilinearGrid>",
        "</VTKFile>",
    ]
    path = f"{filename}.vtr"
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return path


def _array(name: str, values: np.ndarray[Any, Any]) -> str:
    """One array as text: a byte count followed by the bytes, in base64."""
    data = values.astype(values.dtype.newbyteorder("<")).tobytes()
    text = base64.b64encode(len(data).to_bytes(8, "little") + data).decode()
    kind = f"{_TYPES[values.dtype.kind]}{8 * values.dtype.itemsize}"
    return f'<DataArray type="{kind}" Name="{name}" format="binary">{text}</DataArray>'
