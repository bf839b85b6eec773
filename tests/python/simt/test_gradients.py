"""Gradients of exchanges between the threads of a subgroup, against finite differences."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from lane_kernels import need_threads

import octants as qd
from octants.simt import subgroup

N = 128


@qd.func
def total(x: Any, i: Any) -> Any:
    return subgroup.reduce_all_add(x * x)


@qd.func
def first(x: Any, i: Any) -> Any:
    result = subgroup.reduce_add_tiled(qd.sin(x), 5)
    if i % 32 != 0:
        result = 0.0
    return result


@qd.func
def largest(x: Any, i: Any) -> Any:
    return subgroup.reduce_all_max_tiled(x, 4) * x


@qd.func
def prefix(x: Any, i: Any) -> Any:
    return subgroup.inclusive_add_tiled(x * x, 5) * (1 + i % 3)


@qd.func
def prefix_before(x: Any, i: Any) -> Any:
    return subgroup.exclusive_add_tiled(x, 3) * x


@qd.func
def running_product(x: Any, i: Any) -> Any:
    return subgroup.inclusive_mul_tiled(1.0 + 0.1 * x, 4)


@qd.func
def neighbors(x: Any, i: Any) -> Any:
    return subgroup.shuffle_up(x, 3) * subgroup.shuffle_down(x, 5) + subgroup.shuffle_xor(x * x, 9)


@qd.func
def gathered(x: Any, i: Any) -> Any:
    return subgroup.shuffle(x, (i * 7 + 3) % 32 // 2) * x + subgroup.broadcast_first(x)


@qd.func
def moved_differently(x: Any, i: Any) -> Any:
    return subgroup.shuffle_down(x * x, i % 4) + subgroup.shuffle_up(x, i % 3) * x


@qd.func
def beyond_the_last(x: Any, i: Any) -> Any:
    return subgroup.shuffle(x * x, i % 4 + subgroup.group_size()) * x + subgroup.shuffle(x, i % 8 - 4)


@qd.func
def in_a_loop(x: Any, i: Any) -> Any:
    value = x
    for _ in range(3):
        value = 0.5 * value + 0.1 * subgroup.reduce_all_add_tiled(value * value, 2)
    return value


@qd.func
def of_vectors(x: Any, i: Any) -> Any:
    v = qd.Vector([x, x * x])
    w = subgroup.shuffle_xor(v, 1)
    return w[0] * v[1] + w[1]


FUNCTIONS = [
    total,
    first,
    largest,
    prefix,
    prefix_before,
    running_product,
    neighbors,
    gathered,
    moved_differently,
    beyond_the_last,
    in_a_loop,
    of_vectors,
]


TILES = {first: 32, largest: 16, prefix: 32, running_product: 16}


def kernel_of(function: Callable[..., Any], x: Any, weights: Any, loss: Any) -> Any:
    @qd.kernel
    def k():
        qd.loop_config(block_dim=64)
        for i in range(N):
            loss[None] += weights[i] * function(x[i], i)

    return k


def fields() -> tuple[Any, Any, Any]:
    x, weights, loss = (qd.field(qd.f64, shape, needs_grad=True) for shape in (N, N, ()))
    random = np.random.default_rng(3)
    x.from_numpy(random.uniform(0.5, 1.5, N))
    weights.from_numpy(random.uniform(-1, 1, N))
    return x, weights, loss


def gradient_of(function: Any) -> Any:
    """The kernel, its fields, and the gradient of the loss."""
    x, weights, loss = fields()
    k = kernel_of(function, x, weights, loss)
    k()
    loss.grad[None] = 1.0
    k.grad()
    gradient = x.grad.to_numpy()
    return k, x, weights, loss, gradient


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_reverse_mode(group_size: int, function: Any) -> None:
    need_threads(group_size, TILES.get(function, 1))
    k, x, weights, loss, gradient = gradient_of(function)
    at, step = x.to_numpy(), 1e-5
    for i in (0, 1, 5, 31, 32, 40, 63, 64, 100, 127):
        sides = []
        for sign in (1, -1):
            moved = at.copy()
            moved[i] += sign * step
            x.from_numpy(moved)
            loss[None] = 0.0
            k()
            sides.append(loss[None])
        assert gradient[i] == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_forward_mode_agrees(group_size: int, function: Any) -> None:
    need_threads(group_size, TILES.get(function, 1))
    k, x, weights, loss, gradient = gradient_of(function)
    direction = np.random.default_rng(5).uniform(-1, 1, N)

    y = qd.field(qd.f64, N, needs_dual=True)
    out = qd.field(qd.f64, (), needs_dual=True)
    y.from_numpy(x.to_numpy())
    forward = kernel_of(function, y, weights, out)
    with qd.ad.FwdMode(loss=out, param=y, seed=direction.tolist()):
        forward()
    assert out.dual[None] == pytest.approx(float(gradient @ direction), rel=1e-9)


def test_gradients_of_32_bits(group_size: int) -> None:
    x, y = (qd.field(qd.f32, N, needs_grad=True) for _ in range(2))

    @qd.kernel
    def normalize():
        qd.loop_config(block_dim=32)
        for i in x:
            y[i] = x[i] / subgroup.reduce_all_add_tiled(x[i], 3)

    values = np.random.default_rng(1).uniform(1, 2, N).astype(np.float32)
    x.from_numpy(values)
    normalize()
    seed = np.random.default_rng(2).uniform(-1, 1, N).astype(np.float32)
    y.grad.from_numpy(seed)
    normalize.grad()
    v, s = values.reshape(-1, 8).astype(np.float64), seed.reshape(-1, 8).astype(np.float64)
    sums = v.sum(1, keepdims=True)
    want = s / sums - (s * v).sum(1, keepdims=True) / sums**2
    np.testing.assert_allclose(x.grad.to_numpy().reshape(-1, 8), want, rtol=1e-4, atol=1e-6)
