"""Gradients of small realistic programs: simulators, solvers, networks, renderers. Compares reverse mode with finite
differences, and forward mode with reverse mode.
"""

import numpy as np
import pytest

import octants as qd

PROGRAMS = {}


def program(make):
    """A function that makes fields and kernels: it returns the fields to differentiate by with their values, and what
    runs."""
    PROGRAMS[make.__name__] = make
    return make


def field(*shape):
    return qd.field(qd.f64, shape=shape, needs_grad=True, needs_dual=True)


def vectors(n, *shape):
    return qd.Vector.field(n, qd.f64, shape=shape, needs_grad=True, needs_dual=True)


def matrices(n, *shape):
    return qd.Matrix.field(n, n, qd.f64, shape=shape, needs_grad=True, needs_dual=True)


def numbers(*values):
    made = qd.field(qd.i32, shape=len(values))
    made.from_numpy(np.array(values, np.int32))
    return made


def some(*shape):
    return 0.3 + 0.9 * np.random.default_rng(7).random(shape)


def first(steps, values):
    """A state with a slice for each step; the first is given."""
    return np.concatenate([values[None], np.zeros((steps, *values.shape))])


@program
def a_cloth_falls_on_a_sphere(loss):
    n, steps = 3, 3
    stiffness, x, v = field(2), vectors(3, steps + 1, n, n), vectors(3, steps + 1, n, n)
    neighbors = [(-1, 0), (1, 0), (0, -1), (0, 1)]

    @qd.kernel
    def step(t: qd.i32):
        for i, j in qd.ndrange(n, n):
            f = qd.Vector([0.0, -9.8, 0.0])
            for o in qd.static(neighbors):
                a = i + o[0]
                b = j + o[1]
                if 0 <= a < n and 0 <= b < n:
                    d = x[t, i, j] - x[t, a, b]
                    r = d.norm(1e-8)
                    relative = v[t, i, j] - v[t, a, b]
                    f += -stiffness[0] * d.normalized(1e-9) * (r / 0.3 - 1)
                    f -= stiffness[1] * relative.dot(d) * d / (r * r)
            u = v[t, i, j] + 1e-2 * f
            c = x[t, i, j] - qd.Vector([0.5, -0.2, 0.5])
            if c.norm() < 0.5:
                normal = c.normalized()
                u -= min(u.dot(normal), 0.0) * normal
            v[t + 1, i, j] = u
            x[t + 1, i, j] = x[t, i, j] + 1e-2 * u

    @qd.kernel
    def measure():
        for cell in qd.grouped(qd.ndrange(n, n)):
            loss[None] += x[steps, cell[0], cell[1]].norm_sqr()

    def run():
        for t in range(steps):
            step(t)
        measure()

    return [
        (stiffness, [0.9, 0.1]),
        (x, first(steps, some(n, n, 3))),
        (v, first(steps, some(n, n, 3) - 0.5)),
    ], run


@program
def material_points(loss):
    n, cells, steps, dt = 3, 6, 3, 1e-2
    x, v = vectors(2, steps + 1, n), vectors(2, steps + 1, n)
    c, f = matrices(2, steps + 1, n), matrices(2, steps + 1, n)
    momentum, mass, moved = vectors(2, steps, cells, cells), field(steps, cells, cells), vectors(2, steps, cells, cells)

    @qd.func
    def weights(fx):
        return [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]

    @qd.kernel
    def scatter(t: qd.i32):
        for p in range(n):
            base = qd.cast(x[t, p] * cells - 0.5, qd.i32)
            fx = x[t, p] * cells - qd.cast(base, qd.f64)
            w = weights(fx)
            g = (qd.Matrix.identity(qd.f64, 2) + dt * c[t, p]) @ f[t, p]
            f[t + 1, p] = g
            volume = g.determinant()
            r, _ = qd.polar_decompose(g)
            stress = 2 * (g - r) @ g.transpose() + qd.Matrix.identity(qd.f64, 2) * volume * (volume - 1)
            affine = -dt * cells * cells * stress + c[t, p]
            for i, j in qd.static(qd.ndrange(3, 3)):
                offset = qd.Vector([i, j])
                weight = w[i][0] * w[j][1]
                momentum[t, base + offset] += weight * (v[t, p] + affine @ (qd.cast(offset, qd.f64) - fx) / cells)
                mass[t, base + offset] += weight

    @qd.kernel
    def move(t: qd.i32):
        for i, j in qd.ndrange(cells, cells):
            u = momentum[t, i, j] / (mass[t, i, j] + 1e-10)
            u[1] -= dt * 9.8
            if i < 2 and u[0] < 0:
                u[0] = 0
            if j < 2 and u[1] < 0:
                u[1] = 0
            moved[t, i, j] = u

    @qd.kernel
    def gather(t: qd.i32):
        for p in range(n):
            base = qd.cast(x[t, p] * cells - 0.5, qd.i32)
            fx = x[t, p] * cells - qd.cast(base, qd.f64)
            w = weights(fx)
            u = qd.Vector([0.0, 0.0])
            b = qd.Matrix([[0.0, 0.0], [0.0, 0.0]])
            for i, j in qd.static(qd.ndrange(3, 3)):
                cell = moved[t, base[0] + i, base[1] + j]
                weight = w[i][0] * w[j][1]
                u += weight * cell
                b += 4 * cells * weight * cell.outer_product(qd.Vector([i, j]) - fx)
            v[t + 1, p] = u
            x[t + 1, p] = x[t, p] + dt * u
            c[t + 1, p] = b

    @qd.kernel
    def measure():
        for p in range(n):
            loss[None] += x[steps, p][0] ** 2 + x[steps, p][1]

    def run():
        momentum.fill(0)
        mass.fill(0)
        for t in range(steps):
            scatter(t)
            move(t)
            gather(t)
        measure()

    start = np.eye(2) + 0.05 * some(n, 2, 2)
    return [(x, first(steps, 0.3 + 0.2 * some(n, 2))), (v, first(steps, some(n, 2))), (f, first(steps, start))], run


@program
def contacts_that_a_kernel_lists(loss):
    n = 5
    x, count, pairs = field(n), qd.field(qd.i32, shape=()), qd.Vector.field(2, qd.i32, shape=16)

    @qd.kernel
    def find():
        count[None] = 0
        for _ in range(1):
            for i in range(n):
                for j in range(i + 1, n):
                    if abs(x[i] - x[j]) < 0.4:
                        pairs[count[None]] = qd.Vector([i, j])
                        count[None] += 1

    @qd.kernel
    def push():
        for k in range(count[None]):
            d = x[pairs[k][0]] - x[pairs[k][1]]
            loss[None] += (0.4 - abs(d)) ** 2

    def run():
        find()
        push()

    return [(x, some(n))], run


@program
def a_tree_of_joints(loss):
    angles, parents, ends = field(5), numbers(-1, 0, 1, 1, 3), vectors(2, 5)

    @qd.kernel
    def place():
        for joint in range(5):
            p = qd.Vector([0.0, 0.0])
            at = joint
            depth = 0
            while at != -1:
                c, s = qd.cos(angles[at]), qd.sin(angles[at])
                p = qd.Vector([c * p[0] - s * p[1], s * p[0] + c * p[1]]) + qd.Vector([0.3, 0.1 * at])
                at = parents[at]
                depth += 1
            ends[joint] = p * depth

    @qd.kernel
    def measure():
        for joint in ends:
            loss[None] += ends[joint].norm_sqr() * (joint + 1)

    def run():
        place()
        measure()

    return [(angles, some(5))], run


@program
def a_ray_marches(loss):
    radius = field(3)

    @qd.func
    def distance(p, r):
        return p.norm() - r + 0.05 * qd.sin(5 * p[0])

    @qd.kernel
    def render():
        for i in radius:
            origin, direction = qd.Vector([0.1 * i, 0.05, -3.0]), qd.Vector([0.0, 0.0, 1.0])
            t = 0.0
            for _ in range(60):
                d = distance(origin + t * direction, radius[i])
                if d < 1e-12:
                    break
                t += d * 0.9
            loss[None] += t

    return [(radius, some(3))], render


@program
def conjugate_gradients(loss):
    n = 4
    a, b = field(n, n), field(n)

    @qd.kernel
    def solve():
        for _ in range(1):
            x = qd.Vector.zero(qd.f64, n)
            r = qd.Vector.zero(qd.f64, n)
            for i in range(n):
                r[i] = b[i]
            p = r
            rr = r.dot(r)
            for _step in range(8):
                ap = qd.Vector.zero(qd.f64, n)
                for i in range(n):
                    for j in range(n):
                        ap[i] += ((a[i, j] + a[j, i]) * 0.3 + (3.0 if i == j else 0.0)) * p[j]
                step = rr / p.dot(ap)
                x += step * p
                r -= step * ap
                new = r.dot(r)
                if new < 1e-20:
                    break
                p = r + (new / rr) * p
                rr = new
            loss[None] += x.norm_sqr() + x[1]

    return [(a, some(n, n)), (b, some(n))], solve


@program
def elimination(loss):
    a, b = field(3, 3), field(3)

    @qd.kernel
    def solve():
        for _ in range(1):
            m = qd.Matrix.zero(qd.f64, 3, 4)
            for i in range(3):
                for j in range(3):
                    m[i, j] = a[i, j] + (2.0 if i == j else 0.0)
                m[i, 3] = b[i]
            for p in range(3):
                for r in range(p + 1, 3):
                    f = m[r, p] / m[p, p]
                    for k in range(4):
                        m[r, k] -= f * m[p, k]
            x = qd.Vector([0.0, 0.0, 0.0])
            for back in range(3):
                i = 2 - back
                s = m[i, 3]
                for j in range(i + 1, 3):
                    s -= m[i, j] * x[j]
                x[i] = s / m[i, i]
            loss[None] += x.norm_sqr()

    return [(a, some(3, 3)), (b, some(3))], solve


@program
def the_largest_eigenvalue(loss):
    a = matrices(3, 1)

    @qd.kernel
    def iterate():
        for i in a:
            m = a[i] @ a[i].transpose() + qd.Matrix([[3.0, 0, 0], [0, 1.0, 0], [0, 0, 0.5]])
            v = qd.Vector([1.0, 0.5, 0.2])
            old = 0.0
            value = 1.0
            while abs(value - old) > 1e-14:
                old = value
                w = m @ v
                value = w.norm()
                v = w / value
            loss[None] += value * value + v[1]

    return [(a, some(1, 3, 3))], iterate


@program
def a_recurrent_network(loss):
    size, steps = 2, 3
    w, x = field(4 * size, size + 1), field(steps)

    @qd.func
    def sigmoid(v):
        return 1 / (1 + qd.exp(-v))

    @qd.kernel
    def run():
        for _ in range(1):
            h = qd.Vector.zero(qd.f64, size)
            c = qd.Vector.zero(qd.f64, size)
            for t in range(steps):
                g = qd.Vector.zero(qd.f64, 4 * size)
                for i in range(4 * size):
                    g[i] = w[i, size] * x[t]
                    for j in range(size):
                        g[i] += w[i, j] * h[j]
                for i in qd.static(range(size)):
                    c[i] = sigmoid(g[i]) * c[i] + sigmoid(g[size + i]) * qd.tanh(g[2 * size + i])
                    h[i] = sigmoid(g[3 * size + i]) * qd.tanh(c[i])
            loss[None] += h.dot(h) + c[0]

    return [(w, some(4 * size, size + 1)), (x, some(steps))], run


@program
def a_layered_network(loss):
    @qd.data_oriented
    class Network:
        def __init__(self):
            self.w1, self.w2, self.x = field(5, 3), field(2, 5), field(4, 3)
            self.h, self.y = field(4, 5), field(4, 2)

        @qd.func
        def activate(self, v):
            return qd.max(v, 0.01 * v)

        @qd.kernel
        def forward(self):
            for b, i in self.h:
                s = -0.7
                for j in range(3):
                    s += self.w1[i, j] * self.x[b, j]
                self.h[b, i] = self.activate(s)
            for b, i in self.y:
                for j in range(5):
                    self.y[b, i] += self.w2[i, j] * self.h[b, j]

        @qd.kernel
        def measure(self):
            for b in range(4):
                largest = qd.max(self.y[b, 0], self.y[b, 1])
                z = qd.exp(self.y[b, 0] - largest) + qd.exp(self.y[b, 1] - largest)
                loss[None] -= self.y[b, b % 2] - largest - qd.log(z)

    net = Network()

    def run():
        net.y.fill(0)
        net.forward()
        net.measure()

    return [(net.w1, some(5, 3)), (net.w2, some(2, 5)), (net.x, some(4, 3))], run


@program
def a_picture_is_sampled(loss):
    picture, places = field(4, 4), vectors(2, 5)

    @qd.func
    def sample(p):
        q = qd.max(qd.min(qd.cast(qd.floor(p), qd.i32), 2), 0)
        f = p - qd.floor(p)
        a = picture[q[0], q[1]] * (1 - f[0]) + picture[q[0] + 1, q[1]] * f[0]
        b = picture[q[0], q[1] + 1] * (1 - f[0]) + picture[q[0] + 1, q[1] + 1] * f[0]
        return a * (1 - f[1]) + b * f[1]

    @qd.kernel
    def render():
        for i in places:
            loss[None] += sample(places[i] * 2.3) ** 2

    return [(picture, some(4, 4)), (places, some(5, 2))], render


@program
def sorted_numbers(loss):
    x = field(5)

    @qd.kernel
    def sort():
        for _ in range(1):
            a = qd.Vector.zero(qd.f64, 5)
            for i in range(5):
                a[i] = x[i]
            for i in range(5):
                for j in range(4 - i):
                    if a[j] > a[j + 1]:
                        t = a[j]
                        a[j] = a[j + 1]
                        a[j + 1] = t
            for i in range(5):
                loss[None] += a[i] * a[i] * (i + 1)

    return [(x, some(5))], sort


@program
def a_particle_bounces(loss):
    steps = 12
    x, v = field(steps + 1), field(steps + 1)

    @qd.kernel
    def step(t: qd.i32, dt: qd.f64):
        for _ in range(1):
            u = v[t] - dt
            y = x[t] + u * dt
            if y < 0.0:
                u = -u * 0.8
                y = x[t] + u * dt
            v[t + 1] = u
            x[t + 1] = y

    @qd.kernel
    def measure():
        loss[None] = x[steps] ** 2

    def run():
        for t in range(steps):
            step(t, 0.1 + 0.01 * t)
        measure()

    return [(x, np.linspace(0.04, 0.5, steps + 1)), (v, -np.linspace(0.5, 0.9, steps + 1))], run


@program
def states_in_structs(loss):
    x = field(6)

    @qd.dataclass
    class State:
        value: qd.f64
        count: qd.i32

        @qd.func
        def advance(self, by):
            self.value = self.value * by + 0.1
            self.count += 1

    @qd.kernel
    def run():
        for i in x:
            s = State(value=x[i], count=0)
            while s.count < 4:
                s.advance(x[(i + s.count) % 6])
                if s.value > 1.2:
                    break
            loss[None] += s.value * s.count

    return [(x, some(6))], run


@program
def functions_that_are_called(loss):
    x = field(5)

    @qd.real_func
    def grow(a: qd.f64) -> qd.f64:
        r = a
        while r < 2.0:
            r = r * 1.3 + 0.05
        return r

    @qd.real_func
    def total(a: qd.f64, n: qd.i32) -> qd.f64:
        s = 0.0
        for i in range(n):
            if s > 9.0:
                return s * a
            s += grow(a * (i + 1)) * grow(a)
        return s

    @qd.kernel
    def run():
        for i in x:
            loss[None] += total(x[i], i)

    return [(x, some(5))], run


@program
def branches_and_exits(loss):
    x, n = field(6), numbers(3, 2, 5, 1, 4, 6)

    @qd.kernel
    def run():
        for i in x:
            a = x[i]
            b = 1.0
            c = 0
            for j in range(n[i]):
                if a > 1.0:
                    a = a * 0.5
                    c += 1
                elif j % 2 == 0:
                    b = b * a + 0.3
                    a = a + b
                else:
                    a, b = b * 0.8, a * 1.1
                if c == 2:
                    break
                for k in range(j):
                    if k == 3:
                        continue
                    a = a * 0.9 + 0.1 * x[k] * b
            loss[None] += a * b * (c + 1)

    return [(x, some(6))], run


@program
def a_sum_of_iterated_values_is_squared(loss):
    """The gradient recomputes the sum, in a loop with the same variables as the one that it runs backwards."""
    x = field(400)

    @qd.kernel
    def run():
        total = 0.5
        for i in range(400):
            a = x[i]
            n = 0
            while n < 3:
                n += 1
                a = qd.tanh(a)
            total += a
        loss[None] += total * total

    return [(x, some(400))], run


@program
def fields_are_passed_for_array_parameters(loss):
    x, v = field(4, 3), vectors(2, 3)

    @qd.kernel
    def run(
        a: qd.types.ndarray(dtype=qd.f64, ndim=2),
        b: qd.types.ndarray(),
        c: qd.types.ndarray(dtype=qd.math.vec2, ndim=1),
    ):
        for i, j in a:
            loss[None] += a[i, j] * qd.sin(b[i, 2]) * c[j].dot(c[j])

    return [(x, some(4, 3)), (v, some(3, 2))], lambda: run(x, x, v)


@pytest.fixture(autouse=True)
def initialized():
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    yield
    qd.reset()


def test_threads_share_no_variables_of_an_iteration():
    """The race showed in one gradient of ten."""
    qd.init(arch=qd.cpu, default_fp=qd.f64, cpu_max_num_threads=2)
    loss = field()
    [(x, start)], run = a_sum_of_iterated_values_is_squared(loss)
    x.from_numpy(start)
    a, slope = start, np.ones(400)
    for _ in range(3):
        a = np.tanh(a)
        slope *= 1 - a * a
    for _ in range(50):
        with qd.ad.Tape(loss):
            run()
        np.testing.assert_allclose(x.grad.to_numpy(), 2 * (0.5 + a.sum()) * slope, rtol=1e-12)


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients(name):
    loss = field()
    params, run = PROGRAMS[name](loss)
    params = [(x, np.asarray(start, np.float64)) for x, start in params]
    dice = np.random.default_rng(1)

    def begin(moved=None, by=0.0):
        for x, start in params:
            x.from_numpy(start + by if x is moved else start)
        loss.fill(0)

    begin()
    with qd.ad.Tape(loss):
        run()
    gradients = [x.grad.to_numpy() for x, _ in params]
    for (x, start), gradient in zip(params, gradients, strict=True):
        for _ in range(3):
            direction = dice.standard_normal(start.shape)
            ends = []
            for h in (1e-6, -1e-6):
                begin(x, h * direction)
                run()
                ends.append(loss[None])
            expected = (gradient * direction).sum()
            assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(expected, rel=1e-5, abs=1e-6)
        begin()
        with qd.ad.FwdMode(loss, x, seed=list(direction.reshape(-1))):
            run()
        assert loss.dual[None] == pytest.approx(expected, rel=1e-9, abs=1e-9)
