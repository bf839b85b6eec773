"""Fields and arrays: shapes, types, layouts, the array that a name denotes, shared memory, the store of a gradient."""

# As `test_warm_start.py` reads them: a module in two versions, and the results of both.
CHANGES = {
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
    "loops that a tape records": (
        """
x = qd.field(qd.f32, shape=4, needs_grad=True)
loss = qd.field(qd.f32, shape=(), needs_grad=True)
n = qd.field(qd.i32, shape=())

@qd.kernel
def add():
    for i in range(n[None]):
        loss[None] += {{2|3}} * x[i]

def result():
    n[None] = 3
    with qd.ad.Tape(loss):
        add()
    gradient = x.grad.to_numpy().tolist()
    try:
        with qd.ad.Tape(loss):
            add()
            n[None] = 2
    except RuntimeError as error:
        return [*gradient, "would run 2 times now" in str(error)]
""",
        [2, 2, 2, 0, True],
        [3, 3, 3, 0, True],
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
}
