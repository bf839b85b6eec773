"""Levels of memory under their path in Quadrants."""

from octants.snode import SNode

__all__ = ["SNode"]
