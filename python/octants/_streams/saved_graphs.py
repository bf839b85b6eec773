"""Captured graphs on disk: names for the memory that a graph uses, and the arrays bound to them at load time.

A name is the name of a parameter, a name passed to `capture` or `save`, or a path from one of these to a member, such
as `state.x` or `x.grad`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

from octants import _octants
from octants._arrays.ndarrays import Ndarray
from octants._fields.fields import TensorField
from octants.exceptions import OctantsRuntimeError
from octants.types.primitive import numpy_dtype

Array = TensorField | Ndarray
Call = tuple[Any, list[str], list[Any]]
"""A kernel, the names of its parameters, and its arguments."""


def named_memory(
    graph: _octants.CapturedGraph, named: dict[str, Any], calls: list[Call]
) -> list[tuple[str, str, _octants.Buffer]]:
    """Names, descriptions and memory of the arrays that a graph may use. Given names take precedence over names of
    parameters. Names of parameters that refer to several arrays are omitted, and so are those of arrays that the graph
    owns.
    """
    found: dict[str, Array | None] = {}
    for name, thing in named.items():
        for path, array in _arrays(name, thing):
            found[path] = array
    given = set(found)
    for _, names, args in calls:
        for name, thing in zip(names, args, strict=True):
            for path, array in _arrays(name, thing):
                if path not in given and found.setdefault(path, array) is not array:
                    found[path] = None
    return [
        (path, description(array), memory_of(array))
        for path, array in found.items()
        if array is not None and (path in given or not graph.owns(memory_of(array)))
    ]


def find_memory(
    wanted: list[tuple[str, str]], given: dict[str, Any]
) -> tuple[dict[str, Array], list[tuple[str, _octants.Buffer, Any]]]:
    """Matches the given arrays with the names that a graph needs. Raises TypeError if an array is missing, unknown, or
    of another kind.
    """
    found: dict[str, Array] = {}
    for path, what in wanted:
        first, *members = path.split(".")
        if first not in given:
            needed = ", ".join(sorted({p.split(".")[0] for p, _ in wanted}))
            raise TypeError(f"the graph uses `{path}`, {what}: pass it as `{first}=` (the graph needs {needed})")
        thing = given[first]
        for member in members:
            thing = getattr(bare(thing), member, None)
        found[path] = check_array(path, what, thing)
    unknown = sorted(given.keys() - {path.split(".")[0] for path, _ in wanted})
    if unknown:
        raise TypeError(f"the graph uses no array `{unknown[0]}`")
    return found, [(path, memory_of(array), array) for path, array in found.items()]


def check_array(path: str, what: str, thing: Any) -> Array:
    """The array behind an object. Raises TypeError unless it matches the description."""
    array = _in_memory(bare(thing))
    is_ = description(array) if isinstance(array, (TensorField, Ndarray)) else f"a {type(thing).__name__!r} object"
    if is_ != what:
        raise TypeError(f"the graph uses `{path}`, {what}: got {is_}")
    return array


def memory_of(array: Array) -> _octants.Buffer:
    """The array's buffer; for a field, the buffer of its tree."""
    return array._root.buffer if isinstance(array, TensorField) else array.buffer


def part_of(array: Array) -> tuple[_octants.Buffer, int, int]:
    """The array's buffer, and the offset and size in bytes of its range there."""
    spans = [placement.span(numpy_dtype(array.dtype).itemsize) for placement in array._placed()]
    first = min(low for low, _ in spans)
    return memory_of(array), first, max(high for _, high in spans) - first


class MovedPart(NamedTuple):
    """An array that a graph fills or copies, and its replacement."""

    array: Array
    other: Array

    def for_graph(self) -> tuple[tuple[_octants.Buffer, int], tuple[_octants.Buffer, int], int, Any]:
        """The arguments for `move_transfers`."""
        (buffer, first, size), (to, to_first, _) = part_of(self.array), part_of(self.other)
        return (buffer, first), (to, to_first), size, self.other


def transferred(graph: _octants.CapturedGraph, name: str, thing: Any) -> dict[str, Array]:
    """The arrays in an object that a graph fills or copies, by path."""
    return {path: array for path, array in _arrays(name, thing) if _is_transferred(graph, array)}


def _is_transferred(graph: _octants.CapturedGraph, array: Array) -> bool:
    # Kernels fill quantized fields. Objects may contain fields of an ended program, or without memory.
    if isinstance(array, TensorField) and (array._is_packed or not array._root.alive or not array._root.finalized):
        return False
    return graph.transfers(*part_of(array)) > 0


def moved_parts(name: str, arrays: dict[str, Array], new: Any) -> list[MovedPart]:
    """The arrays in an object that a graph fills or copies, and their counterparts in the object that replaces it.
    Raises TypeError if a counterpart has another type or shape.
    """
    parts = []
    others = dict(_arrays(name, new))
    for path, array in arrays.items():
        other = others.get(path)
        if other is None or _form(other) != _form(array):
            is_ = f"a {type(new).__name__!r} object without it" if other is None else _form(other)
            raise TypeError(f"the graph fills or copies `{path}`, {_form(array)}: it cannot be replaced by {is_}")
        if part_of(other)[2] != part_of(array)[2]:
            raise TypeError(
                f"the graph fills or copies `{path}`: its elements are not laid out like those of the other"
            )
        parts.append(MovedPart(array, other))
    return parts


def _form(array: Array) -> str:
    kind = "a field" if isinstance(array, TensorField) else "an ndarray"
    element = array._element_shape if isinstance(array, TensorField) else getattr(array, "element_shape", ())
    return f"{kind} of {array.dtype.name}{''.join(f'[{n}]' for n in element)} with shape {tuple(array.shape)}"


def description(array: Array) -> str:
    """A description of an array. Arrays with equal descriptions are interchangeable."""
    kind = "a field" if isinstance(array, TensorField) else "an ndarray"
    placed = array._placed()
    element = "".join(f"[{n}]" for n in array._element_shape) if isinstance(array, TensorField) else ""
    element = element or "".join(f"[{n}]" for n in getattr(array, "element_shape", ()))
    strides = [[stride for axis in p.axes for _, stride in axis] for p in placed[:1]]
    where = f"at {placed[0].base}, strides {strides[0]}"
    return f"{kind} of {array.dtype.name}{element} with shape {tuple(array.shape)} ({where})"


def refuse_loaded(what: str) -> None:
    """Raises the error for something that a loaded graph does not support."""
    raise OctantsRuntimeError(f"a loaded graph {what}")


def bare(thing: Any) -> Any:
    """The object inside a `qd.Tensor`, or the object itself."""
    unwrap = getattr(thing, "_unwrap", None)
    return unwrap() if callable(unwrap) else thing


def _in_memory(thing: Any) -> Any:
    """The rows of a split array that this process has, as an ndarray; any other object itself."""
    is_split = isinstance(thing, _octants.Ndarray) and not isinstance(thing, Ndarray)
    return thing._local if is_split else thing


def _arrays(path: str, thing: Any, depth: int = 0) -> Iterator[tuple[str, Array]]:
    """The arrays in an argument, each with its path."""
    thing = _in_memory(bare(thing))
    if isinstance(thing, (TensorField, Ndarray)):
        yield path, thing
        for shadow in ("grad", "dual"):
            buffer = getattr(thing, shadow, None)
            # Fields have shadows that are not placed unless they are needed.
            if isinstance(buffer, Ndarray) or (isinstance(buffer, TensorField) and buffer._parts[0].node is not None):
                yield f"{path}.{shadow}", buffer
    elif depth < 8:
        for name in member_names(thing):
            yield from _arrays(f"{path}.{name}", getattr(thing, name, None), depth + 1)


def member_names(thing: Any) -> list[str]:
    """The names of the members of a dataclass or a data-oriented object; empty for other objects."""
    if isinstance(thing, type):
        return []
    names = [field.name for field in dataclasses.fields(thing)] if dataclasses.is_dataclass(thing) else []
    if getattr(thing, "_octants_data_oriented", False):
        names += [name for name in getattr(thing, "__dict__", ()) if name not in names]
    return names
