"""`octants.exceptions` under its path in Quadrants."""

from octants.exceptions import *  # noqa: F403
