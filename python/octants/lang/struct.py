"""Structs and their types under their path in Quadrants."""

from octants._fields.struct import Struct, StructField, dataclass
from octants.types import StructType

__all__ = ["Struct", "StructField", "StructType", "dataclass"]
