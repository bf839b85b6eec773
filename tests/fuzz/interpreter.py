"""A reference interpreter of kernels: it runs Python's `ast` of their source with the language's types, in order.

Each call compiles its function to closures; the types of all values are known before anything runs. A value is a number; of
a vector, matrix or struct it is the list of the numbers. `InvalidProgramError`: the program is not one of the language, or uses
a part of it that is not known here. `UnspecifiedError`: the program has no single result, because of a race between
iterations, an index outside, or a division by zero.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import scalars
from races import Races
from scalars import State, UnspecifiedError, binary, converter, is_float, promote, unary, wrap

MOST_STEPS = 60_000


class InvalidProgramError(Exception):
    """Not a program of the language, as far as the interpreter knows it."""


@dataclass(frozen=True)
class Tensor:
    """The type of a vector or matrix."""

    scalar: str
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        return self.shape[0] * (self.shape[1] if len(self.shape) > 1 else 1)


@dataclass(frozen=True)
class Struct:
    """The type of a struct."""

    name: str
    members: tuple[tuple[str, Any], ...]

    @property
    def count(self) -> int:
        return sum(count_of(t) for _, t in self.members)


Type = str | Tensor | Struct


def count_of(t: Type) -> int:
    return 1 if isinstance(t, str) else t.count


def leaves(t: Type) -> list[str]:
    if isinstance(t, str):
        return [t]
    if isinstance(t, Tensor):
        return [t.scalar] * t.count
    return [leaf for _, member in t.members for leaf in leaves(member)]


@dataclass
class Storage:
    """Memory: numbers that one or several arrays reach."""

    numbers: list


@dataclass
class Array:
    """A field or an array as kernels see it. Strides and the offset count numbers."""

    element: Type
    shape: tuple[int, ...]
    storage: Storage
    offset: int
    strides: tuple[int, ...]
    is_field: bool = False
    first: tuple[int, ...] = ()
    """The least index of each axis, where that is not zero."""


@dataclass
class Value:
    """An expression: its type, how to compute it, and the number if it is known at compile time. A place has `locate`."""

    type: Type
    get: Callable[[list], Any]
    literal: Any = None
    locate: Callable[[list], tuple[list, int, bool]] | None = None
    """Gives a list, a position in it, and whether iterations share it."""
    is_global: bool = False


@dataclass
class Function:
    """A function of the module."""

    node: ast.FunctionDef
    kind: str


@dataclass
class Scope:
    """Names of a block."""

    names: dict[str, Any] = field(default_factory=dict)


BREAK, CONTINUE = object(), object()

OPERATORS = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
ATOMICS = {
    "atomic_add": "+",
    "atomic_sub": "-",
    "atomic_mul": "*",
    "atomic_min": "min",
    "atomic_max": "max",
    "atomic_and": "&",
    "atomic_or": "|",
    "atomic_xor": "^",
    "atomic_exchange": "=",
}
ATOMIC_ASSIGNMENTS = {"+", "-", "*", "&", "|", "^"}


def dotted(node: ast.expr) -> str | None:
    """`qd.math.clz` as text."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return None if base is None else f"{base}.{node.attr}"
    return None


class Interpreter:
    """Runs the kernels of a module. `default_ip` and `default_fp` are the options of that name."""

    def __init__(self, source: str, default_ip: str, default_fp: str) -> None:
        self.ip, self.fp = default_ip, default_fp
        self.state = State()
        self.races = Races(self.state)
        self.functions: dict[str, Function] = {}
        self.types: dict[str, Any] = {}
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef):
                decorators = [dotted(d) for d in node.decorator_list]
                self.functions[node.name] = Function(node, (decorators or [""])[0] or "")
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                declared = self.declared_type(node.targets[0].id, node.value)
                if declared is not None:
                    self.types[node.targets[0].id] = declared

    def declared_type(self, name: str, node: ast.expr) -> Any:
        """A type that the module gives a name; None for what is no type of values."""
        if isinstance(node, ast.Call) and dotted(node.func) == "qd.types.struct":
            return Struct(name, tuple((k.arg or "", self.type_of(k.value)) for k in node.keywords))
        try:
            return self.type_of(node)
        except InvalidProgramError:
            return None

    def type_of(self, node: ast.expr) -> Type:
        """A type that is written down."""
        name = dotted(node)
        if name in ("int", "float", "bool"):
            return {"int": self.ip, "float": self.fp, "bool": "u1"}[name]
        if name is not None and name.startswith("qd.") and name[3:] in scalars.NAMES:
            return name[3:]
        if name in self.types:
            return self.types[name]
        if isinstance(node, ast.Call) and dotted(node.func) in ("qd.types.vector", "qd.types.matrix"):
            *shape, scalar = node.args
            return Tensor(str(self.type_of(scalar)), tuple(int(ast.literal_eval(n)) for n in shape))
        raise InvalidProgramError(f"type {ast.unparse(node)}")

    def run(self, kernel: str, arguments: list[Any], fields: dict[str, Array]) -> Any:
        """Calls a kernel with arrays and numbers; gives what it returns, with its type, or None."""
        function = self.functions[kernel].node
        compiler = Compiler(self, None, is_kernel=True)
        compiler.scopes[0].names.update(fields)
        parameters = function.args.args
        frame_values: list[tuple[int, Any]] = []
        for parameter, argument in zip(parameters, arguments, strict=True):
            if isinstance(argument, Array):
                compiler.scopes[0].names[parameter.arg] = argument
                continue
            if parameter.annotation is None:
                raise InvalidProgramError("a parameter without a type")
            t = self.type_of(parameter.annotation)
            value = compiler.variable(parameter.arg, t, is_fixed=True)
            frame_values.append((value, argument))
        if function.returns is not None:
            compiler.returns = self.type_of(function.returns)
        body = compiler.block(function.body, compiler.scopes)
        frame: list = [None] * compiler.slots
        for slot, argument in frame_values:
            frame[slot] = list(argument) if isinstance(argument, (list, tuple)) else argument
        found = body(frame)
        if compiler.returns is None:
            return None
        if not isinstance(found, tuple):
            raise InvalidProgramError("nothing is returned")
        return compiler.returns, found[1]


class Compiler:
    """Makes closures of one function, called with arguments of certain types."""

    def __init__(self, program: Interpreter, caller: Compiler | None, is_kernel: bool = False) -> None:
        self.program = program
        self.state = program.state
        self.is_kernel = is_kernel
        self.slots = 0
        self.scopes: list[Scope] = [Scope()]
        self.returns: Type | None = None
        self.loops: list[str] = []
        self.outer_slots: set[int] = set()
        """Variables of a kernel that iterations of the parallel loop share."""
        self.static_values: dict[str, Any] = {}
        self.depth = 0 if caller is None else caller.depth + 1
        self.at_top = is_kernel
        if self.depth > 8:
            raise InvalidProgramError("recursion")
        self.pending_serialize = False

    # Names.

    def slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def variable(self, name: str, t: Type, is_fixed: bool = False) -> int:
        slot = self.slot()
        self.scopes[-1].names[name] = ("variable", slot, t, is_fixed)
        return slot

    def lookup(self, name: str) -> Any:
        for scope in reversed(self.scopes):
            if name in scope.names:
                return scope.names[name]
        return None

    def variable_value(self, slot: int, t: Type) -> Value:
        shared = slot in self.outer_slots
        if isinstance(t, str) and not shared:
            return Value(t, lambda f: f[slot], locate=lambda f: (f, slot, False))
        if isinstance(t, str):
            races = self.program.races

            def get(f):
                races.read(f, slot, 1)
                return f[slot]

            return Value(t, get, locate=lambda f: (f, slot, True))
        if shared:
            count = count_of(t)
            races = self.program.races

            def get_all(f):
                races.read(f[slot], 0, count)
                return list(f[slot])

            return Value(t, get_all, locate=lambda f: (f[slot], 0, True))
        return Value(t, lambda f: list(f[slot]), locate=lambda f: (f[slot], 0, False))

    # Places.

    def read_place(self, t: Type, locate: Callable, is_global: bool) -> Value:
        races, state, count = self.program.races, self.state, count_of(t)
        if isinstance(t, str):

            def get(f):
                numbers, at, shared = locate(f)
                if shared and state.iteration is not None:
                    races.read(numbers, at, 1)
                return numbers[at]

            return Value(t, get, locate=locate, is_global=is_global)

        def get_all(f):
            numbers, at, shared = locate(f)
            if shared and state.iteration is not None:
                races.read(numbers, at, count)
            return numbers[at : at + count]

        return Value(t, get_all, locate=locate, is_global=is_global)

    def writer(self, place: Value) -> Callable[[list, Any], None]:
        if place.locate is None:
            raise InvalidProgramError("an assignment to what is no place")
        locate, t, races, state, count = place.locate, place.type, self.program.races, self.state, count_of(place.type)
        if isinstance(t, str):

            def put(f, v):
                numbers, at, shared = locate(f)
                if shared and state.iteration is not None:
                    races.write(numbers, at, [v])
                numbers[at] = v

            return put

        def put_all(f, v):
            numbers, at, shared = locate(f)
            if shared and state.iteration is not None:
                races.write(numbers, at, v)
            numbers[at : at + count] = v

        return put_all

    def element(self, array: Array, indices: list[Value]) -> Value:
        if len(indices) == 1 and isinstance(indices[0].type, Tensor):
            vector = indices[0]
            if len(array.shape) != vector.type.count:
                raise InvalidProgramError("number of indices")
            at = vector.get
        elif len(indices) != len(array.shape) and not (array.shape == () and len(indices) == 1):
            raise InvalidProgramError("number of indices")
        elif array.shape == ():
            at = lambda f: ()
        else:
            for i in indices:
                if not isinstance(i.type, str) or is_float(i.type):
                    raise InvalidProgramError("an index that is no integer")
            gets = [i.get for i in indices]
            at = lambda f: [g(f) for g in gets]
        shape, strides, offset = array.shape, array.strides, array.offset
        first = array.first or (0,) * len(shape)
        numbers = array.storage.numbers

        def locate(f):
            position = offset
            for i, n, stride, least in zip(at(f), shape, strides, first, strict=True):
                i -= least
                if not 0 <= i < n:
                    raise UnspecifiedError(f"index {i} of {n}")
                position += i * stride
            return numbers, position, True

        return self.read_place(array.element, locate, is_global=True)

    def component(self, base: Value, indices: list[Value]) -> Value:
        t = base.type
        if not isinstance(t, Tensor) or len(indices) != len(t.shape):
            raise InvalidProgramError("a component of what is no tensor")
        for i in indices:
            if not isinstance(i.type, str) or is_float(i.type):
                raise InvalidProgramError("an index that is no integer")
        gets, shape = [i.get for i in indices], t.shape

        def position(f):
            at = 0
            for g, n in zip(gets, shape, strict=True):
                i = g(f)
                if not 0 <= i < n:
                    raise UnspecifiedError(f"component {i} of {n}")
                at = at * n + i
            return at

        return self.part(base, t.scalar, position)

    def part(self, base: Value, t: Type, position: Callable[[list], int]) -> Value:
        """A part of a value: a place where the value is one."""
        count = count_of(t)
        if base.locate is None:
            get = base.get
            if isinstance(t, str):
                return Value(t, lambda f: get(f)[position(f)])

            def cut(f):
                at = position(f)
                return get(f)[at : at + count]

            return Value(t, cut)
        outer = base.locate

        def locate(f):
            numbers, at, shared = outer(f)
            return numbers, at + position(f), shared

        return self.read_place(t, locate, base.is_global)

    def member(self, base: Value, name: str) -> Value:
        t = base.type
        if isinstance(t, Struct):
            at = 0
            for member, mt in t.members:
                if member == name:
                    return self.part(base, mt, lambda f, at=at: at)
                at += count_of(mt)
        if isinstance(t, Tensor) and len(t.shape) == 1 and name in ("x", "y", "z", "w"):
            i = "xyzw".index(name)
            if i < t.shape[0]:
                return self.part(base, t.scalar, lambda f: i)
        raise InvalidProgramError(f"member {name}")

    # Conversions.

    def literal(self, v: Any) -> Value:
        if isinstance(v, bool):
            return Value("u1", lambda f: int(v), literal=v)
        if isinstance(v, int):
            w = wrap(self.program.ip, v)
            if w != v:
                raise InvalidProgramError("a literal that its type does not hold")
            return Value(self.program.ip, lambda f: w, literal=v)
        if isinstance(v, float):
            r = scalars.rounder(self.program.fp)(v)
            return Value(self.program.fp, lambda f: r, literal=v)
        raise InvalidProgramError(f"literal {v!r}")

    def converted(self, v: Value, to: Type) -> Callable[[list], Any]:
        """The value as it is stored where a `to` is kept."""
        if isinstance(to, str):
            if not isinstance(v.type, str):
                raise InvalidProgramError("a tensor where a number is wanted")
            if v.literal is not None and not isinstance(v.literal, bool):
                # A literal takes the type of where it goes.
                exact = v.literal
                kind = "f64" if isinstance(exact, float) else None
                if kind is None and not is_float(to):
                    number = int(exact != 0) if to == "u1" else wrap(to, exact)
                    return lambda f: number
                if is_float(to):
                    rounded = scalars.checked(self.state, to)(float(exact))
                    return lambda f: rounded
            convert, get = converter(self.state, v.type, to), v.get
            return get if convert is None else lambda f: convert(get(f))
        if isinstance(to, Tensor):
            count = to.count
            if isinstance(v.type, str):
                one = self.converted(v, to.scalar)
                return lambda f: [one(f)] * count
            if not isinstance(v.type, Tensor) or v.type.shape != to.shape:
                raise InvalidProgramError("shapes differ")
            convert, get = converter(self.state, v.type.scalar, to.scalar), v.get
            return get if convert is None else lambda f: [convert(x) for x in get(f)]
        if v.type != to:
            raise InvalidProgramError("a struct of another type")
        return v.get

    def cast(self, v: Value, to: str) -> Value:
        t = v.type
        if v.literal is not None and not isinstance(v.literal, bool):
            return Value(to, self.converted(v, to))
        if isinstance(t, Tensor):
            target: Type = Tensor(to, t.shape)
        elif isinstance(t, str):
            target = to
        else:
            raise InvalidProgramError("a cast of a struct")
        return Value(target, self.converted(v, target))

    def condition(self, v: Value) -> Callable[[list], Any]:
        if not isinstance(v.type, str) or is_float(v.type):
            raise InvalidProgramError("a condition that is no integer")
        return v.get

    def componentwise(self, operands: list[Value], to: list[str], result: str, function: Callable) -> Value:
        """Applies a function of numbers to operands converted to scalar types, component by component."""
        shapes = {v.type.shape for v in operands if isinstance(v.type, Tensor)}
        if len(shapes) > 1 or any(isinstance(v.type, Struct) for v in operands):
            raise InvalidProgramError("shapes differ")
        if not shapes:
            gets = []
            for v, t in zip(operands, to, strict=True):
                convert, get = converter(self.state, v.type, t), v.get
                gets.append(get if convert is None else lambda f, c=convert, g=get: c(g(f)))
            if len(gets) == 1:
                (a,) = gets
                return Value(result, lambda f: function(a(f)))
            if len(gets) == 2:
                a, b = gets
                return Value(result, lambda f: function(a(f), b(f)))
            return Value(result, lambda f: function(*[g(f) for g in gets]))
        (shape,) = shapes
        gets = [self.converted(Value(v.type, v.get), Tensor(t, shape)) for v, t in zip(operands, to, strict=True)]
        return Value(Tensor(result, shape), lambda f: [function(*xs) for xs in zip(*[g(f) for g in gets], strict=True)])

    def scalar_of(self, v: Value) -> str:
        if isinstance(v.type, Struct):
            raise InvalidProgramError("a struct as an operand")
        return v.type if isinstance(v.type, str) else v.type.scalar

    # Expressions.

    def expression(self, node: ast.expr) -> Value:
        method = getattr(self, f"on_{type(node).__name__}", None)
        if method is None:
            raise InvalidProgramError(f"expression {type(node).__name__}")
        return method(node)

    def on_Constant(self, node: ast.Constant) -> Value:
        return self.literal(node.value)

    def on_Name(self, node: ast.Name) -> Value:
        found = self.lookup(node.id)
        if isinstance(found, tuple) and found[0] == "variable":
            return self.variable_value(found[1], found[2])
        if isinstance(found, Value):
            return found
        if isinstance(found, Array):
            raise InvalidProgramError("an array as a value")
        if found is None:
            raise InvalidProgramError(f"name {node.id}")
        return self.literal(found)

    def array_of(self, node: ast.expr) -> Array | None:
        found = self.lookup(node.id) if isinstance(node, ast.Name) else None
        return found if isinstance(found, Array) else None

    def on_Attribute(self, node: ast.Attribute) -> Value:
        return self.member(self.expression(node.value), node.attr)

    def on_Subscript(self, node: ast.Subscript) -> Value:
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            array = self.array_of(node.value.value)
            if array is None:
                raise InvalidProgramError("shape of what is no array")
            extent = array.shape[ast.literal_eval(node.slice)]
            return self.literal(extent) if array.is_field else Value("i32", lambda f: extent)
        array = self.array_of(node.value)
        if array is not None:
            if array.shape == () and isinstance(parts[0], ast.Constant) and parts[0].value is None:
                return self.element(array, [self.literal(0)])
            return self.element(array, [self.expression(p) for p in parts])
        base = self.expression(node.value)
        return self.component(base, [self.expression(p) for p in parts])

    def on_BinOp(self, node: ast.BinOp) -> Value:
        left = self.expression(node.left)
        right = self.expression(node.right)
        if isinstance(node.op, ast.MatMult):
            return self.matmul(left, right)
        return self.operator(OPERATORS[type(node.op)], left, right)

    def operator(self, op: str, left: Value, right: Value) -> Value:
        a, b = self.scalar_of(left), self.scalar_of(right)
        if left.literal is not None and right.literal is not None and op in ("+", "-", "*", "&", "|", "^", "//", "%"):
            if op in ("//", "%") and right.literal == 0:
                raise InvalidProgramError("division by zero")
            return self.literal(eval(f"({left.literal}) {op} ({right.literal})"))  # Numbers alone.
        if op in ("&", "|", "^", "<<", ">>", "bit_shr") and (is_float(a) or is_float(b)):
            raise InvalidProgramError("bits of floats")
        if op in ("<<", ">>", "bit_shr"):
            if a == "u1":
                raise InvalidProgramError("a shift of a truth value")
            return self.componentwise([left, right], [a, a], a, binary(self.state, op, a))
        if op == "/":
            t = promote(*[s if is_float(s) else self.program.fp for s in (a, b)])
            return self.componentwise([left, right], [t, t], t, binary(self.state, op, t))
        if op == "**":
            return self.power(left, right, a, b)
        t = promote(a, b)
        if t == "u1" and op in ("//", "%", "raw_div", "raw_mod"):
            raise InvalidProgramError("division of truth values")
        if op in ("raw_div", "raw_mod") and is_float(t):
            raise InvalidProgramError("raw division of floats")
        return self.componentwise([left, right], [t, t], t, binary(self.state, op, t))

    def power(self, left: Value, right: Value, a: str, b: str) -> Value:
        if not isinstance(right.type, str) or is_float(b) or a == "u1" or b == "u1":
            raise InvalidProgramError("a power that is not known here")
        if is_float(a):
            exponent = right.literal
            if exponent not in (1, 2, 3, 4):
                raise InvalidProgramError("a power that is not known here")
            times = binary(self.state, "*", a)

            def product(x):
                square = times(x, x) if exponent > 1 else x
                return {1: x, 2: square}[exponent] if exponent < 3 else self.longer(times, x, square, exponent)

            return self.componentwise([left], [a], a, product)
        raise_to = binary(self.state, "**", a)
        return self.componentwise([left, right], [a, b], a, raise_to)

    @staticmethod
    def longer(times: Callable, x: float, square: float, exponent: int) -> float:
        return times(x, square) if exponent == 3 else times(square, square)

    def matmul(self, left: Value, right: Value) -> Value:
        if not isinstance(left.type, Tensor) or not isinstance(right.type, Tensor):
            raise InvalidProgramError("@ of numbers")
        t = promote(left.type.scalar, right.type.scalar)
        a, b = left.type.shape, right.type.shape
        rows, inner = (1, a[0]) if len(a) == 1 else a
        inner2, columns = (b[0], 1) if len(b) == 1 else b
        if inner != inner2 or (len(a) == 1 and len(b) == 1):
            raise InvalidProgramError("shapes differ")
        shape = tuple(n for n, keep in ((rows, len(a) == 2), (columns, len(b) == 2)) if keep)
        l, r = self.converted(left, Tensor(t, a)), self.converted(right, Tensor(t, b))
        add, times = binary(self.state, "+", t), binary(self.state, "*", t)

        def product(f):
            x, y = l(f), r(f)
            out = []
            for i in range(rows):
                for j in range(columns):
                    s = times(x[i * inner], y[j])
                    for k in range(1, inner):
                        s = add(s, times(x[i * inner + k], y[k * columns + j]))
                    out.append(s)
            return out

        return Value(Tensor(t, shape), product)

    def on_UnaryOp(self, node: ast.UnaryOp) -> Value:
        v = self.expression(node.operand)
        if isinstance(node.op, ast.UAdd):
            return v
        op = {ast.USub: "-", ast.Invert: "~", ast.Not: "not"}[type(node.op)]
        if v.literal is not None and op == "-" and not isinstance(v.literal, bool):
            return self.literal(-v.literal)
        return self.unary(op, v)

    def unary(self, op: str, v: Value) -> Value:
        t = self.scalar_of(v)
        if op in ("~", "not", "popcnt", "clz", "ffs") and is_float(t):
            raise InvalidProgramError("bits of floats")
        if op in ("floor", "ceil", "round") and not is_float(t):
            raise InvalidProgramError(f"{op} of an integer")
        if t == "u1" and op in ("popcnt", "clz", "ffs", "-"):
            raise InvalidProgramError(f"{op} of a truth value")
        if op == "sqrt" and not is_float(t):
            v = self.cast(v, self.program.fp)
            t = self.scalar_of(v)
        if op == "abs" and t[0] == "u":
            return Value(v.type, v.get)
        result, function = unary(self.state, op, t)
        return self.componentwise([v], [t], result, function)

    def on_Compare(self, node: ast.Compare) -> Value:
        values = [self.expression(e) for e in [node.left, *node.comparators]]
        if all(v.literal is not None for v in values):
            raise InvalidProgramError("a comparison of literals")
        parts = []
        for op, left, right in zip(node.ops, values, values[1:], strict=False):
            t = promote(self.scalar_of(left), self.scalar_of(right))
            parts.append((scalars.COMPARE[COMPARISONS[type(op)]], t, left, right))
        if len(parts) == 1:
            function, t, left, right = parts[0]
            return self.componentwise([left, right], [t, t], "u1", function)
        if not all(isinstance(v.type, str) for v in values):
            raise InvalidProgramError("chained comparisons of tensors")
        gets = [v.get for v in values]
        tests = []
        for function, t, left, right in parts:
            convert = [converter(self.state, v.type, t) or (lambda x: x) for v in (left, right)]
            tests.append((function, *convert))

        def chained(f):
            found = [g(f) for g in gets]
            return int(all(test(c(x), d(y)) for (test, c, d), x, y in zip(tests, found, found[1:], strict=False)))

        return Value("u1", chained)

    def on_BoolOp(self, node: ast.BoolOp) -> Value:
        is_and = isinstance(node.op, ast.And)
        left = self.expression(node.values[0])
        for n in node.values[1:]:
            right = self.expression(n)
            if left.literal is not None:
                raise InvalidProgramError("`and` of a literal")
            t = promote(self.scalar_of(left), self.scalar_of(right))
            if is_float(t) or not isinstance(left.type, str) or not isinstance(right.type, str):
                raise InvalidProgramError("`and` of what is no integer")
            truth = left.get
            second = self.converted(right, t)
            convert = converter(self.state, left.type, t) or (lambda v: v)

            def get(f, truth=truth, second=second, convert=convert):
                v = truth(f)
                return second(f) if bool(v) == is_and else convert(v)

            left = Value(t, get)
        return left

    def on_IfExp(self, node: ast.IfExp) -> Value:
        test = self.expression(node.test)
        if test.literal is not None:
            raise InvalidProgramError("a conditional expression whose condition is known")
        condition = self.condition(test)
        a, b = self.expression(node.body), self.expression(node.orelse)
        if isinstance(a.type, Struct) or isinstance(b.type, Struct):
            raise InvalidProgramError("a conditional expression of structs")
        t: Type = promote(self.scalar_of(a), self.scalar_of(b))
        shapes = {v.type.shape for v in (a, b) if isinstance(v.type, Tensor)}
        if len(shapes) > 1:
            raise InvalidProgramError("shapes differ")
        if shapes:
            t = Tensor(str(t), shapes.pop())
        # Their own types come first, not that of where they go.
        x, y = (self.converted(Value(v.type, v.get), t) for v in (a, b))
        return Value(t, lambda f: x(f) if condition(f) else y(f))

    def on_Call(self, node: ast.Call) -> Value:
        name = dotted(node.func)
        if isinstance(node.func, ast.Attribute) and (name is None or not name.startswith("qd.")):
            return self.method(node)
        if name is None:
            raise InvalidProgramError("a call of what has no name")
        if name in self.program.functions:
            return self.call(self.program.functions[name], node)
        if name in self.program.types:
            return self.construct(self.program.types[name], node)
        short = name.removeprefix("qd.").removeprefix("math.")
        if short in ATOMICS:
            return self.atomic(short, node)
        if short == "atomic_cas":
            return self.compare_and_swap(node)
        if short in ("Vector", "Matrix"):
            return self.tensor(node)
        if short == "static":
            return self.static(node.args[0])
        if short == "volatile_load":
            return self.expression(node.args[0])
        if short in ("cast", "bit_cast"):
            v, to = self.expression(node.args[0]), self.type_of(node.args[1])
            if short == "cast":
                return self.cast(v, to)
            t = self.scalar_of(v)
            if not isinstance(v.type, str) or scalars.BITS[t] != scalars.BITS[to] or v.literal is not None:
                raise InvalidProgramError("a bit_cast")
            return Value(to, lambda f, g=v.get, c=scalars.bit_cast(t, to): c(g(f)))
        operands = [self.expression(a) for a in node.args]
        if short in scalars.NAMES or short in ("int", "float", "bool"):
            if operands[0].literal is not None and short in ("int", "float", "bool"):
                raise InvalidProgramError("a conversion of a literal")
            return self.cast(operands[0], str(self.program.type_of(node.func)))
        if all(v.literal is not None for v in operands):
            raise InvalidProgramError("a function of literals")
        if short in ("min", "max"):
            best = operands[0]
            for v in operands[1:]:
                t = promote(self.scalar_of(best), self.scalar_of(v))
                best = self.componentwise([best, v], [t, t], t, binary(self.state, short, t))
            return best
        if short == "select":
            return self.select(*operands)
        if short in ("raw_div", "raw_mod", "bit_shr"):
            return self.operator(short, *operands)
        if short in ("abs", "floor", "ceil", "round", "sqrt", "popcnt", "clz", "ffs"):
            v = self.unary(short, operands[0])
            return v if len(operands) == 1 else v
        raise InvalidProgramError(f"function {name}")

    def type_of(self, node: ast.expr) -> str:
        t = self.program.type_of(node)
        if not isinstance(t, str):
            raise InvalidProgramError("a cast to what is no scalar")
        return t

    def select(self, c: Value, a: Value, b: Value) -> Value:
        if is_float(self.scalar_of(c)) or c.literal is not None:
            raise InvalidProgramError("a condition that is no integer")
        t = promote(self.scalar_of(a), self.scalar_of(b))
        return self.componentwise([c, a, b], [self.scalar_of(c), t, t], t, lambda c, x, y: x if c else y)

    def static(self, node: ast.expr) -> Value:
        names = {k: v for scope in self.scopes for k, v in scope.names.items() if isinstance(v, int | float)}
        try:
            return self.literal(
                eval(ast.unparse(node), {"__builtins__": {}}, names)
            )  # Source that the generator wrote.
        except (NameError, TypeError, ZeroDivisionError) as error:
            raise InvalidProgramError(f"qd.static: {error}") from error

    def tensor(self, node: ast.Call) -> Value:
        rows = node.args[0]
        if not isinstance(rows, ast.List):
            raise InvalidProgramError("a tensor of what is no list")
        if len(node.args) != 2:
            raise InvalidProgramError("a tensor without a type")
        scalar = self.type_of(node.args[1])
        if rows.elts and isinstance(rows.elts[0], ast.List):
            lists = [row.elts for row in rows.elts if isinstance(row, ast.List)]
            shape: tuple[int, ...] = (len(lists), len(lists[0]))
            items = [e for row in lists for e in row]
            if len(lists) != len(rows.elts) or any(len(row) != shape[1] for row in lists):
                raise InvalidProgramError("rows of a matrix")
        else:
            shape, items = (len(rows.elts),), rows.elts
        if not items:
            raise InvalidProgramError("an empty tensor")
        gets = [self.converted(self.expression(e), scalar) for e in items]
        return Value(Tensor(scalar, shape), lambda f: [g(f) for g in gets])

    def construct(self, t: Any, node: ast.Call) -> Value:
        if not isinstance(t, Struct) or node.args or [k.arg for k in node.keywords] != [n for n, _ in t.members]:
            raise InvalidProgramError("a struct with other members")
        parts = []
        for k, (_, member) in zip(node.keywords, t.members, strict=True):
            parts.append((self.converted(self.expression(k.value), member), isinstance(member, str)))

        def build(f):
            out = []
            for get, is_one in parts:
                out += [get(f)] if is_one else get(f)
            return out

        return Value(t, build)

    def method(self, node: ast.Call) -> Value:
        assert isinstance(node.func, ast.Attribute)
        v, name = self.expression(node.func.value), node.func.attr
        t = v.type
        if not isinstance(t, Tensor):
            raise InvalidProgramError(f"method {name}")
        get = v.get
        if name == "cast":
            return self.cast(v, self.type_of(node.args[0]))
        if name == "transpose" and len(t.shape) == 2:
            n, m = t.shape

            def turn(f):
                x = get(f)
                return [x[i * m + j] for j in range(m) for i in range(n)]

            return Value(Tensor(t.scalar, (m, n)), turn)
        if name in ("sum", "min", "max"):
            fold = binary(self.state, "+" if name == "sum" else name, t.scalar)

            def folded(f):
                x = get(f)
                best = x[0]
                for y in x[1:]:
                    best = fold(best, y)
                return best

            return Value(t.scalar, folded)
        if name == "dot":
            product = self.operator("*", v, self.expression(node.args[0]))
            if not isinstance(product.type, Tensor) or len(t.shape) != 1:
                raise InvalidProgramError("dot")
            add, pairs = binary(self.state, "+", product.type.scalar), product.get

            def dot(f):
                x = pairs(f)
                s = x[0]
                for y in x[1:]:
                    s = add(s, y)
                return s

            return Value(product.type.scalar, dot)
        raise InvalidProgramError(f"method {name}")

    # Atomics.

    def atomic(self, name: str, node: ast.Call) -> Value:
        place, operand = self.expression(node.args[0]), self.expression(node.args[1])
        if not isinstance(place.type, str):
            raise InvalidProgramError("an atomic of a tensor")
        if is_float(place.type) and ATOMICS[name] in ("&", "|", "^"):
            raise InvalidProgramError("bits of floats")
        return Value(
            place.type,
            self.update(place, ATOMICS[name], self.converted(Value(operand.type, operand.get), place.type), True),
        )

    def compare_and_swap(self, node: ast.Call) -> Value:
        place = self.expression(node.args[0])
        if not isinstance(place.type, str) or place.locate is None or not place.is_global:
            raise InvalidProgramError("a compare-and-swap of what is no element")
        expected, desired = (self.converted(self.expression(a), place.type) for a in node.args[1:])
        locate, races, state = place.locate, self.program.races, self.state

        def swap(f):
            wanted, new = expected(f), desired(f)
            numbers, at, shared = locate(f)
            if shared and state.iteration is not None:
                races.update(numbers, at, "cas", True)
            old = numbers[at]
            if is_float(place.type) and (old == 0 or wanted == 0 or old != old):
                raise UnspecifiedError("a comparison of bits")
            if old == wanted:
                numbers[at] = new
            return old

        return Value(place.type, swap)

    def update(self, place: Value, op: str, operand: Callable, keeps_old: bool) -> Callable[[list], Any]:
        """Changes a number in one step, and gives the old one."""
        if place.locate is None or not isinstance(place.type, str):
            raise InvalidProgramError("an update of what is no place")
        t, locate, races, state = place.type, place.locate, self.program.races, self.state
        if t == "u1" and op in ("+", "-", "*", "min", "max"):
            raise InvalidProgramError("an atomic of a truth value")
        function = (lambda old, v: v) if op == "=" else binary(state, op, t)
        summed = is_float(t) and op in ("+", "-", "*")

        def run(f):
            numbers, at, shared = locate(f)
            v = operand(f)
            if shared and state.iteration is not None:
                races.update(numbers, at, op, keeps_old)
                if summed and not (scalars.on_grid(t, v) and scalars.on_grid(t, numbers[at]) and op != "*"):
                    raise UnspecifiedError("a sum whose order matters")
            old = numbers[at]
            numbers[at] = function(old, v)
            return old

        return run

    # Calls.

    def call(self, function: Function, node: ast.Call) -> Value:
        if node.keywords or function.kind not in ("qd.func", "qd.real_func"):
            raise InvalidProgramError("a call")
        parameters = function.node.args.args
        if len(parameters) != len(node.args):
            raise InvalidProgramError("number of arguments")
        if self.at_top and any(isinstance(n, ast.For) for n in ast.walk(function.node)):
            raise InvalidProgramError("a function whose loops would be parallel")
        callee = Compiler(self.program, self)
        setups: list[Callable[[list, list], None]] = []
        for parameter, argument in zip(parameters, node.args, strict=True):
            annotation = parameter.annotation
            array = self.array_of(argument)
            if array is not None:
                callee.scopes[0].names[parameter.arg] = array
                continue
            value = self.expression(argument)
            if annotation is not None and ast.unparse(annotation) == "qd.template()":
                setups.append(callee.by_reference(parameter.arg, value))
                continue
            t = value.type
            if annotation is not None:
                wanted = self.program.type_of(annotation)
                if isinstance(wanted, str):
                    t = wanted
                    if not isinstance(value.type, str):
                        raise InvalidProgramError("a tensor where a number is wanted")
                elif t != wanted:
                    raise InvalidProgramError("an argument of another type")
            slot = callee.variable(parameter.arg, t)
            get = self.converted(value, t)
            setups.append(lambda f, g, slot=slot, get=get: g.__setitem__(slot, get(f)))
        declared = function.node.returns
        if declared is not None:
            callee.returns = self.program.type_of(declared)
        callee.scopes.append(Scope())
        body = callee.block(function.node.body, callee.scopes)
        returns = callee.returns

        def run(f):
            frame: list = [None] * callee.slots
            for setup in setups:
                setup(f, frame)
            found = body(frame)
            if returns is None:
                return None
            if not isinstance(found, tuple):
                raise UnspecifiedError("a function that returns nothing")
            return found[1]

        return Value(returns if returns is not None else "none", run)

    def by_reference(self, name: str, value: Value) -> Callable[[list, list], None]:
        """Binds a parameter to the caller's place."""
        if value.literal is not None:
            self.scopes[0].names[name] = value.literal
            return lambda f, g: None
        if value.locate is None:
            slot = self.variable(name, value.type, is_fixed=True)
            get = value.get
            return lambda f, g: g.__setitem__(slot, get(f))
        slot = self.slot()
        locate = value.locate
        self.scopes[0].names[name] = self.read_place(value.type, lambda g: g[slot], value.is_global)
        return lambda f, g: g.__setitem__(slot, locate(f))

    # Statements.

    def block(self, statements: list[ast.stmt], scopes: list[Scope]) -> Callable[[list], Any]:
        runs = [self.statement(s) for s in statements]
        runs = [r for r in runs if r is not None]
        if len(runs) == 1:
            return runs[0]

        def run(f):
            for r in runs:
                found = r(f)
                if found is not None:
                    return found
            return None

        return run

    def scoped(self, statements: list[ast.stmt]) -> Callable[[list], Any]:
        self.scopes.append(Scope())
        top, self.at_top = self.at_top, False
        run = self.block(statements, self.scopes)
        self.at_top = top
        self.scopes.pop()
        return run

    def statement(self, node: ast.stmt) -> Callable[[list], Any] | None:
        method = getattr(self, f"do_{type(node).__name__}", None)
        if method is None:
            raise InvalidProgramError(f"statement {type(node).__name__}")
        if self.pending_serialize and not isinstance(node, ast.For):
            raise InvalidProgramError("loop_config before what is no loop")
        return method(node)

    def do_Pass(self, node: ast.Pass) -> None:
        return None

    def do_Expr(self, node: ast.Expr) -> Callable[[list], Any] | None:
        call = node.value
        if isinstance(call, ast.Constant) and isinstance(call.value, str):
            return None
        if not isinstance(call, ast.Call):
            raise InvalidProgramError("an expression as a statement")
        name = dotted(call.func) or ""
        if name == "qd.loop_config":
            if not self.at_top:
                raise InvalidProgramError("loop_config of an inner loop")
            keywords = {k.arg: ast.literal_eval(k.value) for k in call.keywords}
            self.pending_serialize = True
            self.serialize = bool(keywords.get("serialize"))
            return None
        if name.removeprefix("qd.") in ATOMICS:
            place, operand = self.expression(call.args[0]), self.expression(call.args[1])
            if not isinstance(place.type, str):
                raise InvalidProgramError("an atomic of a tensor")
            op = ATOMICS[name.removeprefix("qd.")]
            if is_float(place.type) and op in ("&", "|", "^"):
                raise InvalidProgramError("bits of floats")
            update = self.update(place, op, self.converted(Value(operand.type, operand.get), place.type), op == "=")
        elif name in self.program.functions:
            update = self.call(self.program.functions[name], call).get
        elif name.removeprefix("qd.") == "atomic_cas":
            update = self.compare_and_swap(call).get
        else:
            raise InvalidProgramError("a call as a statement")

        def run(f):
            update(f)

        return run

    def do_Assign(self, node: ast.Assign) -> Callable[[list], Any]:
        if len(node.targets) != 1:
            raise InvalidProgramError("several targets")
        target = node.targets[0]
        if isinstance(target, ast.Tuple):
            return self.unpack(target, node.value)
        value = self.expression(node.value)
        if value.type == "none":
            raise InvalidProgramError("the value of a function that returns nothing")
        if isinstance(target, ast.Name):
            found = self.lookup(target.id)
            if found is None:
                get = value.get
                slot = self.variable(target.id, value.type)
                if isinstance(value.type, str):
                    return lambda f: f.__setitem__(slot, get(f))
                return lambda f: f.__setitem__(slot, list(get(f)))
            if not (isinstance(found, tuple) and not found[3]) and not isinstance(found, Value):
                raise InvalidProgramError(f"{target.id} cannot be assigned")
        place = self.expression(target)
        if isinstance(target, ast.Name) and place.locate is None:
            raise InvalidProgramError(f"{target.id} cannot be assigned")
        get, put = self.converted(value, place.type), self.writer(place)
        return lambda f: put(f, get(f))

    def unpack(self, target: ast.Tuple, values: ast.expr) -> Callable[[list], Any]:
        """`a, b = b, a`: all values are read before the first target is written."""
        if not isinstance(values, ast.Tuple) or len(values.elts) != len(target.elts):
            raise InvalidProgramError("an assignment to several targets")
        gets, puts = [], []
        for t, v in zip(target.elts, values.elts, strict=True):
            place, value = self.expression(t), self.expression(v)
            gets.append(self.converted(value, place.type))
            puts.append(self.writer(place))

        def run(f):
            found = [g(f) for g in gets]
            for put, v in zip(puts, found, strict=True):
                put(f, v)

        return run

    def do_Assert(self, node: ast.Assert) -> Callable[[list], Any]:
        condition = self.condition(self.expression(node.test))

        def run(f):
            if not condition(f):
                raise UnspecifiedError("an assertion fails")

        return run

    def do_AnnAssign(self, node: ast.AnnAssign) -> Callable[[list], Any]:
        if not isinstance(node.target, ast.Name) or node.value is None or self.lookup(node.target.id) is not None:
            raise InvalidProgramError("an annotated assignment")
        t = self.program.type_of(node.annotation)
        get = self.converted(self.expression(node.value), t)
        slot = self.variable(node.target.id, t)
        return lambda f: f.__setitem__(slot, get(f))

    def do_AugAssign(self, node: ast.AugAssign) -> Callable[[list], Any]:
        if isinstance(node.target, ast.Name):
            found = self.lookup(node.target.id)
            if isinstance(found, tuple) and found[3]:
                raise InvalidProgramError("a parameter is assigned")
        place, value = self.expression(node.target), self.expression(node.value)
        op = OPERATORS[type(node.op)]
        if place.locate is None:
            raise InvalidProgramError("an assignment to what is no place")
        to, of = self.scalar_of(place), self.scalar_of(value)
        integers = not is_float(to) and not is_float(of)
        converts = op in ("+", "-") or (op == "*" and promote(to, of) == to) or (op in "&|^" and integers)
        value = Value(value.type, value.get)  # In its own type, also where it is a literal.
        if converts and op in ATOMIC_ASSIGNMENTS:
            if is_float(to) and op in ("&", "|", "^"):
                raise InvalidProgramError("bits of floats")
            if isinstance(place.type, str):
                update = self.update(place, op, self.converted(value, place.type), False)

                def run(f):
                    update(f)

                return run
            value = Value(place.type, self.converted(value, place.type))
        result = self.operator(op, Value(place.type, place.get), value)
        get, put = self.converted(Value(result.type, result.get), place.type), self.writer(place)
        return lambda f: put(f, get(f))

    def do_If(self, node: ast.If) -> Callable[[list], Any]:
        if isinstance(node.test, ast.Call) and dotted(node.test.func) == "qd.static":
            chosen = node.body if self.static(node.test.args[0]).literal else node.orelse
            return self.block(chosen, self.scopes) if chosen else (lambda f: None)
        condition = self.condition(self.expression(node.test))
        then = self.scoped(node.body)
        other = self.scoped(node.orelse) if node.orelse else None

        def run(f):
            if condition(f):
                return then(f)
            return other(f) if other is not None else None

        return run

    def do_While(self, node: ast.While) -> Callable[[list], Any]:
        if node.orelse:
            raise InvalidProgramError("else of a loop")
        test = node.test
        condition = (
            (lambda f: 1)
            if isinstance(test, ast.Constant) and test.value is True
            else self.condition(self.expression(test))
        )
        self.loops.append("serial")
        body = self.scoped(node.body)
        self.loops.pop()
        return self.repeat(condition, body)

    def repeat(self, condition: Callable, body: Callable) -> Callable[[list], Any]:
        state = self.state

        def run(f):
            while condition(f):
                state.steps += 1
                if state.steps > MOST_STEPS:
                    raise UnspecifiedError("too many steps")
                found = body(f)
                if found is BREAK:
                    break
                if found is not None and found is not CONTINUE:
                    return found
            return None

        return run

    def do_Break(self, node: ast.Break) -> Callable[[list], Any]:
        if not self.loops or self.loops[-1] != "serial":
            raise InvalidProgramError("break")
        return lambda f: BREAK

    def do_Continue(self, node: ast.Continue) -> Callable[[list], Any]:
        if not self.loops or self.loops[-1] == "static":
            raise InvalidProgramError("continue")
        return lambda f: CONTINUE

    def do_Return(self, node: ast.Return) -> Callable[[list], Any]:
        if node.value is None:
            raise InvalidProgramError("return of nothing")
        if self.is_kernel and not self.at_top:
            raise InvalidProgramError("return in a loop of a kernel")
        value = self.expression(node.value)
        if self.returns is None:
            if self.is_kernel:
                raise InvalidProgramError("a kernel that returns without saying so")
            self.returns = value.type
        if not self.is_kernel and value.type != self.returns and not isinstance(self.returns, str):
            raise InvalidProgramError("values of other types are returned")
        get = self.converted(value, self.returns)
        return lambda f: ("return", get(f))

    # Loops.

    def do_For(self, node: ast.For) -> Callable[[list], Any]:
        if node.orelse:
            raise InvalidProgramError("else of a loop")
        call = node.iter
        if isinstance(call, ast.Call) and dotted(call.func) == "qd.static":
            return self.static_for(node, call.args[0])
        serialize = self.pending_serialize and self.serialize
        self.pending_serialize = False
        parallel = self.at_top and not serialize
        grouped = isinstance(call, ast.Call) and dotted(call.func) == "qd.grouped"
        if grouped:
            call = call.args[0]
        bounds = self.bounds(call)
        self.scopes.append(Scope())
        names = [n.id for n in node.target.elts] if isinstance(node.target, ast.Tuple) else [node.target.id]
        types = [t for _, _, t in bounds]
        saved_outer = self.outer_slots
        if parallel:
            self.outer_slots = {v[1] for s in self.scopes for v in s.names.values() if isinstance(v, tuple)}
        if grouped:
            slots = [self.variable(names[0], Tensor("i64" if "i64" in types else "i32", (len(bounds),)))]
        else:
            if len(names) != len(bounds):
                raise InvalidProgramError("number of indices")
            slots = [self.variable(n, t, is_fixed=True) for n, t in zip(names, types, strict=True)]
        self.loops.append("parallel" if parallel else "serial")
        top, self.at_top = self.at_top, False
        body = self.block(node.body, self.scopes)
        self.at_top = top
        self.loops.pop()
        self.scopes.pop()
        self.outer_slots = saved_outer
        ranges = [(a, b) for a, b, _ in bounds]
        return self.iterate(ranges, slots, grouped, body, parallel)

    def iterate(self, ranges: list, slots: list[int], grouped: bool, body: Callable, parallel: bool) -> Callable:
        state, races = self.state, self.program.races

        def run(f):
            spans = [range(a(f), b(f)) for a, b in ranges]
            boxes = [()]
            for span in spans:
                if len(span) > MOST_STEPS:
                    raise UnspecifiedError("too many steps")
                boxes = [(*box, i) for box in boxes for i in span]
                if len(boxes) > MOST_STEPS:
                    raise UnspecifiedError("too many steps")
            if parallel:
                races.begin()
            for number, box in enumerate(boxes):
                state.steps += 1
                if state.steps > MOST_STEPS:
                    raise UnspecifiedError("too many steps")
                if parallel:
                    state.iteration = number
                if grouped:
                    f[slots[0]] = list(box)
                else:
                    for slot, i in zip(slots, box, strict=True):
                        f[slot] = i
                found = body(f)
                if found is BREAK:
                    break
                if found is not None and found is not CONTINUE:
                    return found
            if parallel:
                state.iteration = None
            return None

        return run

    def bounds(self, node: ast.expr) -> list[tuple[Callable, Callable, str]]:
        """Of each axis where it begins and ends, and the type of its index."""
        array = self.array_of(node)
        if array is not None:
            first = array.first or (0,) * len(array.shape)
            if not array.shape:
                raise InvalidProgramError("a loop over a single element")
            return [
                (lambda f, a=a: a, lambda f, a=a, n=n: a + n, "i32") for a, n in zip(first, array.shape, strict=True)
            ]
        if not isinstance(node, ast.Call):
            raise InvalidProgramError("a loop over something")
        name = dotted(node.func)
        if name == "range" and len(node.args) in (1, 2):
            return [self.axis(node.args)]
        if name == "qd.ndrange" and not node.keywords:
            return [self.axis(a.elts if isinstance(a, ast.Tuple) else [a]) for a in node.args]
        raise InvalidProgramError("a loop over something")

    def axis(self, nodes: list[ast.expr]) -> tuple[Callable, Callable, str]:
        values = [self.expression(n) for n in nodes]
        if len(values) == 1:
            values.insert(0, self.literal(0))
        t = "i32"
        for v in values:
            if not isinstance(v.type, str) or is_float(v.type):
                raise InvalidProgramError("a bound that is no integer")
            if v.literal is None and v.type in ("i64", "u64"):
                t = "i64"
        begin, end = (self.converted(v, t) for v in values)
        return begin, end, t

    def static_for(self, node: ast.For, items: ast.expr) -> Callable[[list], Any]:
        names = {k: v for scope in self.scopes for k, v in scope.names.items() if isinstance(v, int | float)}
        try:
            values = list(eval(ast.unparse(items), {"__builtins__": {}, "range": range}, names))  # The generator's own.
        except Exception as error:
            raise InvalidProgramError(f"qd.static: {error}") from error
        if not isinstance(node.target, ast.Name) or len(values) > 40:
            raise InvalidProgramError("a static loop")
        runs = []
        self.loops.append("static")
        for value in values:
            self.scopes.append(Scope({node.target.id: value}))
            runs.append(self.block(node.body, self.scopes))
            self.scopes.pop()
        self.loops.pop()

        def run(f):
            for r in runs:
                found = r(f)
                if found is not None:
                    return found
            return None

        return run
