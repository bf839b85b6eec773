"""`qd.graph`: what kernels declared with `graph=True` may say about their tasks."""

from __future__ import annotations

from octants.ops import _kernel_only

__all__ = ["do_while"]

do_while = _kernel_only(
    "do_while",
    "`while qd.graph.do_while(counter):` runs its body once, then again as long as `counter`, a 0-dimensional i32 ndarray, "
    "is not zero.",
)
