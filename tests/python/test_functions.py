"""Functions of the kernel language that are compiled once and called: arguments, results, memory shared with
callers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import octants as qd


@pytest.fixture(autouse=True)
def program() -> Iterator[None]:
    qd.init(arch=qd.cpu, debug=False)
    yield
    qd.reset()


def long_body(indent: str) -> str:
    """Statements on `c` that leave it as it is, so that a function is too large to be inlined."""
    pair = "{0}c = c + {1}.0\n{0}c = c - {1}.0\n"
    pairs = "".join(pair.format(indent, n % 50 + 1) for n in range(250))
    return f"{pairs}{indent}for _ in range(2):\n{indent}    c *= 1.0\n"


def module(folder: Path, name: str, text: str) -> dict[str, Any]:
    """The names of a module with this text, in which LONG is replaced by many statements."""
    path = folder / f"{name}.py"
    text = "import octants as qd\n\n" + re.sub("^( +)LONG\n", lambda m: long_body(m[1]), text, flags=re.MULTILINE)
    path.write_text(text)
    names: dict[str, Any] = {"__name__": name}
    exec(compile(text, str(path), "exec"), names)
    return names


def test_a_sum_passed_to_a_long_function_is_shared_by_all_iterations(tmp_path: Path) -> None:
    names = module(
        tmp_path,
        "shared",
        """
@qd.func
def count(total: qd.template(), by):
    c = 0.0
    LONG
    total += by + qd.cast(c, qd.i32)


@qd.kernel
def k(n: qd.i32) -> qd.i32:
    total = 0
    for i in range(n):
        count(total, 1)
        if i % 2 == 0:
            count(total, i)
    return total
""",
    )
    n = 100_000
    assert names["k"](n) == n + sum(range(0, n, 2)) % 2**32 - 2**32 * (sum(range(0, n, 2)) % 2**32 + n >= 2**31)


def test_results_of_every_kind(tmp_path: Path) -> None:
    names = module(
        tmp_path,
        "results",
        """
vec2 = qd.types.vector(2, qd.f32)


@qd.func
def nested(a, b):
    c = a * 1.0
    LONG
    return (a, vec2(c, b)), [b, 3], {"x": a + b, "y": "text"}


@qd.func
def nothing(a: qd.template()):
    c = 0.0
    LONG
    a += 1


@qd.func
def constant(a):
    c = a * 1.0
    LONG
    return 3


@qd.kernel
def k(a: qd.i32, b: qd.f32) -> qd.f32:
    r = 0.0
    for _ in range(1):
        (p, v), l, d = nested(a, b)
        q, w = nested(a + 1, b)[0]
        n = a
        nothing(n)
        nothing(n)
        s = 0
        for i in qd.static(range(constant(a) + constant(b) * 0)):
            s += i
        r = p + v[0] + v[1] * 10 + l[0] * 100 + l[1] * 1000 + d["x"] * 10000 + q * 1e5 + w[0] * 1e6 + n * 1e7 + s * 1e8
    return r
""",
    )
    a, b = 2, 4.0
    want = a + a + b * 10 + b * 100 + 3000 + (a + b) * 1e4 + 3 * 1e5 + 3e6 + 4e7 + 3e8
    assert names["k"](a, b) == pytest.approx(want, rel=1e-6)


def test_numbers_of_an_object_are_read_at_each_launch_through_functions(tmp_path: Path) -> None:
    names = module(
        tmp_path,
        "live",
        """
@qd.data_oriented(template_primitives=False)
class Scene:
    def __init__(self):
        self.dt = 0.5
        self.x = qd.field(qd.f32, shape=4)

    @qd.func
    def inner(self, i):
        c = self.dt * 2.0
        LONG
        return c + i

    @qd.func
    def outer(self, i):
        c = self.inner(i) + self.inner(i + 1)
        LONG
        return c

    @qd.kernel
    def step(self):
        for i in self.x:
            self.x[i] = self.outer(i) + self.outer(i)
""",
    )
    scene = names["Scene"]()
    scene.step()
    np.testing.assert_allclose(scene.x.to_numpy(), [2 * (2 * 1.0 + 2 * i + 1) for i in range(4)], rtol=1e-5)
    scene.dt = 1.5
    scene.step()
    np.testing.assert_allclose(scene.x.to_numpy(), [2 * (2 * 3.0 + 2 * i + 1) for i in range(4)], rtol=1e-5)
    assert names["Scene"].step._specialization_count() == 1


@dataclasses.dataclass
class Particles:
    x: qd.types.ndarray(dtype=qd.f32, ndim=1)
    by: qd.f32


def test_members_of_a_dataclass_reach_functions_of_functions(tmp_path: Path) -> None:
    names = module(
        tmp_path,
        "members",
        """
@qd.func
def inner(p, i):
    c = p.by * 1.0
    LONG
    p.x[i] += c


@qd.func
def outer(p, i):
    c = 0.0
    LONG
    inner(p, i)
    inner(p, i)


@qd.kernel
def k(p: Particles):
    for i in p.x:
        outer(p, i)
        outer(p, i)
""".replace("@qd.kernel", "from test_functions import Particles\n\n\n@qd.kernel"),
    )
    x = qd.ndarray(qd.f32, 3)
    names["k"](Particles(x=x, by=0.25))
    assert x.to_numpy().tolist() == [1.0, 1.0, 1.0]
    names["k"](Particles(x=x, by=0.5))
    assert x.to_numpy().tolist() == [3.0, 3.0, 3.0]


def test_a_struct_is_passed_by_value() -> None:
    pair = qd.types.struct(a=qd.i32, b=qd.i32)
    x = pair.field(shape=2)

    @qd.func
    def changes(p):
        p.a += 10
        return p.a

    @qd.func
    def changes_the_original(p: qd.template()):
        p.a += 10

    @qd.kernel
    def k() -> qd.i32:
        r = 0
        for _ in range(1):
            r = changes(x[0]) + x[0].a
            changes_the_original(x[1])
        return r

    assert k() == 10
    assert x[1].a == 10


def test_numbers_share_the_code_of_a_long_function(tmp_path: Path) -> None:
    names = module(
        tmp_path,
        "numbers",
        """
v = qd.Vector([1.0, 2.0, 3.0])


@qd.func
def scaled(a, by):
    c = a * by
    LONG
    return c


@qd.func
def component(i):
    c = v[i] * 1.0
    LONG
    return c


@qd.kernel
def k(a: qd.f32) -> qd.f32:
    r = 0.0
    for _ in range(1):
        r = scaled(a, 2) + scaled(a, 3) + scaled(a, 0.5) + component(0) * 100 + component(2) * 1000
    return r
""",
    )
    assert names["k"](2.0) == pytest.approx(11.0 + 100.0 + 3000.0)


def test_errors_in_a_function_show_the_call_chain(tmp_path: Path) -> None:
    names = module(
        tmp_path,
        "mistakes",
        """
@qd.func
def inner(a):
    c = a * 1.0
    LONG
    return c + no_such_name


@qd.func
def outer(a):
    c = inner(a)
    LONG
    return c


@qd.kernel
def k(a: qd.f32) -> qd.f32:
    return outer(a)
""",
    )
    with pytest.raises(qd.OctantsCompilationError) as caught:
        names["k"](1.0)
    shown = str(caught.value)
    assert "return c + no_such_name" in shown
    assert "in outer" in shown
    assert "inner(a)" in shown


def test_arrays_fit_the_annotation_of_the_function() -> None:
    @qd.func
    def of_vectors(a: qd.types.ndarray(dtype=qd.math.vec2, ndim=1)):
        a[0] = [1, 1]

    @qd.func
    def of_two_axes(a: qd.types.ndarray(ndim=2)):
        a[0, 0] = 1

    @qd.kernel
    def k(x: qd.types.ndarray(), which: qd.template()):
        if qd.static(which):
            of_vectors(x)
        else:
            of_two_axes(x)

    k(qd.Vector.ndarray(2, qd.f32, 3), True)
    k(qd.ndarray(qd.f32, (3, 3)), False)
    with pytest.raises(qd.OctantsTypeError, match="Invalid value for argument a - required element type"):
        k(qd.Vector.ndarray(3, qd.f32, 3), True)
    with pytest.raises(qd.OctantsTypeError, match="Invalid value for argument a - required ndim=2"):
        k(qd.ndarray(qd.f32, 3), False)


def test_a_real_function_takes_only_arrays_of_the_kernel() -> None:
    outer = qd.ndarray(qd.f32, 3)

    @qd.real_func
    def first(a: qd.types.ndarray(dtype=qd.f32, ndim=1)) -> qd.f32:
        return a[0]

    @qd.kernel
    def wrong() -> qd.f32:
        return first(outer)

    @qd.kernel
    def right(x: qd.types.ndarray(dtype=qd.f32, ndim=1)) -> qd.f32:
        return first(x)

    outer[0] = 5.0
    assert right(outer) == 5.0
    with pytest.raises(qd.OctantsTypeError, match="Expected ndarray in the kernel argument for argument a"):
        wrong()


class Pair(NamedTuple):
    a: int
    b: float


PAIR = Pair(3, 2.5)


def test_a_variable_that_holds_a_named_tuple_has_its_names() -> None:
    @qd.kernel
    def k() -> qd.f32:
        p = PAIR
        q = p
        q.a = 7
        return p.a + q.a * 10 + q.b * 100

    assert k() == pytest.approx(3 + 70 + 250)


@qd.func
def bump(a: qd.template()):
    a += 10
    return a


@qd.func
def digits(a, b, c=0):
    return a * 10000 + b * 100 + c


def test_operands_are_read_from_left_to_right() -> None:
    x = qd.field(qd.i32, shape=())

    @qd.kernel
    def k(case: qd.template()) -> qd.i32:
        a = 1
        x[None] = 1
        r = 0
        if qd.static(case == "operator"):
            r = a * 10000 + bump(a) * 100 + a
        elif qd.static(case == "arguments"):
            r = digits(a, bump(a), a)
        elif qd.static(case == "keywords"):
            r = digits(a, c=bump(a), b=a)
        elif qd.static(case == "elements"):
            r = digits(x[None], bump(x[None]), x[None])
        elif qd.static(case == "atomics"):
            r = digits(x[None], qd.atomic_add(x[None], 5), x[None])
        elif qd.static(case == "tuple"):
            t = (a, bump(a), a)
            r = digits(t[0], t[1], t[2])
        elif qd.static(case == "list"):
            r = digits(*[a, bump(a), a])
        elif qd.static(case == "dict"):
            d = {"p": a, "q": bump(a)}
            r = digits(d["p"], d["q"])
        elif qd.static(case == "vector"):
            v = qd.Vector([a, bump(a), a])
            r = digits(v[0], v[1], v[2])
        elif qd.static(case == "index"):
            m = qd.Matrix([[i * 12 + j for j in range(12)] for i in range(12)])
            r = m[a, bump(a)]
        elif qd.static(case == "comparison"):
            r = qd.cast(a < bump(a), qd.i32) * 10 + qd.cast(a + 9 < bump(a) < a + 1, qd.i32)
        elif qd.static(case == "maximum"):
            r = qd.max(a, bump(a) - 20)
        elif qd.static(case == "comprehension"):
            t = [(a, bump(a)) for i in range(2)]
            r = digits(t[0][0], t[0][1], t[1][0])
        return r

    expected = {
        "operator": 11111,
        "arguments": 11111,
        "keywords": 11111,
        "elements": 11111,
        "atomics": 10106,
        "tuple": 11111,
        "list": 11111,
        "dict": 11100,
        "vector": 11111,
        "index": 23,
        "comparison": 11,
        "maximum": 1,
        "comprehension": 11111,
    }
    assert {case: k(case) for case in expected} == expected


def test_references_are_not_read_before_the_call() -> None:
    @qd.func
    def add_to(a: qd.template(), by, b: qd.template()):
        a += by
        b = a

    @qd.kernel
    def k() -> qd.i32:
        a = 1
        b = 2
        add_to(a, bump(b), b=b)
        return a * 100 + b

    assert k() == 1313


def test_a_kernel_has_its_own_struct_argument():
    qd.init(arch=qd.cpu)
    Pair = qd.types.struct(a=qd.i32, v=qd.types.vector(2, qd.f32))

    @qd.kernel
    def change(s: Pair, out: qd.types.ndarray()) -> qd.f32:
        s.a = 3
        s.v[0] += 4.0
        for i in out:
            out[i] = s.a
        return s.a + s.v[0]

    @qd.kernel
    def replaced(s: Pair):
        s = Pair(a=1)

    given, out = Pair(a=2, v=[1.0, 2.0]), np.zeros(2, np.float32)
    assert change(given, out) == 8.0
    assert out.tolist() == [3.0, 3.0]
    assert given.a == 2
    with pytest.raises(qd.OctantsSyntaxError, match="immutable"):
        replaced(given)


def test_kernels_as_class_methods():
    @qd.data_oriented
    class Steps:
        SIZE = 3

        @classmethod
        @qd.kernel
        def scaled(cls, n: qd.i32) -> qd.i32:
            return cls.SIZE * n

    class Larger(Steps):
        SIZE = 5

    assert Steps.scaled(2) == 6
    assert Larger.scaled(2) == 10
    assert Steps().scaled(3) == 9
