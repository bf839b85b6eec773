"""Mathematical constants for kernels."""

from math import e, inf, nan, pi

__all__ = ["e", "inf", "nan", "pi"]
