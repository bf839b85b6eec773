"""Loops of shapes that optimizers have miscompiled, filled at random."""

from __future__ import annotations

from expressions import Collection, Variable
from generator import Generator
from programs import Argument, Field, Memory

SIZES = [5, 8, 31, 32, 33, 64, 100]
LONG = [700, 1500, 2049]
"""So long that several threads have a part."""


class Shapes(Generator):
    """Writes one program around one shape."""

    def array(self, dtype: str, shape: list[int], kind: str = "int", components: int = 0) -> Collection:
        """Another argument."""
        count = components or 1
        for n in shape:
            count *= n
        name, memory = self.fresh("x"), len(self.memories)
        self.memories.append(Memory(dtype, self.numbers(dtype, count)))
        strides = [1] if len(shape) == 1 else [shape[1], 1]
        self.arguments.append(
            Argument(name, dtype, None, memory, 0, shape, strides, components, self.random.random() < 0.3)
        )
        element = f"qd.types.vector({components}, qd.{dtype})" if components else f"qd.{dtype}"
        self.head.append(f"{name.upper()} = qd.types.ndarray(dtype={element}, ndim={len(shape)})")
        made = Collection(name, kind, dtype, shape, f"m{memory}", components, [], shape)
        self.collections.append(made)
        return made

    def add_integers(self, names: list[str]) -> None:
        """Variables of the kernel that it may return."""
        self.variables += [Variable(name, "int") for name in names]

    def size(self) -> int:
        return self.random.choice(LONG if self.random.random() < 0.08 else SIZES)

    def small(self, names: list[str]) -> str:
        """A short integer expression of these."""
        r = self.random
        a, b = r.choice(names), r.choice(names)
        return r.choice(
            [
                a,
                f"{a} + {b}",
                f"{a} - {b}",
                f"{a} * {r.randint(2, 5)}",
                f"({a} ^ {b})",
                f"{a} + {r.randint(1, 9)}",
                f"qd.min({a}, {b})",
                f"({a} & {b}) - {a}",
                f"abs({a})",
                f"{a} % {r.choice([3, -7, 5, 4])}",
                f"({a} if {b} > {r.randint(-2, 3)} else {b})",
            ]
        )

    def test(self, names: list[str]) -> str:
        r = self.random
        right = r.choice([str(r.randint(-2, 3)), r.choice(names)])
        return f"{r.choice(names)} {r.choice(['>', '<', '==', '!=', '<='])} {right}"

    def loop_over(self, i: str, n: int) -> None:
        r = self.random
        if r.random() < 0.25:
            self.line("qd.loop_config(serialize=True)")
        self.line(f"for {i} in range({n}):")

    # Elements of an iteration's own that are adjacent.

    def neighbors(self) -> None:
        """Loads, conditional stores, and loads again, of adjacent elements."""
        r = self.random
        n, i = self.size(), self.fresh("i")
        dtype = r.choice(["i32", "i32", "i64", "i16", "u8", "f32"])
        kind = "float" if dtype == "f32" else "int"
        form = r.random()
        if form < 0.15:
            struct, name = self.fresh("S"), self.fresh("y")
            members = "abc"[: r.randint(2, 3)]
            self.head.append(f"{struct} = qd.types.struct({', '.join(f'{m}=qd.{dtype}' for m in members)})")
            values = self.numbers(dtype, n * len(members))
            self.fields.append(Field(name, struct, [n], values, is_soa=r.random() < 0.3))
            names = [f"{name}[{i}].{m}" for m in members]
        elif form < 0.4:
            names = []
            for _ in range(r.randint(2, 4)):
                name = self.fresh("y")
                self.fields.append(Field(name, dtype, [n], self.numbers(dtype, n), n))
                names.append(f"{name}[{i}]")
        elif form < 0.7:
            step = r.randint(2, 4)
            x = self.array(dtype, [n * step], kind)
            names = [f"{x.name}[{step} * {i} + {c}]" for c in range(step)]
        else:
            step = r.randint(2, 4)
            x = self.array(dtype, [n], "fvec" if kind == "float" else "ivec", step)
            names = [f"{x.name}[{i}][{c}]" for c in range(step)]
        other = self.array("i32", [n])
        self.loop_over(i, n)
        self.depth += 1
        readable = [*names, f"{other.name}[{i}]"]
        conditions = [f"{other.name}[{i}]", i] if kind == "float" else [*readable, i]

        def value() -> str:
            if kind == "int":
                return self.small(readable)
            return r.choice(
                [f"{r.choice(names)} + 1.0", f"-{r.choice(names)}", f"{r.choice(names)} - {r.choice(names)}", "0.5"]
            )

        for _ in range(r.randint(2, 6)):
            what = r.random()
            if what < 0.35:
                self.line(f"if {self.test(conditions)}:")
                self.depth += 1
                if r.random() < 0.4:
                    s = self.fresh("a")
                    self.depth -= 1
                    self.lines.insert(len(self.lines) - 1, "    " * self.depth + f"{s} = {value()}")
                    self.depth += 1
                    self.line(f"{s} = {r.choice(names)}")
                    self.line(f"{r.choice(names)} = {r.choice(['-1', '7', s])}")
                    if kind == "int":
                        readable.append(s)
                for _ in range(r.randint(1, 2)):
                    self.line(f"{r.choice(names)} {r.choice(['=', '=', '+=', '-='])} {value()}")
                self.depth -= 1
            elif what < 0.5:
                s = self.fresh("a")
                self.line(f"{s} = {value()}")
                if kind == "int":
                    readable.append(s)
            elif what < 0.6:
                a, b = r.choice(names), r.choice(names)
                self.line(f"{a}, {b} = {b}, {a}")
            elif what < 0.7:
                self.line(f"if {self.test(conditions)}:")
                self.line("    continue")
            else:
                self.line(f"{r.choice(names)} {r.choice(['=', '=', '+=', '-='])} {value()}")
        self.depth -= 1

    # Iterations that run the same inner loop.

    def inner_sums(self) -> None:
        """Sums and other recurrences over a range that is the same for all iterations."""
        r = self.random
        n, m = min(self.size(), 300), r.choice([3, 7, 8, 16, 17, 20])
        i, k = self.fresh("i"), self.fresh("k")
        dtype = r.choice(["i32", "i32", "i16", "u8", "i64", "f32"])
        is_float = dtype == "f32"
        kind = "float" if is_float else "int"
        own, by_step = self.array(dtype, [n], kind), self.array(dtype, [m], kind)
        both = self.array(dtype, [n, m] if r.random() < 0.6 else [m, n], kind)
        out = self.array(r.choice([dtype, "i32"]) if not is_float else dtype, [n], kind)
        at = f"{i}, {k}" if both.shape == [n, m] else f"{k}, {i}"
        parallel = r.random() < 0.85
        if not parallel:
            self.line("qd.loop_config(serialize=True)")
        self.line(f"for {i} in range({n}):")
        self.depth += 1
        names = [f"{own.name}[{i}]"]
        s, t = self.fresh("a"), self.fresh("a")
        self.line(f"{s} = {own.name}[{i}]")
        self.line(f"{t} = {self.small([*names, i]) if not is_float else names[0]}")
        writes_both = r.random() < 0.4
        for _ in range(r.randint(1, 2)):
            bound = r.choice([str(m), f"{by_step.name}.shape[0]"])
            self.line(f"for {k} in range({bound}):")
            self.depth += 1
            inside = [s, t, f"{by_step.name}[{k}]", f"{both.name}[{at}]", f"{own.name}[{i}]"]
            for _ in range(r.randint(1, 3)):
                what = r.random()
                value = self.small([*inside, k, i]) if not is_float else r.choice(inside)
                condition = self.test([i, k] if is_float else [*inside, i, k])
                if what < 0.45:
                    ops = ["+=", "-="] if is_float else ["+=", "-=", "^=", "+=", "*=", "="]
                    self.line(f"{r.choice([s, t])} {r.choice(ops)} {value}")
                elif what < 0.55:
                    self.line(f"{s} = qd.{r.choice(['min', 'max'])}({s}, {r.choice(inside[1:])})")
                elif what < 0.7:
                    self.line(f"if {condition}:")
                    self.line(f"    {r.choice([s, t])} {r.choice(['=', '+='])} {value}")
                elif what < 0.78:
                    self.line(f"if {condition}:")
                    self.line(f"    {r.choice(['break', 'continue'])}")
                elif what < 0.9 and writes_both:
                    self.line(f"{both.name}[{at}] {r.choice(['=', '+='])} {value}")
                else:
                    self.line(f"{t} = {s}")
            self.depth -= 1
        self.line(f"{out.name}[{i}] {r.choice(['=', '+='])} {s} + {t}")
        self.depth -= 1

    # Sums that iterations scatter.

    def scattered(self) -> None:
        """Updates of elements that several iterations share, in copies or by atomics."""
        r = self.random
        n, m, bins = self.size() * r.choice([1, 1, 3]), r.choice([1, 2, 4]), r.choice([1, 3, 8, 33])
        i, k = self.fresh("i"), self.fresh("k")
        dtype = r.choice(["i32", "i64", "u32", "i16", "f32", "f64"])
        is_float = dtype[0] == "f"
        to, out = self.array("i32", [n]), self.array(dtype, [bins], "float" if is_float else "int")
        total = self.fresh("a")
        self.line(f"{total} = {'0.0' if is_float else '0'}")
        self.line(f"for {i} in range({n}):")
        self.depth += 1
        if m > 1:
            self.line(f"for {k} in range({m}):")
            self.depth += 1
        names = [i, f"{to.name}[{i}]", *([k] if m > 1 else [])]
        at = r.choice(
            [f"{to.name}[{i}] % {bins}", f"({self.small(names)}) % {bins}", f"({i} + {r.randint(0, 3)}) % {bins}"]
        )
        if is_float:
            value = r.choice(["0.5", "1.0", f"qd.cast({to.name}[{i}] % 8, qd.{dtype})"])
            update = r.choice(["+=", "-="])
        else:
            value, update = self.small(names), r.choice(["+=", "-=", "+=", "^=", "|=", "&="])
        if r.random() < 0.3:
            self.line(f"if {self.test(names)}:")
            self.line("    continue")
        self.line(f"{out.name}[{at}] {update} {value}")
        if r.random() < 0.5:
            self.line(f"{out.name}[{(r.randrange(bins))}] {'-=' if update in ('+=', '-=') else update} {value}")
        if r.random() < 0.6:
            self.line(f"{total} += {value}")
        self.depth -= 2 if m > 1 else 1
        self.variables.append(Variable(total, "float" if is_float else "int"))

    # Remainders as indices.

    def remainders(self) -> None:
        """Stores at floor-modulo indices in short inner loops, whose iterations the compiler writes out."""
        r = self.random
        n, width = r.choice([5, 32, 33, 40]), r.choice([4, 5, 7])
        x = self.array(r.choice(["u8", "i16", "i32", "i64"]), [n + r.choice([0, 3, 64])])
        rows = self.array("i32", [r.choice([2, 4]), width])
        more = self.array(r.choice(["i32", "u8"]), [r.choice([4, 8]), width])
        for _ in range(2):
            name = self.fresh("n")
            value = r.choice([0, 1, 7, 33, 100])
            self.arguments.append(Argument(name, "i32", value))
            self.variables.append(Variable(name, "int", is_fixed=True))
        a, b = self.arguments[-2].name, self.arguments[-1].name
        i, c, z = self.fresh("i"), self.fresh("c"), self.fresh("a")
        self.line(f"{z} = 0")
        self.variables.append(Variable(z, "int"))
        if r.random() < 0.6:
            j = self.fresh("i")
            self.line("qd.loop_config(serialize=True)" if r.random() < 0.4 else "qd.loop_config(block_dim=8)")
            self.line(f"for {j} in range({r.choice([8, 33])}):")
            self.line(f"    {z} {r.choice(['|=', '+=', '^='])} {j} % {r.choice([-7, 7, -3, 5])}")
        self.line("qd.loop_config(serialize=True)")
        self.line(f"for {i} in range({r.choice([1, 8, 33])}):")
        self.depth += 1
        first = r.choice([0, 1])
        self.line(f"for {c} in range({first}, {first + r.randint(2, 8)}):")
        self.depth += 1
        names = [a, b, i, c, z]
        divisor = r.choice([n, n, -n])
        behind = "" if divisor > 0 else f" + {n - 1}"
        index = r.choice([f"({a} - {c})", f"({b} + {c} - {i})", f"({a} * {c} - {b})", f"({c} - {i})"])
        reads = [
            f"{rows.name}[{r.choice(['0', '1'])}, {c} % {width}]",
            f"{more.name}[{a} % 4, {r.choice(['1', f'({c} + {i}) % {width}'])}]",
            f"{x.name}[{r.choice(['0', str(n - 1), f'{i} % {n}', f'({c} - {b}) % {n}'])}]",
        ]
        for _ in range(r.randint(1, 2)):
            value = f"{self.small([*names, *reads])} {r.choice('+-^')} ({self.small([*names, *reads])})"
            self.line(f"{x.name}[{index} % {divisor}{behind}] {r.choice(['=', '=', '+='])} {value}")
        self.depth -= 2

    # Prefixes and other recurrences through memory.

    def recurrences(self) -> None:
        """A sequential loop whose iterations read values that earlier ones wrote, at a distance."""
        r = self.random
        n, i = r.choice(SIZES), self.fresh("i")
        x, y = self.array(r.choice(["i32", "u8", "i64"]), [n]), self.array("i32", [n])
        distance = r.choice([1, 1, 2, 4, 8])
        self.line("qd.loop_config(serialize=True)")
        begin, end = (min(distance, n), n) if r.random() < 0.7 else (0, max(n - distance, 0))
        sign = "-" if begin else "+"
        self.line(f"for {i} in range({begin}, {end}):")
        self.depth += 1
        before = f"{x.name}[{i} {sign} {distance}]" if begin or end else f"{x.name}[{i}]"
        names = [before, f"{y.name}[{i}]", i]
        if r.random() < 0.4:
            self.line(f"if {self.test(names)}:")
            self.line(f"    {y.name}[{i}] = {self.small(names)}")
        self.line(f"{x.name}[{i}] {r.choice(['=', '+=', '^='])} {self.small(names)}")
        if r.random() < 0.5:
            self.line(f"{y.name}[{i}] = {x.name}[{i}] {r.choice('+-')} {before}")
        self.depth -= 1
