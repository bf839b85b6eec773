"""A program of the fuzzer: the text of a module with a kernel `k`, and its arguments. Read and written as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from interpreter import Interpreter
from language import Array, Storage, Struct, Tensor, Type, leaves
from scalars import State


@dataclass
class Memory:
    """Numbers that one or several arrays of the host reach."""

    dtype: str
    values: list


@dataclass
class Argument:
    """An argument of the kernel: a number, or an array of `shape` in a memory.

    Strides and the offset count elements. An element has `components` numbers; with 0 it is a number.
    """

    name: str
    dtype: str
    number: Any = None
    memory: int = -1
    offset: int = 0
    shape: list[int] = field(default_factory=list)
    strides: list[int] = field(default_factory=list)
    components: int = 0
    is_ndarray: bool = False
    """The package's own array in place of one of the host's."""


@dataclass
class Field:
    """A field. The elements of fields with the same `tree` (if nonnegative) are interleaved."""

    name: str
    element: str
    """A scalar type, the name of a struct of the module, `vector(3, i32)` or `matrix(2, 3, i32)`."""
    shape: list[int]
    values: list
    tree: int = -1
    order: str = ""
    first: list[int] = field(default_factory=list)
    is_soa: bool = False


@dataclass
class Program:
    """A program with its data."""

    seed: int
    source: str
    memories: list[Memory]
    arguments: list[Argument]
    fields: list[Field]
    launches: int = 1
    """How many times the kernel is called."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Program:
        data = json.loads(text)
        return Program(
            data["seed"],
            data["source"],
            [Memory(**m) for m in data["memories"]],
            [Argument(**a) for a in data["arguments"]],
            [Field(**f) for f in data["fields"]],
            data["launches"],
        )


@dataclass
class Outcome:
    """All that can be seen of a program after it ran: numbers, in order."""

    memories: list[list]
    fields: list[list]
    returned: Any
    types: list[str] = field(default_factory=list)
    """The types of the numbers of the returned value."""


def element_type(program: Interpreter, text: str) -> Type:
    """The type that `Field.element` names."""
    if text in program.types:
        found: Struct = program.types[text]
        return found
    if text.startswith(("vector(", "matrix(")):
        *shape, scalar = text[7:-1].split(", ")
        return Tensor(scalar, tuple(map(int, shape)))
    return text


def row_major(shape: list[int]) -> list[int]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= n
    return strides


def interpret(program: Program, default_ip: str, default_fp: str) -> tuple[Outcome, State]:
    """Runs a program in the interpreter."""
    interpreter = Interpreter(program.source, default_ip, default_fp)
    storages = [Storage(list(m.values)) for m in program.memories]
    fields = {}
    for f in program.fields:
        element = element_type(interpreter, f.element)
        step = len(leaves(element))
        strides = tuple(step * s for s in row_major(f.shape))
        storage = Storage(list(f.values))
        fields[f.name] = Array(element, tuple(f.shape), storage, 0, strides, True, tuple(f.first))
    arguments: list[Any] = []
    for a in program.arguments:
        if a.memory < 0:
            arguments.append(a.number)
            continue
        step = a.components or 1
        element = Tensor(a.dtype, (a.components,)) if a.components else a.dtype
        strides = tuple(step * s for s in a.strides)
        arguments.append(Array(element, tuple(a.shape), storages[a.memory], a.offset * step, strides))
    for _ in range(program.launches):
        returned = interpreter.run("k", arguments, fields)
    outcome = Outcome([s.numbers for s in storages], [fields[f.name].storage.numbers for f in program.fields], None)
    if returned is not None:
        kind, value = returned
        outcome.returned = [value] if isinstance(kind, str) else value
        outcome.types = leaves(kind)
    return outcome, interpreter.state
