"""Makes a failing program small: removes statements, operands, parameters and fields while it fails in the same way."""

from __future__ import annotations

import ast
import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from programs import Program


def blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Lists of statements inside functions, outermost first."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.For | ast.While | ast.If | ast.With):
            yield node.body
            if isinstance(node, ast.If) and node.orelse:
                yield node.orelse


def without_statements(tree: ast.Module) -> Iterator[ast.Module]:
    """The module without some statements, large pieces first."""
    count = len(list(blocks(tree)))
    for number in range(count):
        length = len(list(blocks(tree))[number])
        size = length
        while size >= 1:
            for start in range(length - size, -1, -size):
                changed = copy.deepcopy(tree)
                block = list(blocks(changed))[number]
                del block[start : start + size]
                if not block:
                    block.append(ast.Pass())
                yield changed
            size //= 2


def unwrapped(tree: ast.Module) -> Iterator[ast.Module]:
    """An `if` gives way to one of its branches, a loop to its body."""
    count = len(list(blocks(tree)))
    for number in range(count):
        for i, statement in enumerate(list(blocks(tree))[number]):
            branches = []
            if isinstance(statement, ast.If):
                branches = ["body", "orelse"]
            elif isinstance(statement, ast.For | ast.While | ast.With):
                branches = ["body"]
            for branch in branches:
                changed = copy.deepcopy(tree)
                block = list(blocks(changed))[number]
                block[i : i + 1] = getattr(block[i], branch)
                if block:
                    yield changed


class Replace(ast.NodeTransformer):
    """Replaces one expression."""

    def __init__(self, number: int, make: Callable[[ast.expr], ast.expr | None]) -> None:
        self.number, self.make, self.at = number, make, -1
        self.done = False

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and not isinstance(
            node, ast.Constant | ast.Name | ast.Attribute | ast.List | ast.Tuple
        ):
            self.at += 1
            if self.at == self.number:
                made = self.make(node)
                if made is not None:
                    self.done = True
                    return made
        return self.generic_visit(node)


def simpler(node: ast.expr) -> list[ast.expr]:
    """Simpler replacements of an expression."""
    children = [c for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)]
    if isinstance(node, ast.Call):
        children = list(node.args)
    if isinstance(node, ast.Subscript):
        children = []
    return [*children, ast.Constant(1), ast.Constant(0)]


def without_expressions(tree: ast.Module) -> Iterator[ast.Module]:
    """An expression gives way to an operand, or to a number."""
    number = 0
    while True:
        counter = Replace(number, lambda node: None)
        counter.visit(copy.deepcopy(tree))
        if number > counter.at:
            return
        for choice in range(5):

            def make(node: ast.expr, choice: int = choice) -> ast.expr | None:
                options = simpler(node)
                return options[choice] if choice < len(options) else None

            replacer = Replace(number, make)
            changed = replacer.visit(copy.deepcopy(tree))
            if replacer.done:
                yield ast.fix_missing_locations(changed)
        number += 1


def smaller_numbers(tree: ast.Module) -> Iterator[ast.Module]:
    """Numbers closer to zero."""
    places = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.Constant) and isinstance(n.value, int | float) and n.value not in (0, 1)
    ]
    for i, place in enumerate(places):
        value = place.value
        for less in dict.fromkeys([1, 2, value // 2 if isinstance(value, int) else 0.5, value - 1]):
            if isinstance(less, complex | bytes | str) or abs(less) >= abs(value) or isinstance(value, bool):
                continue
            changed = copy.deepcopy(tree)
            again = [
                n
                for n in ast.walk(changed)
                if isinstance(n, ast.Constant) and isinstance(n.value, int | float) and n.value not in (0, 1)
            ]
            again[i].value = less if isinstance(value, int) else float(less)
            yield changed


def without_functions(tree: ast.Module) -> Iterator[ast.Module]:
    for i, node in enumerate(tree.body):
        if isinstance(node, ast.FunctionDef) and node.name != "k" or isinstance(node, ast.Assign):
            changed = copy.deepcopy(tree)
            del changed.body[i]
            yield changed


def names_in(tree: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}


def without_data(program: Program) -> Iterator[Program]:
    """Without a field or a parameter that nothing uses."""
    tree = ast.parse(program.source)
    used = set().union(*(names_in(s) for n in tree.body if isinstance(n, ast.FunctionDef) for s in n.body))
    for f in program.fields:
        if f.name not in used:
            yield replace(program, fields=[g for g in program.fields if g.name != f.name])
    for i, argument in enumerate(program.arguments):
        if argument.name not in used:
            changed = copy.deepcopy(tree)
            function = next(n for n in changed.body if isinstance(n, ast.FunctionDef) and n.name == "k")
            del function.args.args[i]
            yield replace(
                program,
                source=ast.unparse(changed) + "\n",
                arguments=[a for a in program.arguments if a.name != argument.name],
            )


def simpler_data(program: Program) -> Iterator[Program]:
    """Without a memory that no argument uses; zeros, or small numbers, in place of all numbers of a memory or field."""
    for i in range(len(program.memories)):
        if all(a.memory != i for a in program.arguments):
            memories = program.memories[:i] + program.memories[i + 1 :]
            arguments = [replace(a, memory=a.memory - 1) if a.memory > i else a for a in program.arguments]
            yield replace(program, memories=memories, arguments=arguments)
    for i, m in enumerate(program.memories):
        for values in ([0 * v for v in m.values], [type(v)(k % 7) for k, v in enumerate(m.values)]):
            if values != m.values and (m.dtype != "u1" or max(values, default=0) <= 1):
                memories = list(program.memories)
                memories[i] = replace(m, values=values)
                yield replace(program, memories=memories)
    for i, f in enumerate(program.fields):
        values = [0 * v for v in f.values]
        if values != f.values:
            fields = list(program.fields)
            fields[i] = replace(f, values=values)
            yield replace(program, fields=fields)


def candidates(program: Program) -> Iterator[Program]:
    """Smaller programs, the most promising first."""
    tree = ast.parse(program.source)
    for make in (without_statements, without_functions, unwrapped):
        for changed in make(tree):
            yield replace(program, source=ast.unparse(changed) + "\n")
    yield from without_data(program)
    yield from simpler_data(program)
    for make in (without_expressions, smaller_numbers):
        for changed in make(tree):
            yield replace(program, source=ast.unparse(changed) + "\n")
    if program.launches > 1:
        yield replace(program, launches=1)


def shrink(program: Program, fails: Callable[[Program], bool], seconds: float) -> Program:
    """The smallest program found in the time that fails."""
    end = time.monotonic() + seconds
    seen = {program.to_json()}
    while True:
        for candidate in candidates(program):
            if time.monotonic() > end:
                return program
            text = candidate.to_json()
            if text in seen:
                continue
            seen.add(text)
            if fails(candidate):
                program = candidate
                break
        else:
            return program
