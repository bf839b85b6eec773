"""A vector or matrix field and the field of one of its components share memory, which derivatives and the checks of
sections take into account. The same holds for an array that is passed twice, and for a gradient that is an argument."""

import numpy as np
import pytest

import octants as qd

N = 6
Floats = qd.types.ndarray(dtype=qd.f64, ndim=1)
Number = qd.types.ndarray(dtype=qd.f64, ndim=0)


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    yield
    qd.reset()


class Fields:
    """Fields with values, and their gradients by differences."""

    def __init__(self):
        self.v = qd.Vector.field(3, qd.f64, shape=N, needs_grad=True)
        self.m = qd.Matrix.field(2, 2, qd.f64, shape=N, needs_grad=True)
        self.s = qd.field(qd.f64, shape=N, needs_grad=True)
        self.loss = qd.field(qd.f64, shape=(), needs_grad=True)
        self.all = [self.v, self.m, self.s]
        random = np.random.default_rng(1)
        self.start = [random.uniform(0.4, 1.4, f.to_numpy().shape) for f in self.all]
        self.weights = [random.normal(size=values.shape) for values in self.start]

    def run(self, kernel, values):
        for f, at in zip(self.all, values, strict=True):
            f.from_numpy(at)
        self.loss[None] = 0
        kernel()
        sums = [(f.to_numpy() * w).sum() for f, w in zip(self.all, self.weights, strict=True)]
        return sum(sums) + 1.3 * self.loss[None]

    def differences(self, kernel, which):
        out = np.zeros_like(self.start[which])
        for i in np.ndindex(out.shape):
            both = []
            for step in [1e-6, -1e-6]:
                values = [at.copy() for at in self.start]
                values[which][i] += step
                both.append(self.run(kernel, values))
            out[i] = (both[0] - both[1]) / 2e-6
        return out

    def gradient(self, kernel):
        self.run(kernel, self.start)
        for f, w in zip(self.all, self.weights, strict=True):
            f.grad.from_numpy(w)
        self.loss.grad[None] = 1.3
        kernel.grad()
        return [f.grad.to_numpy() for f in self.all]

    def check(self, kernel):
        for which, found in enumerate(self.gradient(kernel)):
            np.testing.assert_allclose(found, self.differences(kernel, which), rtol=1e-5, atol=1e-5)


@pytest.fixture
def fields():
    return Fields()


def test_elements_read_by_both_names(fields):
    v, m, s, loss = fields.v, fields.m, fields.s, fields.loss
    v0, m01 = v.get_scalar_field(0), m.get_scalar_field(0, 1)

    @qd.kernel
    def compute():
        for i in v:
            loss[None] += v[i].norm_sqr() * v0[(i + 1) % N] + v0[0] * v0[i]
        for i in m:
            square = m[i] @ m[i]
            loss[None] += square[0, 1] * m01[(i + 2) % N]
            s[i] = square.determinant() * m01[i]

    fields.check(compute)


def test_a_store_by_one_name_is_read_by_the_other(fields):
    v, s, loss = fields.v, fields.s, fields.loss
    v0 = v.get_scalar_field(0)

    @qd.kernel
    def compute():
        for i in v:
            v0[i] = s[i] * 2.0
            loss[None] += v[i][0] * 3.0 + v[i].sum()
            v[i][0] += s[i] * 1.5
            loss[None] += v0[i] * 5.0

    fields.check(compute)


def test_sums_of_an_inner_loop_that_adds_to_the_component_it_reads(fields):
    v, s = fields.v, fields.s
    v0 = v.get_scalar_field(0)

    @qd.kernel
    def compute():
        for _ in range(1):
            for j in range(4):
                v0[j + 1] += v[0][0] * s[j] + v[j][0] * 0.5

    fields.check(compute)


def test_a_maximum_by_one_name_is_read_by_the_other(fields):
    v, loss = fields.v, fields.loss
    v0, v1 = v.get_scalar_field(0), v.get_scalar_field(1)

    @qd.kernel
    def compute():
        for i in v:
            qd.atomic_max(v0[0], v1[i])
        for _ in range(1):
            loss[None] += v[0][0] ** 2

    fields.check(compute)


def test_iterations_that_read_what_others_store_by_another_name_are_refused(fields):
    v, v0 = fields.v, fields.v.get_scalar_field(0)

    @qd.kernel
    def compute():
        for i in range(N - 1):
            v[i + 1] = qd.Vector([v0[i] * v0[i], 2.0, v0[i]])

    with pytest.raises(qd.QuadrantsCompilationError, match="Cross-iteration read-after-write of `v`"):
        fields.gradient(compute)


def test_a_read_that_is_overwritten_by_another_name_warns(fields):
    v, s, v0 = fields.v, fields.s, fields.v.get_scalar_field(0)

    @qd.kernel
    def compute():
        for i in v:
            s[i] = v0[i] ** 2
            v[i][0] = 3.0

    with pytest.warns(match="needs the value of `v` read here, but the same kernel overwrites it later"):
        fields.gradient(compute)


def test_a_read_in_an_inner_loop_that_is_overwritten_by_another_name_warns(fields):
    v, s, v0 = fields.v, fields.s, fields.v.get_scalar_field(0)

    @qd.kernel
    def compute():
        for i in v:
            t = s[i]
            for _ in range(3):
                t = t * v[i][0] + 0.1
            v0[i] = t

    with pytest.warns(match="needs the value of `v` read here, but the same kernel overwrites it later"):
        fields.gradient(compute)


def test_the_old_value_of_a_sum_shared_by_another_name_is_refused(fields):
    v, s, loss, v0 = fields.v, fields.s, fields.loss, fields.v.get_scalar_field(0)

    @qd.kernel
    def compute():
        for i in v:
            old = qd.atomic_add(v0[i], s[(i + 1) % N])
            v[(i + 1) % N][0] += s[i]
            loss[None] += old

    with pytest.raises(qd.QuadrantsCompilationError, match="depends on the order in which iterations"):
        fields.gradient(compute)


# Iterations of a GPU have no order.
@pytest.mark.on_cpu
def test_forward_mode_runs_sums_of_aliased_components_in_order():
    v = qd.Vector.field(3, qd.f64, shape=N, needs_dual=True)
    s, out = [qd.field(qd.f64, shape=N, needs_dual=True) for _ in range(2)]
    v0 = v.get_scalar_field(0)

    @qd.kernel
    def compute():
        for i in range(N):
            old = qd.atomic_add(v0[i], s[i])
            v[(i + 1) % N][0] += s[i] * 2.0
            out[i] = old * old

    def run(values):
        v.fill(0.5)
        s.from_numpy(values)
        compute()
        return out.to_numpy()

    at, seed = np.linspace(0.5, 1.5, N), np.cos(np.arange(N))
    expected = (run(at + 1e-6 * seed) - run(at - 1e-6 * seed)) / 2e-6
    with qd.ad.FwdMode(loss=out, param=s, seed=list(seed)):
        run(at)
    np.testing.assert_allclose(out.dual.to_numpy(), expected, rtol=1e-6)


def test_s13_sections_that_access_a_field_and_its_component():
    v = qd.Vector.field(3, qd.f32, shape=N)
    v0, v1 = v.get_scalar_field(0), v.get_scalar_field(1)

    def sections(first, second):
        @qd.kernel
        def run():
            with qd.stream_parallel():
                for i in range(N):
                    first(i)
            with qd.stream_parallel():
                for i in range(N):
                    second(i)

        run()

    @qd.func
    def whole(i):
        v[i] = qd.Vector([1.0, 1.0, 1.0])

    @qd.func
    def first_component(i):
        v0[i] = 2.0

    @qd.func
    def last_component(i):
        v[i][2] = 3.0

    @qd.func
    def second_component(i):
        v1[i] = 4.0

    with pytest.raises(qd.QuadrantsSyntaxError, match="two qd.stream_parallel.. blocks write the same elements of `v`"):
        sections(whole, first_component)
    with pytest.raises(qd.QuadrantsSyntaxError, match="two qd.stream_parallel.. blocks write the same elements of `v`"):
        sections(second_component, whole)
    # Different components are different memory.
    sections(first_component, last_component)
    sections(first_component, second_component)
    assert np.array_equal(v.to_numpy(), np.tile([2, 4, 3], (N, 1)))


def test_an_array_that_is_passed_twice_is_one_array_to_its_gradient():
    @qd.kernel
    def shift(x: Floats, y: Floats):
        for i in range(N - 1):
            y[i + 1] = 2.0 * x[i]

    @qd.kernel
    def overwrite(x: Floats, y: Floats, total: Number):
        for i in range(N):
            total[None] += x[i] ** 2
            y[i] = 0.5 * x[i]

    x, y = [qd.ndarray(qd.f64, shape=N, needs_grad=True) for _ in range(2)]
    total = qd.ndarray(qd.f64, shape=(), needs_grad=True)
    shift.grad(x, y)
    overwrite.grad(x, y, total)
    with pytest.raises(qd.QuadrantsCompilationError, match="Cross-iteration read-after-write of `x`"):
        shift.grad(x, x)
    with pytest.warns(match="needs the value of `x` read here, but the same kernel overwrites it later"):
        overwrite.grad(x, x, total)


class TestGradientsAsInputs:
    """A kernel may read `x.grad` like any memory, but its own gradient must not need memory that it adds to."""

    def test_a_step_along_the_gradient_is_differentiated(self):
        x = qd.field(qd.f64, shape=N, needs_grad=True)

        @qd.kernel
        def descend(rate: qd.f64):
            for i in x:
                x[i] -= rate * x.grad[i]

        x.grad.fill(3.0)
        descend.grad(0.1)
        assert (x.grad.to_numpy() == 3.0).all()

    def test_a_product_with_an_aliased_factor_is_refused(self):
        x, y = [qd.field(qd.f64, shape=N, needs_grad=True) for _ in range(2)]

        @qd.kernel
        def multiply():
            for i in x:
                y[i] += x.grad[(i + 1) % N] * x[i]

        multiply()
        with pytest.raises(
            qd.QuadrantsCompilationError, match=r"needs the value of `x.grad` read here, but also adds to"
        ):
            multiply.grad()

    def test_a_product_with_an_aliased_component_is_refused(self):
        v = qd.Vector.field(2, qd.f64, shape=N, needs_grad=True)
        y = qd.field(qd.f64, shape=N, needs_grad=True)
        v0, slope = v.get_scalar_field(0), v.grad

        @qd.kernel
        def multiply():
            for i in y:
                y[i] += slope[i][0] * v0[i]

        with pytest.raises(qd.QuadrantsCompilationError, match="but also adds to"):
            multiply.grad()

    def test_aliases_are_checked_in_each_call(self):
        @qd.kernel
        def multiply(x: Floats, slope: Floats, y: Floats):
            for i in x:
                y[i] += slope[(i + 1) % N] * x[i]

        x, y, other = [qd.ndarray(qd.f64, shape=N, needs_grad=True) for _ in range(3)]
        for _ in range(2):
            other.from_numpy(np.arange(N, dtype=np.float64))
            x.grad.fill(0)
            y.grad.fill(1.0)
            multiply.grad(x, other, y)
            np.testing.assert_array_equal(x.grad.to_numpy(), np.roll(np.arange(N), -1))
            with pytest.raises(qd.QuadrantsCompilationError, match="but also adds to"):
                multiply.grad(x, x.grad, y)

    def test_each_call_reads_its_own_array(self):
        @qd.kernel
        def descend(x: Floats, slope: Floats):
            for i in x:
                x[i] -= 0.1 * slope[i]

        x, other = [qd.ndarray(qd.f64, shape=N, needs_grad=True) for _ in range(2)]
        x.grad.fill(1.0)
        for slope in [x.grad, other, x.grad]:
            descend.grad(x, slope)
        assert (x.grad.to_numpy() == 1.0).all()
