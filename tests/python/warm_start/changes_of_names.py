"""The meaning of names in a kernel: globals, functions, defaults, closures, objects set by decorators and modules."""

# As `test_warm_start.py` reads them: a module in two versions, and the results of both.
CHANGES = {
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
    "a text that is no file, as notebooks keep it": (
        """
import linecache

TEXT = "@qd.kernel\\ndef k() -> qd.i32:\\n    return {{1|2}}\\n"
linecache.cache["<a cell>"] = (len(TEXT), None, TEXT.splitlines(True), "<a cell>")
scope = {"qd": qd}
exec(compile(TEXT, "<a cell>", "exec"), scope)

def result():
    return scope["k"]()
""",
        1,
        2,
    ),
}
