"""Structs: types, members, methods, fields of structs."""

import octants as qd

vec2 = qd.types.vector(2, qd.f32)


@qd.dataclass
class Body:
    pos: vec2
    mass: qd.f32

    @qd.func
    def energy(self, g):
        return self.mass * g * self.pos.y

    @qd.func
    def move(self, by: vec2):
        self.pos += by

    def scale(self, k):
        self.mass *= k
        return self.mass

    @qd.func
    def grow(self, k):
        if k < 0:
            return self.mass
        self.mass *= k
        return self.mass + self.pos.x


Pair = qd.types.struct(first=Body, count=qd.i32)
bodies = Body.field(shape=4)
pairs = Pair.field(shape=4)
sun = Body(pos=qd.Vector([0.0, 1.0]), mass=2.0)


@qd.kernel
def construct(m: qd.f32) -> Body:
    a = Body(vec2(1.0), m)
    b = Body(mass=m)
    c = Body()
    d = Pair(first=a, count=1)
    d.first.mass += 1
    e = qd.Struct(p=m, q=1)
    a.mass = b.mass + c.mass + e.p + e.q
    a.pos = d.first.pos
    return a


@qd.kernel
def methods(b: Body) -> qd.f32:
    c = b
    c.move(vec2(1.0))
    return c.energy(9.8) + c.scale(2) + b.energy(1)


@qd.kernel
def fields():
    for i in bodies:
        bodies[i].pos += bodies[i].mass
        bodies[i].move(vec2(1.0))
        a = bodies[i]
        bodies[i] = a
        bodies.mass[i] = 1.0
        pairs[i].first.pos.x = 2.0
        pairs[i].first = a
        pairs[i].count += 1


@qd.kernel
def constant() -> qd.f32:
    s = sun
    s.mass += 1
    return s.mass + sun.pos.y


@qd.func
def by_value(b: Body):
    b.mass = 0.0
    return b.mass


@qd.func
def by_reference(b: qd.template()):
    b.mass = 0.0


@qd.kernel
def passed(b: Body) -> qd.f32:
    c = b
    r = by_value(c)
    by_reference(c)
    by_reference(bodies[0])
    return r + c.mass


@qd.func
def hit(b: qd.template(), t):
    if t > 0:
        b.mass = t
        return 1
    return 0


@qd.kernel
def elements_to_an_outlined_function() -> qd.i32:
    c = Body()
    r = 0
    for i in bodies:
        r += hit(bodies[i], i) + hit(c, 1)
        bodies[i].grow(2)
        hit(pairs[i].first, i)
    return r


@qd.kernel
def base_evaluated_once(n: qd.template() = qd.field(qd.i32, shape=())):
    for i in range(4):
        bodies[qd.atomic_add(n[None], 1)].mass = n[None]
        bodies[qd.atomic_add(n[None], 1)].mass += 1
