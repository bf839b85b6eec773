"""Types: of numbers, parameters, results and members, vectors, structs, dataclasses and enums."""

# As `test_warm_start.py` reads them: a module in two versions, and the results of both.
CHANGES = {
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
}
