"""Fields under their path in Quadrants."""

from octants.fields import Field, ScalarField

__all__ = ["Field", "ScalarField"]
