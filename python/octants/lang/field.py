"""Fields under their path in Quadrants."""

from octants._fields.fields import Field, ScalarField

__all__ = ["Field", "ScalarField"]
