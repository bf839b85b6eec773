"""More shapes: reductions of several kinds in one loop, stencils, loops whose iterations differ in length."""

from __future__ import annotations

from expressions import Variable
from programs import Field, Program
from scalars import FLOATS, INTS
from shapes import Shapes


class MoreShapes(Shapes):
    """Writes one program around one shape."""

    def reductions(self) -> None:
        """Atomic updates of different types and operations in one loop, most of them of one element."""
        r = self.random
        n, i = self.size(), self.fresh("i")
        given = self.array(r.choice(["i32", "u8", "i64"]), [n])
        halves = self.array(r.choice(["f32", "f64", "f16"]), [n], "float")
        targets, own = [], {}
        # Few of a kind become vectors sooner than many of all kinds.
        plain = r.random() < 0.6
        for _ in range(r.choice([2, 2, 3]) if plain else r.randint(2, 5)):
            dtype = r.choice(["f32", "f64", "i32", "i64"] if plain else FLOATS + INTS)
            is_float = dtype[0] == "f"
            op = r.choice(["add", "sub", "min", "max"] + ([] if is_float else ["and", "or", "xor", "mul"]))
            name, extent = self.fresh("y"), r.choice([0, 0, 1, 3])
            self.fields.append(Field(name, dtype, [extent] if extent else [], self.numbers(dtype, extent or 1)))
            if is_float and (plain or r.random() < 0.6):
                own[name] = [self.array(dtype, [n], "float")]
            spread = [str(r.randrange(extent or 1))]
            if not plain:
                spread += [f"{i} % {extent}", f"{given.name}[{i}] % {extent}"]
            targets.append((f"{name}[{r.choice(spread) if extent else 'None'}]", op, is_float))
        sums = []
        if r.random() < 0.5:
            sums.append(self.fresh("a"))
            self.line(f"{sums[0]} = {r.choice(['0', 'qd.cast(0, qd.i64)', 'qd.cast(100, qd.u8)'])}")
        self.line(f"for {i} in range({n}):")
        outer = self.depth
        self.depth += 1
        names = [i, f"{given.name}[{i}]"]
        if not plain and r.random() < 0.5:
            self.line(f"if {self.test(names)}:")
            self.depth += 1
        for place, op, is_float in targets:
            value = self.small(names)
            if is_float:
                found = own.get(place.split("[")[0], [])
                given_floats = r.choice(found if plain else [halves, *found])
                value = r.choice([f"{given_floats.name}[{i}]"] * 3 + ["0.5", f"-{given_floats.name}[{i}]"])
            if op in ("add", "sub", "and", "or", "xor") and r.random() < 0.5:
                sign = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^"}[op]
                self.line(f"{place} {sign}= {value}")
            else:
                self.line(f"qd.atomic_{op}({place}, {value})")
        for s in sums:
            self.line(r.choice([f"{s} += {self.small(names)}", f"qd.atomic_min({s}, {self.small(names)})"]))
        self.depth = outer
        self.add_integers(sums)

    def elements(self) -> None:
        """Elements from elements at the same place, of many types: loops that become vectors."""
        r = self.random
        n, i = self.size(), self.fresh("i")
        outer = (self.variables, self.collections, self.types)
        self.collections, self.variables = [], []
        self.types = r.choice(
            [["u8", "i16", "i32"], ["i32", "i64"], ["i32"], ["i8", "u16"], ["u32", "u64", "i32"], list(INTS)]
        )
        given = []
        for _ in range(r.randint(1, 4)):
            kind = self.kind()
            given.append((self.array(self.dtype_of(kind), [n], kind), kind))
        targets = [(c.name, kind) for c, kind in given if r.random() < 0.4]
        for _ in range(r.randint(1, 2)):
            kind = self.kind()
            dtype = self.dtype_of(kind)
            if r.random() < 0.5:
                name = self.fresh("y")
                self.fields.append(Field(name, dtype, [n], self.numbers(dtype, n)))
            else:
                name = self.array(dtype, [n], kind).name
            targets.append((name, kind))
        total = self.fresh("a")
        self.line(f"{total} = {r.choice(['0', 'qd.cast(0, qd.i64)', 'qd.cast(0, qd.u16)'])}")
        self.loop_over(i, n)
        self.depth += 1
        self.collections = []
        self.variables = [Variable(f"{c.name}[{i}]", kind, is_fixed=True) for c, kind in given]
        self.variables.append(Variable(i, "int", is_fixed=True))
        for _ in range(r.randint(1, 4)):
            name, kind = r.choice(targets)
            nested = r.random() < 0.25
            if nested:
                self.line(f"if {self.condition(2)}:")
                self.depth += 1
            if r.random() < 0.3:
                local = self.fresh("a")
                self.line(f"{local} = {self.value(kind)}")
                if not nested:
                    self.variables.append(Variable(local, kind))
            self.line(f"{name}[{i}] {r.choice(['=', '=', '+=']) if kind != 'bool' else '='} {self.value(kind)}")
            if nested:
                self.depth -= 1
        if r.random() < 0.4:
            self.line(f"{total} += {self.integer(2)}")
        self.depth -= 1
        self.variables, self.collections, self.types = outer
        self.add_integers([total])

    def stencil(self) -> None:
        """Each element of one array from neighbors of another, whose rows may be anywhere."""
        r = self.random
        n, m = r.choice([3, 5, 8, 17]), r.choice([3, 8, 16, 17, 33])
        dtype = r.choice(["i32", "i32", "u8", "i16", "i64"])
        given, out = self.array(dtype, [n, m]), self.array(dtype, [n, m])
        for a in self.arguments[-2:]:
            if r.random() < 0.3:
                # The transpose of a matrix in memory.
                a.strides, a.is_ndarray = [1, n], False
        i, j = self.fresh("i"), self.fresh("j")
        edge = r.choice(["inside", "wrap", "clamp"])
        if edge == "inside":
            self.line(f"for {i}, {j} in qd.ndrange((1, {n - 1}), (1, {m - 1})):")
        else:
            self.line(f"for {i}, {j} in {r.choice([out.name, f'qd.ndrange({n}, {m})'])}:")
        self.depth += 1

        def at(name: str, move: int, extent: int) -> str:
            moved = f"{name} {'+' if move >= 0 else '-'} {abs(move)}" if move else name
            if edge == "wrap":
                return f"({moved}) % {extent}"
            return moved if edge == "inside" else f"qd.max(0, qd.min({moved}, {extent - 1}))"

        names = [f"{given.name}[{at(i, r.randint(-1, 1), n)}, {at(j, r.randint(-1, 1), m)}]" for _ in range(4)]
        s = self.fresh("a")
        self.line(f"{s} = {self.small(names)}")
        for name in names[: r.randint(1, 4)]:
            if r.random() < 0.3:
                self.line(f"if {name} > {s}:")
                self.line(f"    {s} -= {name}")
            else:
                self.line(r.choice([f"{s} += {name}", f"{s} = qd.max({s}, {name})"]))
        self.line(f"{out.name}[{i}, {j}] {r.choice(['=', '+=', '='])} {self.small([s, *names])}")
        self.depth -= 1

    def walks(self) -> None:
        """Iterations whose loops run until a condition in memory holds."""
        r = self.random
        n, i = min(self.size(), 300), self.fresh("i")
        x, y = self.array(r.choice(["i32", "u8", "i64"]), [n]), self.array("i32", [n])
        a, c = self.fresh("a"), self.fresh("c")
        self.loop_over(i, n)
        self.depth += 1
        self.line(f"{a} = {x.name}[{i}]")
        self.line(f"{c} = 0")
        names = [a, c, i, f"{x.name}[{a} % {n}]" if r.random() < 0.5 else f"{y.name}[{i}]"]
        self.line(f"while {c} < {r.choice([3, 7, 12])}{f' and {self.test(names)}' if r.random() < 0.7 else ''}:")
        self.depth += 1
        self.line(f"{c} += 1")
        for _ in range(r.randint(1, 3)):
            if r.random() < 0.3:
                self.line(f"if {self.test(names)}:")
                self.line(f"    {r.choice(['break', 'continue', f'{a} = {self.small(names)}'])}")
            else:
                self.line(f"{a} {r.choice(['=', '+=', '^=', '-='])} {self.small(names)}")
        self.depth -= 1
        self.line(f"{y.name}[{i}] = {a} {r.choice('+-^')} {c}")
        self.depth -= 1

    def products(self) -> None:
        """Products of matrices, with a twist."""
        r = self.random
        n, m, k = r.choice([1, 3, 8, 17]), r.choice([1, 8, 16, 33]), r.choice([1, 3, 7, 8])
        dtype = r.choice(["i32", "i32", "i64", "i16", "f32", "f64"])
        kind = "float" if dtype[0] == "f" else "int"
        a, b = self.array(dtype, [n, k], kind), self.array(dtype, [k, m], kind)
        c = self.array(dtype, [n, m], kind)
        for argument in self.arguments[-3:]:
            if r.random() < 0.25:
                argument.strides, argument.is_ndarray = [1, argument.shape[0]], False
        i, j, q, s = self.fresh("i"), self.fresh("j"), self.fresh("q"), self.fresh("a")
        self.line(f"for {i}, {j} in {r.choice([c.name, f'qd.ndrange({n}, {m})'])}:")
        self.depth += 1
        self.line(f"{s} = {a.name}[{i}, 0] * 0")
        self.line(f"for {q} in range({r.choice([str(k), f'{a.name}.shape[1]', f'{b.name}.shape[0]'])}):")
        self.depth += 1
        if r.random() < 0.3:
            self.line(f"if {self.test([i, j, q])}:")
            self.line(f"    {r.choice(['continue', 'break', f'{s} -= {b.name}[{q}, {j}]'])}")
        self.line(f"{s} {r.choice(['+=', '+=', '-='])} {a.name}[{i}, {q}] * {b.name}[{q}, {j}]")
        self.depth -= 1
        self.line(f"{c.name}[{i}, {j}] {r.choice(['=', '+='])} {s}")
        self.depth -= 1

    def program(self) -> Program:
        shapes = [self.neighbors] * 2 + [self.reductions] * 3 + [self.elements] * 3
        shapes += [
            self.inner_sums,
            self.scattered,
            self.remainders,
            self.recurrences,
            self.stencil,
            self.walks,
            self.products,
        ]
        if self.random.random() < 0.12:
            return self.sections(shapes)
        for _ in range(self.random.choice([1, 1, 2])):
            self.random.choice(shapes)()
        return self.finished()

    def sections(self, shapes: list) -> Program:
        """Loops that run concurrently on streams: each shape has separate arrays."""
        for _ in range(self.random.randint(2, 3)):
            self.line("with qd.stream_parallel():")
            self.depth += 1
            self.random.choice(shapes)()
            self.depth = 1
        # Variables that a section assigns are private to it, and such kernels return nothing.
        self.variables = []
        return self.finished()
