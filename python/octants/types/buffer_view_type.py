"""Annotations of views under their path in Quadrants."""

from octants.types.annotations import BufferViewType

__all__ = ["BufferViewType"]
