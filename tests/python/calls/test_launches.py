"""Repeated launches: kernels of several tasks, from several threads, on streams."""

from __future__ import annotations

import threading

import numpy as np
from call_kernels import Floats, scale

import octants as qd


@qd.kernel
def three_tasks(x: Floats, total: Floats, n: qd.i32, by: qd.f32):
    total[0] = 0.0
    for i in range(n):
        x[i] += by
    for i in range(n):
        total[0] += x[i]


@qd.kernel
def draw_twice(x: Floats, y: Floats):
    for i in x:
        x[i] = qd.random()
    for i in y:
        y[i] = qd.random()


def test_kernels_of_several_tasks_launched_repeatedly():
    arrays = [qd.ndarray(qd.f32, 5000) for _ in range(2)]
    totals = [qd.ndarray(qd.f32, 1) for _ in range(2)]
    values = np.zeros((2, 5000))
    host = np.zeros(5000, np.float32)
    for step in range(12):
        which, n = step // 3 % 2, [5000, 5000, 0, 17][step % 4]
        three_tasks(arrays[which], totals[which], n, step)
        values[which, :n] += step
        three_tasks(host, totals[1 - which], 10, 1.0)
        assert totals[which][0] == values[which, :n].sum()
        assert totals[1 - which][0] == 10 * (step + 1)
    np.testing.assert_array_equal([a.to_numpy() for a in arrays], values)
    with qd.create_stream() as s:
        for _ in range(5):
            three_tasks(arrays[0], totals[0], 5000, 1.0, qd_stream=s)
            three_tasks(arrays[1], totals[1], 5000, 1.0)
    np.testing.assert_array_equal([a.to_numpy() for a in arrays], values + 5)


def test_launches_of_several_tasks_draw_new_numbers():
    drawn = []
    x, y = (qd.ndarray(qd.f32, 100) for _ in range(2))
    for _ in range(6):
        draw_twice(x, y)
        drawn += [x.to_numpy(), y.to_numpy()]
    assert len(np.unique(drawn)) > 1190


def test_several_tasks_from_several_threads():
    counts = [qd.ndarray(qd.i32, 256) for _ in range(4)]

    @qd.kernel
    def count(x: qd.types.ndarray(dtype=qd.i32, ndim=1), by: qd.i32):
        for i in x:
            x[i] += by
        for i in x:
            x[i] += 1

    def launch(number: int):
        with qd.create_stream() as s:
            for _ in range(50):
                count(counts[number], number, qd_stream=s if number % 2 else qd.default_stream())

    threads = [threading.Thread(target=launch, args=(number,)) for number in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for number, x in enumerate(counts):
        assert (x.to_numpy() == 50 * (number + 1)).all()


def test_threads_launch_at_once():
    def work(out: np.ndarray) -> None:
        for _ in range(200):
            scale(out, 2.0)
            scale(out, 0.5)

    outs = [np.arange(1000, dtype=np.float32) for _ in range(4)]
    threads = [threading.Thread(target=work, args=(o,)) for o in outs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all((o == np.arange(1000)).all() for o in outs)
