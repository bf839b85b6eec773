"""Import paths that programs written for Quadrants use for its internals, such as `qd.lang.ops.logical_not`.

Every name here is defined in another module, which is imported when the name is first used. New programs do not need
this package.
"""

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from octants.lang._public_names import public_names_of

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

_ALIASES = {
    "_ndarray": "octants._arrays.ndarrays",
    "_perf_dispatch": "octants._language.performance_dispatch",
    "buffer_view": "octants._arrays.buffer_views",
    "graph": "octants.graph",
    "graph_status": "octants.graph",
    "misc": "octants.lang.program",
    "runtime_ops": "octants._program.runtime",
    "simt": "octants.simt",
    "simt._tile": "octants.lang._tile",
    **{
        f"simt.{name}": f"octants.simt.{name}"
        for name in ("block", "grid", "reductions", "sorting", "subgroup", "warp")
    },
    "util": "octants.lang.type_names",
}
_MODULES = {*__all__, *(name for name in _ALIASES if "." not in name)}


class _AliasFinder:
    """Finds the modules that have another path here."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        loader: Any = self
        is_alias = fullname.startswith("octants.lang.") and fullname.removeprefix("octants.lang.") in _ALIASES
        return ModuleSpec(fullname, loader) if is_alias else None

    def create_module(self, spec: ModuleSpec) -> None:
        """The import system makes an empty module, which `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        sys.modules[name] = importlib.import_module(_ALIASES[name.removeprefix("octants.lang.")])


sys.meta_path.insert(0, _AliasFinder())

_find_public_name = public_names_of(__name__)


def __getattr__(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}") if name in _MODULES else _find_public_name(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
