"""Values at compile time: attributes of classes and objects, containers, text, template arguments."""

# As `test_warm_start.py` reads them: a module in two versions, and the results of both.
CHANGES = {
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
}
