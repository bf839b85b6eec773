"""Manual `kernel.grad(...)`: loops whose length has changed are reported, without false positives."""

import numpy as np
import pytest
from gradient_fields import N, numbers_and_loss

import octants as qd


@pytest.fixture(autouse=True, params=["at once", "queued"])
def program(request):
    options = {"cpu_streams": True} if request.param == "queued" else {}
    qd.init(arch=qd.cpu, default_fp=qd.f64, debug=True, **options)
    yield
    qd.reset()


@pytest.fixture
def fields():
    return *numbers_and_loss(), qd.field(qd.i32, shape=())


@pytest.fixture
def measure(fields):
    x, loss, count = fields

    @qd.kernel
    def measure():
        for _ in range(1):
            for i in range(count[None]):
                loss[None] += x[i] ** 2

    return measure


def gradient(kernel, fields, *args):
    """How many elements have a gradient."""
    x, loss, _ = fields
    x.grad.fill(0)
    loss.grad[None] = 1
    kernel.grad(*args)
    return int((x.grad.to_numpy() != 0).sum())


def refused(was, now):
    return pytest.raises(
        RuntimeError, match=f"gradient of kernel `.*` cannot be .* ran {was} .* would run {now} .* now"
    )


def test_a_bound_that_changes_is_reported_at_the_first_gradient(fields, measure):
    _, _, count = fields
    line = measure.fn.__code__.co_firstlineno + 3
    count[None] = 3
    measure()
    count[None] = 5
    with pytest.raises(
        RuntimeError, match=f"`measure`.* the loop at line {line} ran 3 times in total, but would run 5 times now"
    ):
        gradient(measure, fields)
    count[None] = 3
    assert gradient(measure, fields) == 3


def test_a_bound_that_changes_is_reported_at_later_gradients(fields, measure):
    _, _, count = fields
    count[None] = 3
    assert gradient(measure, fields) == 3  # no launch was seen
    for n in (4, 1):
        count[None] = n
        measure()
        assert gradient(measure, fields) == n
    measure()
    count[None] = 2
    with refused(1, 2):
        gradient(measure, fields)


def test_gradients_without_a_launch_use_the_current_memory(fields, measure):
    _, _, count = fields
    for n in (3, 5, 2):
        count[None] = n
        assert gradient(measure, fields) == n
    measure()
    assert gradient(measure, fields) == 2
    for n in (3, 5, 2):  # the launch has had its gradient
        count[None] = n
        assert gradient(measure, fields) == n


def test_gradients_of_earlier_launches(fields, measure):
    _, _, count = fields
    for n in (3, 5, 2):
        count[None] = n
        measure()
    for n in (2, 5, 3, 3):
        count[None] = n
        assert gradient(measure, fields) == n
    for n in (1, 4):  # from a checkpoint, more often than there are gradients
        count[None] = n
        measure()
        measure()
    for n in (4, 1):
        count[None] = n
        assert gradient(measure, fields) == n


def test_launches_with_other_arguments_are_distinguished(fields):
    x, loss, _ = fields

    @qd.kernel
    def add(t: qd.i32, count: qd.types.ndarray()):
        for i in range(count[t]):
            loss[None] += x[i] ** 2

    count = qd.ndarray(qd.i32, shape=2)
    count.from_numpy(np.array([3, 4], dtype=np.int32))
    other = qd.ndarray(qd.i32, shape=2)
    other.fill(1)
    add(0, count)
    add(1, count)
    assert gradient(add, fields, 0, other) == 1
    assert gradient(add, fields, 0, count) == 3
    count[0] = 1
    assert gradient(add, fields, 1, count) == 4
    add(1, count)
    count[1] = 2
    with refused(4, 2):
        gradient(add, fields, 1, count)


def test_launches_of_every_kind_have_manual_gradients(fields, measure):
    x, loss, count = fields
    count[None] = 3
    measure()
    with qd.ad.Tape(loss):
        count[None] = 5
        measure()
    assert gradient(measure, fields) == 5
    measure()
    count[None] = 2
    measure(qd_stream=qd.create_stream())
    qd.sync()
    assert gradient(measure, fields) == 2


def test_kernels_that_cannot_be_differentiated_are_launched_as_before(fields):
    x, loss, count = fields

    @qd.kernel
    def draw():
        for i in range(count[None]):
            x[i] = x[i] * qd.random()

    count[None] = 2
    for _ in range(2):
        draw()
    assert (x.to_numpy() != np.linspace(0.4, 1.3, N)).sum() == 2


def test_loops_that_poll_memory_terminate(fields):
    x, loss, count = fields

    @qd.kernel
    def count_down():
        for _ in range(1):
            while count[None] > 0:
                loss[None] += x[count[None]]
                count[None] -= 1
            count[None] = 3

    count[None] = 3
    count_down()
    assert loss[None] == pytest.approx(x.to_numpy()[1:4].sum())


def test_nothing_is_recorded_without_gradients():
    x = qd.field(qd.f64, shape=N)
    count = qd.field(qd.i32, shape=())
    count[None] = 3

    @qd.kernel
    def add():
        for i in range(count[None]):
            x[i] += 1.0

    add()
    assert add._specialization_count() == 1


def test_nothing_is_recorded_outside_debug_mode(request):
    streams = "queued" in request.node.name
    qd.init(arch=qd.cpu, default_fp=qd.f64, cpu_streams=streams)
    x = qd.field(qd.f64, shape=N, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)
    count = qd.field(qd.i32, shape=())

    @qd.kernel
    def measure():
        for _ in range(1):
            for i in range(count[None]):
                loss[None] += x[i] ** 2

    x.fill(1)
    count[None] = 3
    measure()
    assert measure._specialization_count() == 1
    count[None] = 5
    assert gradient(measure, (x, loss, count)) == 5


def test_a_gradient_that_computes_nothing_is_an_error():
    x, y, z = qd.field(qd.f64, 4), qd.field(qd.f64, ()), qd.field(qd.f64, 4, needs_grad=True)

    @qd.kernel
    def total():
        for i in x:
            y[None] += x[i] * x[i]

    @qd.kernel
    def total_of_both():
        for i in x:
            y[None] += x[i] * z[i]

    total()
    with pytest.raises(
        qd.OctantsRuntimeError, match="the gradient of kernel `total` computes nothing: no field or array"
    ):
        total.grad()
    total_of_both()
    total_of_both.grad()

    @qd.kernel
    def of_array(a: qd.types.ndarray(), b: qd.types.ndarray()):
        for i in a:
            b[0] += a[i]

    a, b = qd.ndarray(qd.f64, 4, needs_grad=True), qd.ndarray(qd.f64, 1, needs_grad=True)
    plain = qd.ndarray(qd.f64, 4)
    of_array(a, b)
    of_array.grad(a, b)
    with pytest.raises(qd.OctantsRuntimeError, match="computes nothing"):
        of_array.grad(plain, qd.ndarray(qd.f64, 1))


def test_a_tape_skips_kernels_without_gradients():
    x, loss, other = qd.field(qd.f64, (), needs_grad=True), qd.field(qd.f64, (), needs_grad=True), qd.field(qd.f64, ())

    @qd.kernel
    def without():
        other[None] = 3.0

    @qd.kernel
    def square():
        loss[None] += x[None] ** 2

    x[None] = 3.0
    with qd.ad.Tape(loss):
        without()
        square()
    assert x.grad[None] == 6.0
