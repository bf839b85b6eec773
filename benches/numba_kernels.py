"""The benchmarks in Numba. It has no atomics on the CPU: histogram and particle-to-grid use a copy per thread."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import measuring
import numpy as np
from measuring import ITERATIONS, LEVELS, RADIUS, TIME_STEP

try:
    import numba
    from numba import njit, prange
except ImportError:
    numba = None
    prange = range

    def njit(**_options):
        return lambda function: function


f32 = np.float32


def available() -> bool:
    """Whether Numba is installed."""
    return importlib.util.find_spec("numba") is not None


def start(threads: int) -> None:
    """Sets the number of threads."""
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))


def wait() -> None:
    """Calls return when they are done."""


@njit(parallel=True, fastmath=True)
def triad(a, b, c, s):
    for i in prange(c.shape[0]):
        c[i] = a[i] + s * b[i]


@njit(parallel=True, fastmath=True)
def stencil(a, b):
    for i in prange(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            b[i, j] = f32(0.2) * (a[i, j] + a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])


@njit(parallel=True, fastmath=True)
def elementwise(x, y):
    for i in prange(x.shape[0]):
        y[i] = np.sin(x[i]) * np.exp(-x[i]) + np.sqrt(x[i])


@njit(parallel=True, fastmath=True)
def add_up(x, s):
    total = f32(0.0)
    for i in prange(x.shape[0]):
        total += x[i]
    s[0] += total


@njit(parallel=True, fastmath=True)
def histogram(x, counts, levels):
    parts = numba.get_num_threads()
    mine = np.zeros((parts, levels), np.int32)
    for t in prange(parts):
        for i in range(t * x.shape[0] // parts, (t + 1) * x.shape[0] // parts):
            mine[t, x[i]] += 1
    for t in range(parts):
        counts += mine[t]


@njit(parallel=True, fastmath=True)
def mandelbrot(steps, most):
    n = steps.shape[0]
    for i in prange(n):
        for j in range(n):
            cx = f32(-2.0) + f32(3.0) * f32(j) / f32(n)
            cy = f32(-1.5) + f32(3.0) * f32(i) / f32(n)
            zx = f32(0.0)
            zy = f32(0.0)
            count = 0
            while zx * zx + zy * zy < f32(4.0) and count < most:
                t = zx * zx - zy * zy + cx
                zy = f32(2.0) * zx * zy + cy
                zx = t
                count += 1
            steps[i, j] = count


@njit(parallel=True, fastmath=True)
def nbody(x, y, z, ax, ay, az):
    for i in prange(x.shape[0]):
        sx = f32(0.0)
        sy = f32(0.0)
        sz = f32(0.0)
        for j in range(x.shape[0]):
            dx = x[j] - x[i]
            dy = y[j] - y[i]
            dz = z[j] - z[i]
            inverse = f32(1.0) / np.sqrt(dx * dx + dy * dy + dz * dz + f32(1e-3))
            cube = inverse * inverse * inverse
            sx += dx * cube
            sy += dy * cube
            sz += dz * cube
        ax[i] = sx
        ay[i] = sy
        az[i] = sz


@njit(parallel=True, fastmath=True)
def matmul(a, b, c):
    for i in prange(c.shape[0]):
        for j in range(c.shape[1]):
            c[i, j] = f32(0.0)
        for k in range(a.shape[1]):
            for j in range(c.shape[1]):
                c[i, j] += a[i, k] * b[k, j]


@njit(parallel=True, fastmath=True)
def blur(a, weights, b, radius):
    for i in prange(b.shape[0]):
        for j in range(b.shape[1]):
            s = f32(0.0)
            for k in range(-radius, radius + 1):
                s += weights[k + radius] * a[i, min(max(j + k, 0), a.shape[1] - 1)]
            b[i, j] = s


@njit(fastmath=True, inline="always")
def spline(f):
    return f32(0.5) * (f32(1.5) - f) ** 2, f32(0.75) - (f - f32(1.0)) ** 2, f32(0.5) * (f - f32(0.5)) ** 2


@njit(parallel=True, fastmath=True)
def mpm88(x, v, C, J, grid_v, grid_m, dt):
    m, n = grid_m.shape[0], x.shape[0]
    inv_dx, dx, p_mass = f32(m), f32(1.0 / m), f32((0.5 / m) ** 2)
    parts = numba.get_num_threads()
    mine = np.zeros((parts, m, m, 3), np.float32)
    for t in prange(parts):
        for p in range(t * n // parts, (t + 1) * n // parts):
            bx, by = int(x[p, 0] * inv_dx - f32(0.5)), int(x[p, 1] * inv_dx - f32(0.5))
            fx, fy = x[p, 0] * inv_dx - f32(bx), x[p, 1] * inv_dx - f32(by)
            wx, wy = spline(fx), spline(fy)
            stress = -dt * f32(1600.0) * p_mass * (J[p] - f32(1.0)) * inv_dx * inv_dx
            for i in range(3):
                for j in range(3):
                    ox, oy, weight = (f32(i) - fx) * dx, (f32(j) - fy) * dx, wx[i] * wy[j]
                    ux = p_mass * (v[p, 0] + C[p, 0, 0] * ox + C[p, 0, 1] * oy) + stress * ox
                    uy = p_mass * (v[p, 1] + C[p, 1, 0] * ox + C[p, 1, 1] * oy) + stress * oy
                    mine[t, bx + i, by + j, 0] += weight * ux
                    mine[t, bx + i, by + j, 1] += weight * uy
                    mine[t, bx + i, by + j, 2] += weight * p_mass
    for i in prange(m):
        for j in range(m):
            vx, vy, mass = f32(0.0), f32(0.0), f32(0.0)
            for t in range(parts):
                vx += mine[t, i, j, 0]
                vy += mine[t, i, j, 1]
                mass += mine[t, i, j, 2]
            if mass > 0:
                vx /= mass
                vy /= mass
            vy -= dt * f32(9.8)
            if (i < 3 and vx < 0) or (i > m - 3 and vx > 0):
                vx = f32(0.0)
            if (j < 3 and vy < 0) or (j > m - 3 and vy > 0):
                vy = f32(0.0)
            grid_v[i, j, 0] = vx
            grid_v[i, j, 1] = vy
            grid_m[i, j] = mass
    for p in prange(n):
        bx, by = int(x[p, 0] * inv_dx - f32(0.5)), int(x[p, 1] * inv_dx - f32(0.5))
        fx, fy = x[p, 0] * inv_dx - f32(bx), x[p, 1] * inv_dx - f32(by)
        wx, wy = spline(fx), spline(fy)
        vx, vy = f32(0.0), f32(0.0)
        c00, c01, c10, c11 = f32(0.0), f32(0.0), f32(0.0), f32(0.0)
        for i in range(3):
            for j in range(3):
                weight = wx[i] * wy[j]
                gx, gy = grid_v[bx + i, by + j, 0], grid_v[bx + i, by + j, 1]
                ox, oy = f32(4.0) * inv_dx * (f32(i) - fx), f32(4.0) * inv_dx * (f32(j) - fy)
                vx += weight * gx
                vy += weight * gy
                c00 += weight * gx * ox
                c01 += weight * gx * oy
                c10 += weight * gy * ox
                c11 += weight * gy * oy
        v[p, 0], v[p, 1] = vx, vy
        x[p, 0] += dt * vx
        x[p, 1] += dt * vy
        J[p] *= f32(1.0) + dt * (c00 + c11)
        C[p, 0, 0], C[p, 0, 1], C[p, 1, 0], C[p, 1, 1] = c00, c01, c10, c11


def prepare(name: str) -> tuple[Callable[[], object], Callable[[], np.ndarray]]:
    """A call that does the work once, and one that returns the result."""
    arrays = measuring.inputs(name)
    more = {
        "triad": (f32(3.0),),
        "histogram": (LEVELS,),
        "mandelbrot": (ITERATIONS,),
        "blur": (RADIUS,),
        "mpm88": (f32(TIME_STEP),),
    }
    function = {"map": elementwise, "sum": add_up}.get(name) or globals()[name]
    extra = more.get(name, ())
    result = {"nbody": 3, "mpm88": 0}.get(name, -1)
    return lambda: function(*arrays, *extra), lambda: arrays[result]
