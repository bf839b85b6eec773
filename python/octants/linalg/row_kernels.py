"""Kernels over the rows of a sparse matrix, and over vectors: products, and the steps of conjugate gradients."""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from octants._language.kernel_decorators import func, kernel
from octants._language.ops import cast, static
from octants.types.annotations import ndarray
from octants.types.primitive import f32, f64


@func
def _row_product(starts, columns, values, x, row):
    """The product of a row and a vector, accumulated entry by entry in the type of the values."""
    total = cast(0, static(values.dtype))
    for at in range(starts[row], starts[row + 1]):
        total += values[at] * x[columns[at]]
    return total


@kernel
def multiply(
    starts: ndarray(ndim=1), columns: ndarray(ndim=1), values: ndarray(ndim=1), x: ndarray(ndim=1), y: ndarray(ndim=1)
):
    """`y = A x`."""
    for row in range(y.shape[0]):
        y[row] = _row_product(starts, columns, values, x, row)


def _solver_kernels(real):
    """The kernels of conjugate gradients for a scalar type, which their result annotations need."""

    @kernel
    def begin(
        starts: ndarray(ndim=1),
        columns: ndarray(ndim=1),
        values: ndarray(ndim=1),
        inverse_diagonal: ndarray(ndim=1),
        b: ndarray(ndim=1),
        x: ndarray(ndim=1),
        r: ndarray(ndim=1),
        p: ndarray(ndim=1),
    ) -> (real, real, real):
        """Computes the residual and the first direction. Returns `b . b`, `r . r` and `r . z`, where `z` is the
        preconditioned residual.
        """
        bb, rr, rz = real(0.0), real(0.0), real(0.0)
        for row in range(b.shape[0]):
            residual = b[row] - _row_product(starts, columns, values, x, row)
            z = residual * inverse_diagonal[row]
            r[row] = residual
            p[row] = z
            bb += b[row] * b[row]
            rr += residual * residual
            rz += residual * z
        return bb, rr, rz

    @kernel
    def apply(
        starts: ndarray(ndim=1),
        columns: ndarray(ndim=1),
        values: ndarray(ndim=1),
        p: ndarray(ndim=1),
        ap: ndarray(ndim=1),
    ) -> real:
        """`ap = A p`. Returns `p . ap`."""
        total = real(0.0)
        for row in range(ap.shape[0]):
            product = _row_product(starts, columns, values, p, row)
            ap[row] = product
            total += p[row] * product
        return total

    @kernel
    def advance(
        inverse_diagonal: ndarray(ndim=1),
        p: ndarray(ndim=1),
        ap: ndarray(ndim=1),
        x: ndarray(ndim=1),
        r: ndarray(ndim=1),
        alpha: real,
    ) -> (real, real):
        """Takes a step `alpha` along the direction. Returns `r . r` and `r . z`."""
        rr, rz = real(0.0), real(0.0)
        for row in range(x.shape[0]):
            x[row] += alpha * p[row]
            residual = r[row] - alpha * ap[row]
            r[row] = residual
            rr += residual * residual
            rz += residual * residual * inverse_diagonal[row]
        return rr, rz

    @kernel
    def turn(inverse_diagonal: ndarray(ndim=1), r: ndarray(ndim=1), p: ndarray(ndim=1), beta: real):
        """Computes the next direction."""
        for row in range(p.shape[0]):
            p[row] = r[row] * inverse_diagonal[row] + beta * p[row]

    return begin, apply, advance, turn


CONJUGATE_GRADIENTS = {f32: _solver_kernels(f32), f64: _solver_kernels(f64)}
