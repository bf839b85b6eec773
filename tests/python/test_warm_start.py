"""A later process does without the front end, and never takes code that does not fit: whatever a kernel depends on is
changed between two processes, each thing in a module of its own.

`{{a|b}}` in a module is `a` in its first version and `b` in its second. Each module has a function `result`; the expected
results of the two versions stand beside it. One process runs all modules.
"""

import json
import os
import re
import subprocess
import sys

import pytest

HEAD = """
import dataclasses
import enum
import math
import os

import numpy as np
import octants as qd
"""

# For each thing that a kernel may depend on: the module, and its results before and after the change.
MODULES = {
    "a global": (
        """
N = {{3|5}}

@qd.kernel
def result() -> qd.i32:
    return N
""",
        3,
        5,
    ),
    "the type of a number": (
        """
N = {{3|3.0}}

@qd.kernel
def result() -> qd.f32:
    return N / 2 + N // 2 + qd.static(isinstance(N, int))
""",
        3.5,
        2.5,
    ),
    "the sign of zero": (
        """
Z = {{0.0|-0.0}}

@qd.kernel
def result() -> qd.i32:
    return qd.bit_cast(qd.cast(Z, qd.f32), qd.i32) != 0
""",
        0,
        1,
    ),
    "a function's text, two calls deep": (
        """
@qd.func
def inner(a):
    return a + {{1|2}}

@qd.func
def outer(a):
    return inner(a) * 10

@qd.kernel
def result() -> qd.i32:
    return outer(1)
""",
        20,
        30,
    ),
    "a function's meaning": (
        """
@qd.func
def one(a):
    return a + 1

@qd.func
def two(a):
    return a + 2

chosen = {{one|two}}

@qd.kernel
def result() -> qd.i32:
    return chosen(1)
""",
        2,
        3,
    ),
    "a global of a function in another module": (
        """
import other

other.LIMIT = {{7|8}}

@qd.kernel
def result() -> qd.i32:
    return other.limit()
""",
        7,
        8,
    ),
    "a constant of an imported module": (
        """
import other

other.SIZE = {{7|8}}

@qd.kernel
def result() -> qd.i32:
    return other.SIZE
""",
        7,
        8,
    ),
    "a monkeypatch": (
        """
import other

@qd.func
def ten():
    return 10

if {{False|True}}:
    other.patched = ten

@qd.kernel
def result() -> qd.i32:
    return other.patched()
""",
        1,
        10,
    ),
    "a monkeypatch of a builtin": (
        """
import builtins

@qd.func
def wrong(a, b):
    return a - b

if {{False|True}}:
    max = wrong

@qd.kernel
def result() -> qd.i32:
    return max(3, 1)
""",
        3,
        2,
    ),
    "a class attribute": (
        """
class Box:
    SIZE = {{4|6}}

@qd.kernel
def result() -> qd.i32:
    return Box.SIZE
""",
        4,
        6,
    ),
    "an inherited class attribute": (
        """
class Base:
    SIZE = 4

class Other:
    SIZE = 6

class Box({{Base|Other}}):
    pass

@qd.kernel
def result() -> qd.i32:
    return Box.SIZE
""",
        4,
        6,
    ),
    "a property": (
        """
class Box:
    @property
    def size(self):
        return {{4|6}}

box = Box()

@qd.kernel
def result() -> qd.i32:
    return box.size
""",
        4,
        6,
    ),
    "an attribute that is there": (
        """
class Box:
    {{size = 1|width = 1}}

@qd.kernel
def result() -> qd.i32:
    n = 0
    if qd.static(hasattr(Box, "size")):
        n = 1
    return n
""",
        1,
        0,
    ),
    "an enum's value": (
        """
class Color(enum.IntEnum):
    RED = {{1|2}}

@qd.kernel
def result() -> qd.i32:
    return Color.RED
""",
        1,
        2,
    ),
    "the value of a member of an enum": (
        """
class Color(enum.Enum):
    RED = {{1|2}}

@qd.kernel
def result() -> qd.i32:
    return Color.RED.value
""",
        1,
        2,
    ),
    "a type": (
        """
T = qd.{{i32|f32}}

@qd.kernel
def result() -> qd.f32:
    return qd.cast(2.5, T)
""",
        2,
        2.5,
    ),
    "the type of a parameter": (
        """
@qd.kernel
def take(a: qd.{{f32|f64}}) -> qd.f64:
    return a

def result():
    return round(take(0.1) * 1e9)
""",
        round(0.10000000149011612 * 1e9),
        100000000,
    ),
    "the type of a result": (
        """
@qd.kernel
def result() -> qd.{{i32|f32}}:
    return 5 / 2
""",
        2,
        2.5,
    ),
    "a type in quotes": (
        """
T = qd.{{i32|f32}}

@qd.kernel
def result() -> "T":
    return 5 / 2
""",
        2,
        2.5,
    ),
    "something after a type in quotes that is made anew each time": (
        """
from __future__ import annotations

@qd.func
def first(v: qd.template(), by=1):
    return v[0] + {{1|2}} + by

@qd.func
def second(v: qd.template(), n=2):
    return v[n - 1]

@qd.kernel
def result() -> qd.f32:
    v = qd.Vector([1.0, 2.0])
    return first(v) + second(v)
""",
        5,
        6,
    ),
    "a vector type": (
        """
V = qd.types.vector({{2|3}}, qd.f32)

@qd.kernel
def result() -> qd.f32:
    return V(1.0).sum()
""",
        2,
        3,
    ),
    "a struct's member": (
        """
S = qd.types.struct(a=qd.{{i32|f32}}, b=qd.f32)

@qd.kernel
def result() -> qd.f32:
    s = S(a=2.5, b=1.0)
    return s.a + s.b
""",
        3,
        3.5,
    ),
    "a default argument": (
        """
@qd.func
def shift(a, by={{1|2}}):
    return a + by

@qd.kernel
def result() -> qd.i32:
    return shift(1)
""",
        2,
        3,
    ),
    "a default argument that is set later": (
        """
@qd.func
def shift(a, by=1):
    return a + by

shift.__wrapped__.__defaults__ = ({{1|2}},)

@qd.kernel
def result() -> qd.i32:
    return shift(1)
""",
        2,
        3,
    ),
    "a closure": (
        """
def make(n):
    @qd.kernel
    def k() -> qd.i32:
        return n

    return k

result = make({{1|2}})
""",
        1,
        2,
    ),
    "a closure of a function": (
        """
def make(n):
    @qd.func
    def f():
        return n

    return f

f = make({{1|2}})

@qd.kernel
def result() -> qd.i32:
    return f()
""",
        1,
        2,
    ),
    "an argument of a decorator": (
        """
def scaled(by):
    def decorate(fn):
        @qd.func
        def f(a):
            return fn(a) * by

        return f

    return decorate

@scaled({{2|3}})
@qd.func
def f(a):
    return a + 1

@qd.kernel
def result() -> qd.i32:
    return f(1)
""",
        4,
        6,
    ),
    "an option of a decorator": (
        """
@qd.data_oriented(template_primitives={{True|False}})
class Box:
    def __init__(self):
        self.n = 1

    @qd.kernel
    def get(self) -> qd.i32:
        return self.n

def result():
    box = Box()
    first = box.get()
    box.n = 2
    return [first, box.get()]
""",
        [1, 2],
        [1, 2],
    ),
    "a branch on the environment": (
        """
os.environ["OCTANTS_TEST_BRANCH"] = "{{a|b}}"

@qd.kernel
def result() -> qd.i32:
    n = 1
    if qd.static(os.environ["OCTANTS_TEST_BRANCH"] == "b"):
        n = 2
    return n
""",
        1,
        2,
    ),
    "a call at compile time": (
        """
def count():
    return sum(range({{3|4}}))

@qd.kernel
def result() -> qd.i32:
    return qd.static(count())
""",
        3,
        6,
    ),
    "a list": (
        """
ITEMS = [1, {{2|3}}]

@qd.kernel
def result() -> qd.i32:
    n = 0
    for i in qd.static(ITEMS):
        n = n * 10 + i
    return n
""",
        12,
        13,
    ),
    "the length of a list": (
        """
ITEMS = [1, 2{{|, 3}}]

@qd.kernel
def result() -> qd.i32:
    n = 0
    for i in qd.static(range(len(ITEMS))):
        n += 1
    return n
""",
        2,
        3,
    ),
    "a dict": (
        """
SIZES = {"a": {{1|2}}}

@qd.kernel
def result() -> qd.i32:
    return qd.static(SIZES["a"])
""",
        1,
        2,
    ),
    "a string": (
        """
MODE = "{{fast|exact}}"

@qd.kernel
def result() -> qd.i32:
    n = 1
    if qd.static(MODE == "exact"):
        n = 2
    return n
""",
        1,
        2,
    ),
    "none or something": (
        """
MODE = {{None|1}}

@qd.kernel
def result() -> qd.i32:
    n = 1
    if qd.static(MODE is not None):
        n = 2
    return n
""",
        1,
        2,
    ),
    "one object or two": (
        """
class Box:
    pass

a = Box()
b = {{a|Box()}}

@qd.kernel
def result() -> qd.i32:
    n = 1
    if qd.static(a is b):
        n = 2
    return n
""",
        2,
        1,
    ),
    "a numpy array": (
        """
WEIGHTS = np.array([1, {{2|3}}], dtype=np.int32)

@qd.kernel
def result() -> qd.i32:
    return WEIGHTS[0] + WEIGHTS[1]
""",
        3,
        4,
    ),
    "a vector": (
        """
GRAVITY = qd.Vector([0.0, {{-9|-8}}])

@qd.kernel
def result() -> qd.f32:
    return GRAVITY[1]
""",
        -9,
        -8,
    ),
    "an attribute of an object": (
        """
@qd.data_oriented
class Box:
    def __init__(self):
        self.n = {{1|2}}

    @qd.kernel
    def get(self) -> qd.i32:
        return self.n

def result():
    return Box().get()
""",
        1,
        2,
    ),
    "an attribute of an attribute": (
        """
class Part:
    def __init__(self):
        self.n = {{1|2}}

@qd.data_oriented
class Box:
    def __init__(self):
        self.part = Part()

    @qd.func
    def inner(self):
        return self.part.n

    @qd.kernel
    def get(self) -> qd.i32:
        return self.inner()

def result():
    return Box().get()
""",
        1,
        2,
    ),
    "an overridden method": (
        """
@qd.data_oriented
class Base:
    @qd.func
    def size(self):
        return 1

    @qd.kernel
    def get(self) -> qd.i32:
        return self.size()

@qd.data_oriented
class Box(Base):
    {{other|size}} = qd.func(Base.size.__wrapped__) if {{True|False}} else Base.__dict__["size"]

    @qd.func
    def {{another|size}}(self):
        return 2

def result():
    return Box().get()
""",
        1,
        2,
    ),
    "a template argument": (
        """
@qd.kernel
def get(n: qd.template()) -> qd.i32:
    return n

def result():
    return get({{1|2}})
""",
        1,
        2,
    ),
    "an object in a template argument": (
        """
@qd.kernel
def get(n: qd.template()) -> qd.i32:
    return n[1] + n[0].n

class Box:
    n = {{3|4}}

def result():
    return get((Box(), {{1|2}}))
""",
        4,
        6,
    ),
    "the type of a dataclass's member": (
        """
@dataclasses.dataclass
class Params:
    a: qd.{{i32|f32}}

@qd.kernel
def get(p: Params) -> qd.f32:
    return p.a / 2 + qd.cast(p.a, qd.i32) // 2

def result():
    return get(Params({{3|3.5}}))
""",
        2.5,
        2.75,
    ),
    "a compile-time member of a dataclass": (
        """
@dataclasses.dataclass
class Params:
    a: qd.template()

@qd.kernel
def get(p: Params) -> qd.i32:
    return p.a

def result():
    return get(Params({{3|4}}))
""",
        3,
        4,
    ),
    "the shape of a field": (
        """
x = qd.field(qd.i32, shape={{3|4}})

@qd.kernel
def result() -> qd.i32:
    n = 0
    for i in range(x.shape[0]):
        x[i] = 1
        n += x[i]
    return n
""",
        3,
        4,
    ),
    "the type of a field": (
        """
x = qd.field(qd.{{i32|f32}}, shape=())

@qd.kernel
def result() -> qd.f32:
    x[None] = 2.5
    return x[None]
""",
        2,
        2.5,
    ),
    "the layout of a field": (
        """
x = qd.field(qd.i32)
y = qd.field(qd.i32)
qd.root.dense(qd.i, 4).place({{x, y|y, x}})

@qd.kernel
def fill():
    for i in x:
        x[i] = i
        y[i] = 10 * i

def result():
    fill()
    return x.to_numpy().tolist() + y.to_numpy().tolist()
""",
        [0, 1, 2, 3, 0, 10, 20, 30],
        [0, 1, 2, 3, 0, 10, 20, 30],
    ),
    "the place of a field": (
        """
filler = [qd.field(qd.i32, shape=3) for _ in range({{1|2}})]
x = qd.field(qd.i32, shape=2)

@qd.kernel
def fill():
    for i in x:
        x[i] = i + 1

def result():
    fill()
    return x.to_numpy().tolist() + filler[-1].to_numpy().tolist()
""",
        [1, 2, 0, 0, 0],
        [1, 2, 0, 0, 0],
    ),
    "which field a name is": (
        """
x = qd.field(qd.i32, shape=2)
y = qd.field(qd.i32, shape=2)
z = {{x|y}}

@qd.kernel
def fill():
    for i in z:
        z[i] = i + 1

def result():
    fill()
    return x.to_numpy().tolist() + y.to_numpy().tolist()
""",
        [1, 2, 0, 0],
        [0, 0, 1, 2],
    ),
    "one field or two": (
        """
x = qd.field(qd.i32, shape=2)
y = {{qd.field(qd.i32, shape=2)|x}}

@qd.kernel
def fill():
    for i in range(2):
        x[i] = 1
        y[i] += 1

def result():
    fill()
    return x.to_numpy().tolist()
""",
        [1, 1],
        [2, 2],
    ),
    "a captured array": (
        """
a = qd.ndarray(qd.{{i32|f32}}, 2)

@qd.kernel
def fill():
    for i in range(2):
        a[i] = 2.5

def result():
    fill()
    return a.to_numpy().tolist()
""",
        [2, 2],
        [2.5, 2.5],
    ),
    "an array in an object": (
        """
@qd.data_oriented
class Box:
    def __init__(self, kind):
        self.a = qd.ndarray(kind, 2)

    @qd.kernel
    def fill(self, value: qd.f32):
        for i in range(2):
            self.a[i] = value

def result():
    box = Box(qd.{{i32|f32}})
    box.fill(2.5)
    return box.a.to_numpy().tolist()
""",
        [2, 2],
        [2.5, 2.5],
    ),
    "arrays that share memory": (
        """
@qd.kernel
def add(a: qd.types.ndarray(), b: qd.types.ndarray()):
    for _ in range(1):
        for i in range(3):
            b[i + 1] += a[i]

def result():
    a = np.array([1, 1, 1, 1], dtype=np.int32)
    b = {{a.copy()|a}}
    add(a, b)
    return b.tolist()
""",
        [1, 2, 2, 2],
        [1, 2, 3, 4],
    ),
    "a gradient that keeps what a loop changes": (
        """
N = {{2|3}}
x = qd.field(qd.f32, shape=3, needs_grad=True)
y = qd.field(qd.f32, shape=(), needs_grad=True)

@qd.kernel
def k():
    for i in x:
        v = x[i]
        for _ in range(N):
            v = v * x[i]
        y[None] += v

def result():
    x.fill(2.0)
    k()
    y.grad[None] = 1.0
    k.grad()
    return [y[None], x.grad[0]]
""",
        [24, 12],
        [48, 32],
    ),
    "whether a function is marked": (
        """
{{@qd.func|}}
def f(a):
    return a + 1

f.kind = "marked" if isinstance(f, qd.func(lambda a: a).__class__) else "plain"

@qd.kernel
def result() -> qd.i32:
    n = f(1)
    if qd.static(f.kind == "plain"):
        n = 10
    return n
""",
        2,
        10,
    ),
}

OTHER = """
import octants as qd

SIZE = 0
LIMIT = 0

@qd.func
def limit():
    return LIMIT

@qd.func
def patched():
    return 1
"""

DRIVER = """
import importlib
import json
import sys

import octants as qd
from octants import cache

qd.init(arch=qd.cpu)
results = []
counts = []
for name in sys.argv[1:]:
    results.append(importlib.import_module(name).result())
    counts.append(cache.counts())
    del counts[-1]["folder"]
print(json.dumps([results, counts]))
"""


def version(text, which):
    head = HEAD
    if "__future__" in text:
        # That must come first.
        head, text = "", text.replace("annotations\n", "annotations\n" + HEAD, 1)
    return head + re.sub(r"\{\{(.*?)\|(.*?)\}\}", lambda m: m[1 + which], text)


@pytest.fixture
def run(tmp_path):
    """Writes modules and runs them in a process of their own: the results, `cache.counts()` after each, and what was
    printed to standard output and standard error."""
    (tmp_path / "other.py").write_text(OTHER)
    (tmp_path / "driver.py").write_text(DRIVER)

    def run(texts, **environment):
        for i, text in enumerate(texts):
            path = tmp_path / f"m{i}.py"
            if not path.exists() or path.read_text() != text:
                path.write_text(text)
        env = {
            **os.environ,
            "OCTANTS_OFFLINE_CACHE": "1",
            "OCTANTS_OFFLINE_CACHE_FILE_PATH": str(tmp_path / "kept"),
            # Python's own cache looks at times of files, which may be equal here.
            "PYTHONDONTWRITEBYTECODE": "1",
            **environment,
        }
        command = [sys.executable, str(tmp_path / "driver.py"), *(f"m{i}" for i in range(len(texts)))]
        done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path, check=False, timeout=600)
        assert done.returncode == 0, done.stderr
        *printed, said = done.stdout.splitlines()
        results, counts = json.loads(said)
        return results, counts, printed, done.stderr

    return run


def differing(results, which):
    expected = {name: case[1 + which] for name, case in MODULES.items()}
    return {n: (r, expected[n]) for n, r in zip(MODULES, results, strict=True) if r != expected[n]}


def lowered(counts):
    """The modules for which something was parsed and lowered."""
    totals = [0, *(c["lowered"] for c in counts)]
    return {name for name, before, after in zip(MODULES, totals, totals[1:], strict=False) if after > before}


def test_whatever_is_changed_the_new_result_comes(run):
    versions = [[version(case[0], which) for case in MODULES.values()] for which in (0, 1)]
    results, cold, _, _ = run(versions[0])
    assert differing(results, 0) == {}
    assert cold[-1]["recalled"] == 0

    results, warm, _, _ = run(versions[0])
    assert differing(results, 0) == {}
    assert lowered(warm) == set()
    assert (warm[-1]["recalled"], warm[-1]["misses"]) == (cold[-1]["lowered"], 0)

    results, changed, _, _ = run(versions[1])
    assert differing(results, 1) == {}
    # Each change was noticed, but those that change no code: fields are found again by name.
    assert set(MODULES) - lowered(changed) == {"the place of a field", "which field a name is"}

    # What was compiled after a difference was met is recalled like anything else.
    results, warm, _, _ = run(versions[1])
    assert differing(results, 1) == {}
    assert lowered(warm) == set()

    # None of the two versions, which are both kept where sources are the same, is taken for the other.
    for which in (0, 1):
        results, _, _, _ = run(versions[which])
        assert differing(results, which) == {}


def test_what_is_said_while_compiling_is_said_again(run):
    text = (
        HEAD
        + """
@qd.kernel
def result() -> qd.i32:
    n = 0
    qd.static_print("a line")
    for i in qd.static(range(40)):
        n += i
    return n
"""
    )
    for lowered in (1, 0):
        results, counts, printed, err = run([text])
        assert (results, counts[-1]["lowered"]) == ([780], lowered)
        assert printed == ["a line"]
        assert err.count("m0.py:14: UserWarning") == 1


def test_modules_that_python_has_compiled_are_the_same(run, tmp_path):
    texts = [version(case[0], 0) for case in MODULES.values()]
    run(texts, PYTHONDONTWRITEBYTECODE="")
    assert len(list(tmp_path.rglob("m*.pyc"))) == len(texts)
    results, counts, _, _ = run(texts, PYTHONDONTWRITEBYTECODE="")
    assert differing(results, 0) == {}
    assert lowered(counts) == set()


def test_options_that_matter_are_looked_at(run):
    text = (
        HEAD
        + """
@qd.kernel
def result() -> qd.f64:
    return 1.0 / 3
"""
    )
    single, double = float(1 / (3 * (1 + 2**-25))), 1 / 3
    assert run([text])[0][0] == pytest.approx(single, rel=1e-7)
    results, counts, _, _ = run([text], OCTANTS_DEFAULT_FP="f64")
    assert (results, counts[-1]["lowered"]) == ([double], 1)
    assert run([text], OCTANTS_RANDOM_SEED="7")[1][-1]["lowered"] == 0
    assert run([text], OCTANTS_DEBUG="1")[1][-1]["lowered"] == 1


def test_many_values_of_a_compile_time_argument(run):
    text = (
        HEAD
        + """
@qd.kernel
def get(n: qd.template()) -> qd.i32:
    return n

def make(n):
    @qd.kernel
    def k() -> qd.i32:
        return n

    return k

def result():
    return sum(get(n) + make(n)() for n in range(40))
"""
    )
    for lowered in (80, 0):
        results, counts, _, _ = run([text])
        assert (results, counts[-1]["lowered"]) == ([2 * sum(range(40))], lowered)


def test_traces_that_are_damaged_or_lead_nowhere_are_made_anew(run, tmp_path):
    text = HEAD + MODULES["a function's text, two calls deep"][0].replace("{{1|2}}", "1")
    run([text])
    (trace,) = tmp_path.rglob("*.traces")
    whole = trace.read_bytes()
    for damage in (whole[:-3], whole[:200] + bytes([whole[200] ^ 1]) + whole[201:], b""):
        trace.write_bytes(damage)
        results, counts, _, _ = run([text])
        assert (results, counts[-1]["lowered"], counts[-1]["damaged"], counts[-1]["hits"]) == ([20], 1, 1, 1)
    assert run([text])[1][-1]["lowered"] == 0
    for kernel in (tmp_path / "kept").rglob("*"):
        if kernel.is_file() and kernel != trace:
            kernel.unlink()
    results, counts, _, _ = run([text])
    assert (results, counts[-1]["lowered"], counts[-1]["stored"]) == ([20], 1, 1)
    assert run([text])[1][-1]["lowered"] == 0


def test_why_a_kernel_is_compiled_is_said_to_who_asks(run):
    texts = [version(MODULES[name][0], 0) for name in MODULES]
    changed = [version(MODULES[name][0], 1) for name in MODULES]
    said = dict(zip(MODULES, range(len(MODULES)), strict=True))
    ask = {"OCTANTS_LOG_LEVEL": "debug"}
    wanted = {
        "a global": "value of type int is another",
        "a function's text, two calls deep": "the text or the signature of `inner` changed",
        "a function's meaning": "text or the signature of",
        "a class attribute": "a value of type int is another",
        "one object or two": "`b` in `result` is another object",
    }
    subset = [texts[said[name]] for name in wanted]
    _, _, _, err = run(subset, **ask)
    assert err.count("is compiled: it was not compiled before") == len(wanted)
    _, _, _, err = run(subset, **ask)
    assert "is compiled" not in err
    _, _, _, err = run([changed[said[name]] for name in wanted], **ask)
    reasons = [line.split("is compiled: ", 1)[1] for line in err.splitlines() if "is compiled: " in line]
    for (name, part), reason in zip(wanted.items(), reasons, strict=True):
        assert part in reason, name
