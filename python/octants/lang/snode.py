"""Levels of memory under their path in Quadrants."""

from octants._fields.snode import SNode
from octants.lang._public_names import public_names_of

__all__ = ["SNode"]

__getattr__ = public_names_of(__name__)
