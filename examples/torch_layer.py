"""Torch layer: a network whose middle is a kernel learns to tell two spirals apart.

The kernel is a layer of radial basis functions with its own centers and widths; `qd.ad.torch_function` makes it a
function of torch's autograd, between torch's linear layers, and torch's optimizer trains all of it. Tensors go to the
kernel and back without a copy. Draws the loss over the iterations.
"""

import sys

import numpy as np
from example_support import Arrays, Example, Tolerance, curve

example = Example(__doc__, frames=300, size=256, out="out/torch_layer.png", check_frames=3, check_size=24)
qd = example.qd

try:
    import torch
except ImportError:
    sys.exit("torch_layer: torch is not installed")

centers = 24
dtype = torch.float64 if example.args.check else torch.float32
number = qd.f64 if example.args.check else qd.f32


@qd.kernel
def bumps(
    x: qd.types.ndarray(dtype=number, ndim=2),
    center: qd.types.ndarray(dtype=number, ndim=2),
    width: qd.types.ndarray(dtype=number, ndim=1),
    y: qd.types.ndarray(dtype=number, ndim=2),
):
    for i, k in y:
        distance = qd.cast(0, number)
        for d in range(x.shape[1]):
            distance += (x[i, d] - center[k, d]) ** 2
        y[i, k] = qd.exp(-distance * width[k] ** 2)


layer = qd.ad.torch_function(bumps, outputs={"y": lambda x, center, width: (x.shape[0], center.shape[0])})


class Net(torch.nn.Module):
    """Linear, radial basis, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(2, 2)
        self.center = torch.nn.Parameter(torch.randn(centers, 2))
        self.width = torch.nn.Parameter(torch.full((centers,), 2.0))
        self.last = torch.nn.Linear(centers, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(layer(self.first(x), self.center, self.width))[:, 0]


def spirals(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of two spirals, and which of them each is on."""
    random = np.random.default_rng(0)
    turn = np.sqrt(random.random(n)) * 3 * np.pi
    side = np.arange(n) % 2
    angle = turn + np.pi * side
    points = np.stack([np.cos(angle), np.sin(angle)], 1) * turn[:, None] / (3 * np.pi)
    return points + random.standard_normal((n, 2)) * 0.01, side.astype(np.float64)


torch.manual_seed(0)
net = Net().to(dtype)
begin = {name: p.detach().clone().numpy() for name, p in net.named_parameters()}
points, side = (torch.tensor(a, dtype=dtype) for a in spirals(example.size))
optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
losses: list[float] = []
gradients: list[dict[str, np.ndarray]] = []


def advance(_frame: int) -> None:
    """One step of training."""
    optimizer.zero_grad()
    loss = torch.nn.functional.binary_cross_entropy_with_logits(net(points), side)
    loss.backward()
    if not gradients:
        gradients.append({name: p.grad.clone().numpy() for name, p in net.named_parameters()})
    optimizer.step()
    losses.append(loss.item())


def reference(_frames: int) -> Arrays:
    """Loss and gradient of the first step, derived manually."""
    x, target = points.numpy(), side.numpy()
    p = begin
    hidden = x @ p["first.weight"].T + p["first.bias"]
    away = hidden[:, None] - p["center"][None]
    distance = (away**2).sum(-1)
    y = np.exp(-distance * p["width"] ** 2)
    logit = (y @ p["last.weight"].T + p["last.bias"])[:, 0]
    loss = np.mean(np.maximum(logit, 0) - logit * target + np.log1p(np.exp(-abs(logit))))
    d_logit = (1 / (1 + np.exp(-logit)) - target) / len(target)
    d_y = d_logit[:, None] * p["last.weight"]
    d_away = (d_y * y * -(p["width"] ** 2))[..., None] * 2 * away
    d_hidden = d_away.sum(1)
    return {
        "loss": np.array([loss]),
        "center": -d_away.sum(0),
        "width": (d_y * y * -2 * p["width"] * distance).sum(0),
        "first.weight": d_hidden.T @ x,
        "last.weight": d_logit[None] @ y,
    }


def result() -> Arrays:
    """Loss and gradient of the first step."""
    return {"loss": np.array([losses[0]])} | {name: gradients[0][name] for name in gradients[0]}


if __name__ == "__main__":
    example.run(
        advance=advance,
        picture=lambda: curve(losses),
        state=result,
        reference=reference,
        tolerance={name: Tolerance(1e-9) for name in ("loss", "center", "width", "first.weight", "last.weight")},
        work=(float(example.size * centers), "bumps with gradient"),
        report=lambda _: print(f"{'loss:':<22}{losses[0]:.3g}, at the end {losses[-1]:.3g}"),
    )
