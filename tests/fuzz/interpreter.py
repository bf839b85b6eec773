"""A reference interpreter of kernels: executes Python's `ast` of their source with the language's types, in order.

Each call compiles its function to closures; the types of all values are known before anything runs. A value is a
number; for a vector, matrix or struct, the list of its numbers. `InvalidProgramError`: the program is not one of the
language, or uses a part of it that is not known here. `UnspecifiedError`: the program has no single result, because of
a race between iterations, an index outside, or a division by zero.
"""

from __future__ import annotations

import ast
from typing import Any

import scalars
from language import Array, Function, InvalidProgramError, Struct, Tensor, Type, dotted
from lower_statements import Compiler
from races import Races
from scalars import State


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
        """A type by its name in the module; None for objects other than value types."""
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
        """Calls a kernel with arrays and numbers. Returns its result with its type, or None."""
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
