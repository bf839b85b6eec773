"""`with qd.stream_parallel():` blocks are groups."""

import octants as qd

x = qd.field(qd.f32, shape=4)
y = qd.field(qd.f32, shape=4)


@qd.kernel
def groups(n: qd.i32):
    """All statements are blocks."""
    with qd.stream_parallel():
        for i in range(n):
            x[i] = 1
        for i in x:
            x[i] += 1
    with qd.stream_parallel(allow_overlap=True):
        qd.loop_config(name="second")
        for i in y:
            y[i] = 2
        y[0] = 3
    with qd.stream_parallel():
        pass


@qd.kernel
def serial_blocks(n: qd.i32):
    with qd.stream_parallel():
        a = x[0]
        x[1] = a
    with qd.stream_parallel():
        b = y[0]
        for i in range(n):
            y[i] += b
        c = y[1]
        for i in qd.static(range(2)):
            y[i + 2] = c
