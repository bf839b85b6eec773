"""Expressions of a function that is compiled to closures."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import scalars
from language import ATOMICS, COMPARISONS, OPERATORS, Array, InvalidProgramError, Struct, Tensor, Type, Value, dotted
from lower_places import PlaceCompiler
from scalars import binary, converter, is_float, promote, unary


class ExpressionCompiler(PlaceCompiler):
    """Adds expressions; those that call functions of the module, or update memory, are the next class's."""

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
        if node.id.startswith("ticket") and not self.takes_tickets:
            raise InvalidProgramError("an old value whose order is not specified")
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
        if any(isinstance(p, ast.Slice) for p in parts):
            return self.slices(base, parts)
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
            folded = self.literal(eval(f"({left.literal}) {op} ({right.literal})"))  # Numbers alone.
            self.plain(folded)
            return folded
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
            return self.plain(v)
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
        # Their own types take precedence over the type of the destination.
        x, y = (self.converted(self.plain(v), t) for v in (a, b))
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
