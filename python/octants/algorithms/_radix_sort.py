"""The minimum capacity of a sort, under Quadrants' import path."""

from octants.algorithms.tile_shapes import least_capacity as _min_log256_for_n

__all__ = ["_min_log256_for_n"]
