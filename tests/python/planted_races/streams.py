"""Races between launches, fills and copies on different streams: a missing wait or event, or one on the wrong
stream."""

import textwrap

from planted_races.planted import Planted, planted

KERNELS = """
A = qd.types.ndarray(dtype=qd.f32, ndim=1)
a, b, c, d = (qd.ndarray(qd.f32, 100) for _ in range(4))
s1, s2, s3 = qd.create_stream(), qd.create_stream(), qd.create_stream()


@qd.kernel
def produce(x: A):
    for i in x:
        x[i] = i * 2.0  # produce


@qd.kernel
def consume(x: A, y: A):
    for i in x:
        y[i] = x[i] + 1.0  # consume


@qd.kernel
def scale(x: A):
    for i in x:
        x[i] = x[i] * 0.5  # scale


@qd.kernel
def total(x: A, s: A):
    for i in x:
        s[0] += x[i]  # total


@qd.kernel
def part(x: A, begin: qd.i32, end: qd.i32):
    for i in range(begin, end):
        x[i] = 7.0  # part


@qd.kernel
def every(x: A, first: qd.i32):
    for i in range(30):
        x[3 * i + first] = 1.0  # every


@qd.kernel
def first_of(x: A) -> qd.f32:
    return x[0]  # first_of
"""

NAMES = ["produce", "consume", "scale", "total", "part", "every", "first_of"]


def on_streams(text: str, *here: str) -> Planted:
    """A program on the kernels above, whose race has its accesses in those named."""
    first, _, rest = textwrap.dedent(text).lstrip("\n").partition("\n")
    kernels = KERNELS
    for name in NAMES:
        kernels = kernels.replace(f"  # {name}\n", "  # here\n" if name in here else "\n")
    return planted("static", f"{first}\n{kernels}\n{rest}", cpu_streams=True)


PROGRAMS = [
    on_streams(
        """
        # no wait at all
        produce(a, qd_stream=s1)  # launch
        s2.wait(s1)  # safe
        consume(a, b, qd_stream=s2)  # launch
        """,
        "produce",
        "consume",
    ),
    on_streams(
        """
        # after the default stream
        produce(a)  # launch
        s1.wait(qd.default_stream())  # safe
        consume(a, b, qd_stream=s1)  # launch
        """,
        "produce",
        "consume",
    ),
    on_streams(
        """
        # ahead of the default stream
        produce(a, qd_stream=s1)  # launch
        qd.default_stream().wait(s1)  # safe
        consume(a, b)  # launch
        """,
        "produce",
        "consume",
    ),
    on_streams(
        """
        # event recorded too early
        e = qd.create_event()
        e.record(s1)  # racy
        produce(a, qd_stream=s1)  # launch
        e.record(s1)  # safe
        s2.wait(e)
        consume(a, b, qd_stream=s2)  # launch
        """,
        "produce",
        "consume",
    ),
    on_streams(
        """
        # another stream waits
        e = qd.create_event()
        produce(a, qd_stream=s1)  # launch
        e.record(s1)
        s3.wait(e)  # racy
        s2.wait(e)  # safe
        consume(a, b, qd_stream=s2)  # launch
        """,
        "produce",
        "consume",
    ),
    on_streams(
        """
        # event of another stream
        e = qd.create_event()
        produce(a, qd_stream=s1)  # launch
        e.record(s3)  # racy
        e.record(s1)  # safe
        e.wait(s2)
        consume(a, b, qd_stream=s2)  # launch
        """,
        "produce",
        "consume",
    ),
    on_streams(
        """
        # host waits for another stream
        produce(a, qd_stream=s1)  # launch
        s3.synchronize()  # racy
        s1.synchronize()  # safe
        consume(a, b, qd_stream=s2)  # launch
        """,
        "produce",
        "consume",
    ),
    on_streams(
        """
        # overwritten while it is read
        consume(a, b, qd_stream=s1)  # launch
        s2.wait(s1)  # safe
        produce(a, qd_stream=s2)  # launch
        """,
        "consume",
        "produce",
    ),
    on_streams(
        """
        # two that write
        produce(a, qd_stream=s1)  # launch
        s2.wait(s1)  # safe
        scale(a, qd_stream=s2)  # launch
        """,
        "produce",
        "scale",
    ),
    on_streams(
        """
        # chain with a link short
        produce(a, qd_stream=s1)
        s2.wait(s1)
        consume(a, b, qd_stream=s2)  # launch
        s3.wait(s1)  # racy
        s3.wait(s2)  # safe
        scale(b, qd_stream=s3)  # launch
        """,
        "consume",
        "scale",
    ),
    on_streams(
        """
        # wait before the wait that it relies on
        produce(a, qd_stream=s1)  # launch
        s2.wait(s1)  # safe
        s3.wait(s2)
        s2.wait(s1)  # racy
        consume(a, b, qd_stream=s3)  # launch
        """,
        "produce",
        "consume",
    ),
    on_streams(
        """
        # ranges that share an element
        part(a, 0, 51, qd_stream=s1)  # racy launch
        part(a, 0, 50, qd_stream=s1)  # safe
        scale(b, qd_stream=s1)
        every(a, 2, qd_stream=s2)  # racy launch
        part(a, 50, 100, qd_stream=s2)  # safe
        """,
        "part",
        "every",
    ),
    on_streams(
        """
        # every third element
        every(a, 0, qd_stream=s1)  # launch
        every(a, 3, qd_stream=s2)  # racy launch
        every(a, 1, qd_stream=s2)  # safe
        """,
        "every",
    ),
    on_streams(
        """
        # in a scope
        produce(a)  # launch
        qd.sync()  # safe
        with qd.stream_scope(s1):
            consume(a, b)  # launch
        """,
        "produce",
        "consume",
    ),
    on_streams(
        """
        # event recorded again
        e = qd.create_event()
        produce(a, qd_stream=s1)  # launch
        e.record(s1)
        s2.wait(e)  # safe
        produce(c, qd_stream=s3)
        e.record(s3)
        s2.wait(e)
        consume(a, b, qd_stream=s2)  # launch
        """,
        "produce",
        "consume",
    ),
    on_streams(
        """
        # steps that overtake
        for step in range(3):
            s1.wait(s2)  # safe
            produce(a, qd_stream=s1)  # launch
            s2.wait(s1)
            consume(a, b, qd_stream=s2)  # launch
        """,
        "produce",
        "consume",
    ),
    on_streams(
        """
        # join of all but one
        for x, s in ((a, s1), (b, s2), (c, s3)):
            produce(x, qd_stream=s)  # launch
        for s in (s1, s2):  # racy
        for s in (s1, s2, s3):  # safe
            qd.default_stream().wait(s)
        consume(c, d)  # launch
        """,
        "produce",
        "consume",
    ),
    on_streams(
        """
        # waited for by an event on the host
        e, f = qd.create_event(), qd.create_event()
        f.record(s1)
        produce(a, qd_stream=s1)  # launch
        e.record(s1)
        f.synchronize()  # racy
        e.synchronize()  # safe
        consume(a, b, qd_stream=s2)  # launch
        """,
        "produce",
        "consume",
    ),
    on_streams(
        """
        # sums that are read
        total(a, c, qd_stream=s1)  # launch
        consume(c, b, qd_stream=s2)  # racy launch
        total(b, c, qd_stream=s2)  # safe
        """,
        "total",
        "consume",
    ),
    on_streams(
        """
        # fill on a stream
        a.fill(3.0, qd_stream=s1)  # here launch
        s2.wait(s1)  # safe
        consume(a, b, qd_stream=s2)  # launch
        """,
        "consume",
    ),
    on_streams(
        """
        # fill of what is read
        consume(a, b, qd_stream=s1)  # launch
        s2.wait(s1)  # safe
        a.fill(0.0, qd_stream=s2)  # here launch
        """,
        "consume",
    ),
    on_streams(
        """
        # copy of what is written
        produce(a, qd_stream=s1)  # launch
        s2.wait(s1)  # safe
        b.copy_from(a, qd_stream=s2)  # here launch
        """,
        "produce",
    ),
    on_streams(
        """
        # copy that is overwritten
        b.copy_from(a, qd_stream=s1)  # here launch
        s2.wait(s1)  # safe
        produce(b, qd_stream=s2)  # launch
        """,
        "produce",
    ),
    on_streams(
        """
        # import on a stream
        a.from_numpy(np.ones(100, np.float32), qd_stream=s1)  # here launch
        s2.wait(s1)  # safe
        scale(a, qd_stream=s2)  # launch
        """,
        "scale",
    ),
    on_streams(
        """
        # host reads another array
        produce(a, qd_stream=s1)  # launch
        produce(b, qd_stream=s2)
        b.to_numpy()  # racy
        a.to_numpy()  # safe
        consume(a, c, qd_stream=s3)  # launch
        """,
        "produce",
        "consume",
    ),
    on_streams(
        """
        # stream that ends too late
        with qd.create_stream() as s:
            produce(a, qd_stream=s)  # launch
            scale(a)  # racy launch
        scale(a)  # safe
        """,
        "produce",
        "scale",
    ),
    on_streams(
        """
        # result of another stream
        produce(a, qd_stream=s1)  # launch
        first_of(b, qd_stream=s1)  # safe
        first_of(b, qd_stream=s3)  # racy
        consume(a, c, qd_stream=s2)  # launch
        """,
        "produce",
        "consume",
    ),
    on_streams(
        """
        # result that is read too early
        produce(a, qd_stream=s1)  # launch
        s2.wait(s1)  # safe
        first_of(a, qd_stream=s2)  # launch
        """,
        "produce",
        "first_of",
    ),
    on_streams(
        """
        # nothing between
        consume(a, b, qd_stream=s1)  # launch
        qd.sync()  # safe
        consume(b, c, qd_stream=s2)  # launch
        """,
        "consume",
    ),
    on_streams(
        """
        # readers and a writer
        consume(a, b, qd_stream=s1)  # safe
        consume(a, b, qd_stream=s1)  # racy launch
        consume(a, c, qd_stream=s2)  # safe
        scale(a, qd_stream=s2)  # racy launch
        """,
        "consume",
        "scale",
    ),
    on_streams(
        """
        # asked until it is done
        produce(a, qd_stream=s1)  # launch
        while not s1.query():  # safe
            pass  # safe
        scale(a, qd_stream=s2)  # launch
        """,
        "produce",
        "scale",
    ),
    planted(
        "static",
        """
        # fields of the program
        x, y = qd.field(qd.f32, 64), qd.field(qd.f32, 64)
        s1, s2 = qd.create_stream(), qd.create_stream()

        @qd.kernel
        def produce():
            for i in x:
                x[i] = i * 1.0  # here

        @qd.kernel
        def consume():
            for i in y:
                y[i] = x[i]  # here

        produce(qd_stream=s1)  # launch
        s2.wait(s1)  # safe
        consume(qd_stream=s2)  # launch
        """,
        cpu_streams=True,
    ),
    planted(
        "static",
        """
        # members of a struct
        cell = qd.types.struct(mass=qd.f32, heat=qd.f32)
        cells = cell.field(shape=64)
        s1, s2 = qd.create_stream(), qd.create_stream()

        @qd.kernel
        def heat():
            for i in range(64):
                cells[i].heat = 1.0  # here

        @qd.kernel
        def weigh():
            for i in range(64):
                cells[i].mass = cells[i].heat  # racy here
                cells[i].mass = 2.0  # safe

        heat(qd_stream=s1)  # launch
        weigh(qd_stream=s2)  # launch
        """,
        cpu_streams=True,
    ),
    planted(
        "static",
        """
        # rows of a table
        T = qd.types.ndarray(dtype=qd.i32, ndim=2)
        t = qd.ndarray(qd.i32, (4, 32))
        s1, s2 = qd.create_stream(), qd.create_stream()

        @qd.kernel
        def fill(t: T, row: qd.i32):
            for j in range(32):
                t[row, j] = row + j  # here

        fill(t, 1, qd_stream=s1)  # launch
        fill(t, 1, qd_stream=s2)  # racy launch
        fill(t, 2, qd_stream=s2)  # safe
        """,
        cpu_streams=True,
    ),
    planted(
        "static",
        """
        # far into an array
        A = qd.types.ndarray(dtype=qd.f32, ndim=1)
        x = qd.ndarray(qd.f32, 100000)
        s1, s2 = qd.create_stream(), qd.create_stream()

        @qd.kernel
        def low(x: A, end: qd.i32):
            for i in range(end):
                x[i] = 1.0  # here

        @qd.kernel
        def high(x: A):
            for i in range(50000, 100000):
                x[i] = 2.0  # here

        low(x, 60000, qd_stream=s1)  # racy launch
        low(x, 50000, qd_stream=s1)  # safe
        high(x, qd_stream=s2)  # launch
        """,
        cpu_streams=True,
    ),
    planted(
        "static",
        """
        # kernels of an object
        @qd.data_oriented
        class Body:
            def __init__(self):
                self.x = qd.field(qd.f32, 32)

            @qd.kernel
            def move(self):
                for i in self.x:
                    self.x[i] = i + 0.5  # here

            @qd.kernel
            def stop(self):
                for i in self.x:
                    self.x[i] = 0.0  # here

        body = Body()
        s1, s2 = qd.create_stream(), qd.create_stream()
        body.move(qd_stream=s1)  # launch
        s2.wait(s1)  # safe
        body.stop(qd_stream=s2)  # launch
        """,
        cpu_streams=True,
    ),
    planted(
        "static",
        """
        # gradient beside its kernel
        x = qd.field(qd.f32, 16, needs_grad=True)
        loss = qd.field(qd.f32, (), needs_grad=True)
        s1, s2 = qd.create_stream(), qd.create_stream()

        @qd.kernel
        def measure():
            for i in x:
                loss[None] += x[i] ** 2  # here

        @qd.kernel
        def descend():
            for i in x:
                x[i] = x[i] - 0.1 * x.grad[i]  # here

        loss.grad[None] = 1.0
        measure(qd_stream=s1)
        measure.grad(qd_stream=s1)  # launch
        s2.wait(s1)  # safe
        descend(qd_stream=s2)  # launch
        """,
        cpu_streams=True,
    ),
    planted(
        "static",
        """
        # views on streams that overlap
        x = qd.ndarray(qd.f32, 64)
        View = qd.BufferView[qd.f32]
        s1, s2 = qd.create_stream(), qd.create_stream()

        @qd.kernel
        def number(to: View, first: qd.f32):
            for i in range(to.size):
                to[i] = first + i  # here

        number(x[0:32], 1.0, qd_stream=s1)  # launch
        number(x[31:64], 2.0, qd_stream=s2)  # racy launch
        number(x[32:64], 2.0, qd_stream=s2)  # safe
        """,
        cpu_streams=True,
    ),
    planted(
        "static",
        """
        # second launch from another line
        x, y = qd.ndarray(qd.f32, 64), qd.ndarray(qd.f32, 64)
        A = qd.types.ndarray(qd.f32, ndim=1)
        s1, s2 = qd.create_stream(), qd.create_stream()

        @qd.kernel
        def fill(to: A):
            for i in to:
                to[i] = 1.0 * i  # here

        @qd.kernel
        def copy(to: A, source: A):
            for i in to:
                to[i] = source[i]  # here

        fill(x, qd_stream=s1)
        s2.wait(s1)
        copy(y, x, qd_stream=s2)
        s1.wait(s2)
        fill(x, qd_stream=s1)  # launch
        s2.wait(s1)  # safe
        copy(y, x, qd_stream=s2)  # launch
        """,
        cpu_streams=True,
    ),
    planted(
        "static",
        """
        # read before many others
        x = qd.ndarray(qd.f32, 64)
        copies = [qd.ndarray(qd.f32, 64) for _ in range(80)]
        A = qd.types.ndarray(qd.f32, ndim=1)
        s1, s2, s3 = (qd.create_stream() for _ in range(3))

        @qd.kernel
        def fill(to: A):
            for i in to:
                to[i] = 1.0 * i  # here

        @qd.kernel
        def copy(to: A, source: A):
            for i in to:
                to[i] = source[i]  # here

        copy(copies[0], x, qd_stream=s1)  # launch
        for one in copies[1:]:
            copy(one, x, qd_stream=s2)
        s3.wait(s2)
        s3.wait(s1)  # safe
        fill(x, qd_stream=s3)  # launch
        """,
        cpu_streams=True,
    ),
    planted(
        "static",
        """
        # fill in a captured graph
        x = qd.ndarray(qd.f32, 64)
        A = qd.types.ndarray(qd.f32, ndim=1)
        s1, s2 = qd.create_stream(), qd.create_stream()

        @qd.kernel
        def number(to: A):
            for i in to:
                to[i] = 1.0 * i  # here

        with qd.graph.capture() as graph:
            x.fill(0.5, qd_stream=s1)  # launch here
            s2.wait(s1)  # safe
            number(x, qd_stream=s2)  # launch
        graph.launch()
        graph.launch(s2)  # safe
        """,
        cpu_streams=True,
    ),
    planted(
        "static",
        """
        # fill in the middle of a large array
        x = qd.ndarray(qd.f32, 100_000)
        A = qd.types.ndarray(qd.f32, ndim=1)
        s1, s2 = qd.create_stream(), qd.create_stream()

        @qd.kernel
        def number(to: A):
            for i in to:
                to[i] = 1.0 * i  # here

        number(x, qd_stream=s1)  # launch
        s2.wait(s1)  # safe
        x[40_000:60_000].fill(0.5, qd_stream=s2)  # launch here
        """,
        cpu_streams=True,
    ),
    planted(
        "static",
        """
        # gradients that add to one array
        A = qd.types.ndarray(dtype=qd.f32, ndim=1, needs_grad=True)
        x, y, z = (qd.ndarray(qd.f32, 100, needs_grad=True) for _ in range(3))
        s1, s2 = qd.create_stream(), qd.create_stream()

        @qd.kernel
        def triple(x: A, y: A):
            for i in x:
                y[i] = 3.0 * x[i]  # here

        triple.grad(x, y, qd_stream=s1)  # launch
        s2.wait(s1)  # safe
        triple.grad(x, z, qd_stream=s2)  # launch
        """,
        cpu_streams=True,
    ),
    planted(
        "static",
        """
        # lines that cross in the middle of an array
        A = qd.types.ndarray(dtype=qd.i32, ndim=1)
        x = qd.ndarray(qd.i32, 120_001)
        s1, s2 = qd.create_stream(), qd.create_stream()

        @qd.kernel
        def up(x: A):
            for i in range(20_001):
                x[3 * i] = i + 1  # here

        @qd.kernel
        def down(x: A, offset: qd.i32):
            for i in range(20_001):
                x[120_000 - 6 * i + offset] = i + 7  # here

        up(x, qd_stream=s1)  # launch
        down(x, 0, qd_stream=s2)  # racy launch
        down(x, -1, qd_stream=s2)  # safe
        """,
        cpu_streams=True,
    ),
]
