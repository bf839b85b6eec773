"""Spring fit: finds the stiffness of every spring of a hanging net from the net's motion.

A net of masses and springs falls from rest for half a second. A recording contains the final positions of the masses; a
tape gives the derivative of the distance to it by the stiffness of every spring, through all time steps, and gradient
descent (Adam) finds stiffnesses that move the net in the same way. Draws the loss over the iterations.
"""

import numpy as np
from example_support import Arrays, Example, Tolerance, curve

example = Example(__doc__, frames=150, size=8, out="out/spring_fit.png", check_frames=3, check_size=3)
qd = example.qd

n = example.size
steps = 20 if example.args.check else 128
dt = 0.004
gravity = -4.0
damping = 1.0

# Springs between neighbors along both axes and along one diagonal.
mass_of = np.arange(n * n).reshape(n, n)
pairs = np.concatenate(
    [
        np.stack([mass_of[:, :-1].ravel(), mass_of[:, 1:].ravel()], 1),
        np.stack([mass_of[:-1].ravel(), mass_of[1:].ravel()], 1),
        np.stack([mass_of[:-1, :-1].ravel(), mass_of[1:, 1:].ravel()], 1),
    ]
).astype(np.int32)
rest_place = np.stack(np.meshgrid(np.linspace(0, 1, n), np.linspace(0, 1, n), indexing="ij"), -1).reshape(-1, 2)
# Stretched at the start, so that every spring is at work.
start_place = rest_place * 1.15 + 0.05 * np.sin(7.0 * rest_place[:, ::-1])
rest_length = np.linalg.norm(rest_place[pairs[:, 0]] - rest_place[pairs[:, 1]], axis=1)
true_stiffness = 60.0 + 40.0 * np.sin(3.0 * np.arange(len(pairs)))

x = qd.Vector.field(2, qd.f64, (steps + 1, n * n), needs_grad=True)
v = qd.Vector.field(2, qd.f64, (steps + 1, n * n), needs_grad=True)
force = qd.Vector.field(2, qd.f64, (steps, n * n), needs_grad=True)
stiffness = qd.field(qd.f64, len(pairs), needs_grad=True)
spring = qd.Vector.field(2, qd.i32, len(pairs))
rest = qd.field(qd.f64, len(pairs))
target = qd.Vector.field(2, qd.f64, n * n)
loss = qd.field(qd.f64, (), needs_grad=True)


@qd.kernel
def pull(t: qd.i32):
    for s in spring:
        a, b = spring[s][0], spring[s][1]
        along = x[t, b] - x[t, a]
        length = along.norm()
        f = stiffness[s] * (length - rest[s]) * along / length
        force[t, a] += f
        force[t, b] -= f


@qd.kernel
def move(t: qd.i32):
    for i in target:
        v[t + 1, i] = v[t, i] * qd.exp(-dt * damping) + dt * (force[t, i] + qd.Vector([0.0, gravity]))
        if i % n == n - 1:  # the upper edge is held
            v[t + 1, i] = qd.Vector([0.0, 0.0])
        x[t + 1, i] = x[t, i] + dt * v[t + 1, i]


@qd.kernel
def compare():
    for i in target:
        loss[None] += (x[steps, i] - target[i]).norm_sqr() / (n * n)


def simulate() -> None:
    """All steps from the start. Every step has separate memory, which its gradient reads."""
    force.fill(0)
    for t in range(steps):
        pull(t)
        move(t)


spring.from_numpy(pairs)
rest.from_numpy(rest_length)
x_start = np.zeros((steps + 1, n * n, 2))
x_start[0] = start_place
x.from_numpy(x_start)
stiffness.from_numpy(true_stiffness)
simulate()
target.from_numpy(x.to_numpy()[steps])
stiffness.fill(60.0)

losses: list[float] = []
gradients: list[np.ndarray] = []
means = np.zeros((2, len(pairs)))


def advance(frame: int) -> None:
    """One iteration: simulate, differentiate, and take a step of Adam."""
    with qd.ad.Tape(loss):
        simulate()
        compare()
    gradient = stiffness.grad.to_numpy()
    losses.append(float(loss[None]))
    gradients.append(gradient)
    means[0] = 0.9 * means[0] + 0.1 * gradient
    means[1] = 0.99 * means[1] + 0.01 * gradient**2
    first, second = means[0] / (1 - 0.9 ** (frame + 1)), means[1] / (1 - 0.99 ** (frame + 1))
    stiffness.from_numpy(stiffness.to_numpy() - 2.0 * first / (np.sqrt(second) + 1e-12))


def loss_of(k: np.ndarray, goal: np.ndarray | None) -> tuple[float, np.ndarray]:
    """The simulation in numpy: loss and last places."""
    place, velocity = start_place.copy(), np.zeros_like(start_place)
    held = np.arange(n * n) % n == n - 1
    for _ in range(steps):
        along = place[pairs[:, 1]] - place[pairs[:, 0]]
        length = np.linalg.norm(along, axis=1)
        f = (k * (length - rest_length) / length)[:, None] * along
        total = np.zeros_like(place)
        np.add.at(total, pairs[:, 0], f)
        np.add.at(total, pairs[:, 1], -f)
        velocity = velocity * np.exp(-dt * damping) + dt * (total + [0.0, gravity])
        velocity[held] = 0.0
        place = place + dt * velocity
    return (0.0 if goal is None else float(((place - goal) ** 2).sum() / (n * n))), place


def reference(frames: int) -> Arrays:
    """Loss and gradient of the first iteration, the gradient by differences; and that the loss falls."""
    _, goal = loss_of(true_stiffness, None)
    k = np.full(len(pairs), 60.0)
    gradient = np.empty(len(pairs))
    for s in range(len(pairs)):
        h = np.zeros(len(pairs))
        h[s] = 1e-3
        gradient[s] = (loss_of(k + h, goal)[0] - loss_of(k - h, goal)[0]) / 2e-3
    return {"loss": np.array([loss_of(k, goal)[0]]) * 1e6, "gradient": gradient * 1e6, "falls": np.ones(1)}


if __name__ == "__main__":
    example.run(
        advance=advance,
        picture=lambda: curve(losses),
        state=lambda: {
            "loss": np.array([losses[0]]) * 1e6,
            "gradient": gradients[0] * 1e6,
            "falls": np.array([float(losses[-1] < losses[0])]),
        },
        reference=reference,
        tolerance={"loss": Tolerance(1e-5), "gradient": Tolerance(1e-4), "falls": Tolerance(0.0)},
        work=(float(len(pairs) * steps), "spring steps with gradient"),
        report=lambda _: print(f"{'loss:':<22}{losses[0]:.3g}, at the end {losses[-1]:.3g}"),
    )
