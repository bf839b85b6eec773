"""Annotations of arrays under their path in Quadrants."""

from octants.types.annotations import NDArray, NdarrayType, ndarray

__all__ = ["NDArray", "NdarrayType", "ndarray"]
