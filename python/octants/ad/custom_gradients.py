"""Custom gradients, and functions without a gradient."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from octants import _octants
from octants.ad.scopes import Scope, current, paused
from octants.ad.tape import Tape
from octants.exceptions import OctantsRuntimeError


class _Replaced:
    """A Python function that a tape records as one call."""

    def __init__(
        self, function: Callable[..., Any], grad: Callable[..., Any] | None, hides: tuple[type[Scope], ...]
    ) -> None:
        self.function = function
        self.grad = grad
        self._hides = hides
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        scope = current()
        with paused(scope if isinstance(scope, self._hides) else None):
            result = self.function(*args, **kwargs)
        if isinstance(scope, Tape):
            scope.insert(_Call(self, kwargs), args)
        return result

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else _Bound(self, instance)


class _Bound:
    """A bound method with a custom gradient."""

    def __init__(self, replaced: _Replaced, instance: Any) -> None:
        self.__func__ = replaced
        self.__self__ = instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__func__(self.__self__, *args, **kwargs)

    @property
    def grad(self) -> Callable[..., Any] | None:
        """The gradient, bound to the same object."""
        grad = self.__func__.grad
        return None if grad is None else functools.partial(grad, self.__self__)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__func__, name)


class _Call:
    """A recorded call with its keyword arguments."""

    def __init__(self, replaced: _Replaced, kwargs: dict[str, Any]) -> None:
        self.replaced, self.kwargs = replaced, kwargs

    def __call__(self, *args: Any) -> Any:
        return self.replaced(*args, **self.kwargs)

    def grad(self, *args: Any) -> None:
        if self.replaced.grad is None:
            name = self.replaced.function.__qualname__
            raise OctantsRuntimeError(
                f"`{name}` is decorated with @qd.ad.grad_replaced, but no function is decorated with "
                f"@qd.ad.grad_for({name})"
            )
        self.replaced.grad(*args, **self.kwargs)


def grad_replaced(func: Callable[..., Any]) -> Any:
    """Decorates a Python function that launches kernels. A tape records it as one call, whose gradient is the function
    decorated with `@qd.ad.grad_for(func)`. In `qd.ad.FwdMode` its kernels are differentiated as usual.
    """
    return _Replaced(func, None, (Tape,))


def grad_for(primal: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates the gradient of `primal`, which is decorated with `@qd.ad.grad_replaced`. It takes the same
    arguments.
    """
    if isinstance(primal, _octants.Kernel):
        raise OctantsRuntimeError(
            f"`{primal.__name__}` is a kernel: @qd.ad.grad_for takes a Python function decorated with "
            "@qd.ad.grad_replaced; write one that calls the kernel"
        )
    if not isinstance(primal, _Replaced) or primal.grad is _nothing:
        name = getattr(primal, "__qualname__", primal)
        raise OctantsRuntimeError(f"`{name}` must be decorated with @qd.ad.grad_replaced")
    if primal.grad is not None:
        raise OctantsRuntimeError(f"`{primal.function.__qualname__}` has a gradient already")

    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        primal.grad = func
        return func

    return decorate


def no_grad(func: Callable[..., Any]) -> Any:
    """Decorates a Python function whose kernels are not differentiated: their outputs count as constants."""
    return _Replaced(func, _nothing, (Scope,))


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None
