"""Forward mode: tangents against finite differences, through every shape of control flow."""

import numpy as np
import pytest

import octants as qd


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    yield
    qd.reset()


def slope(run, x, y, direction, h=1e-6):
    """The central difference of y along a direction in x."""
    start = x.to_numpy()
    ends = []
    for sign in (1, -1):
        x.from_numpy(start + sign * h * direction)
        run()
        ends.append(y.to_numpy())
    x.from_numpy(start)
    return (ends[0] - ends[1]) / (2 * h)


def check(run, x, y, seed=None, tolerance=1e-6):
    seed = np.random.default_rng(1).random(x.shape) if seed is None else np.array(seed)
    with qd.ad.FwdMode(loss=y, param=x, seed=list(seed.reshape(-1))):
        run()
    found = y.dual.to_numpy()
    expected = slope(run, x, y, seed)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    assert np.abs(expected).max() > 1e-3  # or nothing was tested
    return found


def inputs(values):
    x = qd.field(qd.f64, len(values), needs_dual=True)
    x.from_numpy(np.array(values, np.float64))
    return x


def test_directional_derivative_of_the_guide():
    x = qd.field(qd.f32, shape=5)
    loss = qd.field(qd.f32, shape=5)
    qd.root.lazy_dual()
    for i in range(5):
        x[i] = i

    @qd.kernel
    def compute():
        loss[1] += x[3] * x[4]

    with qd.ad.FwdMode(loss=loss, param=x, seed=[0, 0, 0, 1, 1]):
        compute()
    assert loss.dual.to_numpy().tolist() == [0, 7, 0, 0, 0]
    assert x.dual.to_numpy().tolist() == [0] * 5  # the seed is cleared
    compute()
    assert loss.dual[1] == 7  # a launch outside does not change duals


def test_loops_of_every_shape():
    x = inputs([1.1, 0.7, 0.9])
    n = qd.field(qd.i32, 3)
    n.from_numpy(np.array([4, 0, 7], np.int32))
    y = qd.field(qd.f64, 3, needs_dual=True)

    @qd.func
    def root(v):
        guess = v
        while abs(guess * guess - v) > 1e-12:
            guess = 0.5 * (guess + v / guess)
        return guess

    @qd.func
    def early(v, limit: qd.i32):
        result = v
        for k in range(10):
            if k == limit:
                continue
            result *= 1.0 + v
            if result > 5:
                return result * v
        return result

    @qd.kernel
    def compute():
        for i in x:
            total = 0.0
            for j in range(n[i]):
                for k in range(j):
                    total += qd.sin(x[i] * k) * root(x[j % 3])
                if total > 3:
                    break
            step = 0
            while step < 5:
                step += 2
                total = total * x[step % 3] + early(x[i], step)
            y[i] = total

    check(compute, x, y)


def test_overwritten_values_and_swaps():
    x = inputs([0.5, 2.0])
    y = qd.field(qd.f64, 2, needs_dual=True)

    @qd.kernel
    def compute():
        for _once in range(1):
            a = x[0]
            b = x[1]
            for _ in range(3):
                a, b = b * a, a + b
            y[0] = a
            y[1] = 7.0
            y[1] = b
            y[0] = y[0] * y[1]

    check(compute, x, y)


def test_vectors_and_matrices():
    x = inputs([0.3, 0.5, 0.7, 1.1])
    y = qd.field(qd.f64, 2, needs_dual=True)

    @qd.kernel
    def compute():
        for i in range(1):
            m = qd.Matrix([[x[0], x[1]], [x[2], x[3]]])
            v = qd.Vector([x[1], x[0]])
            for _ in range(3):
                v = (m @ v).normalized() + v * m[0, 1]
            k = 1
            v[k] += m.transpose()[k, 0] + m.determinant() + m.trace()
            y[0] = v.norm() + v.max() + (m @ m).sum()
            y[1] = v.dot(qd.Vector([m[0, 0], 2.0])) + m.inverse()[1, 0]

    check(compute, x, y)


def test_vector_fields_and_structs():
    x = qd.Vector.field(2, qd.f64, 3, needs_dual=True)
    y = qd.Vector.field(2, qd.f64, 3, needs_dual=True)
    x.from_numpy(np.arange(6).reshape(3, 2) + 0.5)

    pair = qd.types.struct(a=qd.f64, n=qd.i32, v=qd.types.vector(2, qd.f64))

    @qd.func
    def swapped(p):
        return pair(p.v[0], p.n + 1, qd.Vector([p.a, p.v[1]]))

    @qd.kernel
    def compute():
        for i in x:
            p = pair(x[i][0], i, x[i] * x[i])
            for _ in range(p.n):
                p = swapped(p)
            p.v[1] *= p.a
            y[i] = p.v * p.a

    seed = np.random.default_rng(0).random((3, 2))
    with qd.ad.FwdMode(y, x, seed=list(seed.reshape(-1))):
        compute()
    np.testing.assert_allclose(y.dual.to_numpy(), slope(compute, x, y, seed), rtol=1e-6, atol=1e-6)


def test_real_functions_and_references():
    x = inputs([0.4, 0.8])
    y = qd.field(qd.f64, 2, needs_dual=True)

    @qd.real_func
    def twice(a: qd.f64, n: qd.i32) -> qd.f64:
        if n == 0:
            return a
        return a * a + n

    @qd.func
    def add_to(target: qd.template(), v):
        target += v * v

    @qd.kernel
    def compute():
        for i in x:
            s = 0.0
            add_to(s, x[i])
            y[i] = twice(s, i) + twice(x[i], 0)
            add_to(y[i], x[1 - i])

    check(compute, x, y)


def test_sums_of_all_iterations():
    x = inputs(np.linspace(0.1, 1, 100))
    y = qd.field(qd.f64, (), needs_dual=True)
    z = qd.field(qd.f64, 4, needs_dual=True)

    @qd.kernel
    def compute():
        total = 0.0
        for i in range(100):
            total += x[i] * x[i]
            z[i % 4] -= qd.exp(x[i])
        y[None] = total

    check(compute, x, y)
    z.fill(0)

    def from_zero():
        z.fill(0)
        compute()

    check(from_zero, x, z)


def test_old_values_of_sums():
    n = 20000  # Enough iterations for threads to collide.
    x, y = (qd.field(qd.f64, n, needs_dual=True) for _ in range(2))
    total = qd.field(qd.f64, (), needs_dual=True)

    @qd.kernel
    def running_sums():
        for i in x:
            y[i] = qd.atomic_add(total[None], x[i] ** 2)

    direction = np.arange(n) % 7
    x.fill(2)
    total.fill(0)
    with qd.ad.FwdMode(loss=y, param=x, seed=direction.tolist()):
        running_sums()
    assert np.array_equal(y.to_numpy(), 4 * np.arange(n))
    assert np.array_equal(y.dual.to_numpy(), 4 * (np.cumsum(direction) - direction))


@pytest.mark.parametrize("op", ["min", "max", "mul"])
def test_updates_in_order(op):
    x = inputs([0.4, 0.9, 0.2])
    y = qd.field(qd.f64, 1, needs_dual=True)
    update = {"min": qd.atomic_min, "max": qd.atomic_max, "mul": qd.atomic_mul}[op]

    @qd.kernel
    def in_order():
        y[0] = 0.5
        qd.loop_config(serialize=True)
        for i in range(3):
            update(y[0], x[i])

    check(in_order, x, y)

    @qd.kernel
    def at_once():
        y[0] = 0.5
        for i in range(3):
            update(y[0], x[i])

    check(at_once, x, y)

    @qd.real_func
    def shared(i: qd.i32):
        update(y[0], x[i])

    @qd.kernel
    def by_a_function():
        y[0] = 0.5
        for i in range(3):
            shared(i)

    check(by_a_function, x, y)


def test_integers_and_constants_stop_a_derivative():
    x = inputs([2.6])
    y = qd.field(qd.f64, 4, needs_dual=True)
    plain = qd.field(qd.f64, 1)

    @qd.kernel
    def compute():
        y[0] = qd.cast(x[0], qd.i32) * x[0]
        y[1] = qd.floor(x[0]) + qd.round(x[0])
        plain[0] = x[0] * x[0]
        y[2] = plain[0] + x[0]
        y[3] = qd.select(x[0] > 2, x[0] * 3, qd.sqrt(-x[0]))

    with qd.ad.FwdMode(y, x):
        compute()
    assert y.dual.to_numpy().tolist() == [2, 0, 1, 3]


def test_what_the_host_writes_is_constant():
    x = inputs([3.0])
    y = qd.field(qd.f64, 2, needs_dual=True)
    z = qd.field(qd.f64, 2, needs_dual=True)
    v = qd.Vector.field(2, qd.f64, 1, needs_dual=True)

    @qd.kernel
    def compute():
        for i in range(2):
            y[i] = x[0] * x[0]
            v[0][i] = x[0]

    with qd.ad.FwdMode([y, z], x):
        compute()
        z.copy_from(y)
        y[1] = 5.0
        v[0][1] = 2.0
    assert y.dual.to_numpy().tolist() == [6, 0]
    assert z.dual.to_numpy().tolist() == [6, 6]
    assert v.dual.to_numpy().tolist() == [[1, 0]]
    with qd.ad.FwdMode(y, x):
        x[0] = 4.0  # the input of the derivative, no matter where its value comes from
        compute()
    assert y.dual.to_numpy().tolist() == [8, 8]


def test_several_losses_and_methods():
    @qd.data_oriented
    class Model:
        def __init__(self):
            self.x = qd.field(qd.f64, (), needs_dual=True)
            self.y = qd.field(qd.f64, (), needs_dual=True)
            self.z = qd.field(qd.f64, (), needs_dual=True)

        @qd.kernel
        def run(self, factor: qd.f64):
            self.y[None] = self.x[None] * factor
            self.z[None] = self.y[None] ** 2

    model = Model()
    model.x[None] = 2.0
    with qd.ad.FwdMode(loss=[model.y, model.z], param=model.x):
        model.run(3.0)
    assert (model.y.dual[None], model.z.dual[None]) == (3.0, 36.0)
    model.x[None] = 1.0
    model.run(3.0)
    assert model.z[None] == 9.0


def test_functions_without_a_gradient_are_constant():
    x = inputs([3.0])
    y = qd.field(qd.f64, 1, needs_dual=True)

    @qd.kernel
    def compute():
        y[0] += x[0] * x[0]

    @qd.ad.no_grad
    def hidden():
        compute()

    with qd.ad.FwdMode(y, x):
        compute()
        hidden()
    assert y[0] == 18.0
    assert y.dual[0] == 6.0


def test_misuse_is_reported():
    x = inputs([1.0, 2.0])
    for param in ([x], None, 3, qd.ndarray(qd.f64, 2)):
        with pytest.raises(TypeError, match="the param of a qd.ad.FwdMode must be one field of numbers"):
            qd.ad.FwdMode(x, param, [1.0, 0.0]).__enter__()
    with pytest.raises(TypeError, match="the loss of a qd.ad.FwdMode must be a field or a list of fields, got int"):
        qd.ad.FwdMode([x, 3], x, [1.0, 0.0]).__enter__()
    plain = qd.field(qd.f64, 2)
    y = qd.field(qd.f64, (), needs_dual=True)
    with pytest.raises(RuntimeError, match="the loss of a qd.ad.FwdMode has no dual"):
        qd.ad.FwdMode(plain, x).__enter__()
    with pytest.raises(RuntimeError, match="the param of a qd.ad.FwdMode has no dual"):
        qd.ad.FwdMode(y, plain).__enter__()
    with pytest.raises(RuntimeError, match="`seed` is not set for a param of 2 elements"):
        qd.ad.FwdMode(y, x).__enter__()
    with pytest.raises(ValueError, match="seed has 3 numbers, but param has 2 elements"):
        qd.ad.FwdMode(y, x, seed=[1, 2, 3]).__enter__()
    with qd.ad.FwdMode(y, x, seed=[1, 0]) as mode:
        with pytest.raises(RuntimeError, match=r"cannot be entered inside a qd\.ad\.FwdMode"):
            qd.ad.FwdMode(y, x, seed=[1, 0]).__enter__()
        with pytest.raises(qd.OctantsAssertionError, match="was already used"):
            mode.__enter__()


def test_stop_grad():
    x = qd.field(qd.f64, 2, needs_dual=True)
    y = qd.field(qd.f64, 6, needs_dual=True)
    v = qd.Vector.field(2, qd.f64, (), needs_dual=True)
    x.from_numpy(np.array([2.0, 3.0]))

    @qd.func
    def square(i):
        qd.stop_grad(v)
        return x[i] * x[i] + v[None][0]

    @qd.kernel
    def compute():
        for i in range(1):
            v[None] = [x[0], 1.0]
            y[0] = qd.stop_grad(x[0]) * x[0]
            if y[0] > 0:
                qd.stop_grad(x)
                y[1] = x[0] * 5 + square(1)
            y[2] = square(1)
            y[3] = v[None][0]
            y[4] = qd.stop_grad(v[None] * 2.0).sum() + x[0]
        for i in range(1):
            qd.stop_grad(x)
            y[5] = x[0]

    with qd.ad.FwdMode(y, x, seed=[1, 10]):
        compute()
    assert y.to_numpy().tolist() == [4, 21, 11, 2, 8, 2]
    assert y.dual.to_numpy().tolist() == [2, 0, 60, 1, 1, 0]


def test_lambdas_are_functions():
    x = inputs([0.25])
    functions = [lambda a: a * a, lambda a: (a +
                                             2 * a), lambda a: qd.sin(a)]  # fmt: skip
    for f, expected in zip(functions, [0.5, 3.0, np.cos(0.25)], strict=True):
        y = qd.field(qd.f64, 1, needs_dual=True)

        @qd.kernel
        def compute(f: qd.template(), y: qd.template()):
            y[0] = f(x[0])

        with qd.ad.FwdMode(y, x):
            compute(f, y)
        assert abs(y.dual[0] - expected) < 1e-12


@pytest.mark.parametrize("base", [-2.0, 0.0, 2.0])
def test_a_constant_exponent_has_no_tangent(base):
    x = inputs([base, 3.0])
    y = qd.field(qd.f64, shape=(), needs_dual=True)

    @qd.kernel
    def power():
        y[None] = x[0] ** x[1]

    with qd.ad.FwdMode(loss=y, param=x, seed=[1.0, 0.0]):
        power()
    assert y.dual[None] == 3.0 * base**2
    with qd.ad.FwdMode(loss=y, param=x, seed=[0.0, 1.0]):
        power()
    assert np.isnan(y.dual[None]) if base < 0 else y.dual[None] == pytest.approx(base**3 * np.log(base or 1.0))
