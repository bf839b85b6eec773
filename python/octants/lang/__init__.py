"""Paths by which programs written for Quadrants reach inside it, such as `qd.lang.ops.logical_not`.

Every name here is another module's; new programs do not need this package.
"""

import sys

from octants import simt
from octants.lang import (
    _fast_caching,
    _template_mapper,
    _tile,
    exception,
    field,
    impl,
    kernel_impl,
    matrix,
    ops,
    snode,
    stream,
    struct,
)
from octants.lang import program as misc
from octants.lang import type_names as util

sys.modules[f"{__name__}.misc"] = misc
sys.modules[f"{__name__}.util"] = util
for name in ("", ".block", ".grid", ".reductions", ".sorting", ".subgroup", ".warp"):
    sys.modules[f"{__name__}.simt{name}"] = sys.modules[f"octants.simt{name}"]
sys.modules[f"{__name__}.simt._tile"] = _tile

__all__ = [
    "_fast_caching",
    "_template_mapper",
    "_tile",
    "exception",
    "field",
    "impl",
    "kernel_impl",
    "matrix",
    "misc",
    "ops",
    "simt",
    "snode",
    "stream",
    "struct",
    "util",
]
