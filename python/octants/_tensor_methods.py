"""Methods of vectors and matrices that are written in the kernel language: `m.inverse()` calls
`METHODS["inverse"](m)`.

The compiler looks up methods here that are not built in. The first parameter of each function is the tensor. The
functions compute on one thread: their loops are serial, even if a kernel calls them at its top level.
"""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from octants._language.kernel_decorators import func
from octants._language.ops import abs, loop_config, static, static_assert
from octants.types.values import Matrix

# For each column left out of a 4x4 matrix: the other columns, each with the minor of the remaining two, and its sign.
_EXPANSION = (
    ((1, 5, 1.0), (2, 4, -1.0), (3, 3, 1.0)),
    ((0, 5, 1.0), (2, 2, -1.0), (3, 1, 1.0)),
    ((0, 4, 1.0), (1, 2, -1.0), (3, 0, 1.0)),
    ((0, 3, 1.0), (1, 1, -1.0), (2, 0, 1.0)),
)


@func
def _pair_minors(m):
    """The 2x2 minors of the first two rows of a 4x4 matrix, and of the last two, by column pair: 01, 02, 03, 12, 13,
    23.
    """
    upper = [
        m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0],
        m[0, 0] * m[1, 2] - m[0, 2] * m[1, 0],
        m[0, 0] * m[1, 3] - m[0, 3] * m[1, 0],
        m[0, 1] * m[1, 2] - m[0, 2] * m[1, 1],
        m[0, 1] * m[1, 3] - m[0, 3] * m[1, 1],
        m[0, 2] * m[1, 3] - m[0, 3] * m[1, 2],
    ]
    lower = [
        m[2, 0] * m[3, 1] - m[2, 1] * m[3, 0],
        m[2, 0] * m[3, 2] - m[2, 2] * m[3, 0],
        m[2, 0] * m[3, 3] - m[2, 3] * m[3, 0],
        m[2, 1] * m[3, 2] - m[2, 2] * m[3, 1],
        m[2, 1] * m[3, 3] - m[2, 3] * m[3, 1],
        m[2, 2] * m[3, 3] - m[2, 3] * m[3, 2],
    ]
    return Matrix([upper, lower])


@func
def _determinant4(p):
    """Laplace expansion along two rows, from the minors."""
    return (
        p[0, 0] * p[1, 5]
        - p[0, 1] * p[1, 4]
        + p[0, 2] * p[1, 3]
        + p[0, 3] * p[1, 2]
        - p[0, 4] * p[1, 1]
        + p[0, 5] * p[1, 0]
    )


@func
def _determinant_by_elimination(m):
    n = static(m.n)
    a = m * 1.0
    result = a[0, 0] * 0.0 + 1.0
    loop_config(serialize=True)
    for k in range(n):
        pivot = k
        for i in range(k + 1, n):
            if abs(a[i, k]) > abs(a[pivot, k]):
                pivot = i
        if pivot != k:
            result = -result
            for j in range(n):
                upper = a[k, j]
                a[k, j] = a[pivot, j]
                a[pivot, j] = upper
        result *= a[k, k]
        if a[k, k] != 0.0:
            for i in range(k + 1, n):
                factor = a[i, k] / a[k, k]
                for j in range(k + 1, n):
                    a[i, j] -= factor * a[k, j]
    return result


@func
def _check_square(m):
    static_assert(len(m.get_shape()) == 2 and m.n == m.m, f"expected a square matrix, got shape {m.get_shape()}")


@func
def determinant(m):
    """The determinant of a square matrix."""
    _check_square(m)
    if static(m.n == 1):
        return m[0, 0]
    elif static(m.n == 2):
        return m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]
    elif static(m.n == 3):
        return (
            m[0, 0] * (m[1, 1] * m[2, 2] - m[1, 2] * m[2, 1])
            + m[0, 1] * (m[1, 2] * m[2, 0] - m[1, 0] * m[2, 2])
            + m[0, 2] * (m[1, 0] * m[2, 1] - m[1, 1] * m[2, 0])
        )
    elif static(m.n == 4):
        return _determinant4(_pair_minors(m))
    else:
        return _determinant_by_elimination(m)


@func
def _inverse2(m):
    factor = 1.0 / (m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0])
    return Matrix([[m[1, 1], -m[0, 1]], [-m[1, 0], m[0, 0]]]) * factor


@func
def _inverse3(m):
    """The adjugate divided by the determinant."""
    x = m[1, 1] * m[2, 2] - m[1, 2] * m[2, 1]
    y = m[1, 2] * m[2, 0] - m[1, 0] * m[2, 2]
    z = m[1, 0] * m[2, 1] - m[1, 1] * m[2, 0]
    cofactors = Matrix(
        [
            [x, m[0, 2] * m[2, 1] - m[0, 1] * m[2, 2], m[0, 1] * m[1, 2] - m[0, 2] * m[1, 1]],
            [y, m[0, 0] * m[2, 2] - m[0, 2] * m[2, 0], m[0, 2] * m[1, 0] - m[0, 0] * m[1, 2]],
            [z, m[0, 1] * m[2, 0] - m[0, 0] * m[2, 1], m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]],
        ]
    )
    return cofactors * (1.0 / (m[0, 0] * x + m[0, 1] * y + m[0, 2] * z))


@func
def _inverse4(m):
    """The adjugate divided by the determinant, both from the 2x2 minors."""
    p = _pair_minors(m)
    cofactors = 0.0 * m
    for i in static(range(4)):
        for j in static(range(4)):
            # Leave out row j and column i: its partner row is expanded, and the other two rows are in the minors.
            partner = static(j ^ 1)
            half = static(1 if j < 2 else 0)
            total = 0.0 * m[0, 0]
            for column, minor, factor in static(_EXPANSION[i]):
                total += m[partner, column] * p[half, minor] * factor
            cofactors[i, j] = total * static(1.0 - 2.0 * ((i + j) % 2))
    return cofactors * (1.0 / _determinant4(p))


@func
def _inverse_by_elimination(m):
    """Gauss-Jordan elimination with partial pivoting on `m` augmented with the identity."""
    n = static(m.n)
    a = m * 1.0
    result = a * 0.0
    for i in static(range(n)):
        result[i, i] = 1.0
    loop_config(serialize=True)
    for k in range(n):
        pivot = k
        for i in range(k + 1, n):
            if abs(a[i, k]) > abs(a[pivot, k]):
                pivot = i
        if pivot != k:
            for j in range(n):
                upper = a[k, j]
                a[k, j] = a[pivot, j]
                a[pivot, j] = upper
                upper_result = result[k, j]
                result[k, j] = result[pivot, j]
                result[pivot, j] = upper_result
        factor = 1.0 / a[k, k]
        for j in range(n):
            a[k, j] *= factor
            result[k, j] *= factor
        for i in range(n):
            if i != k:
                below = a[i, k]
                for j in range(n):
                    a[i, j] -= below * a[k, j]
                    result[i, j] -= below * result[k, j]
    return result


@func
def inverse(m):
    """The inverse of a square matrix. Components of the inverse of a singular matrix are infinite or NaN."""
    _check_square(m)
    if static(m.n == 1):
        return 1.0 / m
    elif static(m.n == 2):
        return _inverse2(m)
    elif static(m.n == 3):
        return _inverse3(m)
    elif static(m.n == 4):
        return _inverse4(m)
    else:
        return _inverse_by_elimination(m)


@func
def frobenius_inner(m, other):
    """The sum of the products of corresponding components."""
    return (m * other).sum()


METHODS = {
    "determinant": determinant,
    "frobenius_inner": frobenius_inner,
    "inverse": inverse,
}
