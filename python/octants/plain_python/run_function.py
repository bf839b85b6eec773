"""Runs the Python function of a kernel, or of a function that kernels call."""

from __future__ import annotations

import copy
import inspect
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from octants._fields.struct import Struct
from octants.plain_python.rewrite import rewrite
from octants.plain_python.stand_ins import array_argument, convert
from octants.types.annotations import NdarrayType, RefType, Template
from octants.types.primitive import DataType
from octants.types.tensor_types import MatrixType
from octants.types.values import Matrix, tensor

_Function = Any
_rewritten: WeakKeyDictionary[_Function, tuple[_Function, inspect.Signature]] = WeakKeyDictionary()


def run_function(function: _Function, args: tuple[Any, ...], kwargs: dict[str, Any], is_kernel: bool) -> Any:
    """Calls a function with the semantics of the kernel language: arguments by value, results of the declared type."""
    found = _rewritten.get(function)
    if found is None:
        found = _rewritten[function] = rewrite(function), _signature(function)
    plain, signature = found
    bound = signature.bind(*args, **kwargs)
    for name, value in bound.arguments.items():
        bound.arguments[name] = _taken(value, signature.parameters[name].annotation, is_kernel)
    with np.errstate(all="ignore"):
        result = plain(*bound.args, **bound.kwargs)
    return _declared(result, signature.return_annotation) if is_kernel else result


def _signature(function: _Function) -> inspect.Signature:
    """The signature, with string annotations evaluated if possible."""
    try:
        return inspect.signature(function, eval_str=True)
    except (NameError, SyntaxError, AttributeError, TypeError):
        return inspect.signature(function)


def _taken(value: Any, annotation: Any, is_kernel: bool) -> Any:
    """An argument, converted to the type of the parameter."""
    if annotation in (int, float, bool):
        return annotation(value) if is_kernel else value
    if isinstance(annotation, DataType):
        return convert(annotation, value)
    if isinstance(annotation, MatrixType) and is_kernel:
        return _tensor(value, annotation)
    if isinstance(annotation, NdarrayType) or annotation is NdarrayType:
        return array_argument(value, annotation)
    by_reference = isinstance(annotation, (Template, RefType)) or annotation is Template
    # The object that a method belongs to has no annotation, and is passed by reference.
    if isinstance(value, Matrix) and not by_reference:
        return copy.copy(value)
    if isinstance(value, Struct) and not by_reference and annotation is not inspect.Parameter.empty:
        return copy.copy(value)
    return value


def _tensor(value: Any, wanted: MatrixType) -> Any:
    return tensor(np.asarray(value, wanted.dtype.numpy).reshape(wanted.shape))


def _declared(result: Any, annotation: Any) -> Any:
    """A kernel's result, converted to its return annotation, as Python scalars."""
    if isinstance(result, tuple):
        wanted = getattr(annotation, "__args__", annotation)
        wanted = wanted if isinstance(wanted, (tuple, list)) else (None,) * len(result)
        return tuple(_declared(item, each) for item, each in zip(result, wanted, strict=True))
    if isinstance(annotation, DataType) and result is not None:
        return convert(annotation, result).item()
    if isinstance(annotation, MatrixType):
        return _tensor(result, annotation)
    return result.item() if isinstance(result, np.generic) else result
