"""Dataclasses of arrays and numbers as arguments. A reused dataclass is recognized, unless it has changed."""

from __future__ import annotations

import dataclasses
import warnings
import weakref

import numpy as np
import pytest
from call_kernels import compiled

import octants as qd


def test_dataclasses_of_arrays_and_numbers():
    @dataclasses.dataclass
    class Inner:
        y: qd.types.NDArray[qd.f32, 1]

    @dataclasses.dataclass
    class State:
        x: qd.types.NDArray[qd.f32, 1]
        dt: qd.f32
        inner: Inner

    @qd.kernel
    def step(s: State):
        for i in s.x:
            s.x[i] += s.dt * s.inner.y[i]

    s = State(np.ones(3, np.float32), 0.5, Inner(np.full(3, 4, np.float32)))
    step(s)
    s.dt = 1.0
    step(s)
    assert s.x.tolist() == [7.0] * 3
    assert compiled(step) == 1
    with pytest.raises(RuntimeError, match="parameter `s` of kernel `step`"):
        step(3)


Line = qd.types.ndarray(dtype=qd.i32, ndim=1)


@dataclasses.dataclass(frozen=True)
class FrozenInner:
    y: Line
    scale: qd.i32


@dataclasses.dataclass(frozen=True)
class FrozenOuter:
    x: Line
    inner: FrozenInner


@dataclasses.dataclass
class Open:
    x: Line
    scale: qd.i32


@qd.kernel
def into(before: qd.i32, s: FrozenOuter, after: Line):
    for i in s.x:
        s.x[i] += before
        s.inner.y[i] += s.inner.scale
        after[i] += 1


@qd.kernel
def open_into(s: Open):
    for i in s.x:
        s.x[i] += s.scale


def lines(count, extent=4):
    return [qd.ndarray(qd.i32, extent) for _ in range(count)]


def test_a_reused_frozen_dataclass_is_recognized():
    a, b, c, d, after = lines(5)
    one, other = FrozenOuter(a, FrozenInner(b, 10)), FrozenOuter(c, FrozenInner(d, 20))
    for _ in range(4):
        into(1, one, after)
    into(1, other, after)
    into(1, one, after)
    for _ in range(3):
        into(2, other, a)
    assert [x[0] for x in (a, b, c, d, after)] == [5 + 3, 50, 1 + 6, 20 + 60, 6]


def test_an_object_at_a_reused_address_is_not_confused():
    (after,) = lines(1)
    for n in range(20):
        x, y = lines(2, extent=3 + n % 2)
        s = FrozenOuter(x, FrozenInner(y, n))
        for _ in range(3):
            into(n, s, qd.ndarray(qd.i32, 8))
        assert (x[2], y[2]) == (3 * n, 3 * n)
        del s, x, y
    assert after[0] == 0


def test_a_mutable_dataclass_is_read_at_each_launch():
    a, b = lines(2)
    s = Open(a, 1)
    for _ in range(3):
        open_into(s)
    s.scale = 100
    open_into(s)
    s.x = b
    open_into(s)
    assert (a[0], b[0]) == (103, 100)


@dataclasses.dataclass
class OpenInner:
    y: Line
    scale: qd.i32


@dataclasses.dataclass
class OpenOuter:
    x: Line
    inner: OpenInner
    shift: qd.i32 = 7


class Other(OpenInner):
    """Has no members of its own."""


def changes():
    """Changes of an object between two calls: each takes the object and returns a function that undoes the change."""

    def assign(name, value):
        def change(s):
            *way, last = name.split(".")
            for step in way:
                s = getattr(s, step)
            old = getattr(s, last)
            setattr(s, last, value())
            return lambda: setattr(s, last, old)

        return change

    def replace_dict(s):
        old = s.__dict__
        s.__dict__ = old | {"shift": 1000}
        return lambda: setattr(s, "__dict__", old)

    def hide_by_property(s):
        OpenInner.scale = property(lambda self: 5000)
        return lambda: delattr(OpenInner, "scale")

    def read_otherwise(s):
        OpenInner.__getattribute__ = lambda self, name: 900 if name == "scale" else object.__getattribute__(self, name)
        return lambda: delattr(OpenInner, "__getattribute__")

    def leave_to_class(s):
        old = s.__dict__.pop("shift")
        return lambda: s.__dict__.update(shift=old)

    return [
        assign("shift", lambda: 100),
        assign("x", lambda: lines(1)[0]),
        assign("inner.scale", lambda: -3),
        assign("inner.y", lambda: lines(1)[0]),
        assign("inner", lambda: OpenInner(lines(1)[0], 11)),
        assign("inner", lambda: Other(lines(1)[0], 12)),
        replace_dict,
        hide_by_property,
        read_otherwise,
        leave_to_class,
    ]


@pytest.mark.parametrize("number", range(len(changes())))
@pytest.mark.parametrize("calls", [1, 2, 3, 6])
def test_a_changed_dataclass_is_never_reused(number, calls):
    @qd.kernel
    def add(s: OpenOuter):
        for i in s.x:
            s.x[i] += s.shift
            s.inner.y[i] += s.inner.scale

    def call_and_check():
        before = s.x[1], s.inner.y[1]
        add(s)
        assert (s.x[1], s.inner.y[1]) == (before[0] + s.shift, before[1] + s.inner.scale)

    x, y = lines(2)
    s = OpenOuter(x, OpenInner(y, 3))
    for _ in range(3):
        for _ in range(calls):
            call_and_check()
        undo = changes()[number](s)
        for _ in range(calls):
            call_and_check()
        undo()
    call_and_check()


def test_a_dataclass_argument_does_not_keep_its_arrays_alive():
    (x,) = lines(1)
    s = Open(x, 1)
    for _ in range(3):
        open_into(s)
    gone = weakref.ref(x)
    s.x = lines(1)[0]
    del x
    assert gone() is None
    open_into(s)
    assert s.x[0] == 1


def test_members_of_a_dataclass_live_until_the_launch_ends():
    @dataclasses.dataclass
    class Half:
        inner: FrozenInner
        n: qd.i32

    class Vector:
        """Notifies an observer when it is read."""

        def __iter__(self):
            self.read()
            return iter((1.0, 2.0))

        def read(self):
            pass

    @qd.kernel
    def add(s: Half, v: qd.types.vector(2, qd.f32)):
        for i in range(s.n):
            s.inner.y[i] += qd.i32(v[1])

    x, other = lines(2)
    s, v = Half(FrozenInner(x, 0), 3), Vector()
    for _ in range(3):
        add(s, v)
    assert x.to_numpy().tolist()[:3] == [6, 6, 6]
    lives = weakref.ref(x)
    del x
    alive = []

    def exchange():
        s.inner = FrozenInner(other, 0)
        alive.append(lives() is not None)

    v.read = exchange
    add(s, v)
    assert alive == [True]
    assert lives() is None


def test_a_frozen_dataclass_with_other_arrays_is_read():
    x, y = np.zeros(4, np.int32), np.zeros(4, np.int32)
    s, (after,) = FrozenOuter(x, FrozenInner(y, 3)), lines(1)
    for _ in range(3):
        into(1, s, after)
    assert (x[0], y[0]) == (3, 9)
    # Its memory moves.
    x.resize(64, refcheck=False)
    x[:] = 0
    y.resize(64, refcheck=False)
    into(1, s, qd.ndarray(qd.i32, 64))
    assert x.tolist() == [1] * 64


def test_arrays_of_a_dataclass_whose_program_has_ended_are_refused():
    a, b, after = lines(3)
    s = FrozenOuter(a, FrozenInner(b, 1))
    for _ in range(3):
        into(1, s, after)
    qd.init(arch=qd.cpu)
    with pytest.raises(RuntimeError):
        into(1, s, lines(1)[0])


def test_an_object_of_another_class_is_of_the_wrong_type():
    @dataclasses.dataclass
    class One:
        n: qd.i32

    @dataclasses.dataclass
    class Other:
        n: qd.i32

    @qd.kernel
    def read(s: One) -> qd.i32:
        return s.n

    assert read(One(3)) == 3
    for wrong in (Other(3), 3, None):
        with pytest.raises(qd.OctantsRuntimeTypeError, match="needed .*One.* != provided"):
            read(wrong)


def test_members_that_a_kernel_does_not_read_may_be_of_any_type():
    @dataclasses.dataclass
    class State:
        x: qd.types.NDArray[qd.f32, 1]
        n: int
        v: qd.types.vector(2, qd.f32)
        last: float

    @qd.kernel
    def write(s: State):
        s.x[0] = s.last

    @qd.kernel
    def count(s: State) -> qd.i32:
        return s.n

    x = qd.ndarray(qd.f32, 3)
    bad, good = State(x, None, "none", 2.0), State(x, 7, [1.0, 2.0], 3.0)
    for state in (bad, bad, bad, good, good, good, bad):
        write(state)
        assert x[0] == state.last
    for _ in range(3):
        with pytest.raises(qd.OctantsRuntimeTypeError, match="required type i32 .parameter `s.n` of kernel `count`"):
            count(bad)
        assert count(good) == 7
    good.n = 2.5
    with pytest.raises(qd.OctantsRuntimeTypeError, match="parameter `s.n`"):
        count(good)


def test_a_dataclass_as_a_template_argument_warns_once():
    @dataclasses.dataclass(frozen=True)
    class Sizes:
        n: int

    @qd.data_oriented
    @dataclasses.dataclass(frozen=True)
    class Simulation:
        n: int

    @qd.kernel
    def read(sizes: qd.template()) -> qd.i32:
        return sizes.n

    sizes = Sizes(3)
    with pytest.warns(DeprecationWarning, match="Kernel 'read' parameter 'sizes': passing a @dataclasses.dataclass"):
        assert read(sizes) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(sizes) == 3
        assert read(Simulation(4)) == 4
