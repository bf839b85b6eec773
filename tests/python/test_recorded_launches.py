"""Changes between a launch on a tape and its gradient: the gradient uses the launch's numbers, and other changes are
errors."""

import contextlib
import dataclasses

import numpy as np
import pytest
from gradient_fields import N, numbers_and_loss

import octants as qd


@pytest.fixture(autouse=True, params=["at once", "queued", "apart"])
def program(request):
    options = {"at once": {}, "queued": {"cpu_streams": True}, "apart": {"cpu_separate_memory": True}}[request.param]
    qd.init(arch=qd.cpu, default_fp=qd.f64, **options)
    yield
    qd.reset()


@pytest.fixture
def fields():
    x, loss = numbers_and_loss()
    n = qd.field(qd.i32, shape=N)
    n.from_numpy(np.array([0, 1, 3, 2, 5, 4], dtype=np.int32))
    return x, loss, n


@contextlib.contextmanager
def refused(loss, message):
    """A tape whose gradients end with an error."""
    with pytest.raises(RuntimeError, match=message), qd.ad.Tape(loss):
        yield


@qd.kernel
def set_element(n: qd.template(), i: qd.i32, value: qd.i32):
    n[i] = value


@pytest.mark.parametrize("who", ["host", "kernel"])
def test_a_bound_that_changes_is_reported(fields, who):
    x, loss, n = fields

    @qd.kernel
    def measure():
        for i in x:
            for _ in range(n[i]):
                loss[None] += x[i] ** 2

    line = measure.fn.__code__.co_firstlineno + 3
    message = f"gradient of kernel `measure`.*the loop at line {line} ran 15 times in total, but would run 16 times now"
    with refused(loss, message):
        measure()
        if who == "host":
            n[3] = 3
        else:
            set_element(n, 3, 3)
    assert (x.grad.to_numpy() == 0).all()
    # As many as before, but of other elements.
    with refused(loss, "ran 16 times in total, and would again, but distributed differently"):
        measure()
        set_element(n, 3, 4)
        set_element(n, 4, 4)


def test_a_bound_rewritten_with_the_same_value_is_accepted(fields):
    x, loss, n = fields

    @qd.kernel
    def begin(count: qd.i32):
        n[0] = count

    @qd.kernel
    def add():
        for i in range(n[0]):
            loss[None] += x[i] ** 2

    with qd.ad.Tape(loss):
        for _ in range(3):
            begin(4)
            add()
    np.testing.assert_allclose(x.grad.to_numpy(), 3 * 2 * x.to_numpy() * (np.arange(N) < 4))
    with refused(loss, "the loop at line .* ran 4 times in total, but would run 2 times now"):
        for count in [4, 2]:
            begin(count)
            add()


def test_bounds_that_the_kernel_computes_itself(fields):
    x, loss, n = fields

    @qd.kernel
    def count_and_add(limit: qd.f64):
        n[0] = 0
        for i in x:
            if x[i] < limit:
                n[0] += 1
        for i in range(n[0]):
            loss[None] += x[i] ** 2

    with qd.ad.Tape(loss):
        count_and_add(1.0)
    np.testing.assert_allclose(x.grad.to_numpy(), 2 * x.to_numpy() * (x.to_numpy() < 1.0))


def test_while_loops_over_integers(fields):
    x, loss, n = fields

    @qd.kernel
    def follow():
        for _ in range(1):
            at = 0
            while at < N:
                loss[None] += x[at] ** 2
                at += n[at] + 1

    n.fill(1)
    with qd.ad.Tape(loss):
        follow()
    np.testing.assert_allclose(x.grad.to_numpy(), 2 * x.to_numpy() * (np.arange(N) % 2 == 0))
    with refused(loss, "the loop at line .* ran 3 times in total, but would run 4 times now"):
        follow()
        n[0] = 0
        n[1] = 0


def test_bounds_from_arrays(fields):
    x, loss, _ = fields

    @qd.kernel
    def measure(n: qd.types.ndarray()):
        for i in range(n[0]):
            loss[None] += x[i] ** 2

    count = np.array([3], dtype=np.int32)
    with refused(loss, "ran 3 times in total, but would run 1 time now"):
        measure(count)
        count[0] = 1
    array = qd.ndarray(qd.i32, shape=1)
    array[0] = 2
    with qd.ad.Tape(loss):
        measure(array)
    assert (x.grad.to_numpy() != 0).sum() == 2
    with refused(loss, "ran 2 times in total, but would run 4 times now"):
        measure(array)
        array[0] = 4


def test_recording_prints_nothing(fields, capsys):
    x, loss, n = fields

    @qd.kernel
    def measure():
        for i in range(n[2]):
            qd.static_print("measure is compiled")
            loss[None] += x[i]

    with qd.ad.Tape(loss):
        measure()
    assert capsys.readouterr().out.count("measure is compiled") == 2  # the kernel and its gradient


def test_loops_that_no_gradient_needs_are_not_compared(fields):
    x, loss, n = fields

    @qd.kernel
    def measure():
        for i in range(n[1]):
            n[2] += i
        for i in x:
            loss[None] += x[i]

    with qd.ad.Tape(loss):
        measure()
        n[1] = 5
    assert (x.grad.to_numpy() == 1).all()


WEIGHT = 0.5


class Settings:
    weight = 2.0


def test_gradients_use_the_compiled_constants(fields, monkeypatch):
    x, loss, _ = fields
    power = 2

    @qd.func
    def weighted(v):
        return WEIGHT * Settings.weight * v**power

    @qd.kernel
    def add():
        for i in x:
            loss[None] += weighted(x[i])

    with qd.ad.Tape(loss):
        add()
        monkeypatch.setitem(globals(), "WEIGHT", 100.0)
        monkeypatch.setattr(Settings, "weight", 7.0)
        power = 3
    np.testing.assert_allclose(x.grad.to_numpy(), 2 * x.to_numpy())


def test_gradients_use_the_numbers_of_the_launch(fields):
    x, loss, _ = fields

    @qd.data_oriented(template_primitives=False)
    class Clock:
        def __init__(self):
            self.weight = 0.5

        @qd.kernel
        def add(self):
            for j in range(3):
                loss[None] += x[j] * self.weight

    clock = Clock()
    with qd.ad.Tape(loss):
        clock.add()
        clock.weight = 2.0
        clock.add()
        clock.weight = 100.0
    assert list(x.grad.to_numpy()) == [2.5, 2.5, 2.5, 0, 0, 0]


def test_replaced_arrays_are_reported(fields):
    x, loss, _ = fields

    @qd.data_oriented
    class Swapped:
        def __init__(self):
            self.a, self.b = (qd.ndarray(qd.f64, shape=N, needs_grad=True) for _ in range(2))

        @qd.kernel
        def add(self):
            for i in x:
                loss[None] += x[i] * self.a[i]

    s = Swapped()
    with refused(loss, "gradient of kernel `add` cannot be computed: .* was changed after the launch"):
        s.add()
        s.a, s.b = s.b, s.a

    @dataclasses.dataclass
    class Pair:
        a: qd.types.ndarray(qd.f64, ndim=1)
        k: qd.f64

    @qd.kernel
    def add_pair(pair: Pair):
        for i in x:
            loss[None] += x[i] * pair.a[i] * pair.k

    pair = Pair(s.a, 2.0)
    with refused(loss, "gradient of kernel `add_pair` cannot be computed: `pair`"):
        add_pair(pair)
        pair.a = s.b
    with refused(loss, "gradient of kernel `add_pair` cannot be computed: `pair`"):
        add_pair(pair)
        pair.k = 3.0


def test_compile_time_values_that_change_are_reported(fields):
    x, loss, _ = fields

    @qd.data_oriented
    class Mode:
        def __init__(self):
            self.cubic = True

        @qd.kernel
        def add(self):
            for i in x:
                loss[None] += x[i] ** 3 if qd.static(self.cubic) else x[i]

    mode = Mode()
    with refused(loss, "cannot be computed: `self.cubic` was changed after the launch was recorded"):
        mode.add()
        mode.cubic = False


def test_changed_vector_arguments_are_reported(fields):
    x, loss, _ = fields

    @qd.kernel
    def add(v: qd.types.vector(2, qd.f64)):
        for i in x:
            loss[None] += x[i] * v[0]

    v = qd.Vector([1.0, 2.0])
    with refused(loss, "cannot be computed: `v` was changed"):
        add(v)
        v[0] = 7.0
