"""Import paths that programs written for Quadrants use for its internals, such as `qd.lang.ops.logical_not`.

Every name here is defined in another module. New programs do not need this package.
"""

import sys
from typing import Any

from octants import simt
from octants._arrays import buffer_views, ndarrays
from octants._language import performance_dispatch
from octants._program import runtime
from octants.lang import (
    _fast_caching,
    _template_mapper,
    _tile,
    exception,
    field,
    impl,
    kernel_impl,
    matrix,
    mesh,
    ops,
    snode,
    stream,
    struct,
)
from octants.lang import program as misc
from octants.lang import type_names as util

for path, module in {
    "misc": misc,
    "util": util,
    "_ndarray": ndarrays,
    "_perf_dispatch": performance_dispatch,
    "buffer_view": buffer_views,
    "runtime_ops": runtime,
}.items():
    sys.modules[f"{__name__}.{path}"] = module
for name in ("", ".block", ".grid", ".reductions", ".sorting", ".subgroup", ".warp"):
    sys.modules[f"{__name__}.simt{name}"] = sys.modules[f"octants.simt{name}"]
sys.modules[f"{__name__}.simt._tile"] = _tile


def __getattr__(name: str) -> Any:
    """The public names again: Quadrants has them here too, such as `qd.lang.Matrix`."""
    found = getattr(sys.modules["octants"], name, None) if not name.startswith("_") else None
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found


__all__ = [
    "_fast_caching",
    "_template_mapper",
    "_tile",
    "exception",
    "field",
    "impl",
    "kernel_impl",
    "matrix",
    "mesh",
    "misc",
    "ops",
    "simt",
    "snode",
    "stream",
    "struct",
    "util",
]
