"""Functions of whole vectors and matrices."""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from octants._language.kernel_decorators import func
from octants._language.ops import max, select, sqrt


@func
def length(x):
    """The Euclidean norm."""
    return x.norm()


@func
def distance(x, y):
    """The Euclidean norm of `x - y`."""
    return (x - y).norm()


@func
def normalize(v):
    """The unit vector in the direction of `v`."""
    return v / v.norm()


@func
def dot(x, y):
    """The scalar product of two vectors."""
    return x.dot(y)


@func
def cross(x, y):
    """The cross product: a vector for three components, a scalar for two."""
    return x.cross(y)


@func
def reflect(x, n):
    """`x` reflected by the plane with unit normal `n`."""
    return x - n * (2.0 * x.dot(n))


@func
def refract(x, n, eta):
    """The refraction of the unit vector `x` at a surface with unit normal `n`, by Snell's law; `eta` is the ratio of
    the refractive indices. Zero at total reflection.
    """
    cosine = x.dot(n)
    transmitted = 1.0 - eta * eta * (1.0 - cosine * cosine)
    bent = x * eta - n * (eta * cosine + sqrt(max(transmitted, 0.0)))
    return select(transmitted < 0.0, 0.0, bent)


@func
def determinant(m):
    """The determinant of a square matrix."""
    return m.determinant()


@func
def inverse(mat):
    """The inverse of a square matrix."""
    return mat.inverse()
