"""Ray marching: spheres that melt into each other over a floor, drawn by walking along signed distances."""

import math

import numpy as np
from example_support import Arrays, Example, Tolerance

example = Example(__doc__, frames=48, size=240, out="out/ray_march.gif", check_frames=2, check_size=72)
qd = example.qd
vec3 = qd.math.vec3

height, width = example.size, 4 * example.size // 3
most_steps = 80
far = 12.0
centers = qd.Vector.field(3, qd.f32, 3)
image = qd.Vector.field(3, qd.f32, (height, width))


@qd.func
def smooth_min(a, b, k):
    h = qd.math.clamp(0.5 + 0.5 * (b - a) / k, 0.0, 1.0)
    return qd.math.mix(b, a, h) - k * h * (1.0 - h)


@qd.func
def distance(p):
    blob = (p - centers[0]).norm() - 0.7
    for k in qd.static(range(1, 3)):
        blob = smooth_min(blob, (p - centers[k]).norm() - 0.5, 0.35)
    return qd.min(blob, p.y + 1.0)


@qd.func
def normal(p):
    e = 2e-3
    x = distance(p + vec3(e, 0.0, 0.0)) - distance(p - vec3(e, 0.0, 0.0))
    y = distance(p + vec3(0.0, e, 0.0)) - distance(p - vec3(0.0, e, 0.0))
    z = distance(p + vec3(0.0, 0.0, e)) - distance(p - vec3(0.0, 0.0, e))
    return qd.math.normalize(vec3(x, y, z))


@qd.func
def march(origin, direction):
    t = 0.0
    for _ in range(most_steps):
        step = distance(origin + t * direction)
        t += step
        if step < 1e-3 or t > far:
            break
    return t


@qd.kernel
def draw():
    for i, j in image:
        u = (j + 0.5 - 0.5 * width) / height
        w = (0.5 * height - i - 0.5) / height
        eye = vec3(0.0, 0.6, -4.0)
        ray = qd.math.normalize(vec3(u, w - 0.12, 1.2))
        color = vec3(0.55, 0.7, 0.9) * (0.6 + 0.5 * w)
        t = march(eye, ray)
        if t < far:
            hit = eye + t * ray
            n = normal(hit)
            sun = qd.math.normalize(vec3(0.5, 0.8, -0.4))
            lit = qd.max(n.dot(sun), 0.0)
            if march(hit + n * 2e-2, sun) < far:
                lit *= 0.3
            paint = vec3(0.9, 0.45, 0.25)
            if hit.y < -0.99:
                paint = vec3(0.35, 0.4, 0.42)
            color = qd.math.mix(color, paint * (0.2 + 0.8 * lit), qd.exp(-0.02 * t * t))
        image[i, j] = qd.math.clamp(color, 0.0, 1.0)


def place(frame: int) -> np.ndarray:
    """The positions of the three spheres in a frame."""
    a = 2.0 * math.pi * frame / 48.0
    ring = [(a, 0.2), (a + 2.4, 0.35)]
    return np.array([[0.0, 0.0, 0.0]] + [[1.05 * math.cos(b), h * math.sin(2.0 * b), math.sin(b)] for b, h in ring])


def reference(frames: int) -> Arrays:
    """The last frame in numpy: all rays walk together, double precision."""
    balls = place(frames - 1).astype(np.float32).astype(np.float64)

    def field(p: np.ndarray) -> np.ndarray:
        blob = np.linalg.norm(p - balls[0], axis=-1) - 0.7
        for k in (1, 2):
            other = np.linalg.norm(p - balls[k], axis=-1) - 0.5
            h = np.clip(0.5 + 0.5 * (other - blob) / 0.35, 0.0, 1.0)
            blob = other * (1.0 - h) + blob * h - 0.35 * h * (1.0 - h)
        return np.minimum(blob, p[..., 1] + 1.0)

    def walk(origin: np.ndarray, direction: np.ndarray) -> np.ndarray:
        t = np.zeros(origin.shape[:-1])
        going = np.ones(t.shape, bool)
        for _ in range(most_steps):
            step = field(origin + t[..., None] * direction)
            t = np.where(going, t + step, t)
            going &= ~((step < 1e-3) | (t > far))
        return t

    def unit(p: np.ndarray) -> np.ndarray:
        return p / np.linalg.norm(p, axis=-1, keepdims=True)

    row, column = np.mgrid[0:height, 0:width]
    u, w = (column + 0.5 - 0.5 * width) / height, (0.5 * height - row - 0.5) / height
    ray = unit(np.stack([u, w - 0.12, np.full(u.shape, 1.2)], -1))
    eye = np.broadcast_to([0.0, 0.6, -4.0], ray.shape)
    sky = np.array([0.55, 0.7, 0.9]) * (0.6 + 0.5 * w)[..., None]
    t = walk(eye, ray)
    hit = eye + t[..., None] * ray
    step = np.eye(3) * 2e-3
    n = unit(np.stack([field(hit + step[k]) - field(hit - step[k]) for k in range(3)], -1))
    sun = unit(np.array([0.5, 0.8, -0.4]))
    lit = np.maximum(n @ sun, 0.0)
    lit = np.where(walk(hit + n * 2e-2, np.broadcast_to(sun, hit.shape)) < far, 0.3 * lit, lit)
    paint = np.where(hit[..., 1:2] < -0.99, [0.35, 0.4, 0.42], [0.9, 0.45, 0.25])
    haze = np.exp(-0.02 * t * t)[..., None]
    shaded = sky * (1.0 - haze) + paint * (0.2 + 0.8 * lit)[..., None] * haze
    return {"image": np.clip(np.where((t < far)[..., None], shaded, sky), 0.0, 1.0)}


def advance(frame: int) -> None:
    """One frame."""
    centers.from_numpy(place(frame).astype(np.float32))
    draw()


if __name__ == "__main__":
    example.run(
        advance=advance,
        picture=lambda: (image.to_numpy() * 255.0).astype(np.uint8),
        state=lambda: {"image": image.to_numpy()},
        reference=reference,
        # For rays that graze an outline or a shadow's edge, rounding in single precision decides the result.
        tolerance={"image": Tolerance(0.01, allowed=0.02)},
        work=(float(height * width), "rays"),
    )
