"""Statements and loops of a function that is compiled to closures."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from language import (
    ATOMIC_ASSIGNMENTS,
    ATOMICS,
    BREAK,
    CONTINUE,
    OPERATORS,
    InvalidProgramError,
    Scope,
    Tensor,
    Value,
    dotted,
)
from lower_calls import CallCompiler
from scalars import UnspecifiedError, is_float, promote

MOST_STEPS = 60_000


class Compiler(CallCompiler):
    """Makes closures of a function."""

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
            update = self.update(place, op, self.converted(self.plain(operand), place.type), op == "=")
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
        if isinstance(target, ast.Name) and target.id.startswith("ticket"):
            return self.take_ticket(target.id, node.value)
        if names_ticket(target) and isinstance(node.value, ast.Constant):
            self.takes_tickets = True
            place = self.expression(target)
            self.takes_tickets = False
            get, put = self.converted(self.expression(node.value), place.type), self.writer(place)
            return lambda f: put(f, get(f))
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
        if place.selected is not None:
            return self.put_selected(place, self.converted(value, place.type))
        if isinstance(target, ast.Name) and place.locate is None:
            raise InvalidProgramError(f"{target.id} cannot be assigned")
        get, put = self.converted(value, place.type), self.writer(place)
        return lambda f: put(f, get(f))

    def take_ticket(self, name: str, value: ast.expr) -> Callable[[list], Any]:
        """`ticket1 = qd.atomic_add(count[None], 1)`: each iteration gets a unique but unspecified number."""
        if not (isinstance(value, ast.Call) and dotted(value.func) == "qd.atomic_add"):
            raise InvalidProgramError("a ticket")
        step = value.args[1]
        if not (isinstance(step, ast.Constant) and step.value == 1) or self.lookup(name) is not None:
            raise InvalidProgramError("a ticket")
        self.takes_tickets = True
        taken = self.expression(value)
        self.takes_tickets = False
        slot, get = self.variable(name, taken.type, is_fixed=True), taken.get
        return lambda f: f.__setitem__(slot, get(f))

    def put_selected(self, place: Value, get: Callable[[list], Any]) -> Callable[[list], Any]:
        """Writes several components of a tensor."""
        assert place.selected is not None
        base, places = place.selected
        scalar = self.scalar_of(base)
        puts = [self.writer(self.part(base, scalar, lambda f, i=i: i)) for i in places]

        def run(f):
            for put, v in zip(puts, get(f), strict=True):
                put(f, v)

        return run

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
        if changes_what_it_reads(node):

            def refuse(f):
                raise UnspecifiedError("an update that reads what a part of it changes")

            return refuse
        if isinstance(node.target, ast.Name):
            found = self.lookup(node.target.id)
            if isinstance(found, tuple) and found[3]:
                raise InvalidProgramError("a parameter is assigned")
        place, value = self.expression(node.target), self.expression(node.value)
        op = OPERATORS[type(node.op)]
        if place.locate is None and place.selected is None:
            raise InvalidProgramError("an assignment to what is no place")
        to, of = self.scalar_of(place), self.scalar_of(value)
        integers = not is_float(to) and not is_float(of)
        converts = op in ("+", "-") or (op == "*" and promote(to, of) == to) or (op in "&|^" and integers)
        value = self.plain(value)  # In its own type, even if it is a literal.
        is_update = converts and op in ATOMIC_ASSIGNMENTS
        if is_update:
            if is_float(to) and op in ("&", "|", "^"):
                raise InvalidProgramError("bits of floats")
            value = Value(place.type, self.converted(value, place.type))
        if place.selected is not None:
            result = self.operator(op, Value(place.type, place.get), value)
            return self.put_selected(place, self.converted(Value(result.type, result.get), place.type))
        slot, compute = self.slot(), value.get
        # The place is found once, and first: a call in an index is made once.
        found, locate = self.slot(), place.locate
        place = self.read_place(place.type, lambda f: f[found], place.is_global)
        if is_update and isinstance(place.type, str):
            update = self.update(place, op, lambda f: f[slot], False)

            def run(f):
                f[found] = locate(f)
                f[slot] = compute(f)
                update(f)

            return run
        result = self.operator(op, Value(place.type, place.get), Value(value.type, lambda f: f[slot], value.literal))
        get, put = self.converted(Value(result.type, result.get), place.type), self.writer(place)

        def change(f):
            f[found] = locate(f)
            f[slot] = compute(f)
            put(f, get(f))

        return change

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

    def do_With(self, node: ast.With) -> Callable[[list], Any]:
        """A section that runs concurrently with others. The generator ensures that they share nothing."""
        call = node.items[0].context_expr
        if not self.at_top or not isinstance(call, ast.Call) or dotted(call.func) != "qd.stream_parallel":
            raise InvalidProgramError("with")
        self.scopes.append(Scope())
        run = self.block(node.body, self.scopes)
        self.scopes.pop()
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
        """The begin, end and index type of each axis."""
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


def names_ticket(target: ast.expr) -> bool:
    """An element whose place is a ticket."""
    return (
        isinstance(target, ast.Subscript)
        and isinstance(target.slice, ast.Name)
        and target.slice.id.startswith("ticket")
    )


def changes_what_it_reads(node: ast.AugAssign) -> bool:
    """Whether a call in an update changes a variable or an array that another part of the update reads: which comes
    first is not specified."""
    place = node.target
    while isinstance(place, ast.Subscript | ast.Attribute):
        place = place.value
    for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
        name = dotted(call.func) or ""
        is_atomic = name.startswith("qd.atomic_")
        if name.startswith("qd.") and not is_atomic:
            continue
        own = set(ast.walk(call))
        others = [n for n in ast.walk(node) if isinstance(n, ast.Name) and n not in own and n is not place]
        # An atomic operation changes its first argument, a function may change each.
        for base in call.args[:1] if is_atomic else call.args:
            while isinstance(base, ast.Subscript | ast.Attribute):
                base = base.value
            inside = [n for n in own if is_atomic and isinstance(n, ast.Name) and n is not base]
            if isinstance(base, ast.Name) and any(n.id == base.id for n in (*others, *inside)):
                return True
    return False
