"""Runs a program in the package and compares the results with the interpreter's."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from configurations import Options, defaults_of
from guarded_memory import GuardedMemory
from interpreter import Interpreter
from language import InvalidProgramError
from programs import Outcome, Program, element_type, interpret
from scalars import NUMPY, UnspecifiedError

import octants as qd


class Load:
    """The module of a program: its source in a file, as the package reads it."""

    count = 0

    def __init__(self, program: Program, folder: Path) -> None:
        Load.count += 1
        self.path = folder / f"program_{Load.count}.py"
        self.path.write_text(program.source)
        spec = importlib.util.spec_from_file_location(f"fuzzed_{Load.count}", self.path)
        assert spec is not None
        assert spec.loader is not None
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        self.types = Interpreter(program.source, "i32", "f32")

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def dtype_of(name: str) -> Any:
    return getattr(qd, name)


def make_fields(program: Program, module: Any) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for f in program.fields:
        keywords: dict[str, Any] = {}
        if f.first:
            keywords["offset"] = tuple(f.first)
        if f.is_soa:
            keywords["layout"] = qd.Layout.SOA
        shape = tuple(f.shape)
        if f.element.startswith("vector("):
            n, scalar = f.element[7:-1].split(", ")
            made[f.name] = qd.Vector.field(int(n), dtype_of(scalar), shape=shape, **keywords)
        elif f.element.startswith("matrix("):
            n, m, scalar = f.element[7:-1].split(", ")
            made[f.name] = qd.Matrix.field(int(n), int(m), dtype_of(scalar), shape=shape, **keywords)
        elif f.element in NUMPY:
            if f.tree >= 0:
                made[f.name] = qd.field(dtype_of(f.element))
            elif f.order:
                made[f.name] = qd.field(dtype_of(f.element), shape=shape, order=f.order, **keywords)
            else:
                made[f.name] = qd.field(dtype_of(f.element), shape=shape, **keywords)
        else:
            made[f.name] = getattr(module, f.element).field(shape=shape, **keywords)
    for tree in dict.fromkeys(f.tree for f in program.fields if f.tree >= 0):
        together = [f for f in program.fields if f.tree == tree]
        qd.root.dense(qd.i, together[0].shape[0]).place(*(made[f.name] for f in together))
    return made


def struct_arrays(kind: Any, shape: tuple[int, ...], values: list) -> dict[str, np.ndarray]:
    """The members of a struct field as arrays."""
    members, at = {}, 0
    total = kind.count
    rows = [values[i : i + total] for i in range(0, len(values), total)]
    for name, t in kind.members:
        scalar, n = (t, 0) if isinstance(t, str) else (t.scalar, t.count)
        cut = [row[at : at + (n or 1)] for row in rows]
        data = np.array(cut, NUMPY[scalar])
        members[name] = data.reshape(shape if isinstance(t, str) else (*shape, *t.shape))
        at += n or 1
    return members


def struct_values(kind: Any, found: dict[str, np.ndarray], count: int) -> list:
    columns = []
    for name, t in kind.members:
        n = 1 if isinstance(t, str) else t.count
        columns.append(np.asarray(found[name]).reshape(count, n).tolist())
    return [x for row in zip(*columns, strict=True) for part in row for x in part]


class Run:
    """One run of a program under some options."""

    def __init__(self, program: Program, options: Options, load: Load, at_end: bool) -> None:
        self.program, self.load, self.options = program, load, options
        self.guarded: list[GuardedMemory] = []
        chosen = dict(options)
        for name in ("default_ip", "default_fp"):
            if name in chosen:
                chosen[name] = dtype_of(chosen[name])
        chosen.setdefault("offline_cache", False)
        chosen.setdefault("num_compile_threads", 1)
        arch = getattr(qd, chosen.pop("arch", "cpu"))
        qd.init(arch=arch, enable_fallback=False, log_level=qd.ERROR, **chosen)
        self.at_end = at_end

    def run(self) -> Outcome:
        program, module = self.program, self.load.module
        fields = make_fields(program, module)
        types = self.load.types
        for f in program.fields:
            kind = element_type(types, f.element)
            self.fill_field(fields[f.name], f, kind)
            setattr(module, f.name, fields[f.name])
        for m in program.memories:
            self.guarded.append(GuardedMemory(NUMPY[m.dtype], m.values, self.at_end))
        arguments, own = [], {}
        for a in program.arguments:
            if a.memory < 0:
                arguments.append(bool(a.number) if a.dtype == "u1" else a.number)
                continue
            memory = self.guarded[a.memory].array
            if a.is_ndarray:
                array = (
                    qd.Vector.ndarray(a.components, dtype_of(a.dtype), shape=tuple(a.shape))
                    if a.components
                    else qd.ndarray(dtype_of(a.dtype), shape=tuple(a.shape))
                )
                array.from_numpy(memory.reshape([*a.shape, *([a.components] if a.components else [])]).copy())
                own[a.memory] = array
                arguments.append(array)
                continue
            size = memory.itemsize
            step = (a.components or 1) * size
            shape, strides = tuple(a.shape), tuple(s * step for s in a.strides)
            if a.components:
                shape, strides = (*shape, a.components), (*strides, size)
            view = np.lib.stride_tricks.as_strided(memory[a.offset * (a.components or 1) :], shape, strides)
            arguments.append(view)
        if self.options.get("cpu_streams") and program.seed % 2:
            with qd.create_stream() as stream:
                for _ in range(program.launches):
                    returned = module.k(*arguments, qd_stream=stream)
        else:
            for _ in range(program.launches):
                returned = module.k(*arguments)
        qd.sync()
        memories = []
        for i, g in enumerate(self.guarded):
            memories.append((own[i].to_numpy().ravel() if i in own else g.array).tolist())
        values = []
        for f in program.fields:
            found = fields[f.name].to_numpy()
            kind = element_type(types, f.element)
            if isinstance(found, dict):
                count = len(f.values) // kind.count
                values.append(struct_values(kind, found, count))
            else:
                values.append(np.asarray(found).ravel().tolist())
        return Outcome(memories, values, returned)

    def fill_field(self, made: Any, f: Any, kind: Any) -> None:
        shape = tuple(f.shape)
        if isinstance(kind, str):
            made.from_numpy(np.array(f.values, NUMPY[kind]).reshape(shape))
        elif hasattr(kind, "members"):
            made.from_numpy(struct_arrays(kind, shape, f.values))
        else:
            made.from_numpy(np.array(f.values, NUMPY[kind.scalar]).reshape((*shape, *kind.shape)))

    def beside(self) -> str | None:
        found = [text for g in self.guarded if (text := g.check())]
        return found[0] if found else None

    def end(self) -> None:
        for g in self.guarded:
            g.release()
        qd.reset()


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    return int(a) == int(b)


def differences(expected: Outcome, found: Outcome, program: Program) -> list[str]:
    """A description of the differences."""
    out = []
    parts = [(f"memory {i}", e, f) for i, (e, f) in enumerate(zip(expected.memories, found.memories, strict=True))]
    names = [f.name for f in program.fields]
    parts += [(n, e, f) for n, e, f in zip(names, expected.fields, found.fields, strict=True)]
    if expected.returned is not None:
        got = found.returned
        parts.append(("the returned value", expected.returned, [got] if isinstance(got, int | float) else list(got)))
    for name, e, f in parts:
        wrong = [i for i, (x, y) in enumerate(zip(e, f, strict=True)) if not same(x, y)]
        if wrong:
            i = wrong[0]
            out.append(f"{name}: {len(wrong)} of {len(e)} numbers, at {i} {f[i]!r} instead of {e[i]!r}")
    return out


class Expected:
    """The interpreter's results for a program, for each requested pair of default types."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.known: dict[tuple[str, str], tuple[Outcome, bool] | Exception] = {}

    def of(self, options: Options) -> tuple[Outcome, bool]:
        """The outcome, and whether it differs when floats are reordered. Raises if there is none."""
        defaults = defaults_of(options)
        if defaults not in self.known:
            try:
                outcome, state = interpret(self.program, *defaults)
                self.known[defaults] = (outcome, state.inexact)
            except (InvalidProgramError, UnspecifiedError) as error:
                self.known[defaults] = error
        found = self.known[defaults]
        if isinstance(found, Exception):
            raise found
        return found


def execute(program: Program, options: Options, expected: Expected, load: Load) -> tuple[str, str]:
    """`ok`, `loose` (run, but not comparable under these options), or the kind of failure, with a description."""
    outcome, is_inexact = expected.of(options)
    at_end = Random(program.seed).random() < 0.6
    run = None
    try:
        run = Run(program, options, load, at_end)
        found = run.run()
        beside = run.beside()
        if beside:
            return "written beside an array", beside
        if is_inexact and options.get("fast_math", True):
            return "loose", ""
        wrong = differences(outcome, found, program)
        if wrong:
            return "wrong result", "; ".join(wrong[:3])
        return "ok", ""
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__}", str(error)[:600]
    finally:
        try:
            if run is not None:
                run.end()
            else:
                qd.reset()
        except BaseException as error:
            print(f"reset: {error}", file=sys.stderr)
