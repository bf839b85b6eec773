"""Random expressions, as text.

The kind of a value is known (an integer, a float, a truth value). Its exact type follows from the rules of the
language.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from scalars import FLOATS, INTS

NARROW = ["i8", "i16", "u8", "u16"]


@dataclass
class Variable:
    """A variable in scope. `bound` is an exclusive upper bound of its value, if it is known to be nonnegative and
    bounded."""

    name: str
    kind: str
    """`int`, `float`, `bool`, `ivec`, `fvec`, or the name of a struct."""
    components: int = 0
    is_fixed: bool = False
    bound: int = 0
    least: int = 0


@dataclass
class Collection:
    """A field or an array in reach."""

    name: str
    kind: str
    """The type of its elements, named as for variables; for a struct, its name."""
    dtype: str
    shape: list[int]
    memory: str
    """What it shares with others that overlap."""
    components: int = 0
    first: list[int] = field(default_factory=list)
    used: list[int] = field(default_factory=list)
    """As many of each axis are used; what is after must stay as it is."""


@dataclass
class Role:
    """The accesses that iterations of a loop may make to a memory."""

    what: str
    """`any`, `read`, `own`, `none`, or an atomic operation."""
    own: Callable[[Collection], list[str] | None] | None = None
    """Indices that no other iteration has."""


class Expressions:
    """Writes expressions from the variables and memory in scope."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.variables: list[Variable] = []
        self.collections: list[Collection] = []
        self.roles: dict[str, Role] = {}
        self.functions: list[tuple[str, list[str], str]] = []
        self.structs: dict[str, list[tuple[str, str, int]]] = {}
        self.types = INTS
        self.has_floats = True
        self.nesting = 0

    # Variables and memory in scope.

    def pick(self, kind: str, writable: bool = False) -> Variable | None:
        found = [v for v in self.variables if v.kind == kind and not (writable and v.is_fixed)]
        # Those of the innermost blocks come first to mind.
        return self.random.choice(found[-6:] if self.random.random() < 0.7 else found) if found else None

    def role(self, c: Collection) -> Role:
        return self.roles.get(c.memory, Role("any"))

    def element(self, kind: str, purpose: str) -> str | None:
        """An element that may be read, written, or updated; None if there is none."""
        found = []
        for c in self.collections:
            role = self.role(c)
            if c.kind != kind:
                continue
            if role.what in ("any", "own") or (purpose == "read" and role.what == "read"):
                found.append(c)
        if not found:
            return None
        c = self.random.choice(found)
        indices = self.indices_of(c)
        return None if indices is None else f"{c.name}[{', '.join(indices)}]"

    def indices_of(self, c: Collection) -> list[str] | None:
        role = self.role(c)
        if role.what == "own":
            return role.own(c) if role.own is not None else None
        if not c.shape:
            return ["None"]
        return [self.index(n, c.first[i] if c.first else 0) for i, n in enumerate(c.used or c.shape)]

    def index(self, n: int, first: int = 0) -> str:
        """An integer of at least `first` and less than `first + n`."""
        r = self.random
        text = self.index_from_zero(n)
        if first == 0:
            return text
        return f"{text} + {first}" if first > 0 else f"{text} - {-first}" if r.random() < 0.9 else f"{first} + {text}"

    def index_from_zero(self, n: int) -> str:
        self.nesting += 1
        try:
            return self.any_index(n) if self.nesting < 3 else str(self.random.randrange(n))
        finally:
            self.nesting -= 1

    def any_index(self, n: int) -> str:
        r = self.random
        near = [v for v in self.variables if v.bound and v.bound <= n]
        wide = [v for v in self.variables if v.bound]
        kind = r.random()
        if near and kind < 0.4:
            return r.choice(near).name
        if wide and kind < 0.5:
            v = r.choice(wide)
            return f"({v.name} {r.choice('+-')} {r.randint(1, 9)}) % {n}"
        if kind < 0.6 or n == 1:
            return str(r.randrange(n))
        if kind < 0.66 and n & (n - 1) == 0:
            return f"({self.integer(1)}) & {n - 1}"
        if kind < 0.72:
            return f"qd.min(qd.max({self.not_a_literal(1)}, 0), {n - 1})"
        if kind < 0.78:
            return f"{self.integer(1)} % {-n} + {n - 1}"
        if kind < 0.82 and len(wide) > 1:
            a, b = r.choice(wide), r.choice(wide)
            return f"({a.name} * {r.randint(1, 4)} + {b.name}) % {n}"
        if kind < 0.86 and near:
            v = r.choice(near)
            return f"{n - 1} - {v.name}"
        return f"({self.integer(r.randint(1, 2))}) % {n}"

    # Integers.

    def number(self) -> str:
        r = self.random
        kind = r.random()
        if kind < 0.6:
            return str(r.randint(0, 9))
        if kind < 0.75:
            return f"(-{r.randint(1, 9)})"
        if kind < 0.85:
            return str(r.choice([31, 32, 33, 63, 100, 127, 128, 255, 256, 1000, 32767, 65535, 65536, 2**31 - 1]))
        t = r.choice(self.types)
        bits = int(t[1:])
        value = r.choice(
            [0, 1, 2, 3, 7, 100, 2 ** (bits - 1) - 1, 2 ** min(bits - 1, 30), r.randrange(2 ** (bits - 1))]
        )
        return f"qd.cast({value}, qd.{t})"

    def integer_leaf(self) -> str:
        r = self.random
        kind = r.random()
        if kind < 0.35:
            found = self.element("int", "read")
            if found:
                return found
        if kind < 0.75:
            v = self.pick("int")
            if v:
                return v.name
        if kind < 0.8:
            v = self.pick("ivec")
            if v:
                return f"{v.name}[{self.index(v.components)}]"
            found = self.element("ivec", "read")
            if found:
                return f"{found}[0]"
        if kind < 0.85:
            found = self.struct_member("int", "read")
            if found:
                return found
        if kind < 0.87:
            found = self.extent()
            if found:
                return found
        return self.number()

    def struct_member(self, kind: str, purpose: str) -> str | None:
        bases = [
            (v.name, v.kind)
            for v in self.variables
            if v.kind in self.structs and not (purpose == "write" and v.is_fixed)
        ]
        for name in self.structs:
            found = self.element(name, purpose)
            if found:
                bases.append((found, name))
        options = []
        for base, name in bases:
            for member, k, components in self.structs[name]:
                if k == kind:
                    options.append(f"{base}.{member}")
                elif components and k == ("ivec" if kind == "int" else "fvec"):
                    options.append(f"{base}.{member}[{self.random.randrange(components)}]")
        return self.random.choice(options) if options else None

    def integer(self, depth: int) -> str:
        r = self.random
        if depth <= 0 or r.random() < 0.12:
            return self.integer_leaf()

        def sub() -> str:
            return self.integer(depth - 1)

        kind = r.random()
        if kind < 0.38:
            return f"({sub()} {r.choice(['+', '-', '*', '+', '-'])} {self.operand(depth)})"
        if kind < 0.5:
            op = r.choice(["%", "//", "%", "//", "raw_div", "raw_mod"])
            divisor = r.choice(
                [
                    lambda: str(r.choice([2, 3, 4, 5, 7, 8, 10, 33])),
                    lambda: f"(-{r.choice([1, 2, 3, 7, 8])})",
                    lambda: f"({self.leaf_variable()} | 1)",
                ]
            )()
            left = self.not_a_literal(depth)
            return f"qd.{op}({left}, {divisor})" if op.startswith("raw") else f"({left} {op} {divisor})"
        if kind < 0.62:
            return f"({self.not_a_literal(depth)} {r.choice('&|^')} {sub()})"
        if kind < 0.68:
            count = r.choice([str(r.randint(0, 7)), f"({self.leaf_variable()} & 7)"])
            left = self.not_a_literal(depth)
            op = r.choice(["<<", ">>", "bit_shr"])
            return f"qd.bit_shr({left}, {count})" if op == "bit_shr" else f"({left} {op} {count})"
        if kind < 0.72:
            return f"{r.choice('-~')}({self.not_a_literal(depth)})"
        if kind < 0.78:
            more = f", {self.leaf_variable()}" if r.random() < 0.15 else ""
            return f"qd.{r.choice(['min', 'max'])}({self.not_a_literal(depth)}, {sub()}{more})"
        if kind < 0.81:
            return f"abs({self.not_a_literal(depth)})"
        if kind < 0.86:
            return f"qd.cast({self.not_a_literal(depth)}, qd.{r.choice(self.types)})"
        if kind < 0.9:
            return f"({sub()} if {self.condition(depth - 1)} else {sub()})"
        if kind < 0.93:
            return f"qd.select({self.condition(depth - 1)}, {sub()}, {sub()})"
        if kind < 0.945:
            return f"qd.math.{r.choice(['popcnt', 'clz', 'ffs'])}({self.not_a_literal(depth)})"
        if kind < 0.955:
            return f"({self.not_a_literal(depth)} {r.choice(['and', 'or'])} {sub()})"
        if kind < 0.965:
            return f"({self.leaf_variable()} ** {r.choice(['2', '3', f'({self.leaf_variable()} & 3)'])})"
        if kind < 0.975:
            return f"qd.cast({self.condition(depth - 1)}, qd.{r.choice(self.types)})"
        if kind < 0.985 and self.has_floats:
            value = f"qd.max(qd.min({self.floating_value(depth)}, 100.0), -100.0)"
            return f"qd.cast({value}, qd.{r.choice(['i8', 'i16', 'i32', 'i64'])})"
        if kind < 0.992:
            # Expressions that change a variable: operands are evaluated from left to right.
            v = self.pick("int", writable=True)
            if v is not None and not v.bound:
                return f"qd.atomic_{r.choice(['add', 'sub', 'max', 'exchange', 'xor'])}({v.name}, {sub()})"
        called = self.call("int", depth - 1)
        return called or sub()

    def leaf_variable(self) -> str:
        """A leaf other than a literal."""
        for _ in range(6):
            text = self.integer_leaf()
            if not is_literal(text):
                return text
        v = self.pick("int")
        return v.name if v else f"qd.cast({self.random.randint(0, 9)}, qd.i32)"

    def extent(self) -> str | None:
        """The extent of an array, which is known when the kernel is launched."""
        found = [c for c in self.collections if c.name.startswith("x") and c.shape]
        if not found:
            return None
        c = self.random.choice(found)
        return f"{c.name}.shape[{self.random.randrange(len(c.shape))}]"

    def not_a_literal(self, depth: int) -> str:
        for _ in range(3):
            text = self.integer(depth - 1)
            if not is_literal(text):
                return text
        return self.leaf_variable()

    def operand(self, depth: int) -> str:
        return self.integer(depth - 1) if self.random.random() < 0.5 else self.leaf_variable()

    # Truth values.

    def condition(self, depth: int) -> str:
        r = self.random
        kind = r.random()
        if depth > 0 and kind < 0.15:
            return f"({self.condition(depth - 1)} {r.choice(['and', 'or'])} {self.condition(depth - 1)})"
        if depth > 0 and kind < 0.2:
            return f"(not {self.condition(depth - 1)})"
        if kind < 0.25:
            v = self.pick("bool")
            if v:
                return v.name
        if kind < 0.3:
            found = self.element("bool", "read")
            if found:
                return found
        if kind < 0.42 and self.has_floats:
            left = self.floating(min(depth, 1))
            if not is_literal(left):
                return f"({left} {self.comparison()} {self.floating_leaf()})"
        if kind < 0.55:
            test = f"{r.choice(['==', '!=', '<'])} {r.randint(0, 1)}"
            return f"(({self.not_a_literal(min(depth, 1))}) % {r.randint(2, 4)} {test})"
        if kind < 0.6:
            return f"({r.randint(-3, 0)} < {self.not_a_literal(min(depth, 1))} <= {r.randint(1, 90)})"
        return f"({self.not_a_literal(min(depth, 2))} {self.comparison()} {self.integer(min(depth, 1))})"

    def comparison(self) -> str:
        return self.random.choice(["<", "<=", ">", ">=", "==", "!="])

    # Floats.

    def float_number(self) -> str:
        r = self.random
        return r.choice(["0.5", "1.0", "2.0", "0.25", "3.0", "1.5", "(-1.0)", "(-0.5)", "7.0", f"{r.randint(-9, 9)}.5"])

    def floating_leaf(self) -> str:
        r = self.random
        kind = r.random()
        if kind < 0.4:
            found = self.element("float", "read")
            if found:
                return found
        if kind < 0.75:
            v = self.pick("float")
            if v:
                return v.name
        if kind < 0.8:
            v = self.pick("fvec")
            if v:
                return f"{v.name}[{self.index(v.components)}]"
        if kind < 0.84:
            found = self.struct_member("float", "read")
            if found:
                return found
        if kind < 0.92:
            return f"qd.cast({self.leaf_variable()} % {r.randint(2, 16)}, qd.{r.choice(FLOATS)})"
        return self.float_number()

    def floating(self, depth: int) -> str:
        r = self.random
        if depth <= 0 or r.random() < 0.2:
            return self.floating_leaf()

        def sub() -> str:
            text = self.floating(depth - 1)
            return self.floating_variable() if is_literal(text) else text

        kind = r.random()
        if kind < 0.45:
            return f"({sub()} {r.choice('+-')} {self.floating(depth - 1)})"
        if kind < 0.6:
            return f"({sub()} * {self.floating_leaf()})"
        if kind < 0.66:
            return f"({sub()} / {r.choice(['2.0', '4.0', '0.5', '2'])})"
        if kind < 0.68:
            return f"({self.leaf_variable()} / {r.choice([2, 4, 8])})"
        if kind < 0.74:
            return f"qd.{r.choice(['min', 'max'])}({sub()}, {self.floating(depth - 1)})"
        if kind < 0.78:
            return f"qd.{r.choice(['floor', 'ceil', 'round'])}({sub()})"
        if kind < 0.82:
            return f"abs({sub()})"
        if kind < 0.85:
            return f"(-{sub()})"
        if kind < 0.89:
            return f"({self.floating(depth - 1)} if {self.condition(depth - 1)} else {self.floating(depth - 1)})"
        if kind < 0.92:
            return f"qd.select({self.condition(depth - 1)}, {self.floating(depth - 1)}, {self.floating(depth - 1)})"
        if kind < 0.94:
            return f"qd.cast({sub()}, qd.{r.choice(FLOATS)})"
        if kind < 0.955:
            return f"({sub()} {r.choice(['//', '%'])} {r.choice(['2.0', '4.0'])})"
        if kind < 0.965:
            return f"({self.floating_variable()} ** {r.choice(['2', '3'])})"
        if kind < 0.98:
            return f"({sub()} + {self.leaf_variable()} % 8)"
        called = self.call("float", depth - 1)
        return called or sub()

    def floating_variable(self) -> str:
        for _ in range(5):
            text = self.floating_leaf()
            if not is_literal(text):
                return text
        return f"qd.cast({self.leaf_variable()} % 8, qd.{self.random.choice(FLOATS)})"

    def floating_value(self, depth: int) -> str:
        text = self.floating(depth - 1)
        return self.floating_variable() if is_literal(text) else text

    def call(self, kind: str, depth: int) -> str | None:
        found = [f for f in self.functions if f[2] == kind]
        if not found:
            return None
        name, parameters, _ = self.random.choice(found)
        if any(p.startswith("@") and all(c.name != p[1:] for c in self.collections) for p in parameters):
            return None
        arguments = []
        for p in parameters:
            if p == "int":
                # The compiler takes a literal for its number, not for an `i32`, inside the function too.
                arguments.append(self.not_a_literal(depth))
            elif p == "float":
                arguments.append(self.floating_variable())
            elif p.startswith("@"):
                c = next(c for c in self.collections if c.name == p[1:])
                if self.role(c).what not in ("any", "read"):
                    return None
                arguments.append(c.name)
            elif p in ("ivec", "fvec"):
                arguments.append(self.vector(p, 3, 1))
            else:
                v = self.pick(p[1:], writable=True)
                if v is None or v.bound:
                    return None
                arguments.append(v.name)
        return f"{name}({', '.join(arguments)})"

    # Vectors.

    def vector(self, kind: str, n: int, depth: int) -> str:
        r = self.random
        known = [v.name for v in self.variables if v.kind == kind and v.components == n]
        if known and r.random() < 0.4:
            left = r.choice(known)
            if depth <= 0:
                return left
            right = r.choice([lambda: self.vector(kind, n, depth - 1), lambda: self.one(kind)])()
            op = r.choice("+-*") if kind == "fvec" else r.choice("+-*&|^")
            return f"({left} {op} {right})"
        t = r.choice(self.types if kind == "ivec" else FLOATS)
        items = [self.integer(1) if kind == "ivec" else self.floating(1) for _ in range(n)]
        return f"qd.Vector([{', '.join(items)}], qd.{t})"

    def one(self, kind: str) -> str:
        return self.leaf_variable() if kind == "ivec" else self.floating_variable()


def is_literal(text: str) -> bool:
    """Whether the compiler folds it."""
    stripped = text.replace("(", "").replace(")", "").replace("-", "").replace(".", "")
    return stripped.isdigit()
