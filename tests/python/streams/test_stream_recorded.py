"""Stream decisions made in Python, observed by a driver that runs nothing and records the stream of each task."""

from __future__ import annotations

import threading

import pytest
from stream_kernels import fill, ints

import octants as qd
from octants import _octants

pytestmark = [
    pytest.mark.on_cpu,
    pytest.mark.skipif(not hasattr(_octants, "record_calls"), reason="wheels do not have the driver that records"),
]


@pytest.fixture
def recorder():
    qd.init(arch=qd.cpu)
    recorder = _octants.record_calls()
    yield recorder
    assert recorder.mistakes() == []
    qd.reset()


def test_s3_launches_go_to_the_stream_of_the_innermost_scope(recorder):
    x = ints()
    with qd.create_stream() as a, qd.create_stream() as b:
        fill(x, 1)
        with qd.stream_scope(a):
            fill(x, 2)
            with qd.stream_scope(b):
                fill(x, 3)
                fill(x, 4, qd_stream=a)
            fill(x, 5)
            other = threading.Thread(target=lambda: fill(x, 6))
            other.start()
            other.join()
        fill(x, 7)
        assert len({0, a.handle, b.handle}) == 3
        assert recorder.streams() == [0, a.handle, b.handle, a.handle, a.handle, 0, 0]
        with pytest.raises(ValueError, match="inside"), qd.stream_scope(b):
            raise ValueError("inside")
        fill(x, 8)
        assert recorder.streams() == [0], "a scope that an error leaves ends too"


def test_s20_gradients_are_queued_on_the_stream_of_the_launch(recorder):
    loss = qd.field(qd.f32, shape=(), needs_grad=True)
    x = qd.field(qd.f32, shape=4, needs_grad=True)

    @qd.kernel
    def total():
        for i in x:
            loss[None] += x[i]

    with qd.create_stream() as s:
        total.grad(qd_stream=s)
        assert set(recorder.streams()) == {s.handle}
        with qd.stream_scope(s):
            total.grad()
        assert set(recorder.streams()) == {s.handle}
        tape = qd.ad.Tape(loss)
        tape.__enter__()
        total(qd_stream=s)
        recorder.streams()
        tape.__exit__(None, None, None)
        assert recorder.streams()[-1] == s.handle
        total.grad()
        assert set(recorder.streams()) == {0}
