"""Random kernels with `graph=True`: data-dependent loops, branches, sections, checkpoints and parallel loops,
nested in any order.

A program has two texts: the kernel, and a Python function that does the same in order. Sections have separate arrays
and counters, so that no schedule can change the result. A launch that ends at a checkpoint is resumed until it ends at
none: in Python, the checkpoint's statements run again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

ARRAYS = 8
SIZE = 9
MODULUS = 1009


@dataclass
class GraphProgram:
    """A kernel and its Python equivalent, as source text. Both take `ARRAYS` arrays of i32, then `counters` arrays
    without axes; those in `flags` end launches."""

    counters: int
    flags: list[int]
    kernel: str
    model: str


@dataclass
class _Text:
    """Both texts, line by line."""

    kernel: list[str] = field(default_factory=list)
    model: list[str] = field(default_factory=list)

    def add(self, depth: int, line: str, model: str | None = None) -> None:
        self.kernel.append("    " * depth + line)
        self.model.append("    " * depth + (line if model is None else model))


class _Writer:
    def __init__(self, seed: int, most_statements: int) -> None:
        self.random = random.Random(seed)
        self.text = _Text()
        self.counters = 0
        self.left = most_statements
        self.locals = 0
        self.flags: list[int] = []
        # Some programs have checkpoints, except where a variable that a resumed launch would skip is used later.
        self.may_stop = seed % 3 == 1

    def statements(self, depth: int, arrays: list[int], nesting: int, in_section: bool) -> None:
        for _ in range(self.random.randrange(1, 4)):
            kinds = ["loop", "loop", "serial", "carried"]
            if nesting < 4 and self.left > 0:
                kinds += ["rounds", "rounds", "choice", "choice", "changed"]
                if self.may_stop and not in_section:
                    kinds += ["checkpoint", "checkpoint"]
                if len(arrays) > 1:
                    kinds += ["sections", "sections"]
            getattr(self, self.random.choice(kinds))(depth, arrays, nesting, in_section)
            self.left -= 1

    def loop(self, depth: int, arrays: list[int], nesting: int, in_section: bool) -> None:
        x, y = self.random.choice(arrays), self.random.choice(arrays)
        self.text.add(depth, f"for i in range({SIZE}):")
        self.text.add(depth + 1, f"a{x}[i] = (a{x}[i] * {self.random.randrange(1, 9)} + a{y}[i] + i) % {MODULUS}")

    def serial(self, depth: int, arrays: list[int], nesting: int, in_section: bool) -> None:
        x, y = self.random.choice(arrays), self.random.choice(arrays)
        to, at = self.random.randrange(SIZE), self.random.randrange(SIZE)
        self.text.add(depth, f"a{x}[{to}] = (a{y}[{at}] + a{x}[{to}] + {self.random.randrange(9)}) % {MODULUS}")

    def carried(self, depth: int, arrays: list[int], nesting: int, in_section: bool) -> None:
        """A variable that one task sets and the next one reads."""
        x, y, name = self.random.choice(arrays), self.random.choice(arrays), f"v{self.locals}"
        self.locals += 1
        self.text.add(depth, f"{name} = a{x}[{self.random.randrange(SIZE)}]")
        self.text.add(depth, f"for i in range({SIZE}):")
        self.text.add(depth + 1, f"a{y}[i] = (a{y}[i] + {name} * {self.random.randrange(1, 5)}) % {MODULUS}")

    def rounds(self, depth: int, arrays: list[int], nesting: int, in_section: bool) -> None:
        counter = f"n{self.counters}"
        self.counters += 1
        self.text.add(depth, f"{counter}[()] = {self.random.randrange(1, 4)}")
        expression = self.random.choice([counter, counter, f"{counter}[()] > 0"])
        self.text.add(depth, f"while qd.graph.do_while({expression}):", "while True:")
        self.statements(depth + 1, arrays, nesting + 1, in_section)
        self.text.add(depth + 1, f"{counter}[()] -= 1")
        self.text.add(0, "", "    " * (depth + 1) + f"if {counter}[()] == 0: break")

    def choice(self, depth: int, arrays: list[int], nesting: int, in_section: bool) -> None:
        """Branches that the device chooses between."""
        for n in range(self.random.randrange(1, 4)):
            word = "elif" if n else "if"
            test, model = self.condition(arrays) if n else self.flag(depth, arrays)
            self.text.add(depth, f"{word} qd.graph.cond({test}):", f"{word} {model}:")
            self.statements(depth + 1, arrays, nesting + 1, in_section)
        if self.random.randrange(2):
            self.text.add(depth, "else:")
            self.statements(depth + 1, arrays, nesting + 1, in_section)

    def changed(self, depth: int, arrays: list[int], nesting: int, in_section: bool) -> None:
        """A variable that a branch may change, for tasks in it and after it."""
        x, y, name = self.random.choice(arrays), self.random.choice(arrays), f"v{self.locals}"
        self.locals += 1
        self.text.add(depth, f"{name} = a{x}[{self.random.randrange(SIZE)}]")
        test, model = self.condition(arrays)
        self.text.add(depth, f"if qd.graph.cond({test}):", f"if {model}:")
        may_stop, self.may_stop = self.may_stop, False
        self.statements(depth + 1, arrays, nesting + 1, in_section)
        self.text.add(depth + 1, f"{name} = {name} * 3 + {self.random.randrange(5)}")
        if self.random.randrange(2):
            self.statements(depth + 1, arrays, nesting + 1, in_section)
        self.may_stop = may_stop
        self.text.add(depth, f"for i in range({SIZE}):")
        self.text.add(depth + 1, f"a{y}[i] = (a{y}[i] + {name}) % {MODULUS}")

    def checkpoint(self, depth: int, arrays: list[int], nesting: int, in_section: bool) -> None:
        """A checkpoint where the launch ends a few times, or never."""
        flag, left = f"n{self.counters}", f"n{self.counters + 1}"
        self.flags.append(self.counters)
        self.counters += 2
        x, y = self.random.choice(arrays), self.random.choice(arrays)
        self.text.add(depth, f"{left}[()] = {self.random.randrange(3)}")
        self.text.add(depth, f"with qd.checkpoint({len(self.flags)}, yield_on={flag}):", "while True:")
        self.text.add(depth + 1, f"for i in range({SIZE}):")
        self.text.add(depth + 2, f"a{x}[i] = (a{x}[i] * 3 + a{y}[i] + 1) % {MODULUS}")
        self.text.add(depth + 1, "for _ in range(1):")
        self.text.add(depth + 2, f"if {left}[()] > 0:")
        self.text.add(depth + 3, f"{left}[()] -= 1")
        self.text.add(depth + 3, f"{flag}[()] = 1")
        self.text.add(0, "", "    " * (depth + 1) + f"if {flag}[()] == 0: break")
        self.text.add(0, "", "    " * (depth + 1) + f"{flag}[()] = 0")

    def flag(self, depth: int, arrays: list[int]) -> tuple[str, str]:
        """A condition for an `if`: any, or an integer without axes that is set before."""
        if self.random.randrange(3):
            return self.condition(arrays)
        flag = f"n{self.counters}"
        self.counters += 1
        self.text.add(depth, f"{flag}[()] = a{self.random.choice(arrays)}[{self.random.randrange(SIZE)}] % 2")
        return flag, f"{flag}[()] != 0"

    def condition(self, arrays: list[int]) -> tuple[str, str]:
        element = f"a{self.random.choice(arrays)}[{self.random.randrange(SIZE)}]"
        test = self.random.choice([f"{element} % 2 == 0", f"{element} > {MODULUS // 2}", f"{element} % 3"])
        return test, test

    def sections(self, depth: int, arrays: list[int], nesting: int, in_section: bool) -> None:
        own = self.random.sample(arrays, len(arrays))
        cuts = sorted(self.random.sample(range(1, len(own)), min(len(own) - 1, self.random.randrange(1, 3))))
        self.text.add(depth, "with qd.graph.parallel_context(allow_nesting=True):", "if True:")
        for first, end in zip([0, *cuts], [*cuts, len(own)], strict=True):
            self.text.add(depth + 1, "with qd.graph.parallel():", "if True:")
            self.statements(depth + 2, own[first:end], nesting + 1, True)


def graph_program(seed: int) -> GraphProgram:
    """The program of a seed."""
    writer = _Writer(seed, most_statements=30)
    writer.statements(1, list(range(ARRAYS)), 0, False)
    arrays, counters = ([f"{kind}{n}" for n in range(many)] for kind, many in (("a", ARRAYS), ("n", writer.counters)))
    annotated = [f"{name}: A" for name in arrays] + [f"{name}: C" for name in counters]
    head = [
        "import octants as qd",
        "A = qd.types.ndarray(dtype=qd.i32, ndim=1)",
        "C = qd.types.ndarray(dtype=qd.i32, ndim=0)",
        f"@qd.kernel(graph=True, checkpoints={bool(writer.flags)})",
        f"def run({', '.join(annotated)}):",
    ]
    kernel = "\n".join([*head, *writer.text.kernel, ""])
    model = "\n".join([f"def run({', '.join(arrays + counters)}):", *writer.text.model, ""])
    return GraphProgram(writer.counters, writer.flags, kernel, model)
