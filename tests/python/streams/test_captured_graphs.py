"""`qd.graph.capture`: launches that are recorded, and launched as one graph."""

import dataclasses
import gc
import threading
import weakref
from xml.etree import ElementTree

import numpy as np
import pytest

import octants as qd
from octants import _octants
from octants._profiling.timelines import Task
from octants._streams.graph_drawings import critical_path, times_of

A = qd.types.ndarray(dtype=qd.f32, ndim=1)


@pytest.fixture(params=["in order", "streams"], autouse=True)
def program(request):
    qd.init(arch=qd.cpu, cpu_streams=request.param == "streams", random_seed=7)
    yield request.param
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


def test_a_captured_graph_runs_only_and_completely_at_each_launch():
    x, y, f = array(1), array(2), qd.field(qd.f32, shape=50)

    @qd.kernel
    def collect(x: A):
        for i in f:
            f[i] += x[i]

    with qd.graph.capture() as g:
        add(x, y, 0.5)
        scale(x, 2.0)
        collect(x)
    assert held(x) == 1
    assert held(f) == 0
    assert len(g) == 3
    assert [name for name, _, _ in g.steps] == ["add", "scale", "collect"]
    assert "3 steps" in repr(g)
    for _ in range(3):
        g.launch()
    assert held(x) == 22
    assert held(f) == 4 + 10 + 22


def test_allocations_fills_and_copies_are_captured():
    x, y, f = array(5), array(2), qd.field(qd.f32, shape=50)
    with qd.graph.capture() as g:
        made = qd.ndarray(qd.f32, 50)
        add(made, y, 1.0)
        x.fill(1)
        add(x, made, 3.0)
        f.fill(0.25)
        y.copy_from(x)
    for expected in (7, 22):
        g.launch()
        assert held(x) == held(y) == expected
        assert held(made) == (expected - 1) / 3
        assert held(f) == 0.25


def test_vectors_are_filled_element_by_element():
    v, m = qd.Vector.ndarray(3, qd.f64, 1000), qd.Matrix.field(2, 2, qd.i32, shape=7)
    with qd.graph.capture() as g:
        v.fill(qd.Vector([1.0, 2.0, 3.0]))
        m.fill(9)
    g.launch()
    assert (v.to_numpy() == [1.0, 2.0, 3.0]).all()
    assert (m.to_numpy() == 9).all()


def test_streams_and_events_make_branches(program):
    x, y = array(0), array(0)
    left, right, event = qd.create_stream(), qd.create_stream(), qd.create_event()
    with qd.graph.capture() as g:
        x.fill(1)
        y.fill(1)
        left.wait(qd.default_stream())
        right.wait(qd.default_stream())
        for _ in range(3):
            scale(x, 2.0, qd_stream=left)
        with qd.stream_scope(right):
            scale(y, 3.0)
            scale(y, 3.0)
            event.record()
        event.wait(left)
        add(x, y, 1.0, qd_stream=left)
        qd.default_stream().wait(left)
        scale(x, 10.0)
    # On a synchronous device, streams are other names of the default stream.
    assert len({lane for _, lane, _ in g.steps}) == (3 if program == "streams" or left.handle else 1)
    g.launch()
    g.launch(left)
    with qd.stream_scope(right):
        g.launch()
    g.launch()
    assert held(x) == 170
    assert held(y) == 9


def test_arguments_change_by_parameter_or_by_name():
    x, y, z = array(1), array(2), array(3)
    with qd.graph.capture() as g:
        add(x, y, 1.0)
        scale(x, 2.0)
    g.update(s=10.0)
    g.launch()
    assert held(x) == 30
    g(x=z, k=0.5)
    assert held(z) == 40
    assert held(x) == 30
    with pytest.raises(TypeError, match="no captured launch has an argument `w`"):
        g.update(w=1)
    with qd.graph.capture(state=x) as g:
        scale(x, 2.0)
        scale(y, 5.0)
    g.launch()
    assert held(x) == 60
    assert held(y) == 10
    with pytest.raises(TypeError, match="launches of scale were given different values of `s`"):
        g.update(s=1.0)
    g(state=z)
    g(state=z)
    assert (held(x), held(y), held(z)) == (60, 250, 160)
    with qd.graph.capture(other=z) as g:
        scale(x, 2.0)
    with pytest.raises(TypeError, match="`other` is not an argument"):
        g.update(other=x)


def test_arguments_of_other_shapes_and_types_are_accepted():
    @qd.kernel
    def count(x: qd.types.ndarray(ndim=1)):
        for i in x:
            x[i] += 1

    x, longer, ints = array(0), array(0, 5000), qd.ndarray(qd.i32, 9)
    with qd.graph.capture() as g:
        count(x)
    for each in (x, longer, ints, x):
        g(x=each)
    assert held(x) == 2
    assert held(longer) == 1
    assert held(ints) == 1


def test_host_arrays_are_read_at_each_launch():
    x, n = array(1), np.ones(50, np.float32)
    with qd.graph.capture() as g:
        add(n, x, 1.0)
        scale(n, 2.0)
        add(x, n, 1.0)
    g.launch()
    assert (n == 4).all()
    assert held(x) == 5
    n[:] = 0
    g.launch()
    assert (n == 10).all()
    assert held(x) == 15


def test_data_dependent_loops_and_sections_are_captured():
    @qd.kernel(graph=True)
    def rounds(x: A, y: A, left: qd.types.ndarray(dtype=qd.i32, ndim=0)):
        while qd.graph.do_while(left):
            with qd.graph.parallel_context():
                with qd.graph.parallel():
                    for i in x:
                        x[i] += 1
                with qd.graph.parallel():
                    for i in y:
                        y[i] += 2
            left[()] -= 1

    x, y, left = array(0), array(0), qd.ndarray(qd.i32, ())
    with qd.graph.capture() as g:
        left.fill(4)
        rounds(x, y, left)
        add(x, y, 1.0)
    for expected in (12, 32):
        g.launch()
        assert held(x) == expected


def test_graphs_nest():
    x, y = array(1), array(1)
    with qd.graph.capture() as inner:
        scale(x, 2.0)
    with qd.graph.capture() as outer:
        inner.launch()
        add(y, x, 1.0)
        inner.launch()
    del inner
    gc.collect()
    outer.launch()
    outer.launch()
    assert held(x) == 16
    assert held(y) == 1 + 2 + 8


def test_graphs_are_updated_before_they_are_captured_in_others():
    of_host = np.ones(1_000_000, np.float32)
    with qd.graph.capture() as inner:
        scale(of_host, 2.0)
    with qd.graph.capture() as outer:
        inner.launch()
        for update in (lambda: inner.update(s=3.0), lambda: inner(s=3.0)):
            with pytest.raises(RuntimeError, match="update it before the block"):
                update()
    values = weakref.ref(of_host)
    del of_host
    inner.update(x=np.ones(5, np.float32), s=5.0)
    gc.collect()
    assert values() is not None
    outer.launch()
    assert (values() == 2).all()
    with pytest.raises(RuntimeError, match="a graph that was launched in its capture was updated since"):
        outer.grad()


def test_random_numbers_match_those_of_the_launches():
    @qd.kernel
    def draw(x: A):
        for i in x:
            x[i] = qd.random(qd.f32)

    x, y = array(0), array(0)
    qd.init(arch=qd.cpu, random_seed=3)
    x, y = array(0), array(0)
    drawn = []
    for _ in range(2):
        draw(x)
        draw(y)
        drawn += [x.to_numpy(), y.to_numpy()]
    qd.init(arch=qd.cpu, random_seed=3)
    x, y = array(0), array(0)
    with qd.graph.capture() as g:
        draw(x)
        draw(y)
    again = []
    for _ in range(2):
        g.launch()
        again += [x.to_numpy(), y.to_numpy()]
    assert all((a == b).all() for a, b in zip(drawn, again, strict=True))
    assert not (drawn[0] == drawn[2]).any()


def test_a_graph_keeps_its_objects_alive():
    @dataclasses.dataclass
    class State:
        x: A
        y: A

    @qd.kernel
    def step(s: State):
        for i in s.x:
            s.x[i] += s.y[i]

    s = State(array(1), array(2))
    x = s.x
    with qd.graph.capture() as g:
        step(s)
        scale(array(1), 2.0)
    s.y = s.x = array(0)
    gc.collect()
    others = [array(100) for _ in range(50)]
    g.launch()
    assert held(x) == 3
    assert all(held(o) == 100 for o in others)


def test_library_functions_are_captured():
    n = 3000
    keys = qd.ndarray(qd.i32, n)
    values = np.random.default_rng(0).integers(0, 1000, n).astype(np.int32)
    sums = qd.ndarray(qd.i32, n)
    with qd.graph.capture() as g:
        qd.algorithms.launch.inclusive_scan(keys, sums)
        qd.algorithms.launch.sort(keys)
    for _ in range(2):
        keys.from_numpy(values)
        g.launch()
        assert (keys.to_numpy() == np.sort(values)).all()
        assert (sums.to_numpy() == np.cumsum(values)).all()


def test_gradients_are_captured():
    x = qd.ndarray(qd.f32, 20, needs_grad=True)
    y = qd.ndarray(qd.f32, 20, needs_grad=True)

    @qd.kernel
    def square(x: A, y: A):
        for i in x:
            y[i] = x[i] * x[i]

    x.fill(3)
    with qd.graph.capture() as g:
        square(x, y)
        y.grad.fill(1)
        x.grad.fill(0)
        square.grad(x, y)
    for value in (3, 5):
        x.fill(value)
        g.launch()
        assert held(y) == value * value
        assert held(x.grad) == 2 * value


@pytest.mark.parametrize(
    "act",
    ["x[0]", "x.__setitem__(0, 1.0)", "x.to_numpy()", "x.from_numpy(n)", "f[0]", "f.to_numpy()", "qd.sync()",
     "qd.default_stream().synchronize()", "total(x)", "e.synchronize()", "before.wait()"],
)  # fmt: skip
def test_reading_data_during_a_capture_is_refused(act):
    @qd.kernel
    def total(x: A) -> qd.f32:
        s = 0.0
        for i in x:
            s += x[i]
        return s

    x, n, f, e, before = array(1), np.ones(50, np.float32), qd.field(qd.f32, 50), qd.create_event(), qd.create_event()
    before.record()
    names = {"qd": qd, "x": x, "n": n, "f": f, "e": e, "before": before, "total": total}

    def captured():
        nonlocal g
        with qd.graph.capture() as g:
            e.record()
            eval(act, names)

    g = None
    with pytest.raises(RuntimeError, match="captur"):
        captured()
    assert total(x) == 50, "the thread launches as ever"
    for use in (g.launch, g.grad, g.update, lambda: g.steps, lambda: g.on_this_thread().__enter__()):
        with pytest.raises(RuntimeError, match="the capture was abandoned, because an exception left its `with` block"):
            use()
    assert repr(g) == "<octants captured graph, abandoned>"


def test_threads_take_part_in_a_capture():
    x, y = array(1), array(1)
    streams = [qd.create_stream() for _ in range(2)]
    ready = qd.create_event()

    def work(g):
        with g.on_this_thread(), qd.stream_scope(streams[1]):
            for _ in range(10):
                add(y, y, 1.0)
            ready.record()

    with qd.graph.capture() as g:
        thread = threading.Thread(target=work, args=(g,))
        thread.start()
        for _ in range(5):
            scale(x, 3.0, qd_stream=streams[0])
        thread.join()
        ready.wait(streams[0])
        add(x, y, 1.0, qd_stream=streams[0])
    assert len(g) == 16
    g.launch()
    assert held(y) == 1024
    assert held(x) == 243 + 1024
    with pytest.raises(RuntimeError, match="has ended"), g.on_this_thread():
        pass


def test_a_failed_assertion_belongs_to_the_graph_launch(program):
    qd.init(arch=qd.cpu, cpu_streams=program == "streams", debug=True)

    @qd.kernel
    def check(x: A):
        for i in x:
            assert x[i] < 3, "too large"

    x = array(1)
    with qd.graph.capture() as g:
        scale(x, 2.0)
        check(x)
    g.launch()

    def finish(launch, *args):
        launch(*args)
        qd.sync()

    with pytest.raises(AssertionError, match=r"too large\n  in kernel `check` \(step 1 of a captured graph\) at "):
        finish(g.launch)
    x.fill(1)
    g.launch()
    qd.sync()
    # The step of the outer graph; a launch outside of graphs has none.
    with qd.graph.capture() as outer:
        for _ in range(3):
            scale(x, 1.0)
        g.launch()
    with pytest.raises(AssertionError, match=r"\(step 4 of a captured graph\)"):
        finish(outer.launch)
    with pytest.raises(AssertionError, match=r"in kernel `check` at "):
        finish(check, x)


def test_a_graph_ends_with_its_program():
    x = array(1)
    with qd.graph.capture() as g:
        scale(x, 2.0)
    qd.reset()
    qd.init(arch=qd.cpu)
    with pytest.raises(RuntimeError, match="ended|program"):
        g.launch()


def test_a_drawing_shows_steps_dependencies_and_the_critical_path(tmp_path):
    x, y, z = array(1), array(1), array(1)
    other = qd.create_stream()
    with qd.graph.capture() as g:
        scale(x, 2.0)
        other.wait(qd.default_stream())
        add(y, x, 1.0, qd_stream=other)
        for _ in range(3):
            scale(z, 1.0)
        qd.default_stream().wait(other)
        x.fill(1)
    with pytest.raises(ValueError, match=r"a graph can only be drawn as \.svg, not as 'step\.png'"):
        g.plot(tmp_path / "graphs" / "step.png", measure=True)
    text = g.plot(tmp_path / "graphs" / "step.svg")
    assert text == (tmp_path / "graphs" / "step.svg").read_text(encoding="utf-8")
    names = [element.text for element in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text")]
    assert names.count("scale") == 4
    assert names.count("add") == 1
    assert any(str(name) in ("copy 200 bytes", "fill 200 bytes") for name in names)
    assert names[-1] == f"critical path: {len(critical_path(g.steps, None))} of {len(g)} steps"
    titles = [title.text for title in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}title")]
    crossing = (
        {"stream 0 waits for stream 1", "stream 1 waits for stream 0"} if len({s for _, s, _ in g.steps}) > 1 else set()
    )
    assert {t for t in titles if "waits" in t} == crossing
    assert any(t.startswith("order of stream") for t in titles)
    measured = ElementTree.fromstring(g.plot(measure=True))
    assert sum("µs" in (e.text or "") for e in measured.iter("{http://www.w3.org/2000/svg}text")) == 6
    assert held(y) == 3, "measuring launches the graph once"


def test_the_critical_path_is_the_longest():
    steps = [("a", 0, []), ("b", 1, [0]), ("c", 0, [0]), ("c", 0, [2]), ("d", 0, [1, 3])]
    assert critical_path(steps, None) == [0, 2, 3, 4]
    assert critical_path(steps, [1.0, 9.0, 1.0, 1.0, 1.0]) == [0, 1, 4]
    tasks = [
        Task("c", "0", "", 0.0, 2.0, 7, ()),
        Task("a", "0", "", 0.0, 1.0, 5, ()),
        Task("d", "0", "", 3.0, 4.0, 9, ()),
    ]
    assert times_of(steps, tasks) == [1.0, 0.0, 2.0, 0.0, 1.0]


def test_events_of_a_capture_have_no_effect_outside():
    x, event = qd.ndarray(qd.f32, 50), qd.create_event()
    with qd.graph.capture() as g:
        scale(x, 1.0)
        event.record()
    g.launch()
    for use in (event.wait, event.synchronize, event.query):
        with pytest.raises(RuntimeError, match="last recorded in a capture"):
            use()
    event.record()
    event.synchronize()


def test_an_update_that_fails_changes_nothing():
    x, y = qd.ndarray(qd.f32, 50), qd.ndarray(qd.f32, 50)
    x.fill(1.0)
    y.fill(1.0)

    @qd.kernel
    def shift(x: qd.types.ndarray(dtype=qd.f32, ndim=1), by: qd.i32):
        for i in x:
            x[i] += by

    @qd.kernel
    def shift_both(y: qd.types.ndarray(dtype=qd.f32, ndim=1), by: qd.i32, other: qd.i32):
        for i in y:
            y[i] += by + other

    with qd.graph.capture() as g:
        shift(x, 1)
        shift_both(y, 1, 1)
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        g.update(by=5, other="no number")
    g.launch()
    assert (x[0], y[0]) == (2.0, 3.0)


def test_replaced_arrays_are_released():
    x = qd.ndarray(qd.f32, 50)
    with qd.graph.capture() as g:
        scale(x, 1.0)
    g.launch()
    qd.sync()
    in_use = set()
    for _ in range(5):
        other = qd.ndarray(qd.f32, 50)
        g(x=other)
        qd.sync()
        del other
        in_use.add(_octants.memory_info()["in_use"])
    assert len(in_use) == 1


def test_a_thread_that_outlives_the_capture_is_refused():
    x = qd.ndarray(qd.f32, 50)
    opened, ended, errors = threading.Event(), threading.Event(), []

    def work(g):
        with g.on_this_thread():
            opened.set()
            ended.wait()
            try:
                scale(x, 2.0)
            except RuntimeError as error:
                errors.append(str(error))

    with qd.graph.capture() as g:
        thread = threading.Thread(target=work, args=(g,))
        thread.start()
        opened.wait()
    ended.set()
    thread.join()
    assert len(errors) == 1
    assert "has ended" in errors[0]
    assert len(g) == 0


def test_a_graph_is_unusable_during_its_capture():
    x = array(1)
    with qd.graph.capture() as g:
        scale(x, 2.0)
        for use in (g.launch, g, g.grad, lambda: g.update(s=3.0), lambda: g.save("never"), lambda: g.steps):
            with pytest.raises(RuntimeError, match="the capture has not ended"):
                use()
        assert repr(g) == "<octants captured graph, being captured>"
    g.launch()
    g(s=3.0)
    assert held(x) == 6


def test_a_capture_is_entered_once():
    x = array(1)
    capture = qd.graph.capture()
    with capture as g:
        scale(x, 2.0)
    with pytest.raises(RuntimeError, match="a capture can only be entered once"), capture:
        pass
    g.launch()
    assert held(x) == 2


Two = qd.types.ndarray(dtype=qd.f32, ndim=2)


@qd.kernel
def accumulate(a: A, b: A, c: A, m: Two, k: qd.f32, n: qd.i32):
    a[0] = a[0] * k + b[1] + m[0, 1]
    c[n] = a[0]


def test_steps_in_sequence_without_loops_are_launched_again_with_other_arguments_and_on_another_stream():
    a, b, c, other = array(1), array(2), array(0), array(5)
    m = qd.ndarray(qd.f32, (2, 3))
    m.fill(0.5)
    stream = qd.create_stream()
    expected = np.float32(0)

    def steps(start, first, k):
        value = np.float32(start)
        value = value * np.float32(k) + np.float32(first) + np.float32(0.5)
        return value * np.float32(k) + np.float32(first) + np.float32(0.5)

    with qd.graph.capture() as g:
        a.fill(1.0)
        accumulate(a, b, c, m, 3.0, 4)
        accumulate(a, b, c, m, 3.0, 7)
        b.copy_from(c)
    for launch in range(3):
        g.launch(stream if launch == 1 else None)
        expected = steps(1, 2 if launch == 0 else 0, 3.0)
        qd.sync()
        assert (a[0], c[7], b[7], b[1]) == (expected, expected, expected, 0.0), launch
    g.update(k=2.0)
    g(b=other)
    qd.sync()
    assert (a[0], c[7], b[7], other[7]) == (*[steps(1, 5, 2.0)] * 3, 5.0)
    del g
    gc.collect()
    qd.sync()
    assert a[0] == steps(1, 5, 2.0)
