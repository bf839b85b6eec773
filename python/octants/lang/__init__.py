"""Paths by which programs written for Quadrants reach inside it, such as `qd.lang.ops.logical_not`.

Every name here is another module's; new programs do not need this package.
"""

from octants.lang import exception, field, impl, kernel_impl, matrix, misc, ops, snode, struct

__all__ = ["exception", "field", "impl", "kernel_impl", "matrix", "misc", "ops", "snode", "struct"]
