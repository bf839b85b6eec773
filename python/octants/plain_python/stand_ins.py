"""Built-in functions of the kernel language for kernels that run as Python."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np

from octants._language.loop_ranges import Ndrange
from octants.exceptions import OctantsSyntaxError
from octants.plain_python import mesh_elements
from octants.plain_python.typed_memory import ArrayArgument
from octants.types.primitive import DataType, default_fp, resolve_dtype
from octants.types.values import Matrix, Vector, elementwise

Operation = Callable[[Any, Any], Any]


class Place:
    """The target of an atomic operation: a variable, an element or a member."""

    def __init__(self, get: Callable[[], Any], put: Callable[[Any], None]) -> None:
        self.get, self.put = get, put


def convert(dtype: Any, value: Any) -> Any:
    """A scalar, vector or matrix converted to a type."""
    numpy_type = resolve_dtype(dtype).numpy
    if isinstance(value, Matrix):
        return value.cast(dtype)
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(numpy_type)[()]


def indices(looped: Any) -> Any:
    """The values that a loop over an object takes: array indices, tuples of an ndrange, or the object's own items."""
    if isinstance(looped, Ndrange) and len(looped.bounds) == 1:
        return (index for (index,) in looped)
    if getattr(type(looped), "_octants_entity", None) == "mesh_elements":
        return looped
    shape = getattr(looped, "shape", None)
    if shape is None or isinstance(looped, (Matrix, np.ndarray)):
        return looped
    ranges = [range(extent) for extent in shape]
    return ranges[0] if len(ranges) == 1 else itertools.product(*ranges)


def _grouped(looped: Any) -> Iterator[Any]:
    for index in indices(looped):
        yield Vector(builtins.list(index) if isinstance(index, tuple) else [index])


def _atomic(name: str, operation: Operation) -> Callable[[Any, Any], Any]:
    def apply(place: Any, value: Any) -> Any:
        if not isinstance(place, Place):
            raise OctantsSyntaxError(f"qd.{name}() needs a variable, an element or a member to change, not {place!r}")
        old = place.get()
        place.put(elementwise(operation, old, value))
        return old

    return apply


def _compare_and_exchange(place: Any, expected: Any, desired: Any) -> Any:
    if not isinstance(place, Place):
        raise OctantsSyntaxError(f"qd.atomic_cas() needs a variable, an element or a member to change, not {place!r}")
    old = place.get()
    if old == expected:
        place.put(desired)
    return old


def _random_numbers(seed: Any) -> Callable[..., Any]:
    generator = np.random.default_rng(seed)

    def random(dtype: Any = None) -> Any:
        resolved: DataType = default_fp() if dtype is None else resolve_dtype(dtype)
        if resolved.is_float:
            return resolved.numpy.type(generator.random())
        limits = np.iinfo(resolved.numpy)
        return generator.integers(limits.min, limits.max, dtype=resolved.numpy, endpoint=True)

    return random


def _holds(condition: Any) -> bool:
    """Whether a scalar, or the element of a 0-dimensional array, is not zero."""
    return bool(
        condition[()] if getattr(condition, "shape", None) == () and hasattr(condition, "__getitem__") else condition
    )


def make_stand_ins(seed: Any) -> dict[str, Callable[..., Any]]:
    """The Python implementations of builtins, by the names the compiler knows them by."""
    operations: dict[str, Operation] = {
        "atomic_add": lambda x, y: x + y,
        "atomic_sub": lambda x, y: x - y,
        "atomic_mul": lambda x, y: x * y,
        "atomic_min": np.minimum,
        "atomic_max": np.maximum,
        "atomic_and": lambda x, y: x & y,
        "atomic_or": lambda x, y: x | y,
        "atomic_xor": lambda x, y: x ^ y,
        "atomic_exchange": lambda _, y: y,
    }
    hints = ("loop_config", "block_local", "cache_read_only", "mesh_local", "no_activate")
    return {
        **{name: _atomic(name, operation) for name, operation in operations.items()},
        **{hint: lambda *_, **__: None for hint in hints},
        "atomic_cas": _compare_and_exchange,
        "cond": _holds,
        "do_while": _holds,
        "dtype": convert,
        "grouped": _grouped,
        "mesh_elements": mesh_elements.loop_over,
        "mesh_patch_idx": mesh_elements.patch_index,
        "random": _random_numbers(seed),
        "stream_parallel": lambda **_: nullcontext(),
        "volatile_load": lambda value: value,
    }


def array_argument(value: Any, annotation: Any) -> Any:
    """An array of another library, with the interface that kernels see."""
    if hasattr(value, "detach") and hasattr(value, "numpy"):
        value = value.detach().numpy()
    if not isinstance(value, np.ndarray):
        return value
    element_shape = getattr(annotation, "element_shape", None)
    return ArrayArgument(value, len(element_shape or ()))
