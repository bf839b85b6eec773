"""Tapes with custom gradients: recording, replay, and refusals."""

import contextlib

import numpy as np
import pytest

import octants as qd


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


@pytest.fixture
def scaling():
    """A field, its total times a factor, and the pair of functions that compute them with a custom gradient."""
    x = qd.field(qd.f32)
    total = qd.field(qd.f32)
    qd.root.dense(qd.i, 8).place(x)
    qd.root.place(total)
    qd.root.lazy_grad()

    @qd.kernel
    def add(factor: qd.f32):
        for i in x:
            total[None] += x[i] * factor

    @qd.kernel
    def pull(factor: qd.f32):
        for i in x:
            x.grad[i] += total.grad[None] * factor

    @qd.ad.grad_replaced
    def forward(factor, *, again=1):
        for _ in range(again):
            add(factor)
        return "done"

    @qd.ad.grad_for(forward)
    def backward(factor, *, again=1):
        pull(factor * again)

    return x, total, forward


def test_replaced_gradients_run_in_reverse(scaling):
    x, total, forward = scaling
    x.fill(2)
    total[None] = 5
    x.grad.fill(3)
    with qd.ad.Tape(loss=total):
        assert forward(4) == "done"
        forward(1, again=2)
    assert total[None] == 8 * 2 * 6  # the loss began at zero
    assert x.grad.to_numpy().tolist() == [6] * 8  # the gradients too
    with qd.ad.Tape(total, clear_gradients=False):
        forward(1)
    assert x.grad.to_numpy().tolist() == [7] * 8


def test_gradients_run_last_first():
    order = []
    loss = qd.field(qd.f32, (), needs_grad=True)

    def step(name):
        @qd.ad.grad_replaced
        def run():
            order.append(name)

        @qd.ad.grad_for(run)
        def back():
            order.append(name.upper())

        return run

    a, b = step("a"), step("b")
    with qd.ad.Tape(loss):
        a()
        b()
    assert order == ["a", "b", "B", "A"]
    assert loss.grad[None] == 1


def test_no_grad_functions_are_not_recorded(scaling):
    x, total, forward = scaling

    @qd.ad.no_grad
    def hidden(factor):
        forward(factor)

    with qd.ad.Tape(total):
        hidden(3)
        forward(1)
    assert x.grad.to_numpy().tolist() == [1] * 8


def test_replaced_methods():
    @qd.data_oriented
    class Model:
        def __init__(self):
            self.x = qd.field(qd.f32, 3, needs_grad=True)
            self.total = qd.field(qd.f32, (), needs_grad=True)

        @qd.kernel
        def add(self, factor: qd.f32):
            for i in self.x:
                self.total[None] += self.x[i] * factor

        @qd.kernel
        def pull(self, factor: qd.f32):
            for i in self.x:
                self.x.grad[i] += self.total.grad[None] * factor

        @qd.ad.grad_replaced
        def forward(self, factor):
            self.add(factor)

        @qd.ad.grad_for(forward)
        def backward(self, factor):
            self.pull(factor)

    model = Model()
    with qd.ad.Tape(model.total):
        model.forward(4)
    assert model.x.grad.to_numpy().tolist() == [4] * 3
    model.forward.grad(2)
    assert model.x.grad.to_numpy().tolist() == [6] * 3


def test_the_primal_must_be_a_replaced_function(scaling):
    _, _, forward = scaling

    @qd.kernel
    def plain():
        pass

    with pytest.raises(RuntimeError, match="`plain` is a kernel: @qd.ad.grad_for takes a Python function"):
        qd.ad.grad_for(plain)
    with pytest.raises(RuntimeError, match="must be decorated with @qd.ad.grad_replaced"):
        qd.ad.grad_for(lambda: None)
    with pytest.raises(RuntimeError, match="`scaling.<locals>.forward` has a gradient already"):
        qd.ad.grad_for(forward)


def test_a_replaced_function_without_gradient(scaling):
    _, total, _ = scaling

    @qd.ad.grad_replaced
    def alone():
        pass

    with pytest.raises(RuntimeError, match="no function is decorated with @qd.ad.grad_for"):
        with qd.ad.Tape(total):
            alone()


def test_a_block_that_raises_computes_no_gradient(scaling):
    x, total, forward = scaling

    def half():
        forward(2)
        raise KeyError

    with pytest.raises(KeyError):
        with qd.ad.Tape(total):
            half()
    assert x.grad.to_numpy().tolist() == [0] * 8
    with qd.ad.Tape(total):  # the thread is free again
        forward(2)
    assert x.grad.to_numpy().tolist() == [2] * 8


def test_tapes_do_not_nest(scaling):
    x, total, forward = scaling
    with qd.ad.Tape(total) as tape:
        with pytest.raises(RuntimeError, match=r"a qd\.ad\.Tape cannot be entered inside a qd\.ad\.Tape"):
            qd.ad.Tape(total).__enter__()
        with pytest.raises(RuntimeError, match=r"a qd\.ad\.FwdMode cannot be entered inside a qd\.ad\.Tape"):
            qd.ad.FwdMode(total, x).__enter__()
        forward(2)
    assert x.grad[0] == 2
    with pytest.raises(qd.OctantsAssertionError, match="this qd.ad.Tape was already used"):
        tape.__enter__()
    with pytest.raises(qd.OctantsAssertionError, match="evaluated once"):
        tape.grad()


def test_a_tape_belongs_to_its_thread(scaling):
    import threading

    x, total, forward = scaling
    other = threading.Thread(target=lambda: forward(5))
    with qd.ad.Tape(total):
        forward(2)
        other.start()
        other.join()
    assert x.grad.to_numpy().tolist() == [2] * 8


def test_losses():
    plain = qd.field(qd.f32, ())
    many = qd.field(qd.f32, 2, needs_grad=True)
    array = qd.ndarray(qd.f32, 2, needs_grad=True)
    bare = qd.ndarray(qd.f32, 1)
    good = qd.ndarray(qd.f32, 1, needs_grad=True)
    good.fill(4)
    for loss, text in [
        (plain, "Gradients of loss are not allocated"),
        (many, "must be a 0-D field"),
        (array, "must be an ndarray with only one element"),
        (bare, "Gradients of loss are not allocated"),
    ]:
        with pytest.raises(RuntimeError, match=text):
            qd.ad.Tape(loss).__enter__()
    with pytest.raises(TypeError, match="the loss of a tape must be a field, an ndarray or a torch tensor, got list"):
        qd.ad.Tape([1]).__enter__()
    with qd.ad.Tape(good):
        pass
    assert (good[0], good.grad[0]) == (0, 1)


def test_host_writes_stop_gradients(scaling):
    x, total, forward = scaling
    y = qd.field(qd.f32, 8, needs_grad=True)
    array = qd.ndarray(qd.types.vector(2, qd.f32), 3, needs_grad=True)

    @qd.ad.grad_replaced
    def use():
        pass

    @qd.ad.grad_for(use)
    def pull():
        y.grad.fill(1)
        x.grad.fill(1)
        array.grad.fill(1)

    with qd.ad.Tape(total):
        x[3] = 5
        y.copy_from(x)
        x[1] = 2
        array[1][0] = 7
        array[2] = [1, 2]
        use()
        y.fill(0)
    # In reverse order: y's gradient is cleared, its use sets all to one, x[1] was overwritten, x gets the gradient of
    # its copy. The tape starts with x[3] = 5. A value assigned to an element gets the element's gradient at that point.
    assert x.grad.to_numpy().tolist() == [2] * 8
    assert y.grad.to_numpy().tolist() == [0] * 8
    assert array.grad.to_numpy().tolist() == [[1, 1], [1, 1], [1, 1]]

    single = qd.field(qd.f32, (), needs_grad=True)

    @qd.ad.grad_replaced
    def use_twos():
        pass

    @qd.ad.grad_for(use_twos)
    def pull_twos():
        x.grad.fill(2)
        single.grad.fill(4)
        array.grad.fill(1)

    @qd.ad.grad_replaced
    def look():
        pass

    @qd.ad.grad_for(look)
    def seen():
        assert single.grad[None] == 0
        assert x.grad.to_numpy().tolist() == [0, 2, 2, 2, 2, 2, 2, 2]
        assert array.grad.to_numpy().tolist() == [[0, 1], [0, 0], [1, 1]]

    with qd.ad.Tape(total):
        look()
        x[0] = 1
        array[0][0] = 2
        array[1] = [3, 4]
        single[None] = 5
        use_twos()
    assert x.grad.to_numpy().tolist() == [2] * 8
    assert array.grad.to_numpy().tolist() == [[1, 1]] * 3
    assert single.grad[None] == 4


@pytest.mark.parametrize("write", [lambda y: y.fill(0), lambda y: y.from_numpy(np.zeros(2, np.float32))])
def test_host_fills_and_copies_have_gradients(write):
    x, y = (qd.field(qd.f32, 2, needs_grad=True) for _ in range(2))
    total = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def accumulate():
        for i in x:
            y[i] += x[i]
            total[None] += (i + 1) * y[i]

    with qd.ad.Tape(total):
        accumulate()
        write(y)
        accumulate()
    assert x.grad.to_numpy().tolist() == [2, 4]
    # By the initial values, and by the zeros.
    assert y.grad.to_numpy().tolist() == [2, 4]


def test_a_copy_to_itself_changes_no_gradient(scaling):
    x, total, forward = scaling
    with qd.ad.Tape(total):
        x.copy_from(x)
        forward(3.0)
    expected = x.grad.to_numpy()
    with qd.ad.Tape(total):
        forward(3.0)
    assert expected.any()
    assert np.array_equal(x.grad.to_numpy(), expected)


def test_initial_host_writes_are_inputs_of_a_tape():
    x = qd.field(qd.f64, 2, needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def squares():
        for i in x:
            loss[None] += x[i] * x[i]

    with qd.ad.Tape(loss, grad_check=[x]):
        x[0] = 3.0
        x[1] = 4.0
        squares()
    assert loss[None] == 25.0
    assert x.grad.to_numpy().tolist() == [6, 8]


def test_checks_against_differences():
    x = qd.field(qd.f64, 3, needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)
    x.from_numpy(np.array([1.0, 2.0, 3.0]))

    @qd.kernel
    def cubes():
        for i in x:
            loss[None] += x[i] ** 3

    @qd.kernel
    def pull(factor: qd.f64):
        for i in x:
            x.grad[i] += factor * x[i] ** 2 * loss.grad[None]

    def gradient(factor):
        @qd.ad.grad_replaced
        def run():
            cubes()

        @qd.ad.grad_for(run)
        def back():
            pull(factor)

        return run

    right, wrong = gradient(3.0), gradient(2.0)
    with qd.ad.Tape(loss, grad_check=[x]):
        right()
    assert x.to_numpy().tolist() == [1, 2, 3]
    assert loss[None] == 36
    with pytest.raises(AssertionError, match="Grad check failed: field number 0 of grad_check"):
        with qd.ad.Tape(loss, grad_check=[x]):
            wrong()


def test_a_gradient_check_starts_from_zero_in_unallocated_fields():
    x, y, loss = [qd.field(qd.f64, shape, needs_grad=True) for shape in (3, 3, ())]
    x.fill(2.0)

    @qd.kernel
    def add_squares():
        for i in x:
            y[i] += x[i] ** 2

    @qd.kernel
    def total():
        for i in y:
            loss[None] += y[i]

    with qd.ad.Tape(loss, grad_check=[x]):
        add_squares()
        total()
    assert x.grad.to_numpy().tolist() == [4, 4, 4]
    assert y.to_numpy().tolist() == [4, 4, 4]


def test_clearing():
    x = qd.field(qd.f32, 3, needs_grad=True, needs_dual=True)
    x.fill(1)
    x.grad.fill(2)
    x.dual.fill(3)
    qd.ad.clear_all_gradients()
    assert (x[0], x.grad[0], x.dual[0]) == (1, 0, 3)
    qd.ad.clear_all_gradients(qd.types.enums.SNodeGradType.DUAL)
    assert (x[0], x.dual[0]) == (1, 0)
    late = qd.field(qd.f32)
    qd.root.place(late)  # a tree under construction stays open
    qd.ad.clear_all_gradients()
    qd.root.lazy_grad()
    assert late.has_grad()


@pytest.fixture(params=[False, True], ids=["in order", "real streams"])
def for_streams(request):
    qd.init(arch=qd.cpu, debug=True, cpu_streams=request.param)
    x = qd.field(qd.f32, 4, needs_grad=True, needs_dual=True)
    loss = qd.field(qd.f32, (), needs_grad=True, needs_dual=True)
    yield x, loss
    qd.reset()


@pytest.mark.parametrize("scope", ["tape", "validation", "forward", "gradient"])
@pytest.mark.parametrize("form", ["function", "method"])
@pytest.mark.parametrize("way", ["qd_stream", "stream_scope", "scope outside", "stream_parallel", "all"])
def test_s20_gradients_run_on_the_streams_of_their_launches(for_streams, scope, form, way):
    x, loss = for_streams
    stream = qd.create_stream()

    @qd.data_oriented
    class Forms:
        @qd.kernel
        def plain(self):
            for i in x:
                loss[None] += x[i] * x[i]

        @qd.kernel
        def grouped(self):
            with qd.stream_parallel():
                for i in range(2):
                    loss[None] += x[i] * x[i]
            with qd.stream_parallel():
                for i in range(2, 4):
                    loss[None] += x[i] * x[i]

    @qd.kernel
    def plain():
        for i in x:
            loss[None] += x[i] * x[i]

    @qd.kernel
    def grouped():
        with qd.stream_parallel():
            for i in range(2):
                loss[None] += x[i] * x[i]
        with qd.stream_parallel():
            for i in range(2, 4):
                loss[None] += x[i] * x[i]

    name = "grouped" if way in ("stream_parallel", "all") else "plain"
    kernel = getattr(Forms(), name) if form == "method" else {"plain": plain, "grouped": grouped}[name]
    options = {"qd_stream": stream} if way in ("qd_stream", "all") else {}
    scopes = {
        "tape": lambda: qd.ad.Tape(loss),
        "validation": lambda: qd.ad.Tape(loss, validation=True),
        "forward": lambda: qd.ad.FwdMode(loss, x, seed=[1, 0, 0, 2]),
        "gradient": contextlib.nullcontext,
    }

    def on_stream():
        return qd.stream_scope(stream) if way in ("stream_scope", "all") else contextlib.nullcontext()

    x.from_numpy(np.arange(1, 5, dtype=np.float32))
    for _ in range(2):  # the first call compiles, later ones do not
        qd.ad.clear_all_gradients()
        loss.grad[None] = 1.0
        outside = qd.stream_scope(stream) if way == "scope outside" else contextlib.nullcontext()
        with outside, scopes[scope](), on_stream():
            (kernel.grad if scope == "gradient" else kernel)(**options)
        if scope == "forward":
            assert loss.dual[None] == 2.0 + 2 * 2 * 4.0
        else:
            assert x.grad.to_numpy().tolist() == [2, 4, 6, 8]
    stream.destroy()


@pytest.mark.parametrize("seed", range(4))
def test_s21_failures_of_launches_in_flight_keep_their_names(seed):
    qd.init(arch=qd.cpu, cpu_streams=True, cpu_stream_schedule=f"seed:{seed}", debug=True, ad_store_bytes=100)
    x, y = (qd.field(qd.f32, 4, needs_grad=True) for _ in range(2))
    rate, cost = (qd.field(qd.f32, (), needs_grad=True) for _ in range(2))
    n, done = qd.field(qd.i32, ()), [qd.field(qd.i32, 2000) for _ in range(2)]
    n[None] = 2000

    @qd.kernel
    def first(out: qd.template()):
        for i in out:
            assert i != 1500, "first fails"
            out[i] = i

    @qd.kernel
    def second(out: qd.template()):
        for i in out:
            out[i] = i
            assert i != 700, "second fails"

    @qd.kernel
    def careless():
        cost[None] = 3.0 * rate[None]
        rate[None] = 1.0

    @qd.kernel
    def deep():
        for i in x:
            speed = x[i]
            for _ in range(n[None]):
                speed = qd.sin(speed)
            y[i] = speed

    def line(kernel, offset):
        return kernel.fn.__code__.co_firstlineno + offset

    streams = [qd.create_stream() for _ in range(2)]
    for _ in range(2):
        for kernel, out, stream in zip([first, second], done, streams, strict=True):
            kernel(out, qd_stream=stream)
            kernel(out, qd_stream=stream)
        with pytest.raises(
            Exception, match=rf"kernel `deep` needs .* to store `speed` of the loop at .*:{line(deep, 4)}"
        ):
            deep.grad()
        read, written = line(careless, 2), line(careless, 3)
        overwrites = rf"(?s)is overwritten after line {read} has read it.*in kernel `careless` at .*:{written}"
        with pytest.raises(AssertionError, match=overwrites), qd.ad.Tape(cost, validation=True):
            careless()
        for kernel, offset, stream in [(second, 4, streams[1]), (first, 3, streams[0])]:
            name = kernel.__name__
            place = rf"{name} fails.*in kernel `{name}` at .*test_tape.py:{line(kernel, offset)}, on stream"
            with pytest.raises(AssertionError, match=f"(?s){place}"):
                stream.synchronize()
    qd.sync()
    for stream in streams:
        stream.destroy()


def test_library_work_is_not_recorded():
    qd.init(arch=qd.cpu, cpu_separate_memory=True)
    loss = qd.field(qd.f32, (), needs_grad=True)
    pair = qd.types.struct(a=qd.f32, b=qd.f32)
    x = pair.field(shape=4)
    with qd.ad.Tape(loss) as tape:
        x.a.fill(3)  # elements with gaps: a kernel of the package
        assert x.a.to_numpy().tolist() == [3] * 4
    assert tape.calls == []


def test_bound_kernels_are_methods():
    @qd.data_oriented
    class Model:
        def __init__(self, n):
            self.x = qd.field(qd.i32, n)

        @qd.kernel
        def count(self) -> qd.i32:
            """How many."""
            return self.x.shape[0]

    a, b = Model(3), Model(5)
    assert (a.count(), b.count(), Model.count(b)) == (3, 5, 5)
    assert a.count == a.count
    assert a.count != b.count
    assert len({a.count, a.count, b.count}) == 2
    assert a.count.__name__ == "count"
    assert a.count.__doc__ == "How many."
    assert a.count.__self__ is a
    assert a.count.__func__ is Model.count
    assert "octants kernel count" in repr(a.count)
    assert "gradient of octants kernel count" in repr(a.count.grad)


def test_validation_finds_overwritten_values():
    qd.init(arch=qd.cpu, debug=True)
    x = qd.field(qd.f32, 8, needs_grad=True, name="x")
    y = qd.Vector.field(2, qd.f32, (4, 3), needs_grad=True, name="y")
    z = qd.field(qd.f32, 4, needs_grad=True)
    plain = qd.field(qd.f32, 4)
    loss = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def good(n: qd.i32):
        for i in range(4):
            z[i] = x[i] * n
            plain[i] = plain[i] + 1
        for i in range(4):
            y[i, 1][0] = 2.0
            loss[None] += z[i]
            loss[None] += y[i, 1][1]

    @qd.kernel
    def later_loop():
        for i in range(4):
            loss[None] += x[i]
        for i in range(4):
            if i == 3:
                x[i] = 0.0

    @qd.kernel
    def component(k: qd.i32):
        for i in range(1):
            loss[None] += y[k, 2][0]
            y[k, 2][1] += 1.0

    for _ in range(2):
        with qd.ad.Tape(loss, validation=True) as tape:
            good(2)
            assert good.autodiff_mode.name == "VALIDATION"
        assert good.autodiff_mode.name == "NONE"
        assert len(tape.calls) == len(tape.modes) == 1

    def run(kernel, *args):
        with qd.ad.Tape(loss, validation=True):
            kernel(*args)

    with pytest.raises(AssertionError, match=r"`x`\[3\] is overwritten after line \d+ has read it: the gradient"):
        run(later_loop)
    with pytest.raises(AssertionError, match=r"`y`\[2, 2\] is overwritten after line \d+ has read it"):
        run(component, 2)
    later_loop()  # without validation it runs

    @qd.kernel
    def overwrite():
        for i in z:
            z[i] = 0.0

    def both():
        good(2)
        overwrite()  # another launch, but the gradient of `good` will read the values

    with pytest.raises(AssertionError, match=r"`z`\[\d\] is overwritten"):
        run(both)


def test_validation_checks_extremes():
    qd.init(arch=qd.cpu, debug=True, default_fp=qd.f64)
    x = qd.field(qd.f64, 8, needs_grad=True)
    m = qd.field(qd.f64, 2, needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)
    x.from_numpy(np.arange(8.0))

    @qd.kernel
    def smallest():
        for i in x:
            qd.atomic_min(m[0], x[i])
        for i in x:
            qd.atomic_min(m[0], x[i] + 1.0)

    @qd.kernel
    def use():
        loss[None] += m[0] * 3.0

    @qd.kernel
    def overwrite(k: qd.i32):
        qd.atomic_min(m[0], x[0])
        m[k] = 5.0

    @qd.kernel
    def one(i: qd.i32):
        qd.atomic_min(m[0], x[i])

    m.fill(100.0)
    with qd.ad.Tape(loss, validation=True):
        one(3)
        smallest()
        one(7)
        use()
    assert x.grad.to_numpy().tolist() == [3] + [0] * 7

    line = overwrite.fn.__code__.co_firstlineno + 2
    with pytest.raises(qd.OctantsAssertionError, match=rf"\[0\] is overwritten after line {line} has read it"):
        with qd.ad.Tape(loss, validation=True):
            overwrite(0)


def test_validation_checks_arrays():
    qd.init(arch=qd.cpu, debug=True)
    loss = qd.field(qd.f32, (), needs_grad=True)

    @qd.data_oriented
    class Held:
        def __init__(self, array):
            self.array = array

        @qd.kernel
        def overwrite(self):
            for i in self.array:
                self.array[i] = 0.0

    @qd.kernel
    def add(a: qd.types.ndarray()):
        for i in a:
            loss[None] += a[i] ** 2

    @qd.kernel
    def shift(a: qd.types.ndarray()):
        for _ in range(1):
            for i in range(3):
                loss[None] += a[i, 1]
            a[2, 1] = 7.0

    @qd.kernel
    def add_vectors(a: qd.types.ndarray(qd.types.vector(2, qd.f32), ndim=1)):
        for i in a:
            loss[None] += a[i][0]
        a[1][1] = 0.0

    a = qd.ndarray(qd.f32, 4, needs_grad=True)
    b = qd.ndarray(qd.f32, (3, 2), needs_grad=True)
    v = qd.ndarray(qd.types.vector(2, qd.f32), 3, needs_grad=True)
    held = Held(a)
    for _ in range(2):
        with qd.ad.Tape(loss, validation=True):
            add(a)

    def both():
        add(a)
        held.overwrite()

    line = shift.fn.__code__.co_firstlineno + 4
    for run, message in [
        (lambda: shift(b), rf"`a`\[2, 1\] is overwritten after line {line} has read it"),
        (lambda: add_vectors(v), r"`a`\[1\] is overwritten after line \d+ has read it"),
        (both, r"\[\d\] is overwritten after line \d+ has read it"),
    ]:
        with pytest.raises(AssertionError, match=message), qd.ad.Tape(loss, validation=True):
            run()
    with qd.ad.Tape(loss):
        both()  # without validation it runs


def test_validation_compares_values_that_gradients_reread():
    qd.init(arch=qd.cpu, debug=True)
    x = qd.field(qd.f32, 4, needs_grad=True)
    weight, which = qd.field(qd.f32, 4), qd.field(qd.i32, 4)
    loss = qd.field(qd.f32, (), needs_grad=True)
    data = np.ones(4, np.float32)

    @qd.kernel
    def add(data: qd.types.ndarray()):
        for i in x:
            if which[i] > 0:
                loss[None] += x[i] * data[i]
            loss[None] += x[(i + which[i]) % 4] * weight[i]
            loss[None] += x[i] ** 2

    line = add.fn.__code__.co_firstlineno

    def same():
        data[0] = 1.0
        weight[0] = 0.0

    for change, place in [
        (lambda: data.__setitem__(2, 5.0), None),  # that branch was not entered
        (lambda: which.__setitem__(1, 3), 3),
        (lambda: data.__setitem__(1, 2.0), 4),
        (lambda: weight.__setitem__(3, 0.5), 5),
        (lambda: x.__setitem__(2, 7.0), 6),
        (same, None),
    ]:
        x.fill(1.0)
        weight.fill(0.0)
        which.from_numpy(np.array([0, 1, 0, 0], np.int32))
        data[:] = 1.0
        scope = contextlib.nullcontext()
        if place is not None:
            message = (
                f"gradient of kernel `add` would be wrong: what line {line + place} read from memory was overwritten"
            )
            scope = pytest.raises(AssertionError, match=message)
        with scope, qd.ad.Tape(loss, validation=True):
            add(data)
            change()


def test_validation_checks_tensors():
    torch = pytest.importorskip("torch")
    qd.init(arch=qd.cpu, debug=True)
    loss = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def add(a: qd.types.ndarray(qd.types.vector(2, qd.f32), ndim=1)):
        for i in a:
            loss[None] += a[i][0]

    tensor = torch.ones(4, 2, requires_grad=True)
    with qd.ad.Tape(loss, validation=True):
        add(tensor)
    assert (tensor.grad[:, 0] == 1).all()

    @qd.kernel
    def careless(a: qd.types.ndarray()):
        for i in range(4):
            loss[None] += a[i, 1]
        a[2, 1] = 0.0

    with pytest.raises(AssertionError, match=r"`a`\[2, 1\] is overwritten"), qd.ad.Tape(loss, validation=True):
        careless(tensor)


def test_validation_requires_debug_mode(scaling):
    _, total, _ = scaling
    with pytest.warns(UserWarning, match="Debug mode is disabled, autodiff valid check will not work"):
        tape = qd.ad.Tape(total, validation=True)
    assert tape.validation is False
