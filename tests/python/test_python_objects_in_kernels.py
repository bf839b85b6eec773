"""Kernels do not change Python objects: lists, dicts and sets that they read at compile time."""

import enum

import pytest

import octants as qd


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


numbers, table, kinds = [1, 2], {"a": 1}, {1}


@qd.kernel
def append():
    numbers.append(3)


@qd.kernel
def append_run_time_value(n: qd.i32):
    numbers.append(n)


@qd.kernel
def append_statically():
    qd.static(numbers.append(7))


@qd.kernel
def sort():
    numbers.sort()


@qd.kernel
def update():
    table.update({"b": 1})


@qd.kernel
def add():
    kinds.add(2)


def test_methods_that_change_containers_are_refused():
    for kernel, what in (
        (append, "`append` would change a list"),
        (lambda: append_run_time_value(1), "`append` would change a list"),
        (append_statically, "`append` would change a list"),
        (sort, "`sort` would change a list"),
        (update, "`update` would change a dict"),
        (add, "`add` would change a set"),
    ):
        with pytest.raises(qd.OctantsSyntaxError, match=what):
            kernel()
    assert (numbers, table, kinds) == ([1, 2], {"a": 1}, {1})


def test_methods_that_read_and_lists_of_variables_work():
    @qd.kernel
    def read(n: qd.i32) -> qd.i32:
        items = [n]
        items.append(n + 1)
        items.insert(0, 5)
        last = items.pop()
        return numbers.index(2) + numbers.count(1) * 10 + table.get("a") * 100 + last * 1000 + items[0] * 10000

    assert read(3) == 1 + 10 + 100 + 4000 + 50000


def test_assignments_to_python_objects_are_refused():
    @qd.data_oriented
    class Solver:
        def __init__(self):
            self.x = 1

        @qd.kernel
        def set(self):
            self.x = 4

    @qd.kernel
    def set_item():
        table["b"] = 3

    @qd.kernel
    def set_known_item():
        table["a"] = 3

    @qd.kernel
    def set_list_item():
        numbers[0] = 5

    @qd.kernel
    def set_component(v: qd.math.vec3):
        v[0] = 1.0

    @qd.data_oriented
    class Pair:
        def __init__(self):
            self.x, self.y = qd.field(qd.f32, 2), qd.field(qd.f32, 2)

        @qd.kernel
        def set(self):
            self.x = self.y

    for call, message in (
        (Pair().set, r"`self\.x` cannot be assigned in a kernel: it is a field"),
        (set_item, r'`table\["b"\]` cannot be assigned in a kernel: it is an item of an object of type dict'),
        (set_known_item, r'`table\["a"\]` cannot be assigned in a kernel'),
        (set_list_item, r"`numbers\[0\]` cannot be assigned in a kernel: it is an int, known at compile time"),
        (Solver().set, r"`self\.x` cannot be assigned in a kernel: it is an int, known at compile time"),
        (
            lambda: set_component(qd.Vector([1.0, 2.0, 3.0])),
            r"`v\[0\]` cannot be assigned in a kernel: the kernel argument `v` is immutable",
        ),
    ):
        with pytest.raises(qd.OctantsSyntaxError, match=message):
            call()
    assert table == {"a": 1}


limit, image = 3, None


@qd.kernel
def update_limit():
    limit += 1  # noqa: F823, F841


@qd.kernel
def update_image():
    image += 1  # noqa: F823, F841


def test_updates_of_globals():
    global image
    image = qd.field(qd.i32, 3)
    with pytest.raises(qd.OctantsSyntaxError, match="`limit` cannot be updated in a kernel: it is an int from outside"):
        update_limit()
    with pytest.raises(qd.OctantsSyntaxError, match=r"`image` cannot be updated in a kernel: .*\n.*its elements"):
        update_image()
    image = None


def test_a_dict_needs_a_known_key():
    @qd.kernel
    def look_up(n: qd.i32) -> qd.i32:
        t = {1: 2, 3: 4}
        return t[n]

    with pytest.raises(qd.OctantsTypeError, match="indexed by a key that is known at compile time"):
        look_up(3)


class Flag(enum.IntFlag):
    A = 1
    B = 2


def test_operators_on_members_of_enumerations_give_members():
    @qd.kernel
    def combined() -> qd.i32:
        return (Flag.A | Flag.B).value * 10 + (Flag.A if qd.static(True) else Flag.B).value + (Flag.A | Flag.B)

    @qd.kernel
    def chosen() -> qd.i32:
        return (Flag.B if Flag.A == 1 else Flag.A).value

    assert combined() == 30 + 1 + 3
    assert chosen() == 2


@qd.data_oriented
class Affine:
    """A function `factor * x + offset`, with operators that kernels call."""

    def __init__(self, factor):
        self.factor = factor
        self.offset = qd.field(qd.i32, ())

    @qd.func
    def __add__(self, x):
        return self.factor * x + self.offset[None]

    @qd.func
    def __rsub__(self, x):
        return 100 * x + self.factor

    @qd.func
    def __mul__(self, other: qd.template()):
        return self.factor * other.factor

    @qd.func
    def __matmul__(self, x):
        return x.sum() * self.factor

    @qd.func
    def __lt__(self, x):
        return self.factor < x

    @qd.func
    def __neg__(self):
        return -self.factor

    @qd.func
    def __getitem__(self, i):
        return self.factor * i

    @qd.func
    def __len__(self):
        return self.factor + 1

    @qd.func
    def __abs__(self):
        return self.offset[None] + 2


def test_operators_that_a_class_defines_as_functions_are_called():
    a, b = Affine(3), Affine(5)
    a.offset[None] = 7

    @qd.kernel
    def arithmetic(x: qd.i32) -> (qd.i32, qd.i32, qd.i32, qd.i32, qd.i32):
        return a + x, x - a, a * b, a @ qd.Vector([x, 1]), -a

    @qd.kernel
    def by_function() -> (qd.i32, qd.i32):
        return len(a), abs(a)

    @qd.kernel
    def of_argument(f: qd.template(), x: qd.i32) -> (qd.i32, qd.i32, bool, bool, bool):
        return f + 1 + x, f[x], f < 3, f < 4, 2 > f

    assert tuple(arithmetic(2)) == (13, 203, 15, 9, -3)
    assert tuple(by_function()) == (4, 9)
    a.offset[None] = 0
    assert tuple(arithmetic(2)) == (6, 203, 15, 9, -3)
    assert tuple(of_argument(a, 2)) == (5, 6, False, True, False)
    assert tuple(of_argument(b, 2)) == (7, 10, False, False, False)


def test_operators_that_a_class_lacks_are_refused():
    a = Affine(3)

    @qd.kernel
    def missing(x: qd.i32) -> qd.i32:
        return a / x

    with pytest.raises(qd.OctantsTypeError, match="unsupported operand type for `/`: an object of type Affine"):
        missing(2)
