"""The decorators under their path in Quadrants."""

from octants._language.kernel_decorators import data_oriented, func, kernel, pyfunc, real_func

__all__ = ["data_oriented", "func", "kernel", "pyfunc", "real_func"]
