"""A failing program as a standalone file that needs only numpy and the package."""

from __future__ import annotations

import json
from typing import Any

from configurations import Options
from programs import Outcome, Program
from scalars import NUMPY


def option_text(name: str, value: Any) -> str:
    return f"{name}=qd.{value}" if name in ("arch", "default_ip", "default_fp") else f"{name}={value!r}"


def array_text(values: list, dtype: str) -> str:
    return f"np.array({values}, np.{NUMPY[dtype].name if dtype != 'u1' else 'bool_'})"


def field_lines(program: Program) -> list[str]:
    lines = []
    for f in program.fields:
        shape = tuple(f.shape)
        more = f", offset={tuple(f.first)}" if f.first else ""
        more += ", layout=qd.Layout.SOA" if f.is_soa else ""
        if f.element.startswith("vector("):
            n, scalar = f.element[7:-1].split(", ")
            lines.append(f"{f.name} = qd.Vector.field({n}, qd.{scalar}, shape={shape}{more})")
            lines.append(f"{f.name}.from_numpy({array_text(f.values, scalar)}.reshape({(*shape, int(n))}))")
        elif f.element.startswith("matrix("):
            n, m, scalar = f.element[7:-1].split(", ")
            lines.append(f"{f.name} = qd.Matrix.field({n}, {m}, qd.{scalar}, shape={shape}{more})")
            lines.append(f"{f.name}.from_numpy({array_text(f.values, scalar)}.reshape({(*shape, int(n), int(m))}))")
        elif f.element not in NUMPY:
            lines.append(f"{f.name} = {f.element}.field(shape={shape}{more})  # Filled with {f.values}.")
        else:
            if f.tree >= 0:
                lines.append(f"{f.name} = qd.field(qd.{f.element})")
            else:
                more += f", order={f.order!r}" if f.order else ""
                lines.append(f"{f.name} = qd.field(qd.{f.element}, shape={shape}{more})")
    for tree in dict.fromkeys(f.tree for f in program.fields if f.tree >= 0):
        together = [f for f in program.fields if f.tree == tree]
        lines.append(f"qd.root.dense(qd.i, {together[0].shape[0]}).place({', '.join(f.name for f in together)})")
    for f in program.fields:
        if f.element in NUMPY:
            lines.append(f"{f.name}.from_numpy({array_text(f.values, f.element)}.reshape({tuple(f.shape)}))")
    return lines


def argument_lines(program: Program) -> tuple[list[str], list[str]]:
    """The lines, and the arguments."""
    lines = [f"m{i} = {array_text(m.values, m.dtype)}" for i, m in enumerate(program.memories)]
    names = []
    for a in program.arguments:
        if a.memory < 0:
            names.append(repr(a.number))
            continue
        n, step = a.components, a.components or 1
        size = NUMPY[a.dtype].itemsize
        shape, strides = tuple(a.shape), tuple(s * step * size for s in a.strides)
        if n:
            shape, strides = (*shape, n), (*strides, size)
        if a.is_ndarray:
            made = (
                f"qd.Vector.ndarray({n}, qd.{a.dtype}, {tuple(a.shape)})"
                if n
                else f"qd.ndarray(qd.{a.dtype}, {tuple(a.shape)})"
            )
            lines += [f"{a.name} = {made}", f"{a.name}.from_numpy(m{a.memory}.reshape({shape}))"]
        else:
            lines.append(
                f"{a.name} = np.lib.stride_tricks.as_strided(m{a.memory}[{a.offset * step}:], {shape}, {strides})"
            )
        names.append(a.name)
    return lines, names


def text_of(program: Program, options: Options, expected: Outcome | None, kind: str, what: str) -> str:
    """The text of the file. It prints the differences, and contains the program for `run.py --replay`."""
    given = {"arch": "cpu", "offline_cache": False, **options}
    keywords = ", ".join(option_text(name, value) for name, value in given.items())
    source = program.source.replace("import octants as qd\n", "", 1).strip("\n")
    arguments, names = argument_lines(program)
    lines = [
        f'"""Seed {program.seed}: {kind}."""',
        "",
        "# " + what.replace("\n", "\n# "),
        "import numpy as np",
        "",
        "import octants as qd",
        "",
        source,
        "",
        "",
        f"qd.init({keywords})",
        *field_lines(program),
        *arguments,
        *[f"returned = k({', '.join(names)})"] * program.launches,
        "qd.sync()",
    ]
    if expected is not None:
        own = {a.memory: a.name for a in program.arguments if a.is_ndarray}
        pairs = []
        for i, values in enumerate(expected.memories):
            name = own.get(i)
            pairs.append((f"m{i}", f"{name}.to_numpy().ravel().tolist()" if name else f"m{i}.tolist()", values))
        for f, values in zip(program.fields, expected.fields, strict=True):
            if f.element in NUMPY or f.element.startswith(("vector(", "matrix(")):
                pairs.append((f.name, f"{f.name}.to_numpy().ravel().tolist()", values))
        if expected.returned is not None:
            pairs.append(("returned", "[returned]", expected.returned))
        for name, found, values in pairs:
            lines.append(f"found, wanted = {found}, {values}")
            lines.append("for i, (f, w) in enumerate(zip(found, wanted)):")
            lines.append(f"    if f != w: print({name!r}, i, 'is', f, 'and should be', w)")
    lines += ["", f"# options: {json.dumps(options)}", f"# program: {program.to_json()}", ""]
    return "\n".join(lines)


def read(text: str) -> tuple[Program, Options]:
    """The program in a file of `text_of`."""
    found = {
        k: line.split(": ", 1)[1]
        for line in text.splitlines()
        for k in ("options", "program")
        if line.startswith(f"# {k}: ")
    }
    return Program.from_json(found["program"]), json.loads(found["options"])
