"""Where programs for Quadrants find the least capacity of a reduction."""

from octants.algorithms.tile_shapes import least_capacity as _reduce_depth_for_n

__all__ = ["_reduce_depth_for_n"]
