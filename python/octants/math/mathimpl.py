"""The functions, types and constants of `octants.math`, under the module name that some programs import."""

from octants.math import *  # noqa: F403
from octants.math import __all__ as __all__
