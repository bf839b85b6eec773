"""Levels of memory under their path in Quadrants."""

from octants._fields.snode import SNode

__all__ = ["SNode"]
