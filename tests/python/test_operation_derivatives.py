"""Every differentiable operation of the language, in both modes, on scalars, vectors and matrices, against
differences."""

import importlib.util

import numpy as np
import pytest

import octants as qd

# Expression in a and b, and a smooth domain: (low, high) of each.
POSITIVE, MIXED = (0.2, 0.9), (-0.9, 0.9)
OPERATIONS = [
    ("-a", MIXED, MIXED),
    ("a + b", MIXED, MIXED),
    ("a - b", MIXED, MIXED),
    ("a * b", MIXED, MIXED),
    ("a / b", MIXED, POSITIVE),
    ("a // b + a", (2.1, 2.8), (0.85, 0.99)),
    ("a % b", (2.1, 2.8), (0.85, 0.99)),
    ("a ** b", POSITIVE, MIXED),
    ("a ** 3", MIXED, MIXED),
    ("a ** 0.5", POSITIVE, MIXED),
    ("a ** -2", POSITIVE, MIXED),
    ("2.0 ** a", MIXED, MIXED),
    ("abs(a) * b", (-0.9, -0.2), MIXED),
    ("qd.sqrt(a)", POSITIVE, MIXED),
    ("qd.rsqrt(a)", POSITIVE, MIXED),
    ("qd.sin(a)", MIXED, MIXED),
    ("qd.cos(a)", MIXED, MIXED),
    ("qd.tan(a)", MIXED, MIXED),
    ("qd.asin(a)", (-0.8, 0.8), MIXED),
    ("qd.acos(a)", (-0.8, 0.8), MIXED),
    ("qd.atan2(a, b)", MIXED, POSITIVE),
    ("qd.tanh(a)", MIXED, MIXED),
    ("qd.exp(a)", MIXED, MIXED),
    ("qd.log(a)", POSITIVE, MIXED),
    ("qd.floor(a) * b", MIXED, MIXED),
    ("qd.ceil(a) * b", POSITIVE, MIXED),
    ("qd.round(a) * b", (0.6, 0.9), MIXED),
    ("qd.max(a, b)", (0.1, 0.4), (0.5, 0.9)),
    ("qd.min(a, b)", (0.1, 0.4), (0.5, 0.9)),
    ("qd.select(a > 0.5, a * a, b)", (0.6, 0.9), MIXED),
    ("qd.cast(qd.cast(a, qd.f32), qd.f64) * 0 + a", MIXED, MIXED),
    ("qd.math.fract(a)", POSITIVE, MIXED),
    ("qd.math.mix(a, b, 0.25)", MIXED, MIXED),
    ("qd.math.clamp(a, -2.0, 0.1) * b", POSITIVE, MIXED),
    ("qd.math.smoothstep(-1.0, 1.0, a)", MIXED, MIXED),
    ("qd.math.sign(a) * b", POSITIVE, MIXED),
]
OF_VECTORS = [
    "a.dot(b)",
    "a.cross(b).sum()",
    "a.norm()",
    "a.norm_sqr()",
    "a.normalized().dot(b)",
    "a.sum()",
    "a.max()",
    "a.min()",
]
OF_VECTORS += [
    "a.outer_product(b)[1, 2]",
    "a[i % 3] * b[(i + 1) % 3]",
    "(a.outer_product(b) @ a)[0]",
    "qd.math.reflect(a, b).sum()",
]
OF_MATRICES = [
    "(a @ b)[1, 2]",
    "a.determinant()",
    "(a.inverse() @ b).trace()",
    "a.transpose()[2, 1] * b[i % 3, 1]",
    "(a @ b[0, :])[2]",
]
OF_MATRICES += ["a.trace()", "(a @ b @ a).norm()"]

SHAPES = {
    "scalar": ((), "x[{0}, i]", "{0}"),
    "vector": ((3,), "x[{0}, i]", "({0}).dot(w)"),
    "matrix": ((3, 3), "x[{0}, i]", "(({0}) * w).sum()"),
}
WEIGHTS = {
    "scalar": "0.0",
    "vector": "qd.Vector([0.7, -0.4, 1.1])",
    "matrix": "qd.Matrix([[0.7, -0.4, 1.1], [0.2, 0.5, -0.6], [0.9, 0.3, -0.8]])",
}
POINTS = 3


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    yield
    qd.reset()


def rows(shape):
    """Expressions that give a number, with the domains of a and b."""
    _, _, number = SHAPES[shape]
    found = [(number.format(text), a, b) for text, a, b in OPERATIONS]
    if shape == "vector":
        found += [(text, POSITIVE, (0.3, 0.8)) for text in OF_VECTORS]
    if shape == "matrix":
        found += [(text, POSITIVE, MIXED) for text in OF_MATRICES]
    return found


def load(tmp_path, shape):
    lines = ["import octants as qd", "", "", "@qd.kernel", "def run(x: qd.template(), y: qd.template()):"]
    for r, (text, _, _) in enumerate(rows(shape)):
        load_a, load_b = (SHAPES[shape][1].format(f"{k}, {r}") for k in (0, 1))
        lines += [f"    for i in range({POINTS}):", f"        w = {WEIGHTS[shape]}"]
        lines += [f"        a = {load_a}", f"        b = {load_b}", f"        y[{r}, i] = {text}"]
    path = tmp_path / f"operations_{shape}.py"
    path.write_text("\n".join(lines) + "\n")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.run


@pytest.mark.parametrize("shape", SHAPES)
def test_both_modes_agree_with_differences(tmp_path, shape):
    run, cases, element = load(tmp_path, shape), rows(shape), SHAPES[shape][0]
    extents = (2, len(cases), POINTS)
    kind = {"scalar": qd.f64, "vector": qd.types.vector(3, qd.f64), "matrix": qd.types.matrix(3, 3, qd.f64)}[shape]
    x = qd.field(kind, extents, needs_grad=True, needs_dual=True)
    y = qd.field(qd.f64, extents[1:], needs_grad=True, needs_dual=True)
    random = np.random.default_rng(5)
    start = np.empty(extents + element)
    for r, (_, *domains) in enumerate(cases):
        for k, (low, high) in enumerate(domains):
            start[k, r] = random.uniform(low, high, (POINTS, *element))
    direction = random.uniform(-1, 1, start.shape)

    def values(at):
        x.from_numpy(at)
        run(x, y)
        return y.to_numpy()

    slopes = (values(start + 1e-6 * direction) - values(start - 1e-6 * direction)) / 2e-6
    x.from_numpy(start)
    with qd.ad.FwdMode(y, x, seed=list(direction.reshape(-1))):
        run(x, y)
    forward = y.dual.to_numpy()
    y.grad.fill(1)
    run.grad(x, y)
    each = (x.grad.to_numpy() * direction).sum((0, *range(3, 3 + len(element))))
    for r, (text, _, _) in enumerate(cases):
        for name, found in (("forward", forward), ("reverse", each)):
            np.testing.assert_allclose(found[r], slopes[r], rtol=2e-6, atol=2e-8, err_msg=f"{name}: {text}")
    assert np.isfinite(forward).all()
