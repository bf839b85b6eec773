"""What makes fields and reads the options, under its path in Quadrants."""

from octants.fields import field
from octants.loop_ranges import ndrange
from octants.ndarrays import ndarray
from octants.ops import grouped, static, static_assert, static_print
from octants.runtime import current_config as current_cfg

__all__ = ["current_cfg", "field", "grouped", "ndarray", "ndrange", "static", "static_assert", "static_print"]
