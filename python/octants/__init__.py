"""Octants: Python functions compiled into parallel programs.

    import octants as qd

    qd.init(arch=qd.cpu)
    x = qd.field(qd.f32, shape=1000)

    @qd.kernel
    def square():
        for i in x:
            x[i] = i * i

    square()

Names that this module does not import immediately (`ad`, `math`, `algorithms`, `svd`, ...) are loaded at their first
use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from octants import exceptions, experimental, graph, types
from octants._arrays.array_factories import factories
from octants._arrays.buffer_views import BufferView
from octants._arrays.ndarrays import MatrixNdarray, Ndarray, ScalarNdarray, VectorNdarray, ndarray
from octants._arrays.tensors import Backend, MatrixTensor, Tensor, VectorTensor, tensor, wrap
from octants._code.ahead_of_time import Precompilation, compile, precompile
from octants._code.compiled_code import inspect
from octants._fields.axes import axes, i, ij, ijk, ijkl, ijl, ik, ikl, il, j, jk, jkl, jl, k, kl, l
from octants._fields.field_class import Field
from octants._fields.field_indices import rescale_index
from octants._fields.fields import MatrixField, ScalarField
from octants._fields.make_field import field
from octants._fields.packed_fields import BitpackedFields
from octants._fields.snode import SNode
from octants._fields.snode_trees import FieldsBuilder, root
from octants._fields.sparse_kernels import activate, append, deactivate, is_active, length
from octants._fields.struct import Struct, StructField, dataclass
from octants._language.kernel_decorators import data_oriented, func, kernel, pure, pyfunc, real_func
from octants._language.loop_ranges import ndrange
from octants._language.ops import (
    abs,
    acos,
    asin,
    assume_in_range,
    atan2,
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_exchange,
    atomic_max,
    atomic_min,
    atomic_mul,
    atomic_or,
    atomic_sub,
    atomic_xor,
    bit_cast,
    bit_shr,
    block_local,
    cache_read_only,
    cast,
    ceil,
    clock_counter,
    cos,
    exp,
    floor,
    frexp,
    get_addr,
    grouped,
    log,
    loop_config,
    max,
    mesh_local,
    mesh_patch_idx,
    min,
    no_activate,
    one,
    outer,
    pow,
    random,
    raw_div,
    raw_mod,
    round,
    rsqrt,
    select,
    sin,
    sqrt,
    static,
    static_assert,
    static_print,
    stop_grad,
    tan,
    tanh,
    volatile_load,
    zero,
)
from octants._language.performance_dispatch import perf_dispatch
from octants._language.python_scope import runs_as_python
from octants._logging import (
    CRITICAL,
    DEBUG,
    ERROR,
    INFO,
    TRACE,
    WARN,
    is_logging_effective,
    set_logging_level,
)
from octants._octants import Device
from octants._program import registration, runtime
from octants._program.current_device import current_device, device
from octants._program.runtime import clock_freq_hz, dump_compile_config, init, is_extension_enabled, reset, sync
from octants._streams.streams import (
    Event,
    Stream,
    create_event,
    create_stream,
    current_stream,
    default_stream,
    stream_parallel,
    stream_pool_stats,
    stream_scope,
    trim_stream_pool,
)
from octants.architectures import (
    Arch,
    amdgpu,
    arm64,
    cpu,
    cuda,
    gpu,
    metal,
    python,
    vulkan,
    x64,
    x86_64,
)
from octants.architectures import Extension as extension
from octants.exceptions import *  # noqa: F403
from octants.graph import GraphStatus, checkpoint
from octants.graph import do_while as graph_do_while
from octants.graph import parallel as graph_parallel
from octants.graph import parallel_context as graph_parallel_context
from octants.layouts import Layout
from octants.types import (
    Template,
    f16,
    f32,
    f64,
    float16,
    float32,
    float64,
    i8,
    i16,
    i32,
    i64,
    int8,
    int16,
    int32,
    int64,
    ref,
    sparse_matrix_builder,
    template,
    u1,
    u8,
    u16,
    u32,
    u64,
    uint1,
    uint8,
    uint16,
    uint32,
    uint64,
)
from octants.types.enums import DeviceCapability, Format
from octants.types.values import Matrix, Vector
from octants.version import VERSION as __version__
from octants.version import VERSION_TEXT as __version_str__

if TYPE_CHECKING:
    from octants._fields.sparse_levels import deactivate_all_snodes
    from octants._streams.concurrency import (
        ConcurrencyReport,
        ConcurrentLaunch,
        FusedLaunches,
        concurrency_report,
        concurrent,
    )
    from octants._streams.races import Race, RaceAccess

registration.register()


def _sparse_matrix_builder() -> type:
    """The class `linalg.SparseMatrixBuilder`."""
    found: type = importlib.import_module("octants.linalg").SparseMatrixBuilder
    return found


factories.sparse_matrix_builder = _sparse_matrix_builder

__all__ = [  # and the exceptions
    "CRITICAL",
    "DEBUG",
    "ERROR",
    "INFO",
    "TRACE",
    "WARN",
    "Arch",
    "Backend",
    "BitpackedFields",
    "BufferView",
    "ConcurrencyReport",
    "ConcurrentLaunch",
    "Device",
    "DeviceCapability",
    "Event",
    "Field",
    "FieldsBuilder",
    "Format",
    "FusedLaunches",
    "GraphStatus",
    "Layout",
    "Matrix",
    "MatrixField",
    "MatrixNdarray",
    "MatrixTensor",
    "Ndarray",
    "Precompilation",
    "Race",
    "RaceAccess",
    "SNode",
    "ScalarField",
    "ScalarNdarray",
    "Stream",
    "Struct",
    "StructField",
    "Template",
    "Tensor",
    "Vector",
    "VectorNdarray",
    "VectorTensor",
    "__version__",
    "__version_str__",
    "abs",
    "acos",
    "activate",
    "amdgpu",
    "append",
    "arm64",
    "asin",
    "assume_in_range",
    "atan2",
    "atomic_add",
    "atomic_and",
    "atomic_cas",
    "atomic_exchange",
    "atomic_max",
    "atomic_min",
    "atomic_mul",
    "atomic_or",
    "atomic_sub",
    "atomic_xor",
    "axes",
    "bit_cast",
    "bit_shr",
    "block_local",
    "cache_read_only",
    "cast",
    "ceil",
    "checkpoint",
    "clock_counter",
    "clock_freq_hz",
    "compile",
    "concurrency_report",
    "concurrent",
    "cos",
    "cpu",
    "create_event",
    "create_stream",
    "cuda",
    "current_device",
    "current_stream",
    "data_oriented",
    "dataclass",
    "deactivate",
    "deactivate_all_snodes",
    "default_stream",
    "device",
    "dump_compile_config",
    "exp",
    "experimental",
    "extension",
    "f16",
    "f32",
    "f64",
    "field",
    "float16",
    "float32",
    "float64",
    "floor",
    "frexp",
    "func",
    "get_addr",
    "gpu",
    "graph",
    "graph_do_while",
    "graph_parallel",
    "graph_parallel_context",
    "grouped",
    "i",
    "i8",
    "i16",
    "i32",
    "i64",
    "ij",
    "ijk",
    "ijkl",
    "ijl",
    "ik",
    "ikl",
    "il",
    "init",
    "inspect",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_active",
    "is_extension_enabled",
    "is_logging_effective",
    "j",
    "jk",
    "jkl",
    "jl",
    "k",
    "kernel",
    "kl",
    "l",
    "length",
    "log",
    "loop_config",
    "max",
    "mesh_local",
    "mesh_patch_idx",
    "metal",
    "min",
    "ndarray",
    "ndrange",
    "no_activate",
    "one",
    "outer",
    "perf_dispatch",
    "pow",
    "precompile",
    "pure",
    "pyfunc",
    "python",
    "random",
    "raw_div",
    "raw_mod",
    "real_func",
    "ref",
    "rescale_index",
    "reset",
    "root",
    "round",
    "rsqrt",
    "select",
    "set_logging_level",
    "sin",
    "sparse_matrix_builder",
    "sqrt",
    "static",
    "static_assert",
    "static_print",
    "stop_grad",
    "stream_parallel",
    "stream_pool_stats",
    "stream_scope",
    "sync",
    "tan",
    "tanh",
    "template",
    "tensor",
    "trim_stream_pool",
    "types",
    "u1",
    "u8",
    "u16",
    "u32",
    "u64",
    "uint1",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "volatile_load",
    "vulkan",
    "wrap",
    "x64",
    "x86_64",
    "zero",
]

_LAZY_MODULES = (
    "_lib",
    "ad",
    "algorithms",
    "cache",
    "devices",
    "distributed",
    "interop",
    "lang",
    "linalg",
    "math",
    "profiler",
    "simt",
    "sparse",
    "tools",
)
_LAZY_NAMES = {
    **dict.fromkeys(
        ("ConcurrencyReport", "ConcurrentLaunch", "FusedLaunches", "concurrency_report", "concurrent"),
        "octants._streams.concurrency",
    ),
    **dict.fromkeys(("Race", "RaceAccess"), "octants._streams.races"),
    "deactivate_all_snodes": "octants._fields.sparse_levels",
    **dict.fromkeys(("Mesh", "MeshInstance"), "octants._mesh.mesh"),
    "global_thread_idx": "octants.simt.block_threads",
    **dict.fromkeys(("eig", "make_spd", "polar_decompose", "randn", "solve", "svd", "sym_eig"), "octants._linalg"),
}


def __getattr__(name: str) -> Any:
    if name == "cfg":
        # Kernels that run as Python have no options of a compiler.
        return None if runs_as_python() else runtime.current_config()
    if name in _LAZY_MODULES:
        return importlib.import_module(f"octants.{name}")
    if name in _LAZY_NAMES:
        value = getattr(importlib.import_module(_LAZY_NAMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'octants' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names only; the package's internal modules are left out."""
    special = (name for name in globals() if name.startswith("__"))
    return sorted({*special, *__all__, *exceptions.__all__, *_LAZY_MODULES, *_LAZY_NAMES, "cfg"})
