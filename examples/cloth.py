"""Cloth: position-based dynamics of a square sheet that falls over a ball.

Each vertex gathers the corrections of its neighbors (Jacobi iterations), so the result does not depend on the order.
"""

import numpy as np
from example_support import Arrays, Example, Tolerance

example = Example(__doc__, frames=120, size=80, out="out/cloth.gif", check_frames=6, check_size=20)
qd = example.qd

n = example.size
substeps = 4
iterations = 6
dt = 1.0 / 240.0
spacing = 1.0 / (n - 1)
ball_radius = 0.32
relaxation = 0.22

# Structural neighbors one cell away, shear across, bending two cells away.
LINKS = [(1, 0), (0, 1), (1, 1), (1, -1), (2, 0), (0, 2)]
LINKS += [(-a, -b) for a, b in LINKS]

Vertex = qd.types.struct(place=qd.math.vec3, before=qd.math.vec3, velocity=qd.math.vec3, moved=qd.math.vec3)

sheet = Vertex.field(shape=(n, n))


@qd.func
def inside(i, j):
    return i >= 0 and i < n and j >= 0 and j < n


@qd.kernel
def fall():
    for i, j in sheet:
        sheet[i, j].velocity.y -= 9.8 * dt
        sheet[i, j].before = sheet[i, j].place
        sheet[i, j].place += dt * sheet[i, j].velocity


@qd.kernel
def correct():
    for i, j in sheet:
        here = sheet[i, j].place
        total = qd.math.vec3(0.0, 0.0, 0.0)
        for a, b in qd.static(LINKS):
            if inside(i + a, j + b):
                away = sheet[i + a, j + b].place - here
                rest = qd.static(spacing * float(a * a + b * b) ** 0.5)
                total += (1.0 - rest / away.norm(1e-12)) * away
        sheet[i, j].moved = here + relaxation * 0.5 * total
    for i, j in sheet:
        place = sheet[i, j].moved
        distance = place.norm(1e-12)
        if distance < ball_radius:
            place *= ball_radius / distance
        sheet[i, j].place = place


@qd.kernel
def settle():
    for I in qd.grouped(sheet):
        vertex = sheet[I]
        velocity = (vertex.place - vertex.before) / dt
        if vertex.place.norm() < ball_radius * 1.01:
            velocity *= 0.6
        sheet[I].velocity = velocity * 0.999


def start() -> np.ndarray:
    """A flat sheet above the ball, slightly off its center."""
    row, column = np.mgrid[0:n, 0:n] * spacing
    return np.stack([row - 0.49, np.full((n, n), 0.36), column - 0.51], -1).astype(np.float32)


def reference(frames: int) -> Arrays:
    """The same iterations on whole numpy arrays, double precision."""
    place, velocity = start().astype(np.float64), np.zeros((n, n, 3))
    index = np.arange(n)
    for _ in range(frames * substeps):
        velocity[..., 1] -= 9.8 * dt
        before = place
        place = place + dt * velocity
        for _ in range(iterations):
            total = np.zeros((n, n, 3))
            for a, b in LINKS:
                rows, columns = index[(index + a >= 0) & (index + a < n)], index[(index + b >= 0) & (index + b < n)]
                at, to = np.ix_(rows, columns), np.ix_(rows + a, columns + b)
                away = place[to] - place[at]
                length = np.sqrt(np.sum(away**2, -1, keepdims=True))
                total[at] += (1.0 - spacing * np.hypot(a, b) / length) * away
            place = place + relaxation * 0.5 * total
            distance = np.sqrt(np.sum(place**2, -1, keepdims=True))
            place = np.where(distance < ball_radius, place * ball_radius / distance, place)
        velocity = (place - before) / dt
        touching = np.sqrt(np.sum(place**2, -1, keepdims=True)) < ball_radius * 1.01
        velocity = velocity * np.where(touching, 0.6, 1.0) * 0.999
    return {"place": place}


def advance(_frame: int) -> None:
    """One frame."""
    for _ in range(substeps):
        fall()
        for _ in range(iterations):
            correct()
        settle()


def picture(size: int = 320) -> np.ndarray:
    """The sheet and the ball seen from the side and a little above: nearer points drawn last."""
    image = np.full((size, size, 3), [24, 26, 34], np.uint8)
    row, column = np.mgrid[0:size, 0:size] / size
    right, up = (column - 0.5) * 1.7, (0.42 - row) * 1.7
    ball = ball_radius**2 - right**2 - up**2
    shade = np.clip(0.35 + np.sqrt(np.maximum(ball, 0.0)) / ball_radius, 0.0, 1.0)
    image[ball > 0.0] = (shade[ball > 0.0, None] * [150, 90, 60]).astype(np.uint8)
    place = sheet.place.to_numpy()
    fine = [place[:-1, :-1] * (1 - s) * (1 - t) + place[1:, :-1] * s * (1 - t) for s in (0, 0.5) for t in (0, 0.5)]
    other = [place[:-1, 1:] * (1 - s) * t + place[1:, 1:] * s * t for s in (0, 0.5) for t in (0, 0.5)]
    across, along = place[1:, :-1] - place[:-1, :-1], place[:-1, 1:] - place[:-1, :-1]
    normal = np.cross(across, along)
    light = np.abs(normal @ [0.48, 0.8, 0.36]) / np.maximum(np.linalg.norm(normal, axis=-1), 1e-9)
    tilt = np.array([[0.8, 0.0, 0.6], [0.3, 0.86, -0.4], [-0.5, 0.5, 0.7]])
    seen = np.concatenate([(a + b).reshape(-1, 3) for a, b in zip(fine, other, strict=True)]) @ tilt.T
    bright = np.tile((0.25 + 0.75 * light).ravel(), 4)
    order = np.argsort(seen[:, 2])
    at_row = np.clip(((0.42 - seen[order, 1] / 1.7) * size).astype(int), 0, size - 1)
    at_column = np.clip(((seen[order, 0] / 1.7 + 0.5) * size).astype(int), 0, size - 1)
    image[at_row, at_column] = (bright[order, None] * [90, 170, 230]).astype(np.uint8)
    return image


if __name__ == "__main__":
    sheet.place.from_numpy(start())
    sheet.velocity.fill(0)
    example.run(
        advance=advance,
        picture=picture,
        state=lambda: {"place": sheet.place.to_numpy()},
        reference=reference,
        tolerance={"place": Tolerance(5e-4)},
        work=(float(n * n * substeps * iterations), "vertex updates"),
    )
