"""`g.update(...)`: the meaning of names passed to `qd.graph.capture`."""

import dataclasses

import pytest

import octants as qd

A = qd.types.ndarray(dtype=qd.f32, ndim=1)


@pytest.fixture(params=[False, True], ids=["in order", "streams"], autouse=True)
def program(request):
    qd.init(arch=qd.cpu, cpu_streams=request.param)
    yield
    qd.reset()


@qd.kernel
def add(x: A, y: A, k: qd.f32):
    for i in x:
        x[i] += k * y[i]


@qd.kernel
def scale(x: A, s: qd.f32):
    for i in x:
        x[i] *= s


def array(value, n=50):
    x = qd.ndarray(qd.f32, n)
    x.fill(value)
    return x


def held(x):
    values = x.to_numpy()
    assert (values == values.flat[0]).all()
    return float(values.flat[0])


@dataclasses.dataclass
class Moving:
    x: A
    v: A
    k: qd.f32


@dataclasses.dataclass
class Body:
    at: Moving
    mass: A


@qd.kernel
def move(m: Moving, n: qd.f32):
    for i in m.x:
        m.x[i] += m.k * n


@qd.kernel
def move_body(b: Body):
    for i in b.at.x:
        b.at.x[i] += b.mass[i]


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    x: A


@qd.kernel
def double(s: Fixed):
    for i in s.x:
        s.x[i] *= 2


@qd.data_oriented
class Holder:
    def __init__(self, x):
        self.x = x

    @qd.kernel
    def step(self):
        for i in self.x:
            self.x[i] += 1


def test_capture_names_survive_updates_by_parameter():
    x, y, z = array(0), array(0), array(0)
    with qd.graph.capture(state=x) as g:
        add(x, x, 0.0)
        x.fill(1.0)
    g.update(x=y)
    g.update(state=z)
    g.launch()
    assert (held(x), held(y), held(z)) == (0, 0, 1)
    with qd.graph.capture(a=x, b=x) as g:
        x.fill(2.0)
        add(x, x, 1.0)
    g(a=y)
    g(b=z)
    assert (held(x), held(y), held(z)) == (0, 4, 4)
    with pytest.raises(TypeError, match="`b` holds an array that an update of another name replaces"):
        g.update(a=y, b=x)
    with pytest.raises(TypeError, match="`y` and `b` are one argument of a captured launch"):
        g.update(y=y, b=z)
    with qd.graph.capture(s=y) as g:
        scale(x, 2.0)
    with pytest.raises(TypeError, match="the object named `s` is not an argument"):
        g.update(s=3.0)


def test_members_of_a_named_object_are_replaced():
    p, q = Moving(array(0), array(0), 3), Moving(array(1), array(1), 5)
    with qd.graph.capture(state=p) as g:
        move(p, 1.0)
        scale(p.x, 2.0)
        p.v.fill(9)
    for state, expected in ((q, 12), (p, 6), (q, 34)):
        g(state=state)
        assert held(state.x) == expected
        assert held(state.v) == 9
    b, c = Body(p, array(1)), Body(q, array(2))
    with qd.graph.capture(body=b) as g:
        move_body(b)
        move(b.at, 1.0)
        scale(b.mass, 1.0)
    g(body=c)
    assert (held(p.x), held(q.x)) == (6, 41)
    with pytest.raises(TypeError, match=r"captured launches use `body.at`: .* a 'Moving' object without it"):
        g.update(body=q)
    h, i = Holder(array(1)), Holder(array(2))
    with qd.graph.capture(it=h) as g:
        h.step()
        scale(h.x, 2.0)
    g(it=i)
    assert (held(h.x), held(i.x)) == (1, 6)
    s, t = Fixed(array(3)), Fixed(array(4))
    with qd.graph.capture(s=s) as g:
        s.x.fill(1.0)
        double(s)
    g(s=t)
    assert (held(s.x), held(t.x)) == (3, 2)
    twice = Moving(h.x, h.x, 1)
    with qd.graph.capture(state=twice) as g:
        scale(h.x, 1.0)
    g.update(state=Moving(i.x, i.x, 1))
    with pytest.raises(TypeError, match=r"`state.x` and `state.v` were one array when they were captured"):
        g.update(state=p)


def test_a_named_member_is_replaced_in_dataclasses():
    y, z, w = array(5), array(10), array(20)
    b = Body(Moving(array(0), array(0), 3), array(1))
    x = b.at.x
    with qd.graph.capture(x=x, body=b) as g:
        move_body(b)
        move(b.at, 2.0)
        scale(x, 2.0)
        x.fill(0.5)
        add(x, x, 1.0)
    g(x=z)
    assert (held(x), held(z)) == (0, 1)
    assert b.at.x is x
    c = Body(Moving(w, array(0), 1), array(3))
    with pytest.raises(TypeError, match="`body` holds an array that an update of another name replaces"):
        g.update(x=y, body=c)
    g(x=w, body=c)
    assert (held(x), held(z), held(w), held(y)) == (0, 1, 1, 5)
    h = Holder(x)
    with qd.graph.capture(x=x) as g:
        h.step()
        scale(x, 2.0)
    with pytest.raises(TypeError, match="`step` was given a 'Holder' object that holds `x`: only members of dataclass"):
        g.update(x=z)
    g.launch()
    assert (held(x), held(z)) == (2, 1)


def test_quantized_fields_and_those_of_an_ended_program_may_have_names():
    number = qd.types.quant.int(6)
    old = qd.field(qd.f32, 3)

    def made():
        field, packed = qd.field(number), qd.BitpackedFields(32)
        packed.place(field)
        qd.root.dense(qd.i, 8).place(packed)
        return field

    qd.init(arch=qd.cpu)
    x, a, b = array(1), made(), made()
    with qd.graph.capture(a=a, old=Holder(old)) as g:
        a.fill(5)
        scale(x, 2.0)
    g(a=b)
    assert a.to_numpy().tolist() == [0] * 8
    assert b.to_numpy().tolist() == [5] * 8


def test_updating_arrays_that_became_one_is_refused():
    x, y, z = array(0), array(0), array(0)
    with qd.graph.capture(a=x, b=y) as g:
        x.fill(2.0)
        y.fill(3.0)
    g(a=y)
    g(a=y)
    with pytest.raises(TypeError, match="an update has made `b` an array that the graph also fills or copies"):
        g.update(b=x)
    g.launch()
    assert (held(x), held(y)) == (0, 3)
    with qd.graph.capture(a=x) as g:
        x.fill(2.0)
        y.fill(3.0)
    g(a=z)
    g(a=y)
    assert (held(x), held(y), held(z)) == (0, 3, 2)
    with pytest.raises(TypeError, match="an update has made `a` an array"):
        g.update(a=z)


def test_update_replaces_targets_of_fills_and_copies():
    x, y, z, other = (qd.ndarray(qd.f32, 4) for _ in range(4))
    z.fill(5.0)
    with qd.graph.capture(state=x) as g:
        x.copy_from(z)
        add(x, z, 2.0)
        y.copy_from(x)
        x.fill(1.0)
    g.launch()
    assert y[0] == 15.0
    assert x[0] == 1.0
    x.fill(-1.0)
    g(state=other)
    assert other[3] == 1.0
    assert y[3] == 15.0
    assert x[0] == -1.0
    # One update swaps the two.
    with qd.graph.capture(a=x, b=other) as swap:
        x.fill(2.0)
        other.fill(3.0)
    swap(a=other, b=x)
    assert x[0] == 3.0
    assert other[0] == 2.0
    with pytest.raises(TypeError, match=r"the graph fills or copies `state`, an ndarray of f32 with shape \(4,\)"):
        g.update(state=qd.ndarray(qd.f32, 5))
    with pytest.raises(RuntimeError, match="`update` has replaced an array that it fills or copies"):
        g.grad()


def test_update_replaces_fields_that_are_filled():
    x, y = qd.field(qd.i32, 6), qd.field(qd.i32, 6)
    v = qd.Vector.field(2, qd.i32, 6)

    @qd.kernel
    def double(x: qd.template()):
        for i in x:
            x[i] *= 2

    with qd.graph.capture(state=x) as g:
        x.fill(4)
        double(x)
    g(state=y)
    assert y.to_numpy().tolist() == [8] * 6
    assert x.to_numpy().tolist() == [0] * 6
    with pytest.raises(TypeError, match=r"cannot be replaced by a field of i32\[2\]"):
        g.update(state=v)
    g.launch()
    assert y.to_numpy().tolist() == [8] * 6
