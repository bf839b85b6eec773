"""The benchmarks on octants, or on another package with its interface: `BENCH_MODULE` names it."""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Callable
from typing import Any

import measuring
import numpy as np
from measuring import CELLS, ITERATIONS, RADIUS, SIZES, TIME_STEP

qd: Any = importlib.import_module(os.environ.get("BENCH_MODULE", "octants"))

F1 = qd.types.ndarray(dtype=qd.f32, ndim=1)
F2 = qd.types.ndarray(dtype=qd.f32, ndim=2)
I1 = qd.types.ndarray(dtype=qd.i32, ndim=1)
I2 = qd.types.ndarray(dtype=qd.i32, ndim=2)


@qd.kernel
def triad(a: F1, b: F1, c: F1, s: qd.f32):
    for i in range(c.shape[0]):
        c[i] = a[i] + s * b[i]


@qd.kernel
def stencil(a: F2, b: F2):
    for i, j in qd.ndrange((1, a.shape[0] - 1), (1, a.shape[1] - 1)):
        b[i, j] = 0.2 * (a[i, j] + a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])


@qd.kernel
def elementwise(x: F1, y: F1):
    for i in range(x.shape[0]):
        v = x[i]
        y[i] = qd.sin(v) * qd.exp(-v) + qd.sqrt(v)


@qd.kernel
def add_up(x: F1, s: F1):
    for i in range(x.shape[0]):
        s[0] += x[i]


@qd.kernel
def histogram(x: I1, counts: I1):
    for i in range(x.shape[0]):
        counts[x[i]] += 1


@qd.kernel
def mandelbrot(steps: I2, most: qd.i32):
    for i, j in qd.ndrange(steps.shape[0], steps.shape[1]):
        cx = -2.0 + 3.0 * j / steps.shape[1]
        cy = -1.5 + 3.0 * i / steps.shape[0]
        zx = 0.0
        zy = 0.0
        count = 0
        while zx * zx + zy * zy < 4.0 and count < most:
            t = zx * zx - zy * zy + cx
            zy = 2.0 * zx * zy + cy
            zx = t
            count += 1
        steps[i, j] = count


@qd.kernel
def nbody(x: F1, y: F1, z: F1, ax: F1, ay: F1, az: F1):
    for i in range(x.shape[0]):
        sx = 0.0
        sy = 0.0
        sz = 0.0
        for j in range(x.shape[0]):
            dx = x[j] - x[i]
            dy = y[j] - y[i]
            dz = z[j] - z[i]
            inverse = 1.0 / qd.sqrt(dx * dx + dy * dy + dz * dz + 1e-3)
            cube = inverse * inverse * inverse
            sx += dx * cube
            sy += dy * cube
            sz += dz * cube
        ax[i] = sx
        ay[i] = sy
        az[i] = sz


@qd.kernel
def matmul(a: F2, b: F2, c: F2):
    for i, j in c:
        s = 0.0
        for k in range(a.shape[1]):
            s += a[i, k] * b[k, j]
        c[i, j] = s


@qd.kernel
def blur(a: F2, weights: F1, b: F2, radius: qd.i32):
    for i, j in b:
        s = 0.0
        for k in range(-radius, radius + 1):
            s += weights[k + radius] * a[i, min(max(j + k, 0), a.shape[1] - 1)]
        b[i, j] = s


@qd.func
def spline(fx):
    return [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]


@qd.kernel
def mpm88(
    x: qd.template(),
    v: qd.template(),
    C: qd.template(),
    J: qd.template(),
    grid_v: qd.template(),
    grid_m: qd.template(),
):
    dx = qd.static(1.0 / CELLS)
    p_mass = qd.static((0.5 / CELLS) ** 2)
    for i, j in grid_m:
        grid_v[i, j] = [0, 0]
        grid_m[i, j] = 0
    for p in x:
        base = int(x[p] / dx - 0.5)
        fx = x[p] / dx - base
        w = spline(fx)
        stress = -TIME_STEP * 4 * 400.0 * p_mass * (J[p] - 1) / dx**2
        affine = qd.Matrix([[stress, 0], [0, stress]]) + p_mass * C[p]
        for i, j in qd.static(qd.ndrange(3, 3)):
            offset = qd.Vector([i, j])
            weight = w[i].x * w[j].y
            grid_v[base + offset] += weight * (p_mass * v[p] + affine @ ((offset - fx) * dx))
            grid_m[base + offset] += weight * p_mass
    for i, j in grid_m:
        if grid_m[i, j] > 0:
            grid_v[i, j] /= grid_m[i, j]
        grid_v[i, j].y -= TIME_STEP * 9.8
        if i < 3 and grid_v[i, j].x < 0:
            grid_v[i, j].x = 0
        if i > CELLS - 3 and grid_v[i, j].x > 0:
            grid_v[i, j].x = 0
        if j < 3 and grid_v[i, j].y < 0:
            grid_v[i, j].y = 0
        if j > CELLS - 3 and grid_v[i, j].y > 0:
            grid_v[i, j].y = 0
    for p in x:
        base = int(x[p] / dx - 0.5)
        fx = x[p] / dx - base
        w = spline(fx)
        new_v = qd.Vector.zero(qd.f32, 2)
        new_C = qd.Matrix.zero(qd.f32, 2, 2)
        for i, j in qd.static(qd.ndrange(3, 3)):
            offset = qd.Vector([i, j])
            weight = w[i].x * w[j].y
            near = grid_v[base + offset]
            new_v += weight * near
            new_C += 4 * weight * near.outer_product(offset - fx) / dx
        v[p] = new_v
        x[p] += TIME_STEP * new_v
        J[p] *= 1 + TIME_STEP * new_C.trace()
        C[p] = new_C


def start(threads: int) -> None:
    """Initializes the package."""
    qd.init(arch=qd.cpu, cpu_max_num_threads=threads)


def wait() -> None:
    """Waits for everything launched."""
    qd.sync()


def device(array: np.ndarray) -> Any:
    """An ndarray with the contents of a numpy array."""
    copy = qd.ndarray(qd.f32 if array.dtype == np.float32 else qd.i32, array.shape)
    copy.from_numpy(array)
    return copy


def prepare(name: str) -> tuple[Callable[[], object], Callable[[], np.ndarray]]:
    """A call that does the work once, and one that returns the result."""
    arrays = measuring.inputs(name)
    if name == "mpm88":
        return prepare_mpm88(arrays)
    given = [device(a) for a in arrays]
    kernel = {"map": elementwise, "sum": add_up}.get(name) or globals()[name]
    extra: tuple[float, ...] = {"triad": (3.0,), "mandelbrot": (ITERATIONS,), "blur": (RADIUS,)}.get(name, ())
    return lambda: kernel(*given, *extra), lambda: given[3 if name == "nbody" else -1].to_numpy()


def prepare_mpm88(arrays: list[np.ndarray]) -> tuple[Callable[[], object], Callable[[], np.ndarray]]:
    """The same for MPM88, on fields."""
    n = SIZES["mpm88"]
    fields = [
        qd.Vector.field(2, qd.f32, n),
        qd.Vector.field(2, qd.f32, n),
        qd.Matrix.field(2, 2, qd.f32, n),
        qd.field(qd.f32, n),
        qd.Vector.field(2, qd.f32, (CELLS, CELLS)),
        qd.field(qd.f32, (CELLS, CELLS)),
    ]
    for field, values in zip(fields, arrays, strict=True):
        field.from_numpy(values)
    return lambda: mpm88(*fields), lambda: fields[0].to_numpy()


@qd.kernel
def arrays(a: F1, b: F1, c: F1):
    for i in range(1):
        c[i] = a[i] + b[i]


@qd.kernel
def increment(a: F1, by: qd.f32):
    for i in a:
        a[i] += by


@qd.kernel
def ten_tasks(a: F1):
    for _ in range(1):
        a[0] = 1.0
    for _ in range(1):
        a[1] = 1.0
    for _ in range(1):
        a[2] = 1.0
    for _ in range(1):
        a[3] = 1.0
    for _ in range(1):
        a[4] = 1.0
    for _ in range(1):
        a[5] = 1.0
    for _ in range(1):
        a[6] = 1.0
    for _ in range(1):
        a[7] = 1.0
    for _ in range(1):
        a[8] = 1.0
    for _ in range(1):
        a[9] = 1.0


def nested_class(levels: int) -> Any:
    """A dataclass of 25 arrays and such a dataclass with a level less."""
    members = [(f"a{n}", F1) for n in range(25)]
    inner = [("inner", nested_class(levels - 1))] if levels > 1 else []
    return dataclasses.make_dataclass(f"Level{levels}", members + inner, frozen=True)


def nested_arrays(cls: Any) -> Any:
    """An object of `nested_class`."""
    types = [field.type for field in dataclasses.fields(cls)]
    return cls(*(nested_arrays(t) if dataclasses.is_dataclass(t) else qd.ndarray(qd.f32, (16,)) for t in types))


Nested: Any = nested_class(4)


def launches() -> dict[str, Callable[[], object]]:
    """Launches of nearly empty kernels, by their arguments."""
    flag = qd.field(qd.f32, ())

    @qd.kernel
    def nothing():
        flag[None] = 1.0

    @qd.kernel
    def three_scalars(a: qd.i32, b: qd.f32, c: qd.f32):
        flag[None] = a + b * c

    @qd.data_oriented
    class Holder:
        def __init__(self) -> None:
            self.values = qd.field(qd.f32, 4)

        @qd.kernel
        def method(self, a: F1):
            a[0] = 1.0

    @qd.kernel
    def free(a: F1):
        a[0] = 1.0

    holder, nested = Holder(), nested_arrays(Nested)

    @qd.kernel
    def hundred_arrays(s: Nested):
        s.a0[0] = s.inner.a1[0] + s.inner.inner.a2[0] + s.inner.inner.inner.a24[0]

    on_device = [device(np.ones(16, np.float32)) for _ in range(3)]
    on_host = [np.ones(16, np.float32) for _ in range(3)]
    return {
        "no arguments": nothing,
        "three scalars": lambda: three_scalars(1, 2.0, 3.0),
        "three ndarrays": lambda: arrays(*on_device),
        "three numpy arrays": lambda: arrays(*on_host),
        "one ndarray": lambda: free(on_device[0]),
        "one ndarray, of a method": lambda: holder.method(on_device[0]),
        "a dataclass of 100 ndarrays, 4 deep": lambda: hundred_arrays(nested),
        "ten tasks": lambda: ten_tasks(on_device[0]),
    }
