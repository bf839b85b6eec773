"""`octants.ops` under its path in Quadrants."""

from octants.ops import *  # noqa: F403
