"""Text of random kernels of f64 arithmetic: loops, branches, indices, vectors and matrices, functions.

A case is one parallel loop that reads `x` (8 numbers) and `n` (8 integers) and adds to row `slot` of `y`. It may store
numbers in row `slot` of `t`, which a later loop reads. Values stay of moderate size, and divisors are not small, so
derivatives are of moderate size too.
"""

from random import Random

HEAD = """import octants as qd


@qd.func
def settle(a, limit: qd.i32):
    r = a
    for k in range(limit):
        if r * r > 4.0:
            return r * 0.25
        r = r * r * 0.5 + a
    return qd.sin(r)


@qd.real_func
def blend(a: qd.f64, b: qd.f64) -> qd.f64:
    if a > b:
        return qd.tanh(a * b)
    return a - b * b * 0.5


@qd.func
def split(a, b, limit: qd.i32):
    if a * a > b + 1.5:
        return qd.sin(a), b, limit
    s = a
    for k in range(-1, limit):
        s = s * 0.7 + b * 0.3
        if s > 0.6:
            return s, a - b, k
    return qd.tanh(b), s, 2


@qd.func
def nudge(v: qd.template(), at: qd.i32, by):
    if v[at] < by:
        v[at] = v[at] * 0.5 + qd.sin(by)
    else:
        v[1 - at] -= 0.2 * by


@qd.func
def turned(v, w):
    return qd.Vector([v[0] * w[1] - v[1] * w[0], v.dot(w)])
"""


class Writer:
    """Writes one case."""

    def __init__(self, seed: int, slot: int) -> None:
        self.random = Random(seed)
        self.slot = slot
        self.lines: list[str] = []
        self.depth = 2
        self.loops: list[str] = []
        self.may_leave = False
        self.names = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.slot}_{self.names}"

    def number(self) -> str:
        return f"({round(self.random.uniform(-1.5, 1.5), 3)})"

    def index(self) -> str:
        """An integer of any size."""
        kinds = ["i", "k", "i + k", "n[i]", *self.loops, *[f"k + {j}" for j in self.loops]]
        return self.random.choice(kinds)

    def scalar(self, depth: int = 3) -> str:
        r = self.random
        if depth == 0 or r.random() < 0.15:
            return r.choice(
                [
                    "a",
                    "b",
                    f"x[({self.index()}) % 8]",
                    "v[0]",
                    "v[1]",
                    f"v[({self.index()}) % 2]",
                    "m[1, 0]",
                    f"s[({self.index()}) % 3]",
                    self.number(),
                ]
            )

        def sub() -> str:
            return self.scalar(depth - 1)

        return r.choice(
            [
                lambda: f"({sub()} + {sub()})",
                lambda: f"({sub()} - {sub()})",
                lambda: f"({sub()} * {sub()} * 0.5)",
                lambda: f"qd.sin({sub()})",
                lambda: f"qd.tanh({sub()})",
                lambda: f"qd.exp(-abs({sub()}))",
                lambda: f"({sub()} / (1.5 + ({sub()}) ** 2))",
                lambda: f"qd.sqrt(1.0 + ({sub()}) ** 2)",
                lambda: f"qd.max({sub()}, {sub()})",
                lambda: f"qd.min({sub()}, {sub()})",
                lambda: f"qd.atan2({sub()}, 2.0 + ({sub()}) ** 2)",
                lambda: f"qd.select({self.condition()}, {sub()}, {sub()})",
                lambda: f"({sub()} if {self.condition()} else {sub()})",
                lambda: f"(2.0 + qd.sin({sub()})) ** qd.tanh({sub()})",
                lambda: f"settle({sub()}, {r.randint(0, 3)})",
                lambda: f"blend({sub()}, {sub()})",
                lambda: f"split({sub()}, {sub()}, {r.randint(0, 3)})[{r.randint(0, 1)}]",
                lambda: f"qd.asin(0.9 * qd.sin({sub()}))",
                lambda: f"qd.log(1.5 + qd.cos({sub()}))",
                lambda: f"qd.math.clamp({sub()}, -0.7, 0.8)",
                lambda: f"({sub()}) ** 3 * 0.1",
                lambda: f"qd.floor({sub()})",
                lambda: f"qd.cast(qd.cast({sub()} * 3, qd.i32), qd.f64)",
                lambda: f"({self.vector()}).dot({self.vector()}) * 0.3",
                lambda: f"({self.vector()}).norm(0.5)",
                lambda: "m.determinant() * 0.2",
                lambda: "(m @ m).trace() * 0.2",
                lambda: f"qd.stop_grad({sub()})",
            ]
        )()

    def vector(self) -> str:
        return self.random.choice(
            [
                "v",
                "m @ v * 0.4",
                "turned(v, m @ v) * 0.3",
                "v @ m * 0.5",
                "m.transpose() @ v * 0.5",
                f"qd.Vector([{self.scalar(1)}, a])",
            ]
        )

    def condition(self) -> str:
        r = self.random
        return r.choice(
            [
                lambda: f"{self.scalar(1)} > {self.number()}",
                lambda: f"({self.index()}) % 3 == {r.randint(0, 2)}",
                lambda: "a < b",
            ]
        )()

    def statement(self, depth: int) -> None:
        r = self.random
        kind = r.random()
        if depth > 0 and kind < 0.14:
            self.line(f"if {self.condition()}:")
            self.block(depth - 1)
            if r.random() < 0.6:
                self.line("else:")
                self.block(depth - 1)
        elif depth > 0 and kind < 0.30:
            j = self.fresh("j")
            bound = r.choice(
                [
                    "n[i]",
                    str(r.randint(0, 4)),
                    "i",
                    "n[(i + k) % 8]",
                    "k % 4",
                    *[f"{other} + 1" for other in self.loops],
                ]
            )
            self.for_loop(j, bound, depth)
        elif depth > 0 and kind < 0.36:
            c = self.fresh("c")
            self.line(f"{c} = 0")
            self.line(f"while {c} < {r.randint(1, 4)} and {self.scalar(1)} < 3.0:")
            self.depth += 1
            self.line(f"{c} += 1")
            self.depth -= 1
            self.loop_block([c], depth)
        elif self.may_leave and kind < 0.42:
            self.line(f"if {self.condition()}:")
            self.depth += 1
            self.line(r.choice(["break", "continue"]))
            self.depth -= 1
        elif kind < 0.50:
            self.line(f"k = ({self.index()} + {r.randint(1, 5)}) % 7")
        elif kind < 0.515:
            self.line(f"nudge(v, ({self.index()}) % 2, qd.sin({self.scalar(1)}))")
        elif kind < 0.53:
            old, other = self.fresh("old"), r.choice("ab")
            name, op = ("a", "b")[other == "a"], r.choice(["add", "sub", "max", "min"])
            self.line(f"{old} = qd.atomic_{op}({name}, qd.sin({self.scalar(2)}))")
            self.line(f"{other} = qd.sin({old} + {name})")
        elif kind < 0.545:
            p, q, w = self.fresh("p"), self.fresh("p"), self.fresh("p")
            self.line(f"{p}, {q}, {w} = split({self.scalar(1)}, {self.scalar(1)}, k % 4)")
            self.line(f"a = qd.tanh(a + {p} * {q})")
            self.line(f"k = (k + {w} + 1) % 7")
        elif kind < 0.56:
            self.line(f"s[({self.index()}) % 3] {r.choice(['=', '+=', '*='])} qd.tanh({self.scalar(2)})")
        elif kind < 0.60:
            self.line(f"v = qd.sin({self.vector()}) + v * 0.3")
        elif kind < 0.64:
            self.line(f"v[({self.index()}) % 2] += qd.tanh({self.scalar(2)})")
        elif kind < 0.68:
            self.line(f"m[({self.index()}) % 2, 1] = qd.sin({self.scalar(1)})")
        elif kind < 0.76:
            self.line(f"y[{self.slot}, ({self.index()}) % 4] += {self.scalar(2)}")
        else:
            name = r.choice("ab")
            form = r.choice(["{0} = {1}", "{0} += {1}", "{0} = {0} * 0.5 + {1}", "{0} -= {1}", "{0} *= qd.tanh({1})"])
            # Without a bound, values fed back in loops would soon be infinite.
            self.line(form.format(name, f"qd.{r.choice(['sin', 'tanh'])}({self.scalar()})"))

    def for_loop(self, j: str, bound: str, depth: int) -> None:
        """A loop of any form, whose indices as they are used begin near zero."""
        r = self.random
        form = r.random()
        if form < 0.5:
            self.line(f"for {j} in range({bound}):")
            self.loop_block([j], depth)
        elif form < 0.75:
            first, o = (
                r.choice(["-2", "1", "k % 3", "1500000000", str(-(2**31)), str(2**31 - 8), *self.loops]),
                self.fresh("o"),
            )
            self.line(f"{o} = {first}")
            self.line(f"for {j} in range({o}, {o} + ({bound}) % 5):")
            self.loop_block([f"({j} - {o})"], depth)
        elif form < 0.9:
            q = self.fresh("q")
            self.line(f"for {j}, {q} in qd.ndrange({r.randint(1, 3)}, (k % 3, {r.randint(1, 4)})):")
            self.loop_block([j, q], depth)
        else:
            self.line(f"for {j} in qd.static(range({r.randint(1, 3)})):")
            self.loop_block([j], depth, may_leave=False)

    def loop_block(self, indices: list[str], depth: int, may_leave: bool = True) -> None:
        around = self.may_leave
        self.may_leave = may_leave
        self.loops += indices
        self.block(depth - 1)
        del self.loops[-len(indices) :]
        self.may_leave = around

    def block(self, depth: int) -> None:
        self.depth += 1
        for _ in range(self.random.randint(1, 3)):
            self.statement(depth)
        self.depth -= 1

    def case(self) -> list[str]:
        self.lines = ["    for i in range(4):", "        k = i", "        a = x[i]", "        b = x[7 - i] * 0.5"]
        self.lines += [
            "        v = qd.Vector([x[i + 1], x[(i * 3) % 8]])",
            "        m = qd.Matrix([[x[2], b], [a, 0.7]])",
            "        s = qd.Vector([x[(i + 2) % 8], 0.3, a * b])",
        ]
        for _ in range(self.random.randint(2, 5)):
            self.statement(3)
        self.line(f"y[{self.slot}, i] += a + b * v[0] + v[1] + m[0, 1] * m[1, 1]")
        if self.random.random() < 0.5:
            self.line(f"t[{self.slot}, i] = {self.scalar(1)}")
            self.line(f"t[{self.slot}, i] += qd.sin(a) + s[k % 3]")
            self.lines.append("    for i in range(4):")
            self.line(f"y[{self.slot}, i] += t[{self.slot}, (i + 1) % 4] * t[{self.slot}, i] * x[i]")
        return self.lines


def kernel_text(seeds: list[int]) -> str:
    """A module with one kernel, `run(x, n, y, t)`, a loop or two for each seed."""
    lines = [HEAD, "", "@qd.kernel", "def run(x: qd.template(), n: qd.template(), y: qd.template(), t: qd.template()):"]
    for slot, seed in enumerate(seeds):
        lines += [f"    # seed {seed}", *Writer(seed, slot).case()]
    return "\n".join(lines) + "\n"
