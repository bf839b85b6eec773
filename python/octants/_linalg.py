"""Small dense linear algebra within one thread: decompositions, eigenvalues, linear systems, normal random numbers.

Everything is written in the kernel language and unrolled over the matrix size, which is a compile-time constant. The
`dt` argument is the result type; the default is the program's default float type.
"""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

import math
from typing import Any

from octants._language.kernel_decorators import func
from octants._language.ops import abs, cast, cos, log, loop_config, max, random, select, sqrt, static, static_assert
from octants._program.runtime import current_config
from octants.architectures import cpu
from octants.types import f32, f64, template
from octants.types.primitive import default_fp
from octants.types.values import Matrix, Vector

# Sweeps over all pairs of columns. Convergence is quadratic: five to seven sweeps reach full precision.
_MOST_SWEEPS = 16
# Eigenvalue problems up to this size are unrolled over pairs of axes; beyond it that would make the code too long.
_LARGEST_UNROLLED = 4


def _float_type(dt: Any) -> Any:
    return default_fp() if dt is None else dt


def _work_type(dt: Any) -> Any:
    """The type in which decompositions are computed. A CPU uses f64, which is as fast there and correctly rounded: with
    the approximate f32 roots and quotients of `fast_math`, a matrix that is decomposed over and over would shrink.
    """
    config = current_config()
    return f64 if dt == f32 and config is not None and config.arch == cpu else dt


def _epsilon(dt: Any) -> float:
    """The unit roundoff of the type."""
    return 2.0**-53 if dt == f64 else 2.0**-24


def _negligible(work: Any, dt: Any) -> float:
    """The largest angle that counts as zero: a unit in the last place of the results, even if computed in a wider type.
    A matrix that is diagonal up to rounding errors then keeps its axes.
    """
    return _epsilon(work) if work == dt else 2.0 * _epsilon(dt)


def _pairs(n: int) -> list[tuple[int, int]]:
    return [(p, q) for p in range(n) for q in range(p + 1, n)]


@func
def randn(dt: template() = None):
    """A random number of the standard normal distribution (Box-Muller transform, 1958)."""
    t = static(_float_type(dt))
    # 1 - u is in (0, 1], where the logarithm is finite.
    radius = sqrt(-2.0 * log(cast(1.0, t) - random(t)))
    return radius * cos(static(2.0 * math.pi) * random(t))


@func
def _orthogonalize(A, dt: template(), result: template()):
    """`(B, V)` with `B = A @ V`, `V` a rotation, and the columns of `B` orthogonal, longest first: the one-sided Jacobi
    method of Hestenes (1958). Small columns come out with the relative accuracy of large ones.
    """
    n = static(A.n)
    eps = static(_negligible(dt, result))
    B = cast(A, dt)
    V = Matrix.identity(dt, n)
    rotated = 1
    # In the plane, a single rotation suffices, except for its rounding errors.
    loop_config(serialize=True)
    for _ in range(static(1 if n == 2 and dt != result else _MOST_SWEEPS)):
        if rotated == 1:
            rotated = 0
            for p, q in static(_pairs(n)):
                pp = cast(0.0, dt)
                qq = cast(0.0, dt)
                pq = cast(0.0, dt)
                for i in static(range(n)):
                    pp += B[i, p] * B[i, p]
                    qq += B[i, q] * B[i, q]
                    pq += B[i, p] * B[i, q]
                if abs(pq) > eps * sqrt(pp * qq) and abs(pq) > eps * eps * (pp + qq):
                    rotated = 1
                    zeta = (qq - pp) / (2.0 * pq)
                    t = select(zeta >= 0.0, 1.0, -1.0) / (abs(zeta) + sqrt(1.0 + zeta * zeta))
                    c = 1.0 / sqrt(1.0 + t * t)
                    s = c * t
                    for i in static(range(n)):
                        bp = B[i, p]
                        bq = B[i, q]
                        B[i, p] = c * bp - s * bq
                        B[i, q] = s * bp + c * bq
                        vp = V[i, p]
                        vq = V[i, q]
                        V[i, p] = c * vp - s * vq
                        V[i, q] = s * vp + c * vq
    # Longest column first. A swap with one change of sign is a rotation, too.
    for last in static(range(n - 1, 0, -1)):
        for p in static(range(last)):
            pp = cast(0.0, dt)
            qq = cast(0.0, dt)
            for i in static(range(n)):
                pp += B[i, p] * B[i, p]
                qq += B[i, p + 1] * B[i, p + 1]
            if pp < qq:
                for i in static(range(n)):
                    bp = B[i, p]
                    B[i, p] = B[i, p + 1]
                    B[i, p + 1] = -bp
                    vp = V[i, p]
                    V[i, p] = V[i, p + 1]
                    V[i, p + 1] = -vp
    return B, V


@func
def _largest_component(A, dt: template()):
    """The largest absolute value, or 1 for a zero matrix. Dividing by it prevents overflow of squares."""
    largest = cast(0.0, dt)
    for i in static(range(A.n)):
        for j in static(range(A.m)):
            largest = max(largest, abs(cast(A[i, j], dt)))
    return select(largest > 0.0, largest, cast(1.0, dt))


@func
def _svd2(A, dt: template(), result: template()):
    size = _largest_component(A, dt)
    B, V = _orthogonalize(cast(A, dt) / size, dt, result)
    one = cast(1.0, dt)
    s0 = sqrt(B[0, 0] * B[0, 0] + B[1, 0] * B[1, 0])
    u0 = Vector([one, 0.0 * one])
    if s0 > 0.0:
        u0 = Vector([B[0, 0], B[1, 0]]) / s0
    u1 = Vector([-u0[1], u0[0]])
    s1 = u1[0] * B[0, 1] + u1[1] * B[1, 1]
    if s1 < 0.0:
        s1 = -s1
        u1 = -u1
    U = Matrix([[u0[0], u1[0]], [u0[1], u1[1]]])
    S = Matrix([[s0 * size, 0.0 * one], [0.0 * one, s1 * size]])
    return U, S, V


@func
def _svd3(A, dt: template(), result: template()):
    size = _largest_component(A, dt)
    B, V = _orthogonalize(cast(A, dt) / size, dt, result)
    one = cast(1.0, dt)
    zero = cast(0.0, dt)
    b0 = Vector([B[0, 0], B[1, 0], B[2, 0]])
    b1 = Vector([B[0, 1], B[1, 1], B[2, 1]])
    b2 = Vector([B[0, 2], B[1, 2], B[2, 2]])
    s0 = b0.norm()
    u0 = Vector([one, zero, zero])
    if s0 > 0.0:
        u0 = b0 / s0
    # If the second column vanishes, any direction orthogonal to the first one will do: the axis with its smallest
    # component gives one. A column that is not orthogonal to the first one was too short to be rotated, and consists of
    # rounding errors.
    rest = b1 - u0 * u0.dot(b1)
    s1 = rest.norm()
    tiny = static(_epsilon(dt) ** 2)
    if s1 <= max(tiny * s0, 0.5 * b1.norm()):
        s1 = zero
        axis = Vector([one, zero, zero])
        if abs(u0[0]) > abs(u0[1]) or abs(u0[0]) > abs(u0[2]):
            axis = Vector([zero, one, zero])
            if abs(u0[1]) > abs(u0[2]):
                axis = Vector([zero, zero, one])
        rest = u0.cross(axis)
    u1 = rest / rest.norm()
    # The third one follows, and the sign of the determinant goes to the last singular value.
    u2 = u0.cross(u1)
    s2 = u2.dot(b2)
    U = Matrix([[u0[0], u1[0], u2[0]], [u0[1], u1[1], u2[1]], [u0[2], u1[2], u2[2]]])
    S = Matrix([[s0 * size, zero, zero], [zero, s1 * size, zero], [zero, zero, s2 * size]])
    return U, S, V


@func
def svd(A, dt: template() = None):
    """The singular value decomposition of a 2x2 or 3x3 matrix: `(U, S, V)` with `A == U @ S @ V.transpose()`.

    The diagonal of `S` is in descending order. For 2x2 the singular values are nonnegative. For 3x3 `U` and `V` are
    rotations, and the last singular value has the sign of the determinant of `A`.
    """
    static_assert(A.n == A.m and (A.n == 2 or A.n == 3), "SVD only supports 2x2 and 3x3 matrices")
    t = static(_float_type(dt))
    w = static(_work_type(t))
    if static(A.n == 2):
        U, S, V = _svd2(A, w, t)
        return cast(U, t), cast(S, t), cast(V, t)
    else:
        U, S, V = _svd3(A, w, t)
        return cast(U, t), cast(S, t), cast(V, t)


@func
def _polar2(A, dt: template()):
    """In 2D, the nearest orthogonal matrix is the part of `A` that commutes with rotations, scaled; for a negative
    determinant, the part that anticommutes (Higham, Functions of Matrices, 2008, problem 8.2).
    """
    size = _largest_component(A, dt)
    M = cast(A, dt) / size
    x = M[0, 0] + M[1, 1]
    y = M[1, 0] - M[0, 1]
    turn = cast(1.0, dt)
    if M[0, 0] * M[1, 1] < M[0, 1] * M[1, 0]:
        x = M[0, 0] - M[1, 1]
        y = M[1, 0] + M[0, 1]
        turn = -turn
    length = sqrt(x * x + y * y)
    c = cast(1.0, dt)
    s = cast(0.0, dt)
    if length > 0.0:
        c = x / length
        s = y / length
    R = Matrix([[c, -s * turn], [s, c * turn]])
    P = R.transpose() @ M
    return R, (P + P.transpose()) * (0.5 * size)


@func
def polar_decompose(A, dt: template() = None):
    """The polar decomposition of a 2x2 or 3x3 matrix: `(R, S)` with `A == R @ S`, `R` orthogonal and `S` symmetric.

    For 3x3 `R` is a rotation, so `S` has a negative eigenvalue if the determinant of `A` is negative. For 2x2 `S` is
    positive semi-definite.
    """
    static_assert(A.n == A.m and (A.n == 2 or A.n == 3), "Polar decomposition only supports 2×2 and 3×3 matrices.")
    t = static(_float_type(dt))
    w = static(_work_type(t))
    if static(A.n == 2):
        R, S = _polar2(A, w)
        return cast(R, t), cast(S, t)
    else:
        U, S, V = _svd3(A, w, t)
        return cast(U @ V.transpose(), t), cast(V @ S @ V.transpose(), t)


@func
def eig(A, dt: template() = None):
    """The eigenvalues and eigenvectors of a real 2x2 matrix.

    Returns a 2x2 matrix whose row `i` is the real and imaginary part of eigenvalue `i`, and a 4x2 matrix whose column
    `i` is its eigenvector: real and imaginary part of the first component, then of the second.
    """
    static_assert(A.n == 2 and A.m == 2, "Eigen solver only supports 2x2 matrices")
    t = static(_float_type(dt))
    w = static(_work_type(t))
    M = cast(A, w)
    one = cast(1.0, w)
    zero = cast(0.0, w)
    mean = 0.5 * (M[0, 0] + M[1, 1])
    half = 0.5 * (M[0, 0] - M[1, 1])
    square = half * half + M[0, 1] * M[1, 0]
    values = Matrix([[mean, zero], [mean, zero]])
    vectors = Matrix([[one, zero], [zero, zero], [zero, one], [zero, zero]])
    root = sqrt(abs(square))
    if square < 0.0:
        # A conjugate pair. The product of the off-diagonal components is negative, so neither is zero.
        values = Matrix([[mean, root], [mean, -root]])
        length = sqrt(M[0, 1] * M[0, 1] + half * half + root * root)
        x = M[0, 1] / length
        y = -half / length
        z = root / length
        vectors = Matrix([[x, x], [zero, zero], [y, y], [z, -z]])
    elif root > 0.0 or M[0, 1] != 0.0 or M[1, 0] != 0.0:
        for i in static(range(2)):
            shift = static(1.0 - 2.0 * i) * root
            values[i, 0] = mean + shift
            # Each row of A - value gives the eigenvector; the longer one has it without cancellation.
            x = M[0, 1]
            y = shift - half
            if abs(shift + half) + abs(M[1, 0]) > abs(x) + abs(y):
                x = shift + half
                y = M[1, 0]
            length = sqrt(x * x + y * y)
            vectors[0, i] = x / length
            vectors[2, i] = y / length
    return cast(values, t), cast(vectors, t)


@func
def _rotate(B: template(), Q: template(), p, q):
    """Rotates the basis in the plane of axes `p` and `q` so that `B[p, q]` vanishes."""
    n = static(B.n)
    theta = (B[q, q] - B[p, p]) / (2.0 * B[p, q])
    t = select(theta >= 0.0, 1.0, -1.0) / (abs(theta) + sqrt(1.0 + theta * theta))
    c = 1.0 / sqrt(1.0 + t * t)
    s = c * t
    pp = B[p, p] - t * B[p, q]
    qq = B[q, q] + t * B[p, q]
    for k in static(range(n)):
        kp = B[k, p]
        kq = B[k, q]
        B[k, p] = c * kp - s * kq
        B[k, q] = s * kp + c * kq
        kp = Q[k, p]
        kq = Q[k, q]
        Q[k, p] = c * kp - s * kq
        Q[k, q] = s * kp + c * kq
    # The columns are turned; the rows are their mirror images, except for the four components in both.
    for k in static(range(n)):
        B[p, k] = B[k, p]
        B[q, k] = B[k, q]
    B[p, p] = pp
    B[q, q] = qq
    B[p, q] = 0.0
    B[q, p] = 0.0


@func
def _jacobi(A, dt: template(), result: template()):
    """Eigenvalues and eigenvectors of a symmetric matrix, ascending, by cyclic Jacobi rotations (Golub and Van Loan,
    Matrix Computations, section 8.5).
    """
    n = static(A.n)
    B = cast(A, dt)
    Q = Matrix.identity(dt, n)
    total = cast(0.0, dt)
    size = _largest_component(A, dt)
    B = B / size
    for i in static(range(n)):
        for j in static(range(n)):
            total += B[i, j] * B[i, j]
    negligible = static(_negligible(dt, result)) * sqrt(total)
    rotated = 1
    loop_config(serialize=True)
    for _ in range(static(_MOST_SWEEPS)):
        if rotated == 1:
            rotated = 0
            if static(n <= _LARGEST_UNROLLED):
                for p, q in static(_pairs(n)):
                    if abs(B[p, q]) > negligible:
                        rotated = 1
                        _rotate(B, Q, p, q)
            else:
                loop_config(serialize=True)
                for p in range(n - 1):
                    for q in range(p + 1, n):
                        if abs(B[p, q]) > negligible:
                            rotated = 1
                            _rotate(B, Q, p, q)
    values = Vector([B[i, i] * size for i in range(n)])
    for last in static(range(n - 1, 0, -1)):
        for p in static(range(last)):
            if values[p] > values[p + 1]:
                value = values[p]
                values[p] = values[p + 1]
                values[p + 1] = value
                for k in static(range(n)):
                    kp = Q[k, p]
                    Q[k, p] = Q[k, p + 1]
                    Q[k, p + 1] = kp
    return values, Q


@func
def sym_eig(A, dt: template() = None):
    """Eigenvalues in ascending order, and orthonormal eigenvectors as columns, of a symmetric matrix of up to 6x6."""
    static_assert(A.n == A.m, "Symmetric eigen solver needs a square matrix")
    static_assert(A.n <= 6, "Symmetric eigen solver supports sizes up to 6x6")
    t = static(_float_type(dt))
    values, Q = _jacobi(A, static(_work_type(t)), t)
    return cast(values, t), cast(Q, t)


@func
def make_spd(A, dt: template() = None):
    """The symmetric positive semi-definite matrix nearest to a symmetric one of up to 6x6 (Higham 1988): sets negative
    eigenvalues to 0.
    """
    static_assert(A.n == A.m, "make_spd needs a square matrix")
    static_assert(A.n <= 6, "make_spd supports sizes up to 6x6")
    n = static(A.n)
    t = static(_float_type(dt))
    w = static(_work_type(t))
    values, Q = _jacobi(A, w, t)
    result = Matrix.zero(w, n, n)
    for i in static(range(n)):
        for j in static(range(i, n)):
            total = cast(0.0, w)
            for k in static(range(n)):
                total += Q[i, k] * max(values[k], 0.0) * Q[j, k]
            result[i, j] = total
            result[j, i] = total
    return cast(result, t)


@func
def _solve_unrolled(A, b, dt: template()):
    n = static(A.n)
    M = cast(A, dt)
    x = cast(b, dt)
    for k in static(range(n)):
        # Bring the largest component of the column to the diagonal by exchanging rows one by one.
        for i in static(range(k + 1, n)):
            if abs(M[i, k]) > abs(M[k, k]):
                for j in static(range(k, n)):
                    upper = M[k, j]
                    M[k, j] = M[i, j]
                    M[i, j] = upper
                upper_x = x[k]
                x[k] = x[i]
                x[i] = upper_x
        assert M[k, k] != 0.0, "Matrix is singular in linear solve."
        for i in static(range(k + 1, n)):
            factor = M[i, k] / M[k, k]
            for j in static(range(k + 1, n)):
                M[i, j] -= factor * M[k, j]
            x[i] -= factor * x[k]
    for k in static(range(n - 1, -1, -1)):
        for j in static(range(k + 1, n)):
            x[k] -= M[k, j] * x[j]
        x[k] = x[k] / M[k, k]
    return x


@func
def solve(A, b, dt: template() = None):
    """Solves `A @ x == b` by Gaussian elimination with partial pivoting, for square matrices of up to 6x6.

    A singular matrix fails an assertion, which `debug=True` enables.
    """
    static_assert(A.n == A.m, "Only square matrix is supported")
    static_assert(A.m == b.n, "Matrix and vector dimensions don't match")
    static_assert(A.n <= 6, "Solver supports sizes up to 6x6")
    return _solve_unrolled(A, b, static(_float_type(dt)))
