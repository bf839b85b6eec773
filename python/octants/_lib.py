"""Paths by which programs written for Quadrants reach its compiled part: `qd._lib.core.Arch`.

Every name here is another module's; new programs do not need this one.
"""

from types import SimpleNamespace

from octants.architectures import Arch

core = SimpleNamespace(Arch=Arch)
