"""Component-wise functions and bit functions."""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from typing import Any

import numpy as np

from octants._language.kernel_decorators import func
from octants._language.ops import cast, clz, ffs, floor, known_to_compiler, loop_config, max, min
from octants.math.constants import pi
from octants.types import i32, u32
from octants.types.values import elementwise


@known_to_compiler("isnan")
def isnan(x: Any) -> Any:
    """Whether each component is NaN. Tests the bits, so it works under `fast_math` too."""
    return elementwise(np.isnan, x)


@known_to_compiler("isinf")
def isinf(x: Any) -> Any:
    """Whether each component is plus or minus infinity. Tests the bits, so it works under `fast_math` too."""
    return elementwise(np.isinf, x)


@known_to_compiler("log2")
def log2(x: Any) -> Any:
    """The logarithm to base 2."""
    return elementwise(np.log2, x)


@func
def mix(x, y, a):
    """Linear interpolation: `x` at `a = 0`, `y` at `a = 1`; extrapolates outside."""
    return x * (1.0 - a) + y * a


@func
def clamp(x, xmin, xmax):
    """`x` clamped to the bounds."""
    return min(xmax, max(xmin, x))  # in this order a gradient flows to `x` at the bounds, too


@func
def step(edge, x):
    """0.0 where `x` is less than `edge`, else 1.0."""
    return cast(edge <= x, float)


@func
def fract(x):
    """The fractional part: `x - floor(x)`."""
    return x - floor(x)


@func
def smoothstep(edge0, edge1, x):
    """Cubic Hermite interpolation: 0 below `edge0`, 1 above `edge1`, with zero slope at both."""
    t = clamp((x - edge0) / (edge1 - edge0), 0.0, 1.0)
    return (3.0 - 2.0 * t) * (t * t)


@func
def sign(x):
    """-1.0, 0.0 or 1.0."""
    return cast(x > 0, float) - cast(x < 0, float)


@func
def mod(x, y):
    """The remainder as in GLSL, with the sign of `y`: `x - y * floor(x / y)`."""
    return x - y * floor(x / y)


@func
def degrees(x):
    """Radians to degrees."""
    return x * (180.0 / pi)


@func
def radians(x):
    """Degrees to radians."""
    return x * (pi / 180.0)


@func
def fns(mask: u32, base: u32, offset: i32):
    """Find n-th set bit: the position of the `offset`-th set bit of `mask` at or above bit `base`; for a negative
    `offset`, of the `-offset`-th at or below it; for 0, `base` if that bit is set. `0xFFFFFFFF` if there is none.
    """
    result = u32(0xFFFFFFFF)
    rest = mask
    start = min(base, u32(31))
    if offset == 0:
        if base < 32 and ((mask >> start) & 1) == 1:
            result = base
    elif offset > 0:
        # Clear the bits below the base, then repeatedly the lowest remaining bit.
        rest = (mask >> start) << start
        if base > 31:
            rest = u32(0)
        loop_config(serialize=True)
        for _ in range(offset - 1):
            rest = rest & (rest - 1)
        if rest != 0:
            result = cast(ffs(rest) - 1, u32)
    else:
        # Clear the bits above the base, then the highest remaining bit.
        above = u32(31) - start
        rest = (mask << above) >> above
        loop_config(serialize=True)
        for _ in range(-offset - 1):
            if rest != 0:
                rest = rest ^ (u32(1) << cast(31 - clz(rest), u32))
        if rest != 0:
            result = cast(31 - clz(rest), u32)
    return result
