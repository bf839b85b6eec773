"""Loops over matrices and structs with matrices: parts, products, references through several functions. Also
tickets."""

from __future__ import annotations

from dataclasses import dataclass

from expressions import Variable
from more_shapes import MoreShapes
from programs import Field, Program
from scalars import FLOATS


@dataclass
class Place:
    """A tensor in reach: its text, extents and scalar type."""

    text: str
    shape: tuple[int, ...]
    dtype: str
    is_fixed: bool = False


class TensorShapes(MoreShapes):
    """Writes one program around matrices, vectors and structs of both."""

    def scalar_type(self) -> str:
        r = self.random
        return r.choice(FLOATS if self.has_floats and r.random() < 0.4 else self.types)

    def tensor_type(self, shape: tuple[int, ...], dtype: str) -> str:
        word = "vector" if len(shape) == 1 else "matrix"
        return f"qd.types.{word}({', '.join(map(str, shape))}, qd.{dtype})"

    def any_shape(self) -> tuple[int, ...]:
        r = self.random
        return (r.randint(2, 4),) if r.random() < 0.4 else (r.randint(1, 3), r.randint(2, 3))

    # Data.

    def tensor_places(self, n: int, i: str) -> list[Place]:
        """Fields of matrices and vectors, and of structs that contain them, at element `i`."""
        r = self.random
        places = []
        for _ in range(r.randint(1, 2)):
            shape, dtype, name = self.any_shape(), self.scalar_type(), self.fresh("y")
            count = n
            for m in shape:
                count *= m
            word = "vector" if len(shape) == 1 else "matrix"
            element = f"{word}({', '.join(map(str, shape))}, {dtype})"
            self.fields.append(Field(name, element, [n], self.numbers(dtype, count), is_soa=r.random() < 0.4))
            places.append(Place(f"{name}[{i}]", shape, dtype))
        if r.random() < 0.5:
            struct, name, members, values = self.fresh("S"), self.fresh("y"), [], []
            texts = []
            for member in "abc"[: r.randint(2, 3)]:
                shape, dtype = (self.any_shape() if r.random() < 0.8 else ()), self.scalar_type()
                texts.append(f"{member}=" + (self.tensor_type(shape, dtype) if shape else f"qd.{dtype}"))
                members.append((member, shape, dtype))
            self.head.append(f"{struct} = qd.types.struct({', '.join(texts)})")
            for _ in range(n):
                for _, shape, dtype in members:
                    count = 1
                    for m in shape:
                        count *= m
                    values += self.numbers(dtype, count)
            self.fields.append(Field(name, struct, [n], values, is_soa=r.random() < 0.4))
            local = self.fresh("s")
            if r.random() < 0.5:
                # A copy of the whole struct, written back at the end.
                self.copied.append((local, f"{name}[{i}]"))
                base = local
            else:
                base = f"{name}[{i}]"
            places += [Place(f"{base}.{m}", s, d) for m, s, d in members if s]
        return places

    # Expressions.

    def number_of(self, places: list[Place], names: list[str]) -> str:
        """A number: a component of a tensor, or an integer."""
        r = self.random
        p = r.choice(places)
        kind = r.random()
        if kind < 0.5:
            return f"{p.text}[{', '.join(self.position(n, names) for n in p.shape)}]"
        if kind < 0.6:
            return f"{p.text}.{r.choice(['sum', 'max', 'min'])}()"
        if kind < 0.7 and len(p.shape) == 1:
            return f"{p.text}.{'xyzw'[r.randrange(p.shape[0])]}"
        return self.small(names)

    def position(self, n: int, names: list[str]) -> str:
        r = self.random
        if r.random() < 0.6:
            return str(r.randrange(n))
        return f"({r.choice(names)} {r.choice('+-^')} {r.randint(0, 3)}) % {n}"

    def tensor_of(self, shape: tuple[int, ...], places: list[Place], names: list[str], depth: int) -> str:
        """A tensor of these extents."""
        r = self.random
        same = [p for p in places if p.shape == shape]
        options = []
        if same:
            options += [lambda: r.choice(same).text] * 3
        if depth > 0:
            options += [lambda: self.combined(shape, places, names, depth)] * 4
            options += [lambda: f"qd.cast({self.tensor_of(shape, places, names, depth - 1)}, qd.{self.scalar_type()})"]
        parts = [text for p in places for text, s in self.parts(p) if s == shape]
        if parts:
            options += [lambda: r.choice(parts)] * 3
        if len(shape) == 2:
            turned = [p for p in places if p.shape == shape[::-1]]
            if turned:
                options += [lambda: f"{r.choice(turned).text}.transpose()"] * 2
        products = [
            f"({a.text} @ {b.text})"
            for a in places
            for b in places
            if len(a.shape) == 2
            and a.shape[1] == b.shape[0]
            and (a.shape[0], *b.shape[1:]) == shape
            and not (a.dtype in FLOATS and b.dtype in FLOATS)
        ]
        if products and depth > 0:
            options += [lambda: r.choice(products)] * 2
        if not options or r.random() < 0.1:
            return self.made(shape, places, names)
        return r.choice(options)()

    def combined(self, shape: tuple[int, ...], places: list[Place], names: list[str], depth: int) -> str:
        r = self.random
        left = self.tensor_of(shape, places, names, depth - 1)
        right = self.tensor_of(shape, places, names, depth - 1) if r.random() < 0.6 else self.number_of(places, names)
        form = r.random()
        if form < 0.7:
            return f"({left} {r.choice('+-+-*')} {right})"
        if form < 0.85:
            return f"qd.{r.choice(['min', 'max'])}({left}, {right})"
        return f"qd.select({left} {r.choice(['<', '>=', '=='])} {right}, {left}, {right})"

    def made(self, shape: tuple[int, ...], places: list[Place], names: list[str]) -> str:
        def one() -> str:
            return self.number_of(places, names)

        if len(shape) == 1:
            return f"qd.Vector([{', '.join(one() for _ in range(shape[0]))}], qd.{self.scalar_type()})"
        rows = ", ".join("[" + ", ".join(one() for _ in range(shape[1])) + "]" for _ in range(shape[0]))
        return f"qd.Matrix([{rows}], qd.{self.scalar_type()})"

    def parts(self, p: Place) -> list[tuple[str, tuple[int, ...]]]:
        """Some slices and several components by name."""
        r = self.random
        if len(p.shape) == 2:
            n, m = p.shape
            return [
                (f"{p.text}[{r.randrange(n)}, :]", (m,)),
                (f"{p.text}[:, {r.randrange(m)}]", (n,)),
            ]
        n = p.shape[0]
        a = r.randrange(n - 1)
        out = [(f"{p.text}[{a}:{n}]", (n - a,)), (f"{p.text}[:{a + 1}]", (a + 1,))]
        letters = r.choice(["xyzw", "rgba"])[:n]
        count = r.randint(2, min(4, n + 1))
        out.append((f"{p.text}.{''.join(r.choice(letters) for _ in range(count))}", (count,)))
        return [(text, s) for text, s in out if s[0] > 1]

    # Statements.

    def tensor_statement(self, places: list[Place], names: list[str]) -> None:
        before = len(self.lines)
        self.try_statement(places, names)
        if len(self.lines) == before:
            self.line("pass")

    def try_statement(self, places: list[Place], names: list[str]) -> None:
        r = self.random
        writable = [p for p in places if not p.is_fixed]
        form = r.random()
        if form < 0.25 or not writable:
            shape, name = self.any_shape(), self.fresh("m")
            text = self.tensor_of(shape, places, names, 2)
            self.line(f"{name} = {text}")
            places.append(Place(name, shape, "i32"))
            return
        p = r.choice(writable)
        if form < 0.5:
            self.line(f"{p.text} {r.choice(['=', '=', '+=', '-='])} {self.tensor_of(p.shape, places, names, 2)}")
        elif form < 0.7:
            at = ", ".join(self.position(n, names) for n in p.shape)
            self.line(f"{p.text}[{at}] {r.choice(['=', '+=', '-='])} {self.number_of(places, names)}")
        elif form < 0.8 and len(p.shape) == 1:
            letters = "".join(r.sample("xyzw"[: p.shape[0]], r.randint(2, p.shape[0])))
            value = self.tensor_of((len(letters),), places, names, 1)
            self.line(f"{p.text}.{letters} {r.choice(['=', '=', '+='])} {value}")
        elif form < 0.9 and self.changers:
            # By reference, through several functions.
            name, shape = r.choice(self.changers)
            fitting = [q for q in writable if q.shape == shape and "[" not in q.text and "." not in q.text]
            if fitting:
                self.line(f"{name}({r.choice(fitting).text}, {self.number_of(places, names)})")
        else:
            self.component_loop(p, places, names)

    def component_loop(self, p: Place, places: list[Place], names: list[str]) -> None:
        """A loop over components, unrolled or not, which may be left early."""
        r = self.random
        c = self.fresh("c")
        unrolled = r.random() < 0.5
        along = r.randrange(len(p.shape))
        n = p.shape[along]
        self.line(f"for {c} in {'qd.static(range(' if unrolled else 'range('}{n}{'))' if unrolled else ')'}:")
        self.depth += 1
        if not unrolled and r.random() < 0.4:
            self.line(f"if {self.number_of(places, [*names, c])} > {r.randint(-3, 9)}:")
            self.line(f"    {r.choice(['break', 'continue'])}")
        at = [c if k == along else self.position(m, [*names, c]) for k, m in enumerate(p.shape)]
        if unrolled and r.random() < 0.4:
            self.line(f"if qd.static({c} {r.choice(['!=', '<', '=='])} {r.randrange(n)}):")
            self.line(f"    {p.text}[{', '.join(at)}] -= {self.number_of(places, names)}")
        value = self.number_of(places, [*names, c])
        self.line(f"{p.text}[{', '.join(at)}] {r.choice(['=', '+=', '-='])} {value}")
        self.depth -= 1

    def declare_changers(self, count: int) -> None:
        """Functions that change a tensor given by reference; later ones call earlier ones."""
        r = self.random
        self.changers: list[tuple[str, tuple[int, ...]]] = []
        for _ in range(count):
            name, shape = self.fresh("f"), self.any_shape()
            before, self.lines = self.lines, []
            copied, self.copied = self.copied, []
            places = [Place("p", shape, "i32")]
            for _ in range(r.randint(1, 3)):
                self.tensor_statement(places, ["v"])
            text = ["@qd.func", f"def {name}(p: qd.template(), v: {'qd.i32' if r.random() < 0.5 else 'qd.i64'}):"]
            self.head += ["", *text, *self.lines, ""]
            self.lines, self.copied = before, copied
            self.changers.append((name, shape))

    # Shapes.

    def tensors(self) -> None:
        """Iterations that work on their own tensors."""
        r = self.random
        n, i = r.choice([1, 3, 8, 17, 33]), self.fresh("i")
        self.copied: list[tuple[str, str]] = []
        self.declare_changers(r.choice([0, 0, 1, 2, 3]))
        places = self.tensor_places(n, i)
        given = self.array(r.choice(["i32", "u8", "i64"]), [n])
        self.loop_over(i, n)
        self.depth += 1
        for local, element in self.copied:
            self.line(f"{local} = {element}")
        names = [i, f"{given.name}[{i}]"]
        for _ in range(r.randint(2, 6)):
            if r.random() < 0.2:
                self.line(f"if {self.test(names)}:")
                self.depth += 1
                inner = list(places)
                self.tensor_statement(inner, names)
                self.depth -= 1
            else:
                self.tensor_statement(places, names)
        for local, element in self.copied:
            self.line(f"{element} = {local}")
        self.depth -= 1

    def tickets(self) -> None:
        """Places that iterations take one after another: as many are written as there are takers."""
        r = self.random
        n, i = self.size(), self.fresh("i")
        given, taken = self.array(r.choice(["i32", "u8", "i16"]), [n]), self.array(r.choice(["i32", "i64", "u8"]), [n])
        count = self.fresh("y")
        self.fields.append(Field(count, r.choice(["i32", "u32", "i64"]), [], [0]))
        ticket, total = self.fresh("ticket"), self.fresh("a")
        self.line(f"{total} = 0")
        self.line(f"for {i} in {r.choice([f'range({n})', given.name])}:")
        self.depth += 1
        self.line(f"if {self.test([f'{given.name}[{i}]', i])}:")
        self.depth += 1
        self.line(f"{ticket} = qd.atomic_add({count}[None], 1)")
        self.line(f"{taken.name}[{ticket}] = {r.randint(1, 99)}")
        if r.random() < 0.5:
            self.line(f"{total} += {given.name}[{i}]")
        self.depth -= 1
        if r.random() < 0.3:
            self.line(f"{total} += 1")
        self.depth -= 1
        self.variables.append(Variable(total, "int"))

    def program(self) -> Program:
        for _ in range(self.random.choice([1, 1, 2])):
            self.random.choice([self.tensors] * 4 + [self.tickets])()
        return self.finished()
