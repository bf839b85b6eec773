"""Random programs of nested loops until a residual is small: their gradients, by a tape, manual and of a captured
graph, are those of the linear map that the executed statements form.
"""

import importlib.util
import os
import random

import numpy as np
import pytest

import octants as qd

SEEDS = int(os.environ.get("OCTANTS_TEST_SEEDS", "12"))
N = 7
HEADER = """
import octants as qd

A = qd.types.ndarray(dtype=qd.f64, ndim=1, needs_grad=True)
S = qd.types.ndarray(dtype=qd.f64, ndim=0)
C = qd.types.ndarray(dtype=qd.i32, ndim=0)


@qd.kernel
def total(x: A, y: A, loss: A):
    for i in x:
        loss[0] += x[i] + 2.0 * y[i]


@qd.kernel(graph=True)
"""


class Program:
    """Statements of the scalars `x` and `y`, as a kernel and as the map that they form when they run."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.loops = 0
        self.body = self.block(3, self.random.randint(2, 4))

    def block(self, depth, count):
        return [self.statement(depth) for _ in range(count)]

    def statement(self, depth):
        pick, kind = self.random, self.random.random()
        if kind < 0.45 or depth == 0:
            return (
                "linear",
                pick.choice("xy"),
                pick.choice("xy"),
                pick.choice([0.5, 0.75, 1.25]),
                pick.choice([0.25, -0.5]),
            )
        if kind < 0.85:
            number, self.loops = self.loops, self.loops + 1
            how = pick.choice(["residual", "flag", "count"])
            start = pick.randint(1, 3) if how == "count" else pick.choice([1.0, 0.3, 3.0])
            return how, number, start, pick.choice([0.3, 0.5, 0.6]), self.block(depth - 1, pick.randint(1, 2))
        return "sections", pick.choice([0.5, 1.5]), pick.choice([0.5, 1.5])

    def source(self):
        arguments = "".join(f", r{k}: S, c{k}: C" for k in range(self.loops))
        return "\n".join([f"{HEADER}def run(x: A, y: A{arguments}):", *self.lines(self.body, "    "), ""])

    def lines(self, body, indent):
        for statement in body:
            yield from (indent + line for line in self.lines_of(statement))

    def lines_of(self, statement):
        kind, *parts = statement
        if kind == "linear":
            to, other, factor, share = parts
            yield from ("for i in x:", f"    {to}[i] = {to}[i] * {factor} + {other}[i] * {share}")
        elif kind == "sections":
            yield "with qd.graph.parallel_context():"
            for name, factor in zip("xy", parts, strict=True):
                yield from ("    with qd.graph.parallel():", "        for i in x:")
                yield f"            {name}[i] = {name}[i] * {factor}"
        else:
            k, start, factor, body = parts
            memory = "c" if kind == "count" else "r"
            yield from ("for _ in range(1):", f"    {memory}{k}[None] = {start}")
            yield f"while qd.graph.do_while({f'r{k}[None] > 0.1' if kind == 'residual' else f'c{k}'}):"
            yield from self.lines(body, "    ")
            yield "    for _ in range(1):"
            yield f"        c{k}[None] -= 1" if kind == "count" else f"        r{k}[None] *= {factor}"
            if kind == "flag":
                yield from ("    for _ in range(1):", f"        c{k}[None] = qd.cast(r{k}[None] > 0.1, qd.i32)")

    def map(self):
        """The matrix that maps the initial (x, y) to the final one."""
        return self.map_of(self.body, np.eye(2))

    def map_of(self, body, matrix):
        for kind, *parts in body:
            if kind == "linear":
                to, other, factor, share = parts
                step = np.eye(2)
                step["xy".index(to), "xy".index(to)] = factor
                step["xy".index(to), "xy".index(other)] += share
                matrix = step @ matrix
            elif kind == "sections":
                matrix = np.diag(parts) @ matrix
            else:
                _, rest, factor, inner = parts
                goes_on = True
                while goes_on:
                    matrix = self.map_of(inner, matrix)
                    rest = rest - 1 if kind == "count" else rest * factor
                    goes_on = rest > (0 if kind == "count" else 0.1)
        return matrix


def load(source, path):
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MODES = [
    {},
    {"cpu_streams": True},
    {"debug": True},
    {"concurrency": "auto"},
    {"cpu_streams": True, "cpu_stream_schedule": "seed:3"},
]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_gradients_of_random_loops(seed, tmp_path):
    qd.init(arch=qd.cpu, log_level="error", **MODES[seed % len(MODES)])
    program = Program(seed)
    module = load(program.source(), tmp_path / f"program_{seed}.py")
    x, y = (qd.ndarray(qd.f64, N, needs_grad=True) for _ in range(2))
    loss = qd.ndarray(qd.f64, 1, needs_grad=True)
    scalars = [a for _ in range(program.loops) for a in (qd.ndarray(qd.f64, ()), qd.ndarray(qd.i32, ()))]
    matrix = program.map()

    def reset(gradient_x=0.0, gradient_y=0.0):
        for array, value in ((x, 1.0), (y, 1.0), (x.grad, gradient_x), (y.grad, gradient_y)):
            array.fill(value)

    def check():
        found = np.stack([x.grad.to_numpy(), y.grad.to_numpy()])
        expected = np.array([1.0, 2.0]) @ matrix
        assert np.allclose(found, expected[:, None], rtol=1e-9)

    reset()
    with qd.ad.Tape(loss):
        module.run(x, y, *scalars)
        module.total(x, y, loss)
    values = matrix @ np.ones(2)
    assert np.allclose([x[0], y[0]], values)
    check()
    module.run(x, y, *scalars)
    reset(1.0, 2.0)
    module.run.grad(x, y, *scalars)
    check()
    with qd.graph.capture() as graph:
        module.run(x, y, *scalars)
        module.total(x, y, loss)
    backwards = graph.grad()
    for _ in range(2):
        reset()
        loss.grad.fill(1.0)
        graph.launch()
        backwards.launch()
        check()
