"""Random programs: a kernel of several loops over fields and arrays, functions that it calls, and its data.

A program has a unique result: an iteration of a parallel loop reads memory that no iteration writes, writes its own
elements, or updates elements by commuting operations. A serialized loop may do anything.
"""

from __future__ import annotations

from random import Random

from expressions import Collection, Expressions, Role, Variable
from programs import Argument, Field, Memory, Program, row_major
from scalars import FLOATS, INTS, LEAST, MOST

EXTENTS = [1, 2, 3, 5, 7, 8, 16, 17, 31, 32, 33, 40, 64]
INNER = [1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33]
ATOMIC = ["add", "sub", "min", "max", "and", "or", "xor", "mul"]
ASSIGNED = {"add": "+=", "sub": "-=", "mul": "*=", "and": "&=", "or": "|=", "xor": "^="}
MOST_TRIPS = 800


class Generator(Expressions):
    """Writes one program."""

    def __init__(self, seed: int) -> None:
        super().__init__(Random(seed))
        self.struct_types: dict[str, list] = {}
        self.shared_sum: tuple[str, str] | None = None
        self.seed = seed
        self.lines: list[str] = []
        self.depth = 1
        self.names = 0
        self.memories: list[Memory] = []
        self.arguments: list[Argument] = []
        self.fields: list[Field] = []
        self.head: list[str] = []
        self.trips = 1
        self.may_break = False
        self.may_continue = False
        self.budget = 0
        r = self.random
        self.has_floats = r.random() < 0.5
        # Short programs of few types come further into the optimizer than long ones.
        self.is_simple = r.random() < 0.4
        self.types = r.choice([INTS, INTS, ["i32"], ["i32", "i64"], ["u8", "i16", "i32"], [r.choice(INTS), "i32"]])
        if self.is_simple:
            self.types = r.choice([["i32"], ["i32"], ["i64"], ["i32", "u8"], [r.choice(INTS)]])

    # Text.

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    # Data.

    def numbers(self, dtype: str, count: int) -> list:
        r = self.random
        if dtype == "u1":
            return [r.randint(0, 1) for _ in range(count)]
        if dtype in FLOATS:
            return [r.randint(-16, 16) / 2 for _ in range(count)]
        least, most = LEAST[dtype], MOST[dtype]
        kind = r.random()
        if kind < 0.4:
            return [r.randint(max(least, -9), 20) for _ in range(count)]
        if kind < 0.7:
            return [r.randint(least, most) for _ in range(count)]
        special = [least, most, 0, 1, most - 1, least + 1, most // 2]
        return [r.choice([*special, r.randint(max(least, -9), 20)]) for _ in range(count)]

    def dtype_of(self, kind: str) -> str:
        return self.random.choice(FLOATS if kind == "float" else ["u1"] if kind == "bool" else self.types)

    def kind(self) -> str:
        r = self.random.random()
        return "float" if self.has_floats and r < 0.4 else "bool" if r > 0.95 else "int"

    def shape(self) -> list[int]:
        r = self.random
        kind = r.random()
        if kind < 0.65:
            return [r.choice(EXTENTS)]
        if kind < 0.92:
            return [r.choice([1, 2, 3, 4, 5, 8, 17]), r.choice([1, 2, 3, 5, 8, 16, 17])]
        return [r.randint(1, 3), r.randint(1, 4), r.randint(1, 5)]

    def declare_array(self) -> None:
        """An array that is an argument: the whole of a memory, or a part with gaps, or one that overlaps another."""
        r = self.random
        kind = self.kind()
        name, dtype, shape = self.fresh("x"), self.dtype_of(kind), self.shape()
        overlapping = [a for a in self.arguments if a.memory >= 0 and not a.components and not a.is_ndarray]
        components = 0
        if overlapping and r.random() < 0.12:
            other = r.choice(overlapping)
            self.declare_overlapping(name, other)
            return
        layout = r.random()
        if layout < 0.12 and kind != "bool":
            components = r.randint(2, 4)
        strides, offset = row_major(shape), 0
        is_ndarray = 0.12 <= layout < 0.3
        gaps = layout > 0.82 and not components
        count = 1
        for n in shape:
            count *= n
        if gaps:
            # Every second column, a transposed array, one backwards, some rows of a larger one.
            steps = [r.choice([1, 1, 2, 3]) for _ in shape]
            outer = [n * s + r.choice([0, 0, 1]) for n, s in zip(shape, steps, strict=True)]
            order = list(range(len(shape)))
            r.shuffle(order)
            whole = row_major([outer[i] for i in order])
            strides = [whole[order.index(i)] * steps[i] for i in range(len(shape))]
            count = 1
            for n in outer:
                count *= n
            for i, n in enumerate(shape):
                if r.random() < 0.2 and n > 1:
                    offset += (n - 1) * strides[i]
                    strides[i] = -strides[i]
        memory = len(self.memories)
        self.memories.append(Memory(dtype, self.numbers(dtype, count * (components or 1))))
        self.arguments.append(Argument(name, dtype, None, memory, offset, shape, strides, components, is_ndarray))
        element = f"qd.types.vector({components}, qd.{dtype})" if components else f"qd.{dtype}"
        self.head.append(f"{name.upper()} = qd.types.ndarray(dtype={element}, ndim={len(shape)})")
        vector = {"int": "ivec", "float": "fvec", "bool": "ivec"}[kind]
        used = [max(1, n - r.choice([0, 0, 1, n // 2])) if r.random() < 0.3 else n for n in shape]
        self.collections.append(
            Collection(name, vector if components else kind, dtype, shape, f"m{memory}", components, [], used)
        )

    def declare_overlapping(self, name: str, other: Argument) -> None:
        r = self.random
        shape, offset = list(other.shape), other.offset
        if r.random() < 0.6 and shape[0] > 1:
            cut = r.randint(1, shape[0] - 1)
            shape[0] -= cut
            if r.random() < 0.7:
                offset += cut * other.strides[0]
        self.arguments.append(Argument(name, other.dtype, None, other.memory, offset, shape, list(other.strides)))
        self.head.append(f"{name.upper()} = qd.types.ndarray(dtype=qd.{other.dtype}, ndim={len(shape)})")
        kind = "float" if other.dtype in FLOATS else "bool" if other.dtype == "u1" else "int"
        self.collections.append(Collection(name, kind, other.dtype, shape, f"m{other.memory}", 0, [], shape))

    def declare_field(self) -> None:
        r = self.random
        kind, name, shape = self.kind(), self.fresh("y"), self.shape()
        dtype = self.dtype_of(kind)
        if r.random() < 0.06:
            shape = []
        count = 1
        for n in shape:
            count *= n
        form = r.random()
        first: list[int] = []
        if form < 0.12 and self.structs:
            element = r.choice(list(self.structs))
            scalars: list[str] = []
            for _, t in self.struct_types[element]:
                scalars += [t[1]] * (t[0] or 1)
            values = []
            for _ in range(count):
                for s in scalars:
                    values += self.numbers(s, 1)
            self.fields.append(Field(name, element, shape, values, is_soa=r.random() < 0.5))
            self.collections.append(Collection(name, element, "", shape, f"f{name}", 0, [], shape))
            return
        if form < 0.25 and kind != "bool":
            n = r.randint(2, 4)
            self.fields.append(
                Field(name, f"vector({n}, {dtype})", shape, self.numbers(dtype, n * count), is_soa=r.random() < 0.3)
            )
            vector = "fvec" if kind == "float" else "ivec"
            self.collections.append(Collection(name, vector, dtype, shape, f"f{name}", n, [], shape))
            return
        order, tree = "", -1
        if form < 0.4 and len(shape) == 1:
            tree = 0
            shape = list(next((f.shape for f in self.fields if f.tree == 0), shape))
            count = shape[0]
        elif len(shape) == 2 and r.random() < 0.3:
            order = "ji"
        elif shape and r.random() < 0.12:
            first = [r.choice([0, -2, 3, 1]) for _ in shape]
        self.fields.append(Field(name, dtype, shape, self.numbers(dtype, count), tree, order, first))
        used = [max(1, n - r.choice([0, 1, n // 2])) if r.random() < 0.5 else n for n in shape]
        self.collections.append(Collection(name, kind, dtype, shape, f"f{name}", 0, first, used))

    def declare_struct(self) -> None:
        r = self.random
        name = self.fresh("S")
        members, types, texts = [], [], []
        for i in range(r.randint(2, 3)):
            kind = "float" if self.has_floats and r.random() < 0.4 else "int"
            dtype, n = self.dtype_of(kind), r.choice([0, 0, 2, 3])
            member = "abc"[i]
            members.append((member, {"int": "ivec", "float": "fvec"}[kind] if n else kind, n))
            types.append((member, (n, dtype)))
            texts.append(f"{member}=" + (f"qd.types.vector({n}, qd.{dtype})" if n else f"qd.{dtype}"))
        self.structs[name] = members
        self.struct_types[name] = types
        self.head.append(f"{name} = qd.types.struct({', '.join(texts)})")

    def declare_number(self) -> None:
        kind = "float" if self.has_floats and self.random.random() < 0.25 else "int"
        name, dtype = self.fresh("n"), self.dtype_of(kind)
        number = self.numbers(dtype, 1)[0]
        if kind == "int" and self.random.random() < 0.5:
            number = self.random.randint(0, 40)
        self.arguments.append(Argument(name, dtype, number))
        bound = number + 1 if kind == "int" and 0 <= number <= 64 else 0
        self.variables.append(Variable(name, kind, is_fixed=True, bound=bound))

    # Functions.

    def declare_function(self) -> None:
        """A function of numbers, perhaps with a loop that it leaves early, perhaps changing an argument."""
        r = self.random
        name = self.fresh("f")
        parameters, kinds, texts = [], [], []
        is_real = r.random() < 0.2
        outer = (self.variables, self.collections, self.lines, self.functions)
        # Memory that is not passed is a global: fields of the module.
        self.variables, self.lines = [], []
        self.collections = []
        for i in range(r.randint(1, 3)):
            kind = "float" if self.has_floats and r.random() < 0.35 else "int"
            by_reference = r.random() < 0.2 and not is_real
            p = f"p{i}"
            parameters.append(Variable(p, kind, is_fixed=not by_reference))
            kinds.append("&" + kind if by_reference else kind)
            annotation = (
                ": qd.template()"
                if by_reference
                else f": qd.{self.dtype_of(kind)}"
                if is_real or r.random() < 0.4
                else ""
            )
            texts.append(p + annotation)
        if not is_real and r.random() < 0.25:
            kind = "fvec" if self.has_floats and r.random() < 0.4 else "ivec"
            # The function changes only its copy.
            parameters.append(Variable("pv", kind, 3))
            kinds.append(kind)
            texts.append("pv")
        arrays = [c for c in outer[1] if c.kind in ("int", "float") and c.shape]
        if arrays and not is_real and r.random() < 0.35:
            c = r.choice(arrays)
            self.collections = [Collection("pa", c.kind, c.dtype, c.shape, "parameter", 0, c.first, c.used)]
            self.roles = {"parameter": Role("read")}
            kinds.append("@" + c.name)
            texts.append("pa: qd.template()")
        self.variables = parameters
        result = "float" if self.has_floats and r.random() < 0.4 else "int"
        dtype = self.dtype_of(result)

        def give() -> str:
            e = self.integer(2) if result == "int" else self.floating(2)
            return f"return qd.cast({e}, qd.{dtype})"

        self.budget = r.randint(0, 4)
        trips, self.trips = self.trips, 64
        if r.random() < 0.4:
            c = self.fresh("c")
            local = self.fresh("a")
            self.line(f"{local} = {self.leaf_variable()}")
            self.variables.append(Variable(local, "int"))
            self.line(f"for {c} in range({r.randint(1, 6)}):")
            self.variables.append(Variable(c, "int", is_fixed=True, bound=6))
            self.depth += 1
            self.line(f"if {self.condition(1)}:")
            self.depth += 1
            self.line(give())
            self.depth -= 1
            self.line(f"{local} {r.choice(['=', '+=', '^=', '-='])} {self.integer(2)}")
            self.depth -= 1
            self.variables.pop()
        while self.budget > 0:
            self.simple_statement()
        if r.random() < 0.3:
            self.line(f"if {self.condition(1)}:")
            self.depth += 1
            self.line(give())
            self.depth -= 1
        self.line(give())
        self.trips = trips
        self.roles = {}
        returns = f" -> qd.{dtype}" if is_real or r.random() < 0.2 else ""
        text = [
            f"@qd.{'real_func' if is_real else 'func'}",
            f"def {name}({', '.join(texts)}){returns}:",
            *self.lines,
            "",
        ]
        self.variables, self.collections, self.lines, self.functions = outer
        self.head += ["", *text]
        self.functions.append((name, kinds, result))

    # Statements.

    def block(self, depth: int) -> None:
        self.depth += 1
        mark = len(self.variables)
        before = len(self.lines)
        for _ in range(self.random.randint(1, 3)):
            self.statement(depth)
        if len(self.lines) == before:
            self.line("pass")
        del self.variables[mark:]
        self.depth -= 1

    def statement(self, depth: int) -> None:
        r = self.random
        kind = r.random()
        if self.budget <= 0 or depth <= 0 or kind < 0.55:
            self.simple_statement()
        elif kind < 0.69:
            self.budget -= 1
            self.line(f"if {self.condition(2)}:")
            self.block(depth - 1)
            if r.random() < 0.4:
                self.line("else:")
                self.block(depth - 1)
        elif kind < 0.88:
            self.inner_loop(depth)
        elif kind < 0.93:
            self.while_loop(depth)
        elif kind < 0.96:
            self.static_loop(depth)
        else:
            self.leave()

    def leave(self) -> None:
        if self.may_break or self.may_continue:
            options = ["break"] * self.may_break + ["continue"] * self.may_continue
            self.line(f"if {self.condition(1)}:")
            self.depth += 1
            self.line(self.random.choice(options))
            self.depth -= 1
        else:
            self.simple_statement()

    def simple_statement(self) -> None:
        r = self.random
        self.budget -= 1
        kind = r.random()
        if kind < 0.26:
            self.new_variable()
        elif kind < 0.44:
            self.assign_variable()
        elif kind < 0.7:
            self.store()
        elif kind < 0.78:
            self.idiom()
        elif kind < 0.86:
            self.update()
        elif kind < 0.92:
            self.vector_statement()
        elif kind < 0.95:
            self.old_value()
        elif kind < 0.97:
            self.swap()
        elif kind < 0.98:
            self.line(f"assert {self.leaf_variable()} % 3 < 3")
        else:
            self.struct_statement()

    def value(self, kind: str) -> str:
        if kind == "bool":
            return self.condition(2)
        called = self.call(kind, 1) if self.random.random() < 0.12 else None
        if called:
            return called
        if self.is_simple:
            return self.integer(2) if kind == "int" else self.bounded(self.floating(1))
        return self.integer(3) if kind == "int" else self.bounded(self.floating(2))

    def bounded(self, text: str) -> str:
        """In a loop a float that is fed back would soon leave the numbers that are exact."""
        if self.trips > 1 and "*" in text and self.random.random() < 0.7:
            return f"qd.floor(qd.max(qd.min({text}, 32.0), -32.0))"
        return text

    def new_variable(self) -> None:
        r = self.random
        kind = self.kind()
        name = self.fresh("a")
        if kind == "int" and r.random() < 0.25:
            self.line(f"{name}: qd.{r.choice(self.types)} = {self.value(kind)}")
        elif kind == "int":
            self.line(f"{name} = {self.value(kind)}")
        elif kind == "float":
            text = self.value(kind)
            self.line(f"{name}: qd.{r.choice(FLOATS)} = {text}" if r.random() < 0.3 else f"{name} = {text}")
        else:
            self.line(f"{name} = {self.value(kind)}")
        self.variables.append(Variable(name, kind))

    def assign_variable(self) -> None:
        r = self.random
        kind = self.kind()
        v = self.pick(kind, writable=True)
        if v is None or v.bound:
            self.new_variable()
            return
        if kind == "bool" or r.random() < 0.4:
            self.line(f"{v.name} = {self.value(kind)}")
        elif kind == "int":
            op = r.choice(["+", "-", "*", "&", "|", "^", "+", "-", "+"])
            if r.random() < 0.12:
                self.line(f"{v.name} {r.choice(['//', '%'])}= {r.choice(['3', '7', '(-7)', '5'])}")
            else:
                self.line(f"{v.name} {op}= {self.integer(2)}")
        else:
            self.line(f"{v.name} {r.choice(['+', '-'])}= {self.floating(1)}")

    def store(self) -> None:
        r = self.random
        kind = self.kind()
        place = self.element(kind, "write")
        if place is None:
            self.assign_variable()
            return
        if kind == "bool" and r.random() < 0.4:
            self.line(f"{place} {r.choice(['^=', '|=', '&='])} {self.condition(1)}")
        elif kind == "int" and r.random() < 0.3:
            self.line(f"{place} {r.choice(['+=', '-=', '^=', '|=', '&=', '*='])} {self.integer(2)}")
        elif kind == "float" and r.random() < 0.3:
            self.line(f"{place} {r.choice(['+=', '-='])} {self.floating(1)}")
        else:
            self.line(f"{place} = {self.value(kind)}")

    def idiom(self) -> None:
        """Shapes of code on which optimizers have failed."""
        r = self.random
        place = self.element("int", "write")
        if place is None:
            self.assign_variable()
            return
        base = place.split("[")[0]
        form = r.random()
        if form < 0.3:
            # A masked load and store.
            s = self.fresh("a")
            self.line(f"{s} = {self.integer_leaf()}")
            self.line(f"if {self.condition(1)}:")
            self.depth += 1
            self.line(f"{s} = {place}")
            self.line(f"{place} = {self.number()}")
            self.depth -= 1
            self.variables.append(Variable(s, "int"))
            return
        collection = next(c for c in self.collections if c.name == base)
        other = self.indices_of(collection)
        if other is None:
            return
        second = f"{base}[{', '.join(other)}]"
        if form < 0.6:
            # A read after conditional stores to neighbors.
            s = self.fresh("a")
            self.line(f"if {self.condition(1)}:")
            self.depth += 1
            self.line(f"{second} = {self.integer(1)}")
            self.depth -= 1
            self.line(f"{s} = {place}")
            self.variables.append(Variable(s, "int"))
        elif form < 0.8:
            s = self.fresh("a")
            self.line(f"{s} = {place}")
            self.line(f"{place} = {second}")
            self.line(f"{second} = {s}")
            self.variables.append(Variable(s, "int"))
        else:
            self.line(f"{place} = {second} {r.choice(['+', '-', '^'])} {self.operand(1)}")
            self.line(f"{second} {r.choice(['+=', '-='])} {place}")

    def update(self) -> None:
        """An atomic update of memory that the iterations share."""
        r = self.random
        shared = [
            c for c in self.collections if self.role(c).what in ATOMIC and c.kind in ("int", "float", "ivec", "fvec")
        ]
        if not shared:
            self.store()
            return
        c = r.choice(shared)
        op = self.role(c).what
        if c.kind in ("float", "fvec") and op in ("and", "or", "xor", "mul"):
            return
        indices = self.indices_of(c)
        if indices is None:
            return
        place = f"{c.name}[{', '.join(indices)}]"
        if c.components:
            place += f"[{self.index(c.components)}]"
        if c.kind in ("float", "fvec"):
            value = r.choice([self.floating_leaf(), self.float_number()])
        else:
            value = self.integer(2)
        if op in ("add", "sub"):
            op = r.choice(["add", "sub"])
        if op in ASSIGNED and r.random() < 0.6:
            if op == "mul":
                value = f"qd.cast({self.leaf_variable()}, qd.{c.dtype})"
            self.line(f"{place} {ASSIGNED[op]} {value}")
        else:
            self.line(f"qd.atomic_{op}({place}, {value})")

    def old_value(self) -> None:
        """The old value of an atomic operation on an element that only this iteration accesses."""
        r = self.random
        kind = "float" if self.has_floats and r.random() < 0.2 else "int"
        place = self.element(kind, "write")
        if place is None or r.random() < 0.2:
            v = self.pick(kind, writable=True)
            if v is None or v.bound:
                return
            place = v.name
        name = self.fresh("o")
        ops = ["add", "sub", "min", "max"] + (["and", "or", "xor", "mul", "exchange"] if kind == "int" else [])
        value = self.integer(1) if kind == "int" else self.floating_leaf()
        if kind == "int" and "[" in place and r.random() < 0.1:
            self.line(f"{name} = qd.atomic_cas({place}, {self.number()}, {value})")
        else:
            self.line(f"{name} = qd.atomic_{r.choice(ops)}({place}, {value})")
        self.variables.append(Variable(name, kind))

    def swap(self) -> None:
        """Two values change places."""
        kind = self.kind()
        places = [p for p in (self.element(kind, "write"), self.element(kind, "write")) if p is not None]
        places += [
            v.name for v in (self.pick(kind, writable=True), self.pick(kind, writable=True)) if v and not v.bound
        ]
        if len(places) < 2:
            self.assign_variable()
            return
        a, b = self.random.sample(places, 2)
        self.line(f"{a}, {b} = {b}, {a}")

    def matrix_statement(self) -> None:
        """A local matrix, whose elements are read and written by constant and by other indices."""
        r = self.random
        n, m = r.randint(2, 3), r.randint(2, 3)
        kind = "float" if self.has_floats and r.random() < 0.4 else "int"
        one = self.integer if kind == "int" else self.floating
        dtype = self.dtype_of(kind)
        name = self.fresh("m")
        rows = ", ".join("[" + ", ".join(one(1) for _ in range(m)) + "]" for _ in range(n))
        self.line(f"{name} = qd.Matrix([{rows}], qd.{dtype})")
        for _ in range(r.randint(1, 2)):
            self.line(f"{name}[{self.index(n)}, {self.index(m)}] {r.choice(['=', '+=', '-='])} {one(1)}")
        vector = "ivec" if kind == "int" else "fvec"
        v = self.fresh("v")
        if r.random() < 0.5:
            self.line(f"{v} = {name} @ {self.vector(vector, m, 0)}")
            self.variables.append(Variable(v, vector, n))
        else:
            other = self.fresh("m")
            self.line(f"{other} = {name}.transpose() @ {name}")
            self.line(f"{v} = {other}[{self.index(m)}, {self.index(m)}]")
            self.variables.append(Variable(v, kind))

    def vector_statement(self) -> None:
        r = self.random
        kind = "fvec" if self.has_floats and r.random() < 0.4 else "ivec"
        v = self.pick(kind, writable=True)
        one = self.integer if kind == "ivec" else self.floating
        form = r.random()
        if r.random() < 0.12:
            self.matrix_statement()
            return
        if v is None or form < 0.3:
            n = r.randint(2, 4)
            name = self.fresh("v")
            self.line(f"{name} = {self.vector(kind, n, 1)}")
            self.variables.append(Variable(name, kind, n))
        elif form < 0.6:
            op = r.choice(["=", "+=", "-=", "="])
            self.line(f"{v.name}[{self.index(v.components)}] {op} {one(2)}")
        elif form < 0.75:
            text = self.vector(kind, v.components, 2)
            self.line(f"{v.name} = {text}" if kind == "ivec" or "*" not in text else f"{v.name} += {self.one(kind)}")
        else:
            place = self.element(kind, "write")
            if place is None:
                self.assign_variable()
                return
            c = next(c for c in self.collections if c.name == place.split("[")[0])
            if r.random() < 0.5:
                text = self.vector(kind, c.components, 0)
                self.line(f"{place} = {text}")
            else:
                self.line(f"{place}[{self.index(c.components)}] {r.choice(['=', '+=', '-='])} {one(2)}")

    def struct_statement(self) -> None:
        r = self.random
        if not self.structs:
            self.store()
            return
        if r.random() < 0.4:
            struct = r.choice(list(self.structs))
            name = self.fresh("s")
            if r.random() < 0.4:
                place = self.element(struct, "read")
                if place:
                    self.line(f"{name} = {place}")
                    self.variables.append(Variable(name, struct))
                    return
            parts = []
            for member, kind, n in self.structs[struct]:
                one = self.integer if kind in ("int", "ivec") else self.floating
                if n:
                    dtype = dict(self.struct_types[struct])[member][1]
                    parts.append(f"{member}=qd.Vector([{', '.join(one(1) for _ in range(n))}], qd.{dtype})")
                else:
                    parts.append(f"{member}={one(1)}")
            self.line(f"{name} = {struct}({', '.join(parts)})")
            self.variables.append(Variable(name, struct))
            place = self.element(struct, "write")
            if place and r.random() < 0.5:
                self.line(f"{place} = {name}")
            return
        kind = self.kind()
        place = self.struct_member(kind, "write") if kind != "bool" else None
        if place is None:
            self.store()
            return
        self.line(f"{place} {r.choice(['=', '+=', '-=', '='])} {self.value(kind)}")

    # Loops.

    def inner_loop(self, depth: int) -> None:
        r = self.random
        n = r.choice([n for n in INNER if self.trips * n <= MOST_TRIPS] or [1])
        self.budget -= 1
        name = self.fresh("i")
        bounded = [v for v in self.variables if v.bound and 1 < v.bound * self.trips <= MOST_TRIPS and v.kind == "int"]
        form = r.random()
        least = 0
        if form < 0.2 and bounded:
            v = r.choice(bounded)
            n = v.bound
            self.line(f"for {name} in range({v.name}):")
        elif form < 0.35:
            least = r.randint(1, 5)
            self.line(f"for {name} in range({least}, {least + n}):")
            n = least + n
        elif form < 0.42 and bounded:
            v = r.choice(bounded)
            n = max(n, v.bound)
            if n * self.trips > MOST_TRIPS:
                n = v.bound
            self.line(f"for {name} in range({v.name}, {n}):")
        elif form < 0.54:
            # Far from zero.
            first = r.choice(
                ["2147483630", "-2147483648", "qd.cast(9223372036854775000, qd.i64)", self.leaf_variable()]
            )
            base, n = self.fresh("b"), min(n, 9)
            self.line(f"{base} = {first}")
            if first[0] not in "q2-":
                # The sum of a bound may leave the type.
                self.line(f"{base} &= 31")
            self.line(f"for {name} in range({base}, {base} + {n}):")
            mark = len(self.variables)
            self.variables.append(Variable(name, "int", is_fixed=True))
            self.loop_body([(f"({name} - {base})", n, 0)], n, depth)
            del self.variables[mark:]
            return
        elif form < 0.64:
            # The trip count comes from memory, and may be zero.
            bound = self.index_from_zero(n + 1)
            if r.random() < 0.3:
                bound = f"qd.cast({bound}, qd.{r.choice(self.types)})"
            self.line(
                f"for {name} in range({bound}):"
                if r.random() < 0.6
                else f"for {name} in range({r.randint(-1, 2)}, {bound}):"
            )
            if "range(-" in self.lines[-1]:
                self.loop_body([(name, 0, -1)], n, depth)
                return
        elif form < 0.7 and self.trips * n * 3 <= MOST_TRIPS:
            m = r.randint(1, 3)
            other = self.fresh("i")
            self.line(f"for {name}, {other} in qd.ndrange({n}, {m}):")
            self.loop_body([(name, n, 0), (other, m, 0)], n * m, depth)
            return
        else:
            self.line(f"for {name} in range({n}):")
        self.loop_body([(name, n, least)], n, depth)

    def loop_body(self, indices: list[tuple[str, int, int]], trips: int, depth: int) -> None:
        outer = (self.trips, self.may_break, self.may_continue)
        self.trips *= max(trips, 1)
        self.may_break = self.may_continue = True
        mark = len(self.variables)
        self.variables += [Variable(name, "int", is_fixed=True, bound=n, least=least) for name, n, least in indices]
        self.block(depth - 1)
        del self.variables[mark:]
        self.trips, self.may_break, self.may_continue = outer

    def while_loop(self, depth: int) -> None:
        r = self.random
        n = r.choice([n for n in (1, 3, 5, 8) if self.trips * n <= MOST_TRIPS] or [1])
        name = self.fresh("c")
        self.budget -= 1
        self.line(f"{name} = {r.choice(['0', 'qd.cast(0, qd.u8)', 'qd.cast(0, qd.i64)'])}")
        endless = r.random() < 0.2
        self.line(
            "while True:"
            if endless
            else f"while {name} < {n}{f' and {self.condition(1)}' if r.random() < 0.5 else ''}:"
        )
        self.depth += 1
        self.line(f"{name} += 1")
        if endless:
            self.line(f"if {name} > {n}:")
            self.line("    break")
        self.depth -= 1
        self.loop_body([(name, n + 1, 0)], n, depth)

    def static_loop(self, depth: int) -> None:
        r = self.random
        n = r.randint(1, 3)
        name = self.fresh("q")
        self.budget -= 1
        self.line(f"for {name} in qd.static(range({n})):")
        outer = (self.may_break, self.may_continue)
        self.may_break = self.may_continue = False
        mark = len(self.variables)
        self.variables.append(Variable(name, "static", is_fixed=True, bound=n))
        if r.random() < 0.3:
            self.depth += 1
            self.line(f"if qd.static({name} {r.choice(['==', '<', '!='])} {r.randrange(n)}):")
            self.block(depth - 1)
            self.line("else:")
            self.block(depth - 1)
            self.depth -= 1
        else:
            self.block(depth - 1)
        del self.variables[mark:]
        self.may_break, self.may_continue = outer

    def top_loop(self) -> None:
        """A loop of the kernel: parallel, or in order."""
        r = self.random
        serial = r.random() < 0.35
        self.budget = r.randint(1, 4) if self.is_simple else r.randint(2, 9)
        if serial:
            self.line("qd.loop_config(serialize=True)")
        elif r.random() < 0.1:
            self.line(f"qd.loop_config(block_dim={r.choice([1, 7, 32])})")
        indices, header = self.header()
        self.line(header)
        self.roles = {}
        if not serial:
            self.assign_roles(indices)
        trips = 1
        for _, least, end in indices:
            trips *= max(end - least, 0)
        outer = self.trips
        self.trips = max(trips, 1)
        self.may_continue, self.may_break = True, serial
        mark = len(self.variables)
        grouped = header.startswith("for I")
        if grouped:
            names = header.split()[1]
            self.variables.append(Variable(names, "ivec", len(indices), is_fixed=True))
        else:
            for name, least, end in indices:
                small = least >= 0 and end > 0
                self.variables.append(Variable(name, "int", is_fixed=True, bound=end if small else 0, least=least))
        hidden: list[Variable] = []
        if not serial:
            # A variable assigned outside is shared by all iterations: they may only add to it.
            hidden = [v for v in self.variables[:mark] if not v.is_fixed]
            self.variables = [v for v in self.variables if v.is_fixed]
            sums = [v for v in hidden if v.kind == "int"]
            if sums and r.random() < 0.5:
                self.shared_sum = (r.choice(sums).name, r.choice(["+=", "+=", "^=", "|=", "max", "min", "-="]))
        self.block(3)
        if not serial and self.shared_sum:
            name, op = self.shared_sum
            self.depth += 1
            value = self.integer(2)
            self.line(f"{name} {op} {value}" if "=" in op else f"qd.atomic_{op}({name}, {value})")
            self.depth -= 1
            self.shared_sum = None
        self.variables = (
            [v for v in self.variables if v not in self.variables[mark:] or v in hidden][:mark]
            if serial
            else hidden + [v for v in self.variables if v.is_fixed and not v.name.startswith(("i", "I"))]
        )
        self.roles = {}
        self.trips = outer
        self.may_continue = self.may_break = False

    def header(self) -> tuple[list[tuple[str, int, int]], str]:
        r = self.random
        form = r.random()
        name = self.fresh("i")
        arrays = [c for c in self.collections if c.shape and c.kind in ("int", "float", "bool", "ivec", "fvec")]
        if form < 0.5 or not arrays:
            n = r.choice(EXTENTS)
            begin = r.choice([0, 0, 0, 1, 2, -3])
            bounded = [v for v in self.variables if v.is_fixed and v.bound > 1]
            if bounded and r.random() < 0.3:
                v = r.choice(bounded)
                return [(name, 0, v.bound - 1)], f"for {name} in range({v.name}):"
            if begin:
                return [(name, begin, n)], f"for {name} in range({begin}, {n}):"
            return [(name, 0, n)], f"for {name} in range({n}):"
        if form < 0.65:
            other = self.fresh("i")
            n, m = r.choice([1, 2, 3, 5, 8, 17]), r.choice([1, 2, 3, 5, 8, 17])
            b = r.choice([0, 0, 1])
            if r.random() < 0.3:
                group = self.fresh("I")
                return [
                    (f"{group}[0]", 0, n),
                    (f"{group}[1]", b, m),
                ], f"for {group} in qd.grouped(qd.ndrange({n}, ({b}, {m}))):"
            return [(name, 0, n), (other, b, m)], f"for {name}, {other} in qd.ndrange({n}, ({b}, {m})):"
        c = r.choice(arrays)
        first = c.first or [0] * len(c.shape)
        if r.random() < 0.25:
            group = self.fresh("I")
            spans = [(f"{group}[{k}]", a, a + n) for k, (a, n) in enumerate(zip(first, c.shape, strict=True))]
            return spans, f"for {group} in qd.grouped({c.name}):"
        names = [name] + [self.fresh("i") for _ in c.shape[1:]]
        spans = [(m, a, a + n) for m, a, n in zip(names, first, c.shape, strict=True)]
        return spans, f"for {', '.join(names)} in {c.name}:"

    def assign_roles(self, indices: list[tuple[str, int, int]]) -> None:
        """Chooses the accesses of a parallel loop's iterations to each memory."""
        r = self.random
        members: dict[str, list[Collection]] = {}
        for c in self.collections:
            members.setdefault(c.memory, []).append(c)
        for memory, sharing in members.items():
            kind = r.random()
            c = sharing[0]
            own = self.own_indices(c, indices) if len(sharing) == 1 else None
            if kind < 0.45 and own is not None:
                self.roles[memory] = Role("own", own)
            elif kind < 0.65 and c.kind in ("int", "float", "ivec", "fvec"):
                op = r.choice(ATOMIC if c.kind in ("int", "ivec") else ["add", "min", "max"])
                self.roles[memory] = Role(op)
            else:
                self.roles[memory] = Role("read")

    def own_indices(self, c: Collection, indices: list[tuple[str, int, int]]):
        """Indices that only one iteration has: the loop's own, or a run of elements for each."""
        r = self.random
        if not c.shape or c.kind in self.structs and False:
            return None
        first = c.first or [0] * len(c.shape)
        if len(indices) == 1:
            name, least, end = indices[0]
            if not c.used:
                return None
            n, a = c.shape[0], first[0]
            if r.random() < 0.3 and least >= 0 and a == 0:
                # Several adjacent elements for each iteration.
                for s in r.sample([2, 3, 4], 3):
                    if end * s <= n:
                        return lambda c: [f"{s} * {name} + {r.randrange(s)}", *self.rest(c, 1)]
            if a <= least and end <= a + n:
                return lambda c: [name, *self.rest(c, 1)]
            if least == 0 and end <= n and a == 0:
                return lambda c: [f"{end - 1} - {name}", *self.rest(c, 1)]
            if least >= 0 and end - least <= n:
                return lambda c: [f"{name} - {least - a}", *self.rest(c, 1)]
            return None
        if len(c.shape) < len(indices):
            return None
        for (_, least, end), n, a in zip(indices, c.shape, first, strict=False):
            if least < a or end > a + n:
                return None
        return lambda c: [*(name for name, _, _ in indices), *self.rest(c, len(indices))]

    def rest(self, c: Collection, axis: int) -> list[str]:
        return [self.index(n, c.first[k] if c.first else 0) for k, n in enumerate(c.shape) if k >= axis]

    # The whole.

    def program(self) -> Program:
        r = self.random
        if r.random() < 0.25:
            self.declare_struct()
        for _ in range(r.randint(1, 3)):
            self.declare_array()
        for _ in range(r.randint(0, 2)):
            self.declare_field()
        for _ in range(r.randint(0, 2)):
            self.declare_number()
        for _ in range(r.choice([0, 0, 1, 2])):
            self.declare_function()
        # Loops of a function that is called outside of loops would be parallel.
        functions, self.functions = self.functions, []
        for _ in range(r.randint(0, 2)):
            self.budget = 1
            self.new_variable()
        for _ in range(r.choice([1, 1, 2, 3]) if not self.is_simple else 1):
            self.functions = functions
            self.top_loop()
            self.functions = []
            if r.random() < 0.2:
                self.budget = 1
                self.simple_statement()
        return self.finished()

    def finished(self) -> Program:
        """The program, of the lines that there are."""
        r = self.random
        returned = ""
        if r.random() < 0.5:
            v = self.pick("int")
            if v:
                dtype = r.choice(self.types)
                returned = f" -> qd.{dtype}"
                self.line(f"return {v.name}")
        parameters = [
            f"{a.name}: {a.name.upper()}" if a.memory >= 0 else f"{a.name}: qd.{a.dtype}" for a in self.arguments
        ]
        source = [
            "import octants as qd",
            "",
            *self.head,
            "",
            "@qd.kernel",
            f"def k({', '.join(parameters)}){returned}:",
        ]
        text = "\n".join(source + self.lines) + "\n"
        return Program(self.seed, text, self.memories, self.arguments, self.fields, 2 if r.random() < 0.1 else 1)


def generate(seed: int) -> Program:
    """The program of a seed."""
    from more_shapes import MoreShapes
    from tensor_shapes import TensorShapes

    if seed % 7 == 3:
        return TensorShapes(seed).program()
    return (MoreShapes if seed % 3 == 0 else Generator)(seed).program()
