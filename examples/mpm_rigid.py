"""Water and a ball: MPM fluid coupled to a rigid body through the grid, all substeps of a frame one captured graph.

Particles are transferred to the grid on one stream while the ball falls and hits the walls on another. Inside the ball,
the grid moves with it, and the ball receives the change of momentum. `--check` compares the graph with the same
launches one by one. A normal run also draws the graph of a frame.
"""

import numpy as np
from example_support import Arrays, Example, Timing, Tolerance, dots

example = Example(__doc__, frames=200, size=8192, out="out/mpm_rigid.gif", check_frames=3, check_size=512)
qd = example.qd

n_particles = example.size
n_grid = 32 if example.args.check else 96
substeps = 16
dt = 8e-4 if example.args.check else 2e-4
dx = 1.0 / n_grid
p_vol = (dx * 0.5) ** 2
p_mass = p_vol
bound, stiffness, gravity = 3, 400.0, 9.8
radius, density = 0.09, 0.5
ball_mass = density * np.pi * radius**2
ball_inertia = 0.5 * ball_mass * radius**2

x, v = (qd.Vector.field(2, qd.f32, n_particles) for _ in range(2))
C = qd.Matrix.field(2, 2, qd.f32, n_particles)
J = qd.field(qd.f32, n_particles)
grid_v = qd.Vector.field(2, qd.f32, (n_grid, n_grid))
grid_m = qd.field(qd.f32, (n_grid, n_grid))

Ball = qd.types.struct(place=qd.math.vec2, velocity=qd.math.vec2, angle=qd.f32, spin=qd.f32)
ball = Ball.field(shape=())
impulse = qd.Vector.field(2, qd.f32, ())
twist = qd.field(qd.f32, ())


@qd.kernel
def to_grid():
    for i, j in grid_m:
        grid_v[i, j] = [0, 0]
        grid_m[i, j] = 0
    for p in x:
        Xp = x[p] / dx
        base = int(Xp - 0.5)
        fx = Xp - base
        w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
        stress = -dt * 4 * stiffness * p_vol * (J[p] - 1) / dx**2
        affine = qd.Matrix([[stress, 0], [0, stress]]) + p_mass * C[p]
        for i, j in qd.static(qd.ndrange(3, 3)):
            offset = qd.Vector([i, j])
            weight = w[i].x * w[j].y
            grid_v[base + offset] += weight * (p_mass * v[p] + affine @ ((offset - fx) * dx))
            grid_m[base + offset] += weight * p_mass


@qd.kernel
def fall():
    """The ball on its own: gravity, and walls that take half of its speed."""
    for _ in range(1):
        impulse[None] = [0, 0]
        twist[None] = 0
        speed = ball[None].velocity - dt * qd.math.vec2(0.0, gravity)
        low, high = bound * dx + radius, 1.0 - bound * dx - radius
        for k in qd.static(range(2)):
            if (ball[None].place[k] < low and speed[k] < 0) or (ball[None].place[k] > high and speed[k] > 0):
                speed[k] *= -0.5
        ball[None].velocity = speed


@qd.kernel
def couple():
    """Gravity and walls on the grid; nodes in the ball take its motion and give it their momentum."""
    for i, j in grid_m:
        if grid_m[i, j] > 0:
            own = grid_v[i, j] / grid_m[i, j]
            own.y -= dt * gravity
            arm = qd.math.vec2((i + 0.0) * dx, (j + 0.0) * dx) - ball[None].place
            if arm.norm() < radius:
                moved = ball[None].velocity + ball[None].spin * qd.math.vec2(-arm.y, arm.x)
                given = grid_m[i, j] * (own - moved)
                impulse[None] += given
                twist[None] += arm.x * given.y - arm.y * given.x
                own = moved
            if (i < bound and own.x < 0) or (i > n_grid - bound and own.x > 0):
                own.x = 0
            if (j < bound and own.y < 0) or (j > n_grid - bound and own.y > 0):
                own.y = 0
            grid_v[i, j] = own


@qd.kernel
def move_ball():
    for _ in range(1):
        ball[None].velocity += impulse[None] / (ball_mass + p_mass)
        ball[None].spin += twist[None] / ball_inertia * 0.5
        ball[None].place += dt * ball[None].velocity
        ball[None].angle += dt * ball[None].spin


@qd.kernel
def to_particles():
    for p in x:
        Xp = x[p] / dx
        base = int(Xp - 0.5)
        fx = Xp - base
        w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
        new_v = qd.Vector.zero(qd.f32, 2)
        new_C = qd.Matrix.zero(qd.f32, 2, 2)
        for i, j in qd.static(qd.ndrange(3, 3)):
            offset = qd.Vector([i, j])
            weight = w[i].x * w[j].y
            g_v = grid_v[base + offset]
            new_v += weight * g_v
            new_C += 4 * weight * g_v.outer_product((offset - fx) * dx) / dx**2
        v[p] = new_v
        x[p] += dt * new_v
        J[p] *= 1 + dt * new_C.trace()
        C[p] = new_C


other = qd.create_stream()


def substep() -> None:
    """The ball falls concurrently with the transfer to the grid, and moves concurrently with the transfer back."""
    main = qd.default_stream()
    other.wait(main)
    fall(qd_stream=other)
    to_grid()
    main.wait(other)
    couple()
    other.wait(main)
    move_ball(qd_stream=other)
    to_particles()
    main.wait(other)


def start() -> None:
    """A block of water next to the ball."""
    qd.sync()
    random = np.random.default_rng(11).random((n_particles, 2))
    x.from_numpy((random * [0.35, 0.5] + [0.12, 0.12]).astype(np.float32))
    v.fill(0)
    C.fill(0)
    J.fill(1)
    ball[None] = Ball(place=[0.62, 0.35], velocity=[-1.5, 0.0], angle=0.0, spin=0.0)


def state() -> Arrays:
    of_ball = ball[None]
    return {"x": x.to_numpy(), "v": v.to_numpy(), "ball": np.array([*of_ball.place, *of_ball.velocity, of_ball.spin])}


def reference(frames: int) -> Arrays:
    """The same launches one by one."""
    start()
    for _ in range(frames * substeps):
        substep()
    qd.sync()
    want = state()
    assert want["ball"][4] != 0.0, "the water turns the ball"
    start()
    return want


start()
with qd.graph.capture() as graph:
    for _ in range(substeps):
        substep()


def advance(_frame: int) -> None:
    """One frame: one launch."""
    graph.launch()


def picture(size: int = 400) -> np.ndarray:
    """Water, and the ball with a spoke."""
    image = dots(x.to_numpy(), np.array([110, 170, 230]), size)
    of_ball = ball[None]
    row, column = np.mgrid[0:size, 0:size] / size
    across, up = column - of_ball.place[0], 1.0 - row - of_ball.place[1]
    inside = across**2 + up**2 < radius**2
    image[inside] = [235, 150, 70]
    along = np.array([np.cos(of_ball.angle), np.sin(of_ball.angle)])
    spoke = inside & (np.abs(across * along[1] - up * along[0]) < 0.008)
    image[spoke] = [90, 50, 20]
    return image


def report(_timing: Timing) -> None:
    """Draws the graph."""
    drawing = example.args.out.with_suffix(".svg")
    graph.plot(drawing)
    print(f"{'graph:':<22}{drawing}, {len(graph)} steps")


if __name__ == "__main__":
    example.run(
        advance=advance,
        picture=picture,
        state=state,
        reference=reference,
        tolerance={"x": Tolerance(2e-4), "v": Tolerance(2e-2), "ball": Tolerance(5e-3)},
        work=(float(n_particles * substeps), "particle-steps"),
        report=report,
        against="the run without a graph",
    )
