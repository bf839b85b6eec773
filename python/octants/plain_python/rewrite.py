"""Rewrites the source of a kernel into equivalent Python.

The changes are small and keep the lines, so that a debugger shows the user's own text:

- A loop over a field, an ndarray or an ndrange runs over its indices.
- The first argument of an atomic function is passed as a location that the function can change.
- An assigned vector, matrix or struct is copied, and a number is converted to the annotated type.
- The first round of a `qd.graph.do_while` loop runs unconditionally.

A function whose source is not available runs as it is.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
import types
from collections.abc import Callable
from copy import copy
from typing import Any

from octants._fields.struct import Struct
from octants.plain_python.stand_ins import Place, convert, indices
from octants.types.primitive import DataType
from octants.types.values import Matrix

__all__ = ["rewrite"]

Function = Callable[..., Any]


def _copied(value: Any) -> Any:
    """The value that a variable holds: vectors, matrices and structs are copied."""
    return copy(value) if isinstance(value, (Matrix, Struct)) else value


def _annotated(annotation: Any, value: Any) -> Any:
    return convert(annotation, value) if isinstance(annotation, DataType) else _copied(value)


def _element(base: Any, key: Any) -> Place:
    return Place(lambda: base[key], lambda value: base.__setitem__(key, value))


def _member(base: Any, name: str) -> Place:
    return Place(lambda: getattr(base, name), lambda value: setattr(base, name, value))


def _variable(value: Any, put: list[Any]) -> Place:
    return Place(lambda: value, put.append)


# The names by which rewritten code finds these functions. No name that a user writes begins in this way.
_PREFIX = "_octants_plain_"
_OWN: dict[str, Any] = {
    _PREFIX + function.__name__.lstrip("_"): function
    for function in (_copied, _annotated, _element, _member, _variable, indices)
}


def _own(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(_PREFIX + name, ast.Load()), list(args), [])


class _Rewriter(ast.NodeTransformer):
    def __init__(self, names: Callable[[str], Any]) -> None:
        self._names = names
        self._count = 0

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        node.iter = ast.copy_location(_own("indices", node.iter), node.iter)
        return node

    def visit_While(self, node: ast.While) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        called = self._value(node.test.func) if isinstance(node.test, ast.Call) else None
        if getattr(called, "_octants_builtin", None) != "do_while":
            return node
        self._count += 1
        first = f"{_PREFIX}first{self._count}"

        def setting(value: bool) -> ast.stmt:
            return ast.copy_location(ast.Assign([ast.Name(first, ast.Store())], ast.Constant(value)), node)

        node.test = ast.copy_location(ast.BoolOp(ast.Or(), [ast.Name(first, ast.Load()), node.test]), node.test)
        node.body.insert(0, setting(False))
        return [setting(True), node]

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, (ast.Name, ast.Subscript, ast.Attribute)):
            node.value = ast.copy_location(_own("copied", node.value), node.value)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        if node.value is None:
            return node
        value = ast.copy_location(_own("annotated", node.annotation, node.value), node.value)
        return ast.copy_location(ast.Assign([node.target], value), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = getattr(self._value(node.func), "_octants_builtin", None)
        if not isinstance(name, str) or not name.startswith("atomic_") or not node.args:
            return node
        target = node.args[0]
        if isinstance(target, ast.Subscript):
            place: ast.expr = _own("element", target.value, _loaded(target.slice))
        elif isinstance(target, ast.Attribute):
            place = _own("member", target.value, ast.Constant(target.attr))
        elif isinstance(target, ast.Name):
            return self._of_variable(node, target)
        else:
            return node
        node.args[0] = ast.copy_location(place, target)
        return node

    def _of_variable(self, node: ast.Call, target: ast.Name) -> ast.AST:
        """A tuple expression that calls the function, assigns the value it stored to the variable, and yields the
        result first.
        """
        self._count += 1
        put = f"{_PREFIX}put{self._count}"
        make = ast.NamedExpr(ast.Name(put, ast.Store()), ast.List([], ast.Load()))
        node.args[0] = _own("variable", ast.Name(target.id, ast.Load()), make)
        last = ast.Subscript(ast.Name(put, ast.Load()), ast.Constant(-1), ast.Load())
        # An operation that leaves the variable as it is puts nothing.
        new = ast.IfExp(ast.Name(put, ast.Load()), last, ast.Name(target.id, ast.Load()))
        assign = ast.NamedExpr(ast.Name(target.id, ast.Store()), new)
        both = ast.Tuple([node, assign], ast.Load())
        return ast.copy_location(ast.Subscript(both, ast.Constant(0), ast.Load()), node)

    def _value(self, e: ast.expr) -> Any:
        """The current value of a dotted name; None if unknown."""
        if isinstance(e, ast.Name):
            return self._names(e.id)
        if isinstance(e, ast.Attribute):
            return getattr(self._value(e.value), e.attr, None)
        return None


def _loaded(key: ast.expr) -> ast.expr:
    """A key as a standalone expression: slice syntax becomes a `slice` object."""
    if isinstance(key, ast.Slice):
        parts = [part or ast.Constant(None) for part in (key.lower, key.upper, key.step)]
        return ast.Call(ast.Name("slice", ast.Load()), parts, [])
    return key


def rewrite(function: Any) -> Any:
    """A Python function with the semantics that the kernel language gives to the function."""
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return function
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        return function
    free = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    def names(name: str) -> Any:
        if name in free:
            try:
                return free[name].cell_contents
            except ValueError:
                return None
        return function.__globals__.get(name, getattr(builtins, name, None))

    definition.decorator_list, definition.returns = [], None
    for parameter in (*definition.args.posonlyargs, *definition.args.args, *definition.args.kwonlyargs):
        parameter.annotation = None
    definition.args.defaults, definition.args.kw_defaults = [], [None] * len(definition.args.kwonlyargs)
    definition.body = _Rewriter(names).visit(ast.Module(definition.body, [])).body
    cells = {**{name: types.CellType(value) for name, value in _OWN.items()}, **free}
    code = _compiled(definition, list(cells), function.__code__.co_filename, first - 1)
    closure = tuple(cells[name] for name in code.co_freevars)
    made = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__, made.__qualname__ = function.__kwdefaults__, function.__qualname__
    return made


def _compiled(definition: ast.FunctionDef, free: list[str], filename: str, lines_before: int) -> types.CodeType:
    """The compiled function, which looks up the names in `free` in the original's closure."""
    parameters = [ast.arg(name) for name in free]
    arguments = ast.arguments([], parameters, None, [], [], None, [])
    outer = ast.FunctionDef("_octants_plain_scope", arguments, [definition], [], None)
    if hasattr(outer, "type_params"):
        outer.type_params = []
    module = ast.fix_missing_locations(ast.Module([outer], []))
    ast.increment_lineno(module, lines_before)
    scope = next(c for c in compile(module, filename, "exec").co_consts if isinstance(c, types.CodeType))
    return next(c for c in scope.co_consts if isinstance(c, types.CodeType) and c.co_name == definition.name)
