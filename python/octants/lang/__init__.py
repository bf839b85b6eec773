"""Import paths that programs written for Quadrants use for its internals, such as `qd.lang.ops.logical_not`.

Every name here is defined in another module. New programs do not need this package.
"""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from octants import graph, simt
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
    "graph": graph,
    "graph_status": graph,
    "runtime_ops": runtime,
}.items():
    sys.modules[f"{__name__}.{path}"] = module
for name in ("", ".block", ".grid", ".reductions", ".sorting", ".subgroup", ".warp"):
    sys.modules[f"{__name__}.simt{name}"] = sys.modules[f"octants.simt{name}"]
sys.modules[f"{__name__}.simt._tile"] = _tile


def _public_names_of(module: ModuleType) -> Callable[[str], Any]:
    """A module's `__getattr__`: the public names, which Quadrants' module of this path has too."""

    def find(name: str) -> Any:
        found = getattr(sys.modules["octants"], name, None) if not name.startswith("_") else None
        if found is None:
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        return found

    return find


# In Quadrants, each of these modules has public names, such as `qd.lang.Matrix` and `qd.lang.impl.root`.
for filled in (sys.modules[__name__], impl, misc, snode):
    vars(filled)["__getattr__"] = _public_names_of(filled)


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
