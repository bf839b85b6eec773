"""Complex numbers kept in `vec2`: (real part, imaginary part)."""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from octants._language.kernel_decorators import func
from octants._language.ops import abs, atan2, cos, exp, log, select, sin, sqrt
from octants.math.vector_types import vec2


@func
def _polar(radius, angle):
    return vec2(radius * cos(angle), radius * sin(angle))


@func
def cmul(z1, z2):
    """The product of two complex numbers."""
    return vec2(z1[0] * z2[0] - z1[1] * z2[1], z1[0] * z2[1] + z1[1] * z2[0])


@func
def cconj(z):
    """The complex conjugate."""
    return vec2(z[0], -z[1])


@func
def cinv(z):
    """The reciprocal, `1 / z`."""
    return vec2(z[0], -z[1]) / z.dot(z)


@func
def cdiv(z1, z2):
    """`z1 / z2`."""
    return cmul(z1, cconj(z2)) / z2.dot(z2)


@func
def csqrt(z):
    """The square root with positive real part; if the real part is 0, with positive imaginary part."""
    # The larger part comes from the norm without cancellation, and the other from 2 * re * im == z.y.
    larger = sqrt(0.5 * (z.norm() + abs(z[0])))
    smaller = abs(z[1]) / select(larger > 0.0, 2.0 * larger, 1.0)
    right = z[0] >= 0.0
    re = select(right, larger, smaller)
    im = select(right, smaller, larger)
    return vec2(re, select(z[1] < 0.0, -im, im))


@func
def cpow(z, n):
    """`z` to the real power `n`; 0 for `z = 0`."""
    square = z.dot(z)
    radius = 0.0 * square
    if square > 0.0:
        radius = exp(log(square) * (0.5 * n))
    return _polar(radius, atan2(z[1], z[0]) * n)


@func
def cexp(z):
    """`e` to the power `z`."""
    return _polar(exp(z[0]), z[1])


@func
def clog(z):
    """The logarithm, with imaginary part in (-pi, pi]."""
    return vec2(0.5 * log(z.dot(z)), atan2(z[1], z[0]))
