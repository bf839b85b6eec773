"""Streams and events. Tests are named by the numbers of the requirements they hold (S1, S2, ...), and run where work is done
in order, where streams are real, and under schedules that do work as late and as shuffled as is allowed.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import octants as qd

MODES = {
    "in order": {},
    "streams": {"cpu_streams": True},
    "schedule 1": {"cpu_streams": True, "cpu_stream_schedule": "seed:1"},
    "schedule 2": {"cpu_streams": True, "cpu_stream_schedule": "seed:2"},
}
SEEDS = int(os.environ.get("OCTANTS_TEST_SEEDS", "40"))

Ints = qd.types.ndarray(dtype=qd.i32, ndim=1)
n = 1000


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    qd.init(arch=qd.cpu, **MODES[request.param])
    yield request.param
    qd.reset()


@pytest.fixture
def real() -> Iterator[None]:
    qd.init(arch=qd.cpu, cpu_streams=True)
    yield
    qd.reset()


@pytest.fixture(params=range(SEEDS))
def seed(request: pytest.FixtureRequest) -> Iterator[int]:
    qd.init(arch=qd.cpu, cpu_streams=True, cpu_stream_schedule=f"seed:{request.param}")
    yield request.param
    qd.reset()


def ints(size: int = n) -> qd.Ndarray:
    return qd.ndarray(qd.i32, shape=size)


@qd.kernel
def fill(x: Ints, value: qd.i32):
    for i in x:
        x[i] = value


@qd.kernel
def add(x: Ints, y: Ints, value: qd.i32):
    for i in x:
        y[i] = x[i] + value


@qd.kernel
def slow(x: Ints, value: qd.i32, rounds: qd.i32):
    qd.loop_config(serialize=True)
    for _ in range(1):
        s = value
        for _step in range(rounds):
            s = (s ^ (s >> 7)) * 1664525 + _step
        x[0] = value
        x[1] = s


@qd.kernel
def check(limit: qd.i32):
    for i in range(10):
        assert i < limit


@qd.kernel
def total(x: Ints) -> qd.i32:
    s = 0
    for i in x:
        s += x[i]
    return s


@qd.kernel
def both(x: Ints, y: Ints, value: qd.i32):
    with qd.stream_parallel():
        for i in x:
            x[i] = value
        for i in x:
            x[i] += 1
    with qd.stream_parallel():
        for i in y:
            y[i] = 2 * value


LONG = 20_000_000


def test_s1_handles(mode):
    s, e = qd.create_stream(priority=1), qd.create_event(timing=True)
    assert isinstance(s, qd.Stream)
    assert isinstance(e, qd.Event)
    assert (s.handle == 0) == (e.handle == 0) == (mode == "in order")
    s.destroy()
    e.destroy()
    assert s.handle == 0
    assert e.handle == 0


def test_s2_every_kernel_takes_a_stream(mode):
    @qd.data_oriented
    class Owner:
        def __init__(self):
            self.x = ints()

        @qd.kernel
        def run(self, value: qd.i32):
            for i in self.x:
                self.x[i] = value

    with qd.create_stream() as s:
        x, owner = ints(), Owner()
        fill(x, 1, qd_stream=s)
        fill(x, value=2, qd_stream=s)
        owner.run(3, qd_stream=s)
        assert total(x, qd_stream=s) == 2 * n
        assert (owner.x.to_numpy() == 3).all()
        x.fill(4, qd_stream=s)
        y = ints()
        y.copy_from(x, qd_stream=s)
        assert (y.to_numpy() == 4).all()
        f = qd.field(qd.i32, shape=3)
        f.fill(5, qd_stream=s)
        assert f[2] == 5
        fill(x, 6, qd_stream=None)
        assert x[0] == 6


def test_s2_perf_dispatch_takes_a_stream(mode):
    @qd.perf_dispatch(get_geometry_hash=lambda x, value: x.shape)
    def operation(x, value): ...

    operation.register(fill)
    with qd.create_stream() as s:
        x = ints()
        for value in range(4):
            operation(x, value, qd_stream=s)
            assert x[5] == value


@pytest.mark.parametrize("wrong", [3, "stream", object(), 1.5])
def test_s2_a_wrong_type_names_the_parameter(mode, wrong):
    x = ints()
    with pytest.raises(TypeError, match=r"qd_stream must be a Stream \(or an object with __cuda_stream__\), got "):
        fill(x, 1, qd_stream=wrong)
    with pytest.raises(TypeError, match="qd_stream must be a Stream"):
        x.fill(1, qd_stream=wrong)
    with pytest.raises(TypeError, match="qd_stream must be a Stream"):
        qd.create_event().record(wrong)
    with pytest.raises(TypeError, match="stream must be a Stream"):
        qd.stream_scope(wrong)
    with pytest.raises(TypeError, match="event_or_stream must be a Stream"):
        qd.create_stream().wait(wrong)


def test_s2_no_parameter_has_the_name():
    with pytest.raises(qd.QuadrantsSyntaxError, match="every kernel takes `qd_stream=`"):

        @qd.kernel
        def bad(qd_stream: qd.i32):
            pass


def test_s3_scopes_nest_and_are_per_thread(mode):
    default = qd.default_stream()
    assert qd.current_stream() == default
    with qd.create_stream() as s1, qd.create_stream() as s2:
        with qd.stream_scope(s1) as entered:
            assert entered is s1
            assert qd.current_stream() is s1
            with qd.stream_scope(s2):
                assert qd.current_stream() is s2
                seen = []
                thread = threading.Thread(target=lambda: seen.append(qd.current_stream() == default))
                thread.start()
                thread.join()
                assert seen == [True]
            assert qd.current_stream() is s1
            with pytest.raises(ZeroDivisionError), qd.stream_scope(s2):
                1 / 0
            assert qd.current_stream() is s1
        assert qd.current_stream() == default


def test_s3_a_scope_is_where_kernels_and_events_go(real):
    x = ints()
    with qd.create_stream() as s, qd.create_event() as e:
        slow(x, 1, 1)
        qd.sync()
        with qd.stream_scope(s):
            slow(x, 2, LONG)
            e.record()
        assert not s.query()
        assert not e.query()
        assert qd.default_stream().query()
        e.wait()  # the default stream
        fill(x, 3)
        assert x[0] == 3


def test_s3_a_scope_ends_in_order(mode):
    with qd.create_stream() as s1, qd.create_stream() as s2:
        outer, inner = qd.stream_scope(s1), qd.stream_scope(s2)
        outer.__enter__()
        inner.__enter__()
        with pytest.raises(RuntimeError, match="a stream scope ends on the thread it began on"):
            outer.__exit__()
        inner.__exit__()
        outer.__exit__()


def test_s4_queries_and_waits(mode):
    x, y = ints(), ints()
    with qd.create_stream() as s1, qd.create_stream() as s2, qd.create_event() as e:
        assert s1.query()
        assert e.query()
        e.wait(s2)  # never recorded: nothing to wait for
        e.synchronize()
        fill(x, 1, qd_stream=s1)
        e.record(s1)
        e.wait(qd_stream=s2)
        add(x, y, 1, qd_stream=s2)
        s1.wait(s2)
        add(y, x, 1, qd_stream=s1)
        e.record(s1)
        s2.wait(e)
        s2.wait(s2)
        add(x, y, 1, qd_stream=s2)
        s2.synchronize()
        assert s1.query()
        assert s2.query()
        assert e.query()
        assert y[0] == 4


def test_s4_events_tell_time(mode):
    x = ints()
    with qd.create_stream() as s:
        a, b, plain = qd.create_event(timing=True), qd.create_event(timing=True), qd.create_event()
        with pytest.raises(RuntimeError, match=r"needs two recorded events: call record\(\) on both"):
            a.elapsed_ms(b)
        a.record(s)
        start = time.perf_counter()
        slow(x, 1, LONG, qd_stream=s)
        b.record(s)
        elapsed = a.elapsed_ms(b)
        assert 0.1 < elapsed <= (time.perf_counter() - start) * 1e3 + 1.0
        assert b.elapsed_ms(a) == -elapsed
        plain.record(s)
        with pytest.raises(RuntimeError, match=r"make them with create_event\(timing=True\)"):
            a.elapsed_ms(plain)
        with pytest.raises(TypeError, match="later must be an Event, got int"):
            a.elapsed_ms(3)


def test_s5_destroy_drains(mode):
    x = ints()
    view = np.frombuffer(x.buffer, np.int32)  # no host read that would wait
    s = qd.create_stream()
    fill(x, 0)
    qd.sync()
    slow(x, 7, LONG, qd_stream=s)
    s.destroy()
    assert view[0] == 7
    s.destroy()
    with qd.create_stream() as s:
        slow(x, 8, LONG, qd_stream=s)
    assert view[0] == 8
    s = qd.create_stream()
    slow(x, 9, LONG, qd_stream=s)
    del s
    gc.collect()
    assert view[0] == 9


def test_s5_destroy_after_reset_whatever_came_since():
    for before in MODES.values():
        for after in MODES.values():
            qd.init(arch=qd.cpu, **before)
            s, e, x = qd.create_stream(), qd.create_event(), ints()
            slow(x, 1, 1000, qd_stream=s)
            e.record(s)
            qd.reset()
            qd.init(arch=qd.cpu, **after)
            s.destroy()
            e.destroy()
            s.destroy()
            other = qd.create_stream()
            fill(ints(), 1, qd_stream=other)
            other.destroy()
    qd.reset()
    with pytest.raises(RuntimeError, match="not initialized"):
        qd.create_stream()


def test_s5_interpreter_exit_with_work_queued(tmp_path):
    script = tmp_path / "leave.py"
    script.write_text(
        "import octants as qd\n"
        "qd.init(arch=qd.cpu, cpu_streams=True)\n"
        "x = qd.ndarray(qd.f64, shape=1000)\n"
        "@qd.kernel\n"
        "def long(x: qd.types.ndarray()):\n"
        "    for i in x:\n"
        "        for j in range(100000):\n"
        "            x[i] = qd.sin(x[i] + j)\n"
        "s, e = qd.create_stream(), qd.create_event()\n"
        "for _ in range(3):\n"
        "    long(x, qd_stream=s)\n"
        "e.record(s)\n"
        "print('left')\n"
    )
    env = os.environ | {"PYTHONPATH": str(Path(qd.__file__).parents[1])}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=100, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "left\n", "")


def test_s6_use_after_destroy(mode):
    x, s, e = ints(), qd.create_stream(), qd.create_event()
    s.destroy()
    e.destroy()
    gone = r"this stream was destroyed: create another with create_stream\(\)"
    open_stream, open_event = qd.create_stream(), qd.create_event()
    uses = [
        lambda: fill(x, 1, qd_stream=s),
        s.synchronize,
        s.query,
        s.__cuda_stream__,
        s.__enter__,
        lambda: s.wait(open_event),
        lambda: open_stream.wait(s),
        lambda: qd.stream_scope(s),
        lambda: open_event.record(s),
        lambda: open_event.wait(s),
        lambda: x.fill(1, qd_stream=s),
    ]
    for use in uses:
        with pytest.raises(RuntimeError, match=gone):
            use()
    gone = r"this event was destroyed: create another with create_event\(\)"
    uses = [e.record, e.wait, e.synchronize, e.query, e.__enter__]
    uses += [lambda: e.elapsed_ms(open_event), lambda: open_stream.wait(e), lambda: open_event.elapsed_ms(e)]
    for use in uses:
        with pytest.raises(RuntimeError, match=gone):
            use()
    with qd.stream_scope(open_stream):
        open_stream.destroy()
        with pytest.raises(RuntimeError, match="this stream was destroyed"):
            fill(x, 1)
    assert x[0] == 0


def test_s6_use_after_the_program_has_ended():
    for options in MODES.values():
        qd.init(arch=qd.cpu, **options)
        s, e = qd.create_stream(), qd.create_event()
        qd.init(arch=qd.cpu, **options)
        x = ints()
        gone = r"this stream belongs to a program that `init\(\)` or `reset\(\)` has ended"
        for use in [lambda: fill(x, 1, qd_stream=s), s.synchronize, s.query, lambda: qd.create_event().record(s)]:
            with pytest.raises(RuntimeError, match=gone):
                use()
        for use in [e.record, e.wait, e.synchronize, e.query]:
            with pytest.raises(RuntimeError, match="this event belongs to a program"):
                use()
        assert x[0] == 0
        assert "ended" in repr(s)
    qd.reset()


def test_s7_streams_of_others(mode):
    class Foreign:
        def __init__(self, handle, version=0):
            self.answer = (version, handle)

        def __cuda_stream__(self):
            return self.answer

    class Torch:
        cuda_stream = 0

    x = ints()
    with qd.create_stream() as s:
        for stream in [Foreign(0), Torch(), Foreign(s.handle), qd.Stream.from_handle(s.handle)]:
            fill(x, 1, qd_stream=stream)
            with qd.stream_scope(stream):
                fill(x, 2)
            qd.sync()
            assert x[0] == 2
        assert s.__cuda_stream__() == (0, s.handle)
        wrapped = qd.Stream.from_handle(s.handle)
        assert wrapped == s or mode == "in order"
        wrapped.destroy()
        fill(x, 3, qd_stream=s)
        assert x[0] == 3
        with pytest.raises(TypeError, match="version 9 of __cuda_stream__ is not known"):
            fill(x, 1, qd_stream=Foreign(0, 9))
    default = qd.Stream.from_handle(0)
    assert default == qd.default_stream()
    assert hash(default) == hash(qd.default_stream())
    assert default.handle == 0
    slow(x, 5, LONG, qd_stream=default)
    default.synchronize()
    assert np.frombuffer(x.buffer, np.int32)[0] == 5
    if mode != "in order":
        with pytest.raises(RuntimeError, match="no stream of this program has the handle 4711"):
            qd.Stream.from_handle(4711)


def test_s8_streams_run_side_by_side(real):
    x, y = ints(), ints()
    slow(x, 1, LONG)
    qd.sync()

    with qd.create_stream() as s1, qd.create_stream() as s2:
        marks = {s: [qd.create_event(timing=True) for _ in range(2)] for s in (s1, s2)}
        start = time.perf_counter()
        for s, z in ((s1, x), (s2, y)):
            marks[s][0].record(s)
            slow(z, 2, 5 * LONG, qd_stream=s)
            marks[s][1].record(s)
        queued = time.perf_counter() - start
        qd.sync()
        assert queued < (time.perf_counter() - start) / 5, "launches return before the work is done"
        # Each begins before the other ends, however busy the machine is.
        assert marks[s1][0].elapsed_ms(marks[s2][1]) > 0
        assert marks[s2][0].elapsed_ms(marks[s1][1]) > 0
    assert x[0] == 2
    assert y[0] == 2


def test_s8_hundreds_of_streams_that_wait_for_one_another(real):
    x = ints()
    streams = [qd.create_stream() for _ in range(300)]
    fill(x, 0, qd_stream=streams[0])
    # The last are queued first: no order of service may get stuck.
    for before, after in zip(streams, streams[1:], strict=False):
        after.wait(before)
        add(x, x, 1, qd_stream=after)
    assert x[0] == 299
    for s in streams:
        s.destroy()


@pytest.mark.parametrize("container", ["field", "ndarray", "numpy"])
def test_s10_groups_work_on_everything(mode, container):
    make = {"field": lambda: qd.field(qd.i32, shape=n), "ndarray": ints, "numpy": lambda: np.zeros(n, np.int32)}
    a, b = make[container](), make[container]()
    Array = qd.template() if container == "field" else Ints

    @qd.kernel
    def run(x: Array, y: Array, m: qd.i32):
        with qd.stream_parallel():
            for i in range(m):
                x[i] = i
            for i, j in qd.ndrange(m // 2, 2):
                x[2 * i + j] += 1
        with qd.stream_parallel():
            k = m - 1
            for i in y:
                y[i] = -i
            y[0] = k

    with qd.create_stream() as s:
        for m in (n, 10):
            run(a, b, m, qd_stream=s)
        s.synchronize()
    got = a if container == "numpy" else a.to_numpy()
    assert (got[:n] == np.arange(n) + 1).all()
    got = b if container == "numpy" else b.to_numpy()
    assert got[0] == 9
    assert (got[1:] == -np.arange(1, n)).all()


def test_s9_s10_empty_blocks_and_docstrings(mode):
    x = ints()

    @qd.kernel
    def run(x: Ints):
        """Documented."""
        with qd.stream_parallel():
            pass
        with qd.stream_parallel():
            for i in x:
                x[i] = 1

    run(x)
    assert (x.to_numpy() == 1).all()


def test_s11_fork_and_join_need_no_event_and_no_host(real):
    a, b, c = ints(), ints(), ints()

    @qd.kernel
    def parallel(a: Ints, b: Ints, c: Ints):
        with qd.stream_parallel():
            for i in b:
                b[i] = a[i] + 1
        with qd.stream_parallel():
            for i in c:
                c[i] = a[i] + 2

    with qd.create_stream() as s:
        for value in (1, 2):
            start = time.perf_counter()
            slow(a, value, LONG, qd_stream=s)
            parallel(a, b, c, qd_stream=s)
            add(b, a, 10, qd_stream=s)
            queued = time.perf_counter() - start
            s.synchronize()
            whole = time.perf_counter() - start
            assert (a[0], b[0], c[0]) == (value + 11, value + 1, value + 2)
        assert queued < whole / 5


def test_s9_misuse(mode):
    x = ints()

    def refused(kernel, match):
        with pytest.raises(qd.QuadrantsSyntaxError, match=match) as caught:
            kernel(x)
        assert "test_streams.py" in str(caught.value), "the user's line is named"

    @qd.kernel
    def mixed(x: Ints):
        with qd.stream_parallel():
            for i in x:
                x[i] = 1
        for i in x:
            x[i] = 2

    refused(mixed, "all top-level statements must be")

    @qd.kernel
    def nested(x: Ints):
        with qd.stream_parallel():
            with qd.stream_parallel():
                for i in x:
                    x[i] = 1

    refused(nested, "Nested")

    @qd.kernel
    def in_loop(x: Ints):
        for i in range(3):
            with qd.stream_parallel():
                x[i] = 1

    refused(in_loop, "must stand at the top level of the kernel")

    @qd.kernel
    def in_branch(x: Ints):
        if x[0] == 0:
            with qd.stream_parallel():
                for i in x:
                    x[i] = 1

    refused(in_branch, "must stand at the top level of the kernel")

    @qd.func
    def helper(x: qd.template()):
        with qd.stream_parallel():
            for i in x:
                x[i] = 1

    @qd.kernel
    def in_func(x: Ints):
        helper(x)

    refused(in_func, "can only be used inside @qd.kernel, not @qd.func")

    @qd.kernel
    def named(x: Ints):
        with qd.stream_parallel() as s:
            for i in x:
                x[i] = 1

    refused(named, "'with ... as ...' is not supported")

    @qd.kernel
    def several(x: Ints):
        with qd.stream_parallel(), qd.stream_parallel():
            for i in x:
                x[i] = 1

    refused(several, "only supports a single context manager")

    @qd.kernel
    def returns(x: Ints) -> qd.i32:
        with qd.stream_parallel():
            for i in x:
                x[i] = 1
        return 3

    refused(returns, "all top-level statements must be")

    @qd.kernel
    def returns_within(x: Ints) -> qd.i32:
        with qd.stream_parallel():
            return 3

    refused(returns_within, "`return` is not supported in a kernel with")

    @qd.kernel(graph=True)
    def graph(x: Ints):
        with qd.stream_parallel():
            for i in x:
                x[i] = 1

    refused(graph, "not compatible with graph=True")

    @qd.kernel
    def option(x: Ints):
        with qd.stream_parallel(overlap=True):
            for i in x:
                x[i] = 1

    refused(option, "takes only `allow_overlap=`")
    with pytest.raises(qd.OctantsScopeError, match="belongs in a kernel"):
        qd.stream_parallel()
    assert x[0] == 0


def test_s13_sections_that_overlap_for_certain(mode):
    x, y = ints(), ints()
    f = qd.field(qd.i32, shape=n)
    v = qd.Vector.ndarray(2, qd.i32, shape=n)

    @qd.kernel
    def same(x: Ints, y: Ints):
        with qd.stream_parallel():
            for i in x:
                x[i] = 1
        with qd.stream_parallel():
            for i in x:
                x[i] = 2

    @qd.kernel
    def reads(x: Ints, y: Ints):
        with qd.stream_parallel():
            for i in range(100):
                x[i + 50] = 1
        with qd.stream_parallel():
            for i in range(100):
                y[i] = x[i]

    @qd.kernel
    def field(x: Ints, y: Ints):
        with qd.stream_parallel():
            for i in f:
                f[i] = 1
        with qd.stream_parallel():
            f[0] = 2

    for kernel, match in [
        (same, "two .* write the same elements of `x`"),
        (reads, "writes elements of `x` that another reads"),
        (field, "`f`"),
    ]:
        with pytest.raises(qd.QuadrantsSyntaxError, match=match) as caught:
            kernel(x, y)
        assert "allow_overlap=True" in str(caught.value)
        assert "test_streams.py" in str(caught.value)


def test_s13_sections_that_may_overlap(mode):
    x, y = ints(), ints()

    @qd.kernel
    def strided(x: Ints, y: Ints):
        with qd.stream_parallel():
            for i in range(100):
                x[2 * i] = 1
        with qd.stream_parallel():
            for i in range(100):
                x[2 * i + 1] = 2

    @qd.kernel
    def conditional(x: Ints, y: Ints):
        with qd.stream_parallel():
            for i in x:
                if i < 10:
                    x[i] = 1
        with qd.stream_parallel():
            for i in x:
                if i >= 10:
                    x[i] = 2

    @qd.kernel
    def indirect(x: Ints, y: Ints):
        with qd.stream_parallel():
            for i in x:
                x[i] = 1
        with qd.stream_parallel():
            for i in range(3):
                y[i] = x[y[i + 5]]

    for kernel in (strided, conditional, indirect):
        with pytest.warns(UserWarning, match=r"qd.stream_parallel\(\) block.* may write .*`x`"):
            kernel(x, y)
    qd.sync()


@pytest.mark.filterwarnings("error")
def test_s13_one_array_passed_for_two_parameters(mode):
    x, y, z = ints(), ints(), ints()

    @qd.kernel
    def run(x: Ints, y: Ints, z: Ints):
        with qd.stream_parallel():
            for i in range(100):
                x[i] = 1
        with qd.stream_parallel():
            for i in range(100):
                y[i] = z[i]

    @qd.kernel
    def apart(x: Ints, y: Ints):
        with qd.stream_parallel():
            for i in range(100):
                x[i] = 1
        with qd.stream_parallel():
            for i in range(100, x.shape[0]):
                y[i] = 2

    def refused(match, *args):
        with pytest.raises(qd.QuadrantsSyntaxError, match=match) as caught:
            run(*args)
        assert "allow_overlap=True" in str(caught.value)
        assert "y[i] = z[i]" in str(caught.value), "the user's line is shown"

    run(x, y, y)  # one block may use it as often as it likes
    for _ in range(2):
        refused(r"two .* blocks write the same elements of `x` and `y` \(the same memory in this call\)", x, x, z)
        refused(
            r"one .* block writes elements of `x` and `z` \(the same memory in this call\) that another reads", x, y, x
        )
        run(x, y, z)
    apart(x, x)
    assert (x.to_numpy() == np.where(np.arange(n) < 100, 1, 2)).all()

    # Views that share a part: equal indices need not be equal elements.
    host = np.zeros(2 * n, np.int32)
    with pytest.warns(UserWarning, match="blocks may write the same elements of `x` and `y`"):
        run(host[:n], host[50 : n + 50], z)
    run(host[:n], host[n:], z)


@pytest.mark.filterwarnings("error")
def test_s13_sections_that_do_not_overlap_or_are_allowed_to(mode):
    x, y = ints(), ints()
    v = qd.Vector.ndarray(2, qd.i32, shape=n)

    @qd.kernel
    def apart(x: Ints, y: Ints, v: qd.types.ndarray(dtype=qd.types.vector(2, qd.i32), ndim=1)):
        with qd.stream_parallel():
            for i in range(100):
                x[i] = y[i]
            for i in range(100):
                x[i] += 1
            for i in v:
                v[i][0] = 1
        with qd.stream_parallel():
            for i in range(100, 200):
                x[i] = y[i]
            for i in v:
                v[i][1] = 2
        with qd.stream_parallel():
            x[500] = 3

    apart(x, y, v)
    assert x[0] == 1
    assert x[100] == 0
    assert x[500] == 3
    assert v[4][0] == 1
    assert v[4][1] == 2

    @qd.kernel
    def counted(x: Ints, y: Ints):
        with qd.stream_parallel():
            for i in range(100):
                qd.atomic_add(y[i % 3], 1)
        with qd.stream_parallel():
            for i in range(100):
                qd.atomic_add(y[i % 3], 1)

    counted(x, y)
    assert y.to_numpy().sum() == 200

    @qd.kernel
    def meant(x: Ints, y: Ints):
        with qd.stream_parallel(allow_overlap=True):
            for i in x:
                x[i] = 7
        with qd.stream_parallel():
            for i in x:
                x[i] = 7

    meant(x, y)
    assert (x.to_numpy() == 7).all()


def test_s15_the_pool_is_as_large_as_ever_needed(mode):
    x, y = ints(), ints()
    before = qd.stream_pool_stats()
    assert before == {"created": 0, "in_use": 0, "idle": 0, "reused": 0}
    for value in range(5):
        both(x, y, value)
        assert x[0] == value + 1
        assert y[0] == 2 * value
    workers = 0 if mode == "in order" else 1
    assert qd.stream_pool_stats() == {"created": workers, "in_use": 0, "idle": workers, "reused": 4 * workers}
    qd.trim_stream_pool()
    assert qd.stream_pool_stats()["idle"] == 0


def test_s16_host_arrays_hold_the_result_when_the_call_returns(mode):
    with qd.create_stream() as s:
        for value in range(3):
            x = np.zeros(n, np.int32)
            fill(x, value, qd_stream=s)
            assert (x == value).all()
        x = np.ones(n, np.int32)
        y = ints()
        add(x, y, 1, qd_stream=s)
        x[:] = 5  # the call has read it
        assert (y.to_numpy() == 2).all()


def test_s16_host_arrays_that_are_read_do_not_hold_up_the_call(real):
    a, b = ints(), ints()
    x = np.ones(n, np.int32)
    with qd.create_stream() as s:
        slow(a, 1, 1, qd_stream=s)
        add(x, b, 1, qd_stream=s)  # compiled
        slow(a, 2, 10 * LONG, qd_stream=s)
        add(x, b, 2, qd_stream=s)
        x[:] = 100
        add(x[::-2], b, 3, qd_stream=s)
        assert not s.query(), "the launches wait for nothing"
        del x
        assert (b.to_numpy()[: n // 2] == 103).all()
        assert (b.to_numpy()[n // 2 :] == 3).all()
        # One that is written is waited for, and holds the result.
        y = np.zeros(n, np.int32)
        slow(a, 3, 3 * LONG, qd_stream=s)
        add(b, y, 1, qd_stream=s)
        assert y[0] == 104
        assert s.query()


def test_s16_many_host_arrays_in_flight(seed):
    outs = [ints(20) for _ in range(6)]
    with qd.create_stream() as s1, qd.create_stream() as s2:
        for k, out in enumerate(outs):
            x = np.full(20, k, np.int32)
            add(x, out, 10, qd_stream=s1 if k % 2 else s2)
            x[:] = -1
        for k, out in enumerate(outs):
            assert (out.to_numpy() == k + 10).all()


def test_s17_one_kernel_on_two_streams(seed):
    arrays = [ints(50) for _ in range(4)]
    streams = [qd.create_stream() for _ in arrays]
    for step in range(3):
        for k, (x, s) in enumerate(zip(arrays, streams, strict=True)):
            fill(x, 10 * k + step, qd_stream=s)
            add(x, x, 1000, qd_stream=s)
    for k, (x, s) in enumerate(zip(arrays, streams, strict=True)):
        assert total(x, qd_stream=s) == 50 * (10 * k + 2 + 1000)
    for s in streams:
        s.destroy()


@qd.kernel
def loops_of_computed_length(bound: Ints, x: Ints, y: Ints):
    with qd.stream_parallel():
        for i in range(bound[0] * 2):
            x[i] = 1
    with qd.stream_parallel():
        for i in range(bound[0] * 2 + 1):
            y[i] = 2


@qd.kernel
def extremes(x: Ints, out: Ints):
    low, high = 1000000, -1000000
    for i in x:
        qd.atomic_min(low, x[i])
        qd.atomic_max(high, x[i])
    for _ in range(1):
        out[0] = low
        out[1] = high


def test_s12_s17_bounds_and_reductions_in_flight(seed):
    s1, s2 = qd.create_stream(), qd.create_stream()
    x, y, bound = ints(64), ints(64), ints(1)
    data = [ints(64), ints(64)]
    out = [ints(2), ints(2)]
    for k, d in enumerate(data):
        d.from_numpy(np.arange(64, dtype=np.int32) * (k + 1) - 7)
    fill(bound, 10, qd_stream=s1)
    loops_of_computed_length(bound, x, y, qd_stream=s1)
    extremes(data[0], out[0], qd_stream=s1)
    extremes(data[1], out[1], qd_stream=s2)
    fill(bound, 3, qd_stream=s1)
    assert x.to_numpy().sum() == 20
    assert y.to_numpy().sum() == 42
    assert out[0].to_numpy().tolist() == [-7, 56]
    assert out[1].to_numpy().tolist() == [-7, 119]
    s1.destroy()
    s2.destroy()


@qd.kernel
def draw(x: qd.types.ndarray(dtype=qd.f32, ndim=1)):
    for i in x:
        x[i] = qd.random()


def test_s17_random_numbers_do_not_depend_on_the_schedule(seed):
    def run():
        a, b = qd.ndarray(qd.f32, shape=20), qd.ndarray(qd.f32, shape=20)
        with qd.create_stream() as s1, qd.create_stream() as s2:
            for _ in range(3):
                draw(a, qd_stream=s1)
                draw(b, qd_stream=s2)
            return a.to_numpy().tolist(), b.to_numpy().tolist()

    got = run()
    qd.init(arch=qd.cpu)
    assert got == run()


def test_s18_freeing_in_flight(seed):
    kept = ints(40)
    with qd.create_stream() as s1, qd.create_stream() as s2:
        for value in range(6):
            temporary = ints(40)
            fill(temporary, value, qd_stream=s1)
            s2.wait(s1)
            add(temporary, kept, 100, qd_stream=s2)
            del temporary
            # Takes the memory again if it was given back too early.
            fill(ints(40), -1)
        assert (kept.to_numpy() == 105).all()


def test_s19_host_reads_are_never_stale(seed):
    x, y = ints(30), ints(30)
    f = qd.field(qd.i32, shape=30)

    @qd.kernel
    def set_field(value: qd.i32):
        for i in f:
            f[i] = value

    with qd.create_stream() as s1, qd.create_stream() as s2:
        for value in range(1, 4):
            fill(x, value, qd_stream=s1)
            assert x[3] == value
            fill(y, value, qd_stream=s2)
            assert (y.to_numpy() == value).all()
            set_field(value, qd_stream=s2)
            assert f[3] == value
            assert total(x, qd_stream=s1) == 30 * value
            add(x, y, 0, qd_stream=s2)
            x.fill(-1)  # after the read above
            assert (y.to_numpy() == value).all()


def test_s19_a_read_waits_for_its_writer_alone(real):
    x, y = ints(), ints()
    with qd.create_stream() as s1, qd.create_stream() as s2:
        slow(y, 1, 1, qd_stream=s2)
        fill(x, 3, qd_stream=s1)
        qd.sync()
        slow(y, 2, 20 * LONG, qd_stream=s2)
        fill(x, 4, qd_stream=s1)
        assert x[0] == 4
        assert not s2.query(), "the other stream was not waited for"


def test_s21_errors_come_once_on_their_stream(seed):
    qd.init(arch=qd.cpu, cpu_streams=True, cpu_stream_schedule=f"seed:{seed}", debug=True)
    x = ints(20)
    s1, s2 = qd.create_stream(), qd.create_stream()
    check(5, qd_stream=s1)
    fill(x, 1, qd_stream=s1)  # not run: its stream has failed
    fill(x, 2, qd_stream=s2)
    s2.synchronize()
    with pytest.raises(AssertionError, match=r"in kernel `check` at .*test_streams.py:\d+, on stream \d"):
        s1.synchronize()
    s1.synchronize()
    qd.sync()
    assert x[0] == 2
    check(5, qd_stream=s2)
    with pytest.raises(AssertionError):
        qd.sync()
    qd.sync()
    event = qd.create_event()
    check(5, qd_stream=s1)
    event.record(s1)
    with pytest.raises(AssertionError):
        event.synchronize()
    check(5, qd_stream=s1)
    with pytest.raises(AssertionError):
        s1.destroy()
    check(5, qd_stream=s2)
    del s2
    gc.collect()
    with pytest.raises(AssertionError):
        qd.sync()
    qd.sync()


def test_s5_s15_reset_with_work_queued(seed):
    x, y = ints(40), ints(40)
    s = qd.create_stream()
    for value in range(4):
        both(x, y, value, qd_stream=s)
    del x, y
    qd.reset()
    assert not s.handle or repr(s)
    s.destroy()


def test_s22_many_threads():
    for options in (MODES["in order"], MODES["streams"]):
        qd.init(arch=qd.cpu, **options)
        shared, wrong = qd.create_stream(), []
        common = [ints(100) for _ in range(8)]

        @qd.kernel
        def late(x: Ints, value: qd.i32):  # all threads compile it at once
            for i in x:
                x[i] = value + 1

        def work(k):
            try:
                with qd.create_stream() as own:
                    mine = ints(100)
                    for step in range(60):
                        late(mine, step, qd_stream=own)
                        late(common[k], k * step, qd_stream=shared)
                        with qd.stream_scope(own):
                            add(mine, mine, k)
                        if total(mine, qd_stream=own) != 100 * (step + 1 + k):
                            wrong.append((k, step))
                    if common[k][3] != k * 59 + 1:
                        wrong.append(k)
            except BaseException as e:
                wrong.append(e)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert wrong == []
        shared.destroy()
    qd.reset()
