"""Streams, events, scopes and handles: S1 to S7."""

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from stream_kernels import LONG, MODES, add, fill, ints, n, peek, slow, total, unknown_handle

import octants as qd


def test_s1_s8_handles(mode):
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
    with pytest.raises(TypeError, match="event_or_stream must be an Event or a Stream"):
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


def test_s3_a_scope_applies_to_kernels_and_events(real):
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
        with pytest.raises(RuntimeError, match="a `with stream:` block must end on the thread on which it began"):
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


def test_s4_events_measure_time(mode):
    x = ints()
    with qd.create_stream() as s:
        a, b, plain = qd.create_event(timing=True), qd.create_event(timing=True), qd.create_event()
        with pytest.raises(RuntimeError, match=r"needs two recorded events: call record\(\) on both"):
            a.elapsed_ms(b)
        start = time.perf_counter()
        a.record(s)
        slow(x, 1, LONG, qd_stream=s)
        b.record(s)
        elapsed = a.elapsed_ms(b)
        assert 0.1 < elapsed <= (time.perf_counter() - start) * 1e3 + 1.0
        assert b.elapsed_ms(a) == -elapsed
        plain.record(s)
        with pytest.raises(RuntimeError, match=r"create them with create_event\(timing=True\)"):
            a.elapsed_ms(plain)
        with pytest.raises(TypeError, match="later must be an Event, got int"):
            a.elapsed_ms(3)


def test_s5_destroy_drains(mode):
    x = ints()
    s = qd.create_stream()
    fill(x, 0)
    qd.sync()
    slow(x, 7, LONG, qd_stream=s)
    s.destroy()
    assert peek(x) == 7
    s.destroy()
    with qd.create_stream() as s:
        slow(x, 8, LONG, qd_stream=s)
    assert peek(x) == 8
    s = qd.create_stream()
    slow(x, 9, LONG, qd_stream=s)
    # A stream without references is not waited for, and its work is not lost.
    del s
    gc.collect()
    qd.sync()
    assert peek(x) == 9


def test_s5_destroy_after_reset_is_harmless():
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
        "        for j in range(5000):\n"
        "            x[i] = qd.sin(x[i] + j)\n"
        "s, e = qd.create_stream(), qd.create_event()\n"
        "for _ in range(3):\n"
        "    long(x, qd_stream=s)\n"
        "e.record(s)\n"
        "print('left')\n"
    )
    env = os.environ | {"PYTHONPATH": str(Path(qd.__file__).parents[1])}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, env=env)
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


def test_s7_foreign_streams(mode):
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
        with pytest.raises(TypeError, match="version 9 of __cuda_stream__ is not supported"):
            fill(x, 1, qd_stream=Foreign(0, 9))
    default = qd.Stream.from_handle(0)
    assert default == qd.default_stream()
    assert hash(default) == hash(qd.default_stream())
    assert default.handle == 0
    slow(x, 5, LONG, qd_stream=default)
    default.synchronize()
    assert peek(x) == 5
    if mode != "in order":
        with pytest.raises(RuntimeError, match=unknown_handle(47)):
            qd.Stream.from_handle(47)


FORKING = """
import gc, os, sys
import numpy as np
import octants as qd

@qd.kernel
def add(x: qd.types.ndarray(dtype=qd.f64, ndim=1), value: qd.f64):
    for i in x:
        for _ in range(200):
            x[i] += value / 200

def begin():
    x, f = qd.ndarray(qd.f64, shape=100_000), qd.field(qd.i32, shape=4)
    s, e = qd.create_stream(), qd.create_event()
    add(x, 1.0, qd_stream=s)
    e.record(s)
    f[1] = 5
    with qd.graph.capture() as g:
        add(x, 0.0)
    return x, f, s, e, g

def refused(use, text):
    try:
        use()
    except RuntimeError as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)

def child(x, f, s, e, g):
    forked, ended = "this process was forked from one with real CPU streams", "belongs to a program that"
    for use in (lambda: add(x, 1.0), lambda: qd.create_stream(), qd.sync, g.launch):
        refused(use, forked)
    for use in (s.synchronize, s.query, e.synchronize, lambda: x[0], lambda: x.to_numpy(), lambda: f[1]):
        refused(use, ended)
    s.destroy()
    e.destroy()
    qd.init(arch=qd.cpu, cpu_streams=True)
    y, h, s, e, g = begin()
    add(y, 2.0, qd_stream=s)
    assert abs(y[7] - 3.0) < 1e-9 and h[1] == 5

qd.init(arch=qd.cpu, **OPTIONS)
x, f, s, e, g = begin()
pid = os.fork()
if pid == 0:
    child(x, f, s, e, g)
    del x, f, s, e, g
    gc.collect()
    print("child", flush=True)
    sys.exit()  # with all that is done at the end of an interpreter
assert os.waitpid(pid, 0)[1] == 0
add(x, 1.0, qd_stream=s)
assert abs(x[3] - 2.0) < 1e-9
print("parent", flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("options", [MODES["streams"], MODES["schedule 1"]], ids=["streams", "schedule"])
def test_s6_s8_a_forked_process_starts_without_streams(tmp_path, options):
    script = tmp_path / "forking.py"
    script.write_text(FORKING.replace("OPTIONS", repr(options)))
    env = os.environ | {"PYTHONPATH": str(Path(qd.__file__).parents[1])}
    command = [sys.executable, "-W", "ignore", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "child\nparent\n", "")
