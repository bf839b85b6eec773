"""Component-wise functions and bit functions."""

# mypy: ignore-errors
# Kernels are Python in form only: their annotations are values, and they assign to what no Python type describes.

from typing import Any

import numpy as np

from octants._language.kernel_decorators import func
from octants._language.ops import cast, clz, ffs, floor, known_to_compiler, loop_config, max, min
from octants.math.constants import pi
from octants.types import i32, u32
from octants.types.values import elementwise


@known_to_compiler("isnan")
def isnan(x: Any) -> Any:
    """Whether each component is NaN. Works under `fast_math` too, because it tests the bits."""
    return elementwise(np.isnan, x)


@known_to_compiler("isinf")
def isinf(x: Any) -> Any:
    """Whether each component is plus or minus infinity. Works under `fast_math` too: it looks at the bits."""
    return elementwise(np.isinf, x)


@known_to_compiler("log2")
def log2(x: Any) -> Any:
    """The logarithm to base 2."""
    return elementwise(np.log2, x)


@func
def mix(x, y, a):
    """`x` at `a = 0`, `y` at `a = 1`, on the straight line between and beyond."""
    return x * (1.0 - a) + y * a


@func
def clamp(x, xmin, xmax):
    """`x`, or the bound it is beyond."""
    return min(xmax, max(xmin, x))  # in this order a gradient flows to `x` at the bounds, too


@func
def step(edge, x):
    """0.0 where `x` is less than `edge`, else 1.0."""
    return cast(edge <= x, float)


@func
def fract(x):
    """What is above the next lower integer: `x - floor(x)`."""
    return x - floor(x)


@func
def smoothstep(edge0, edge1, x):
    """0 below `edge0`, 1 above `edge1`, and between them the cubic that joins both with level tangents."""
    t = clamp((x - edge0) / (edge1 - edge0), 0.0, 1.0)
    return (3.0 - 2.0 * t) * (t * t)


@func
def sign(x):
    """-1.0, 0.0 or 1.0."""
    return cast(x > 0, float) - cast(x < 0, float)


@func
def mod(x, y):
    """GLSL's remainder, with the sign of `y`: `x - y * floor(x / y)`."""
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
    """The position of the `offset`-th set bit of `mask` at or above bit `base`; of the `-offset`-th at or below it when
    `offset` is negative; of `base` itself, if that is set, for 0. `0xFFFFFFFF` where there is none.
    """
    result = u32(0xFFFFFFFF)
    rest = mask
    start = min(base, u32(31))
    if offset == 0:
        if base < 32 and ((mask >> start) & 1) == 1:
            result = base
    elif offset > 0:
        # Take away what is below the base, then the lowest bit that is left, repeatedly.
        rest = (mask >> start) << start
        if base > 31:
            rest = u32(0)
        loop_config(serialize=True)
        for _ in range(offset - 1):
            rest = rest & (rest - 1)
        if rest != 0:
            result = cast(ffs(rest) - 1, u32)
    else:
        # Take away what is above the base, then the highest bit that is left.
        above = u32(31) - start
        rest = (mask << above) >> above
        loop_config(serialize=True)
        for _ in range(-offset - 1):
            if rest != 0:
                rest = rest ^ (u32(1) << cast(31 - clz(rest), u32))
        if rest != 0:
            result = cast(31 - clz(rest), u32)
    return result
