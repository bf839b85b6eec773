"""Linear operators defined by their products with vectors: `LinearOperator`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octants._language.kernel_decorators import data_oriented
from octants.exceptions import OctantsRuntimeError, OctantsTypeError

__all__ = ["LinearOperator"]


@data_oriented
class LinearOperator:
    """A matrix-free linear operator. `matvec_kernel(x, Ax)`, a kernel or any function, sets `Ax` to the product.

    Raises `OctantsTypeError` if it is not callable.
    """

    def __init__(self, matvec_kernel: Callable[[Any, Any], None]) -> None:
        if not callable(matvec_kernel):
            raise OctantsTypeError(
                f"LinearOperator takes a kernel or a function of x and Ax, not {type(matvec_kernel)}"
            )
        self._matvec = matvec_kernel

    def matvec(self, x: Any, Ax: Any) -> None:
        """Sets `Ax` to the product with `x`. Raises `OctantsRuntimeError` if their shapes differ."""
        if x.shape != Ax.shape:
            raise OctantsRuntimeError(f"Dimension mismatch x.shape{x.shape} != Ax.shape{Ax.shape}.")
        self._matvec(x, Ax)
