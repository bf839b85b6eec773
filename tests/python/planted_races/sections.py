"""Races between blocks of `stream_parallel` and sections of a graph's `parallel_context`."""

from planted_races.planted import planted

PROGRAMS = [
    planted(
        "static",
        """
        # blocks that write one field
        x, y = qd.field(qd.i32, 64), qd.field(qd.i32, 64)

        @qd.kernel
        def both():
            with qd.stream_parallel():
                for i in range(64):
                    x[i] = i  # here
            with qd.stream_parallel():
                for i in range(64):
                    x[i] = 2 * i  # racy here
                    y[i] = 2 * i  # safe

        both()
        """,
    ),
    planted(
        "static",
        """
        # block that reads what another writes
        x, y, z = qd.field(qd.i32, 64), qd.field(qd.i32, 64), qd.field(qd.i32, 64)

        @qd.kernel
        def both():
            with qd.stream_parallel():
                for i in range(64):
                    x[i] = y[i] + 1  # here
            with qd.stream_parallel():
                for i in range(64):
                    z[i] = x[i] + 1  # racy here
                    z[i] = y[i] + 2  # safe

        both()
        """,
    ),
    planted(
        "static",
        """
        # blocks that share an edge
        x = qd.field(qd.i32, 64)

        @qd.kernel
        def both():
            with qd.stream_parallel():
                for i in range(33):  # racy
                for i in range(32):  # safe
                    x[i] = 3 * i  # here
            with qd.stream_parallel():
                for i in range(32, 64):
                    x[i] = 2 * i  # here

        both()
        """,
    ),
    planted(
        "static",
        """
        # arrays that are one
        A = qd.types.ndarray(dtype=qd.f32, ndim=1)
        a, b = qd.ndarray(qd.f32, 32), qd.ndarray(qd.f32, 32)

        @qd.kernel
        def both(x: A, y: A):
            with qd.stream_parallel():
                for i in x:
                    x[i] = i * 1.0  # here
            with qd.stream_parallel():
                for i in y:
                    y[i] = i * 2.0  # here

        both(a, a)  # racy
        both(a, b)  # safe
        """,
    ),
    planted(
        "static",
        """
        # halves by an argument
        A = qd.types.ndarray(dtype=qd.f32, ndim=1)
        a = qd.ndarray(qd.f32, 32)

        @qd.kernel
        def both(x: A, low: qd.i32, high: qd.i32):
            with qd.stream_parallel():
                for i in range(low):
                    x[i] = 1.5  # here
            with qd.stream_parallel():
                for i in range(high, 32):
                    x[i] = i * 2.0  # here

        both(a, 17, 16)  # racy
        both(a, 16, 16)  # safe
        """,
    ),
    planted(
        "static",
        """
        # even and odd blocks
        x = qd.field(qd.i32, 64)

        @qd.kernel
        def both():
            with qd.stream_parallel():
                for i in range(30):
                    x[2 * i] = i  # here
            with qd.stream_parallel():
                for i in range(30):
                    x[2 * i + 2] = i + 5  # racy here
                    x[2 * i + 1] = i + 5  # safe

        both()
        """,
    ),
    planted(
        "static",
        """
        # sum that is set
        x, s = qd.field(qd.f32, 64), qd.field(qd.f32, ())

        @qd.kernel
        def both():
            with qd.stream_parallel():
                for i in range(64):
                    s[None] += x[i]  # here
            with qd.stream_parallel():
                for i in range(64):
                    if i == 3:  # racy
                        s[None] = 1.0  # racy here
                    s[None] += 1.0  # safe

        both()
        """,
    ),
    planted(
        "static",
        """
        # third block of three
        x, y, z = qd.field(qd.i32, 16), qd.field(qd.i32, 16), qd.field(qd.i32, 16)

        @qd.kernel
        def three():
            with qd.stream_parallel():
                for i in range(16):
                    x[i] = i  # here
            with qd.stream_parallel():
                for i in range(16):
                    y[i] = i
            with qd.stream_parallel():
                for i in range(16):
                    z[i] = x[15 - i]  # racy here
                    z[i] = i  # safe

        three()
        """,
    ),
    planted(
        "static",
        """
        # overlap that is not meant
        x = qd.field(qd.i32, 16)

        @qd.kernel
        def both():
            with qd.stream_parallel():
                for i in range(16):
                    x[i] = i  # here
            with qd.stream_parallel():  # racy
            with qd.stream_parallel(allow_overlap=True):  # safe
                for i in range(16):
                    x[i] = 2 * i  # here

        both()
        """,
    ),
    planted(
        "static",
        """
        # columns
        u = qd.field(qd.f32, (8, 8))

        @qd.kernel
        def both():
            with qd.stream_parallel():
                for i in range(8):
                    u[i, 0] = i * 1.0  # here
            with qd.stream_parallel():
                for j in range(8):
                    u[3, j] = j * 2.0  # racy here
                    if j > 0:  # safe
                        u[3, j] = j * 2.0  # safe

        both()
        """,
    ),
    planted(
        "static",
        """
        # sections of a graph
        A = qd.types.ndarray(dtype=qd.f32, ndim=1)
        a, b, c = (qd.ndarray(qd.f32, 32) for _ in range(3))

        @qd.kernel(graph=True)
        def both(x: A, y: A, z: A):
            with qd.graph.parallel_context():
                with qd.graph.parallel():
                    for i in range(32):
                        x[i] = i * 1.0  # here
                with qd.graph.parallel():
                    for i in range(32):
                        y[i] = x[i]  # racy here
                        y[i] = z[i]  # safe

        both(a, b, c)
        """,
    ),
    planted(
        "static",
        """
        # section after a section
        A = qd.types.ndarray(dtype=qd.f32, ndim=1)
        a, b = qd.ndarray(qd.f32, 32), qd.ndarray(qd.f32, 32)

        @qd.kernel(graph=True)
        def both(x: A, y: A):
            with qd.graph.parallel_context():
                with qd.graph.parallel():
                    for i in range(32):
                        x[i] = i * 1.0  # here
                    for i in range(32):  # safe
                        x[i] = 3.0 * x[i]  # safe
                with qd.graph.parallel():
                    for i in range(32):
                        x[i] = i * 3.0  # racy here
                        y[i] = i * 3.0  # safe

        both(a, b)
        """,
    ),
    planted(
        "full",
        """
        # blocks that meet by data
        x, to = qd.field(qd.i32, 16), qd.field(qd.i32, 16)

        @qd.kernel
        def both():
            with qd.stream_parallel():
                for i in range(16):
                    x[to[i]] += 1
            with qd.stream_parallel():
                for i in range(16):
                    x[to[i]] += 2  # safe
                    x[to[i]] = 2  # racy

        both()
        """,
    ),
]
