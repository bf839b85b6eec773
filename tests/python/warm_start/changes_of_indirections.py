"""Answers computed by user code: attributes, operators and items by special methods, partial functions, modules under
other names, combinations of classes."""

# As `test_warm_start.py` reads them: a module in two versions, and the results of both.
CHANGES = {
    "a constant of a module of a package, under another name": (
        """
import xml.dom.minidom as c

c.OCTANTS_SIZE = {{7|8}}

@qd.kernel
def result() -> qd.i32:
    return c.OCTANTS_SIZE
""",
        7,
        8,
    ),
    "an attribute that a module computes": (
        """
import types

lazy = types.ModuleType("lazy")
lazy.__getattr__ = lambda name: {"computed": {{7|8}}}[name]

@qd.kernel
def result() -> qd.i32:
    return lazy.computed
""",
        7,
        8,
    ),
    "a default": (
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
    "a default of a method": (
        """
@qd.data_oriented
class Box:
    @qd.func
    def shift(self, a, by=1):
        return a + by

    @qd.kernel
    def get(self) -> qd.i32:
        return self.shift(1)

Box.shift.__wrapped__.__defaults__ = ({{1|2}},)

def result():
    return Box().get()
""",
        2,
        3,
    ),
    "the order of base classes": (
        """
class A:
    SIZE = 4

class B:
    SIZE = 6

class Box({{A, B|B, A}}):
    pass

@qd.kernel
def result() -> qd.i32:
    return Box.SIZE
""",
        4,
        6,
    ),
    "a method that a base class gains": (
        """
class Base:
    @qd.func
    def size(self):
        return 1

class Middle(Base):
    pass

@qd.data_oriented
class Box(Middle):
    @qd.kernel
    def get(self) -> qd.i32:
        return self.size()

@qd.func
def larger(self):
    return 2

if {{False|True}}:
    Middle.size = larger

def result():
    return Box().get()
""",
        1,
        2,
    ),
    "the class of an object": (
        """
class A:
    size = 1

class B:
    size = 2

box = A()
box.__class__ = {{A|B}}

@qd.kernel
def result() -> qd.i32:
    return box.size
""",
        1,
        2,
    ),
    "an attribute by __getattr__": (
        """
class Box:
    def __getattr__(self, name):
        return {"size": {{4|6}}}[name]

box = Box()

@qd.kernel
def result() -> qd.i32:
    return box.size
""",
        4,
        6,
    ),
    "an attribute by a descriptor": (
        """
class Size:
    def __get__(self, instance, owner):
        return {{4|6}}

class Box:
    size = Size()

box = Box()

@qd.kernel
def result() -> qd.i32:
    return box.size + Box.size
""",
        8,
        12,
    ),
    "an attribute in a slot": (
        """
class Box:
    __slots__ = ("size",)

box = Box()
box.size = {{4|6}}

@qd.kernel
def result() -> qd.i32:
    return box.size
""",
        4,
        6,
    ),
    "a static method and one of a class": (
        """
class Box:
    N = {{1|2}}

    @staticmethod
    def fixed():
        return {{10|20}}

    @classmethod
    def own(cls):
        return cls.N

@qd.kernel
def result() -> qd.i32:
    return qd.static(Box.fixed() + Box.own())
""",
        11,
        22,
    ),
    "special methods": (
        """
class Box:
    def __len__(self):
        return {{1|2}}

    def __getitem__(self, i):
        return {{10|20}}

    def __add__(self, other):
        return {{100|200}}

    def __contains__(self, item):
        return {{True|False}}

box = Box()

@qd.kernel
def result() -> qd.i32:
    n = 0
    n += qd.static(len(box) + box[0] + (box + 1))
    if qd.static(3 in box):
        n += 1000
    return n
""",
        1111,
        222,
    ),
    "the truth of an object": (
        """
class Box:
    def __bool__(self):
        return {{True|False}}

box = Box()

@qd.kernel
def result() -> qd.i32:
    n = 1
    if qd.static(not box):
        n = 2
    return n
""",
        1,
        2,
    ),
    "equality": (
        """
class Box:
    def __eq__(self, other):
        return {{True|False}}

    __hash__ = None

box = Box()

@qd.kernel
def result() -> qd.i32:
    n = 1
    if qd.static(box == 3):
        n = 2
    return n
""",
        2,
        1,
    ),
    "an iterator": (
        """
class Box:
    def __iter__(self):
        return iter([1, {{2|3}}])

box = Box()

@qd.kernel
def result() -> qd.i32:
    n = 0
    for i in qd.static(box):
        n += i
    return n
""",
        3,
        4,
    ),
    "a partial function": (
        """
import functools

scaled = functools.partial(lambda a, b: a * b, {{2|3}})

@qd.kernel
def result() -> qd.i32:
    return qd.static(scaled(5))
""",
        10,
        15,
    ),
    "a function that remembers": (
        """
import functools

@functools.lru_cache
def size():
    return {{2|3}}

@qd.kernel
def result() -> qd.i32:
    return qd.static(size())
""",
        2,
        3,
    ),
    "what a plain function reads": (
        """
SIZES = {"a": {{2|3}}}

def size():
    return SIZES["a"]

@qd.kernel
def result() -> qd.i32:
    return qd.static(size())
""",
        2,
        3,
    ),
    "functions in a tuple": (
        """
@qd.func
def one(a):
    return a + 1

@qd.func
def two(a):
    return a + 2

ALL = ({{one, two|two, two}})

@qd.kernel
def result() -> qd.i32:
    n = 0
    for f in qd.static(ALL):
        n = n * 10 + f(n)
    return n
""",
        1 * 10 + 3,
        2 * 10 + 4,
    ),
    "a numpy scalar": (
        """
N = np.float32({{3|4}})

@qd.kernel
def result() -> qd.f32:
    return N / 2
""",
        1.5,
        2,
    ),
    "a number or a truth": (
        """
N = {{1|True}}

@qd.kernel
def result() -> qd.i32:
    n = 1
    if qd.static(isinstance(N, bool)):
        n = 2
    return n
""",
        1,
        2,
    ),
    "the order of a dict": (
        """
SIZES = dict([{{("a", 1), ("b", 2)|("b", 2), ("a", 1)}}])

@qd.kernel
def result() -> qd.i32:
    n = 0
    for name in qd.static(SIZES):
        n = n * 10 + qd.static(SIZES[name])
    return n
""",
        12,
        21,
    ),
    "a default of a dataclass": (
        """
@dataclasses.dataclass(frozen=True)
class Params:
    a: int = {{3|4}}

PARAMS = Params()

@qd.kernel
def result() -> qd.i32:
    return PARAMS.a
""",
        3,
        4,
    ),
    "a method of a struct": (
        """
@qd.dataclass
class S:
    a: qd.i32

    @qd.func
    def get(self):
        return self.a + {{1|2}}

@qd.kernel
def result() -> qd.i32:
    return S(1).get()
""",
        2,
        3,
    ),
    "a text that is printed": (
        """
NAME = "{{a|b}}"

@qd.kernel
def say() -> qd.i32:
    return qd.static(len(f"{NAME}") + (NAME == "b"))

def result():
    return say()
""",
        1,
        2,
    ),
}
