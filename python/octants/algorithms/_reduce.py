"""The minimum capacity of a reduction, under Quadrants' import path."""

from octants.algorithms.tile_shapes import least_capacity as _reduce_depth_for_n

__all__ = ["_reduce_depth_for_n"]
