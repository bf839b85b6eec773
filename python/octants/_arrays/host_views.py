"""NumPy views of device memory that report the host's accesses to race checks.

Accesses through the view itself are reported: indexing, NumPy functions and operators, and methods that read or write
elements. While there are such views, NumPy's functions that convert to arrays (`np.asarray`, `np.frombuffer`) yield
views that report too, also from a `memoryview` of a view: it names the object that exports the memory. Accesses through
the `memoryview` itself, and through arrays of other libraries, are not seen: these read and write the memory without
asking anyone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from octants import _octants
from octants._program import program_events

_MOST_RANGES = 4096
"""Ranges of addresses that are reported for one access. Of a larger one, the first ranges are."""

_READING = (
    "all any argmax argmin argsort astype choose clip compress conj copy cumprod cumsum diagonal dot flatten item max "
    "mean min nonzero prod repeat round searchsorted std sum take tobytes tofile tolist trace var "
    "__bool__ __contains__ __float__ __int__ __reduce__ __repr__ __str__"
).split()
_WRITING = "byteswap fill itemset partition put resize sort".split()
_CONVERTING = "array asarray ascontiguousarray asfortranarray from_dlpack frombuffer".split()
"""Functions of NumPy that yield a plain array of a view's elements, or of copies of them, without asking the view."""

_replaced: dict[str, Any] = {}
"""Such functions, if they are replaced by ones that report."""


def report_accesses(view: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same view; with race checks, one whose accesses are reported."""
    if not _octants.checks_host_accesses():
        return view
    for name in _CONVERTING:
        if name not in _replaced:
            _replaced[name] = getattr(np, name)
            setattr(np, name, _converting(_replaced[name]))
    return view.view(HostView)


def _restore_conversions() -> None:
    for name, function in _replaced.items():
        setattr(np, name, function)
    _replaced.clear()


program_events.ended.append(_restore_conversions)


def _converting(convert: Callable[..., Any]) -> Callable[..., Any]:
    """A conversion to an array that reports the accesses of a view, or yields a view that does."""

    @functools.wraps(convert)
    def converted(*args: Any, **kwargs: Any) -> Any:
        if not args or not isinstance(args[0], HostView | memoryview | list | tuple):
            return convert(*args, **kwargs)
        made = convert(_plain(args[0]), *args[1:], **kwargs)
        view = args[0].obj if isinstance(args[0], memoryview) else args[0]
        if isinstance(view, HostView) and np.may_share_memory(made, view.view(np.ndarray)):
            return made.view(HostView)
        _report_values(view, False)
        return made

    return converted


def _plain(value: Any) -> Any:
    """The value without views that report accesses."""
    if isinstance(value, HostView):
        return value.view(np.ndarray)
    if isinstance(value, tuple | list):
        return type(value)(map(_plain, value)) if type(value) in (tuple, list) else value
    if type(value) is dict:
        return {key: _plain(item) for key, item in value.items()}
    return value


def _ranges(of: np.ndarray[Any, Any]) -> list[tuple[int, int]]:
    """The addresses of an array's elements, as ranges."""
    if of.size == 0:
        return []
    begin, size = of.__array_interface__["data"][0], of.itemsize
    if of.flags.c_contiguous or of.flags.f_contiguous:
        return [(begin, begin + of.nbytes)]
    row = of.ndim > 0 and of.strides[-1] == size
    axes = range(of.ndim - 1) if row else range(of.ndim)
    length = size * of.shape[-1] if row else size
    starts = np.zeros((), np.int64)
    for axis in axes:
        steps = np.arange(min(of.shape[axis], _MOST_RANGES), dtype=np.int64) * of.strides[axis]
        starts = (starts[..., np.newaxis] + steps).reshape(-1)[:_MOST_RANGES]
    return [(begin + start, begin + start + length) for start in starts.reshape(-1).tolist()]


def _report(of: np.ndarray[Any, Any], write: bool) -> None:
    _octants.report_host_access(_ranges(of), write)


def _report_values(values: Any, write: bool) -> None:
    if isinstance(values, HostView):
        _report(values.view(np.ndarray), write)
    elif isinstance(values, tuple | list):
        for value in values:
            _report_values(value, write)


def _report_selected(of: np.ndarray[Any, Any], key: Any, write: bool) -> None:
    """Reports an access to the elements that a key selects."""
    parts = key if isinstance(key, tuple) else (key,)
    if all(isinstance(part, int | np.integer | slice) or part is Ellipsis or part is None for part in parts):
        # With slices of one element, the selection is a view even if it is a single element.
        as_slice = tuple(
            slice(int(part), int(part) + 1 or None) if isinstance(part, int | np.integer) else part for part in parts
        )
        as_slice = as_slice if any(part is Ellipsis for part in as_slice) else (*as_slice, ...)
        _report(of[as_slice], write)
        return
    offsets = np.zeros(of.shape, np.int64)
    for axis, (extent, stride) in enumerate(zip(of.shape, of.strides, strict=True)):
        shape = [1] * of.ndim
        shape[axis] = extent
        offsets += (np.arange(extent, dtype=np.int64) * stride).reshape(shape)
    begin = of.__array_interface__["data"][0]
    chosen = np.unique(offsets[key])[:_MOST_RANGES].tolist()
    _octants.report_host_access([(begin + at, begin + at + of.itemsize) for at in chosen], write)


class HostView(np.ndarray[Any, Any]):
    """A view of device memory that reports the host's accesses."""

    def __getitem__(self, key: Any) -> Any:
        plain = self.view(np.ndarray)
        key = _plain(key)
        got = plain[key]
        if isinstance(got, np.ndarray) and got.base is not None and np.may_share_memory(got, plain):
            return got.view(HostView)
        _report_selected(plain, key, False)
        return got

    def __setitem__(self, key: Any, value: Any) -> None:
        plain = self.view(np.ndarray)
        key = _plain(key)
        _report_values(value, False)
        _report_selected(plain, key, True)
        plain[key] = _plain(value)

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        into = options.get("out", ())
        _report_values(inputs, False)
        _report_values(into, True)
        if method == "at":
            _report_values(inputs[0], True)
        results = getattr(ufunc, method)(*_plain(inputs), **_plain(options))
        given = into if isinstance(into, tuple) else (into,)
        return given[0] if len(given) == 1 and given[0] is not None else results

    def __array_function__(self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        if func is np.copyto and args:
            _report_values(args[0], True)
            _report_values(args[1:], False)
        _report_values(kwargs.get("out"), True)
        given = (args, tuple(value for name, value in kwargs.items() if name != "out"))
        results = func(*_plain(args), **_plain(kwargs))
        seen = _seen_as(results, [view.view(np.ndarray) for view in _views_in(given)])
        if seen is results:
            _report_values(given, False)
        return seen


def _views_in(values: Any) -> Iterator[HostView]:
    if isinstance(values, HostView):
        yield values
    elif isinstance(values, tuple | list):
        for value in values:
            yield from _views_in(value)


def _seen_as(results: Any, views: list[np.ndarray[Any, Any]]) -> Any:
    """The results of a function; as views that report accesses where they share memory of views (`np.reshape`)."""
    if isinstance(results, np.ndarray):
        shares = results.base is not None and any(np.may_share_memory(results, view) for view in views)
        return results.view(HostView) if shares else results
    if type(results) in (tuple, list):
        seen = [_seen_as(result, views) for result in results]
        return type(results)(seen) if any(a is not b for a, b in zip(seen, results, strict=True)) else results
    return results


def _reporting(name: str, write: bool) -> Callable[..., Any]:
    method = getattr(np.ndarray, name)

    def report(self: HostView, *args: Any, **kwargs: Any) -> Any:
        _report_values(self, write)
        _report_values(args, False)
        return method(self.view(np.ndarray), *_plain(args), **_plain(kwargs))

    report.__name__ = name
    report.__doc__ = method.__doc__
    return report


for _names, _write in ((_READING, False), (_WRITING, True)):
    for _name in _names:
        if hasattr(np.ndarray, _name):
            setattr(HostView, _name, _reporting(_name, _write))
