"""Rotations, translations and scalings as matrices.

The 4x4 matrices act on homogeneous coordinates. `translate` and `scale` are written for column vectors. The rotations
in space are written for row vectors, `v @ M`, as the interface has always had them; transpose them for column vectors.
"""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from octants._language.kernel_decorators import func
from octants._language.ops import cos, sin
from octants.math.vector_types import mat2, mat4, vec2
from octants.types import template
from octants.types.values import Matrix


@func
def eye(n: template()):
    """The identity matrix of size `n`."""
    return Matrix.identity(float, n)


@func
def vdir(ang):
    """The unit vector at angle `ang` from the x axis."""
    return vec2(cos(ang), sin(ang))


@func
def translate(dx, dy, dz):
    """The 4x4 matrix of a translation by (dx, dy, dz)."""
    return mat4([[1.0, 0.0, 0.0, dx], [0.0, 1.0, 0.0, dy], [0.0, 0.0, 1.0, dz], [0.0, 0.0, 0.0, 1.0]])


@func
def scale(sx, sy, sz):
    """The 4x4 matrix of a scaling along the axes."""
    return mat4([[sx, 0.0, 0.0, 0.0], [0.0, sy, 0.0, 0.0], [0.0, 0.0, sz, 0.0], [0.0, 0.0, 0.0, 1.0]])


@func
def rotation2d(ang):
    """The matrix that rotates 2D column vectors counterclockwise by `ang`."""
    c = cos(ang)
    s = sin(ang)
    return mat2([[c, -s], [s, c]])


@func
def _rotation(r):
    """A 3x3 rotation as a 4x4 matrix."""
    return mat4(
        [
            [r[0, 0], r[0, 1], r[0, 2], 0.0],
            [r[1, 0], r[1, 1], r[1, 2], 0.0],
            [r[2, 0], r[2, 1], r[2, 2], 0.0],
            [0.0, 0.0, 0.0, 1.0],
        ]
    )


@func
def rot_by_axis(axis, ang):
    """The 4x4 matrix that rotates row vectors by `ang` about `axis` (Rodrigues' formula)."""
    a = axis / axis.norm()
    s = sin(ang)
    across = Matrix([[0.0, a[2], -a[1]], [-a[2], 0.0, a[0]], [a[1], -a[0], 0.0]])
    return _rotation(Matrix.identity(float, 3) * cos(ang) + a.outer_product(a) * (1.0 - cos(ang)) + across * s)


@func
def rot_yaw_pitch_roll(yaw, pitch, roll):
    """The 4x4 matrix that rotates row vectors by `roll` about z, then `pitch` about x, then `yaw` about y."""
    cy, sy = cos(yaw), sin(yaw)
    cp, sp = cos(pitch), sin(pitch)
    cr, sr = cos(roll), sin(roll)
    about_y = Matrix([[cy, 0.0, -sy], [0.0, 1.0, 0.0], [sy, 0.0, cy]])
    about_x = Matrix([[1.0, 0.0, 0.0], [0.0, cp, sp], [0.0, -sp, cp]])
    about_z = Matrix([[cr, sr, 0.0], [-sr, cr, 0.0], [0.0, 0.0, 1.0]])
    return _rotation(about_z @ about_x @ about_y)


@func
def rotation3d(ang_x, ang_y, ang_z):
    """`rot_yaw_pitch_roll` with the angles in the order pitch, roll, yaw."""
    return rot_yaw_pitch_roll(ang_z, ang_x, ang_y)
