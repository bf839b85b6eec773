"""The decorators that pass functions to the compiler. They parse nothing: the source is read at the first call."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, overload

from octants import _octants
from octants.exceptions import OctantsSyntaxError, OctantsTypeError

T = TypeVar("T", bound=type)


@overload
def kernel(fn: Callable[..., Any], /) -> _octants.Kernel: ...


@overload
def kernel(
    *,
    pure: bool | None = None,
    fastcache: bool = False,
    graph: bool = False,
    checkpoints: bool = False,
    concurrent: bool = True,
) -> Callable[[Callable[..., Any]], _octants.Kernel]: ...


def kernel(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    pure: bool | None = None,
    fastcache: bool = False,
    graph: bool = False,
    checkpoints: bool = False,
    concurrent: bool = True,
) -> Any:
    """Makes a function a kernel: its outermost loops run in parallel. Compiled on the first call with arguments of new
    types. For methods, also decorate the class with `@qd.data_oriented`.

    `fastcache` (or `pure`) declares that the kernel depends on its arguments only; the compiler rejects captured
    variables. Kernels are cached on disk with or without it. `graph` enables `qd.graph` blocks and loops.
    `checkpoints`, with `graph`, enables `qd.checkpoint` blocks, at which a launch may end and resume: each launch
    returns a `qd.GraphStatus`, and `kernel.resume(..., from_checkpoint=label)` continues there. `concurrent=False`
    keeps the order of its launches on the default stream under `qd.concurrent()` and `qd.init(concurrency="auto")`.

    Raises `OctantsSyntaxError` for `checkpoints` without `graph`, or with a return value.
    """
    if pure is not None:
        warnings.warn("@qd.kernel parameter `pure` is deprecated. Please use parameter `fastcache`.", stacklevel=2)

    def decorate(function: Callable[..., Any]) -> _octants.Kernel:
        if checkpoints and not graph:
            raise OctantsSyntaxError("@qd.kernel(checkpoints=True) requires graph=True")
        # It is "None" if annotations are strings.
        plain = _plain(function, "@qd.kernel")
        returned = inspect.signature(plain).return_annotation
        if checkpoints and returned not in (inspect.Signature.empty, None, "None"):
            raise OctantsSyntaxError(
                "@qd.kernel(checkpoints=True) cannot return a value, since a launch returns its qd.GraphStatus: "
                "write it to an array or field"
            )
        made: _octants.Kernel = _named(_octants.Kernel(plain, graph, False, checkpoints, concurrent))
        if pure or fastcache:
            made._declare_pure()
        return made

    return decorate if fn is None else decorate(fn)


def library_kernel(fn: Callable[..., Any]) -> _octants.Kernel:
    """A kernel of the package itself, which sets and copies elements. It is neither recorded nor differentiated."""
    return _named(_octants.Kernel(_plain(fn, "library_kernel"), library=True))


def func(
    fn: Callable[..., Any] | None = None, *, is_real_function: bool = False, requires_top_level: bool = False
) -> Any:
    """A function that kernels call. Arguments are passed by value; those annotated `qd.template()` by reference."""

    def decorate(function: Callable[..., Any]) -> _octants.Func:
        plain = _plain(function, "@qd.func")
        return _named(_octants.Func(plain, requires_top_level=requires_top_level, real=is_real_function))

    return decorate if fn is None else decorate(fn)


def real_func(fn: Callable[..., Any]) -> _octants.Func:
    """A function that is never inlined: compiled once and called. All of its types must be annotated."""
    made: _octants.Func = func(fn, is_real_function=True)
    return made


def pyfunc(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function for both scopes: called from Python it runs as Python, called from a kernel it is compiled."""
    function = _plain(fn, "@qd.pyfunc")
    function._octants_pyfunc = True  # type: ignore[attr-defined]
    return function


def data_oriented(cls: Any = None, *, stable_members: bool = False, template_primitives: bool = True) -> Any:
    """Allows methods of a class to be kernels. `self` is a compile-time value. With `template_primitives=False`, the
    scalars it holds are launch arguments instead of compiled-in constants. `stable_members` has no effect: members are
    checked at each launch regardless.
    """

    def decorate(target: T) -> T:
        if not isinstance(target, type):
            raise OctantsSyntaxError(f"@qd.data_oriented can only decorate classes, got {target!r}")
        target._octants_data_oriented = True  # type: ignore[attr-defined]
        target._octants_template_primitives = template_primitives  # type: ignore[attr-defined]
        return target

    return decorate if cls is None else decorate(cls)


def pure(fn: Any) -> Any:
    """Declares that a kernel depends on its arguments only. The same as `@qd.kernel(fastcache=True)`."""
    warnings.warn("Use of @qd.pure is deprecated. Please use @qd.kernel(fastcache=True).", stacklevel=2)
    if isinstance(fn, _octants.Kernel):
        fn._declare_pure()
    return fn


def _named(made: Any) -> Any:
    """Copies the function's name and documentation to the wrapper."""
    made._update()
    return made


def _plain(fn: Any, decorator: str) -> Callable[..., Any]:
    function = fn.__func__ if isinstance(fn, (staticmethod, classmethod)) else fn
    if not inspect.isfunction(function):
        raise OctantsTypeError(f"{decorator} can only decorate functions written with `def`, got {fn!r}")
    if getattr(function, "_octants_registered", False):
        raise OctantsSyntaxError(
            f"{decorator} must be below `.register` of a perf_dispatch: "
            "put `.register` on top [KERNEL_ANNOTATION_ORDER]"
        )
    return function
