"""The names of the package that the extension module uses. `_octants.register` reads them once, when the package is
imported.

Rust imports no module of the package. To use another name in Rust, add it here and as a member of `Package` in
`package.rs` of octants-python.
"""

from __future__ import annotations

import os
import sys

from octants import _logging as logging
from octants import _octants, exceptions
from octants._arrays import foreign_copies
from octants._arrays.ndarrays import read_marks
from octants._arrays.shadow_buffers import any_gradients
from octants._arrays.tensors import Tensor as tensor
from octants._code.code_dumps import write as write_code
from octants._fields.fields import TensorField as field
from octants._fields.placement_checks import refuse_unplaced_fields
from octants._language.lambda_source import lambda_text
from octants._program.on_first_use import OnFirstUse
from octants._tensor_methods import METHODS as tensor_methods
from octants.graph import GraphStatus as graph_status
from octants.types.primitive import BY_NAME as scalar_types
from octants.types.values import Vector as vector

__all__ = [
    "any_gradients",
    "block_scope",
    "cache_observations",
    "device_launch",
    "exceptions",
    "fastcache_observations",
    "field",
    "folder",
    "foreign_copies",
    "graph_status",
    "lambda_text",
    "logging",
    "race_error",
    "read_marks",
    "refuse_unplaced_fields",
    "register",
    "scalar_types",
    "split_launch",
    "tensor",
    "tensor_methods",
    "vector",
    "write_code",
]

cache_observations = OnFirstUse("octants._code.cache_observations", "CacheObservations")
fastcache_observations = OnFirstUse("octants._code.cache_observations", "FastcacheObservations")
race_error = OnFirstUse("octants._streams.races", "race_error")
block_scope = OnFirstUse("octants._distributed.device_blocks", "as_block")
device_launch = OnFirstUse("octants._distributed.device_launches", "DeviceLaunch")
split_launch = OnFirstUse("octants._distributed.split_launches", "SplitLaunch")

folder = os.path.join(os.path.dirname(_octants.__file__), "")


def register() -> None:
    """Passes this module, with its names, to the extension module."""
    _octants.register(sys.modules[__name__])
