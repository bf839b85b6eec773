"""Compares forward mode, reverse mode and finite differences on random kernels (`OCTANTS_TEST_SEEDS` of them)."""

import importlib.util
import os

import numpy as np
import pytest
import random_kernels

import octants as qd

SEEDS = int(os.environ.get("OCTANTS_TEST_SEEDS", "48"))
AT_ONCE = 12


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    yield
    qd.reset()


def load(tmp_path, seeds):
    path = tmp_path / f"random_kernel_{seeds[0]}.py"
    path.write_text(random_kernels.kernel_text(seeds))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.run


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_modes_agree(tmp_path, first):
    seeds = list(range(first, min(first + AT_ONCE, SEEDS)))
    run = load(tmp_path, seeds)
    random = np.random.default_rng(first)
    x = qd.field(qd.f64, 8, needs_grad=True, needs_dual=True)
    n = qd.field(qd.i32, 8)
    y = qd.field(qd.f64, (len(seeds), 4), needs_grad=True, needs_dual=True)
    t = qd.field(qd.f64, (len(seeds), 4), needs_grad=True, needs_dual=True)
    start = random.uniform(-1, 1, 8)
    x.from_numpy(start)
    n.from_numpy(random.integers(0, 4, 8).astype(np.int32))
    direction = random.uniform(-1, 1, 8)

    def values(at):
        x.from_numpy(at)
        y.fill(0)
        run(x, n, y, t)
        return y.to_numpy()

    plain = values(start)
    y.fill(0)
    with qd.ad.FwdMode(y, x, seed=list(direction)):
        run(x, n, y, t)
    forward = y.dual.to_numpy()
    assert np.isfinite(forward).all()
    np.testing.assert_allclose(y.to_numpy(), plain, rtol=1e-12, atol=1e-12)
    slopes = (values(start + 1e-7 * direction) - values(start - 1e-7 * direction)) / 2e-7
    values(start)  # The gradient reads `t` as it is.
    near = np.isclose(slopes, forward, rtol=1e-4, atol=1e-4)
    # Occasionally a discontinuity lies between the two points, or `stop_grad` excludes from the derivative a part of
    # the difference.
    source = (tmp_path / f"random_kernel_{first}.py").read_text()
    for slot, seed in enumerate(seeds):
        adjoint = random.uniform(-1, 1, 4)
        y.fill(0)
        y.grad.fill(0)
        for i, value in enumerate(adjoint):
            y.grad[slot, i] = value
        x.grad.fill(0)
        t.grad.fill(0)
        run.grad(x, n, y, t)
        reverse = float(x.grad.to_numpy() @ direction)
        expected = float(forward[slot] @ adjoint)
        text = source.split(f"# seed {seed}\n")[1].split("# seed")[0]
        assert np.isclose(reverse, expected, rtol=1e-9, atol=1e-9), (
            f"seed {seed}: reverse {reverse}, forward {expected}:\n{text}"
        )
        if "stop_grad" not in text and not any(step in text for step in ("floor", "qd.cast")):
            assert near[slot].mean() >= 0.5, f"seed {seed}: {forward[slot]}, differences {slopes[slot]}:\n{text}"
