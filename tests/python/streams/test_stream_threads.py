"""Concurrent launches from many threads: S22."""

import threading

from stream_kernels import Ints, add, ints, total

import octants as qd


def test_s22_many_threads(mode):
    shared, wrong = qd.create_stream(), []
    common = [ints(100) for _ in range(8)]

    @qd.kernel
    def late(x: Ints, value: qd.i32):  # all threads compile it concurrently
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
