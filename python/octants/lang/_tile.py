"""Types of tiles, under their path in Quadrants."""

from typing import Any

from octants.simt import Tile16x16, Tile32x32


def _make_tile(size: int, dtype: Any) -> Any:
    """The tile type with the given number of rows and element type."""
    return {16: Tile16x16, 32: Tile32x32}[size].of(dtype)
