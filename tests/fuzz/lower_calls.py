"""Atomic operations and calls of a function that is compiled to closures."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import scalars
from language import ATOMICS, Function, InvalidProgramError, Scope, Value
from lower_expressions import ExpressionCompiler
from scalars import UnspecifiedError, binary, is_float


class CallCompiler(ExpressionCompiler):
    """Adds expressions with side effects."""

    # Atomics.

    def atomic(self, name: str, node: ast.Call) -> Value:
        place, operand = self.expression(node.args[0]), self.expression(node.args[1])
        if not isinstance(place.type, str):
            raise InvalidProgramError("an atomic of a tensor")
        if is_float(place.type) and ATOMICS[name] in ("&", "|", "^"):
            raise InvalidProgramError("bits of floats")
        return Value(
            place.type,
            self.update(
                place,
                ATOMICS[name],
                self.converted(self.plain(operand), place.type),
                not self.takes_tickets,
            ),
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
        callee = type(self)(self.program, self)
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
