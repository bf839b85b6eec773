"""Fields under their path in Quadrants."""

from octants._fields.field_class import Field
from octants._fields.fields import ScalarField

__all__ = ["Field", "ScalarField"]
