"""Races within captured graphs, of their launches with other work, and in loops of graphs."""

from planted_races.planted import planted

PROGRAMS = [
    planted(
        "static",
        """
        # steps that repeat in a capture
        A = qd.types.ndarray(dtype=qd.f32, ndim=1)
        a, b = qd.ndarray(qd.f32, 32), qd.ndarray(qd.f32, 32)
        s = qd.create_stream()

        @qd.kernel
        def produce(x: A):
            for i in x:
                x[i] = i * 1.0  # here

        @qd.kernel
        def consume(x: A, y: A):
            for i in x:
                y[i] += x[i]  # here

        with qd.graph.capture() as step:
            s.wait(qd.default_stream())
            for _ in range(4):
                produce(a)  # launch
                s.wait(qd.default_stream())  # safe
                consume(a, b, qd_stream=s)  # launch
                qd.default_stream().wait(s)  # safe
            qd.default_stream().wait(s)
        step.launch()
        """,
        cpu_streams=True,
    ),
    planted(
        "static",
        """
        # branches of a capture
        A = qd.types.ndarray(dtype=qd.f32, ndim=1)
        a, b = qd.ndarray(qd.f32, 32), qd.ndarray(qd.f32, 32)
        s = qd.create_stream()

        @qd.kernel
        def produce(x: A):
            for i in x:
                x[i] = i * 1.0  # here

        @qd.kernel
        def consume(x: A, y: A):
            for i in x:
                y[i] = x[i]  # here

        produce(a)
        consume(a, b)
        with qd.graph.capture() as step:
            produce(a)  # launch
            s.wait(qd.default_stream())  # safe
            consume(a, b, qd_stream=s)  # launch
        step.launch()
        """,
        cpu_streams=True,
    ),
    planted(
        "static",
        """
        # event of a capture
        A = qd.types.ndarray(dtype=qd.f32, ndim=1)
        a, b = qd.ndarray(qd.f32, 32), qd.ndarray(qd.f32, 32)
        s1, s2 = qd.create_stream(), qd.create_stream()

        @qd.kernel
        def produce(x: A):
            for i in x:
                x[i] = i * 1.0  # here

        @qd.kernel
        def scale(x: A):
            for i in x:
                x[i] = 2.0 * x[i]  # here

        with qd.graph.capture() as step:
            e = qd.create_event()
            e.record(s1)  # racy
            produce(a, qd_stream=s1)  # launch
            e.record(s1)  # safe
            s2.wait(e)
            scale(a, qd_stream=s2)  # launch
        step.launch()
        """,
        cpu_streams=True,
    ),
    planted(
        "static",
        """
        # graph beside a kernel
        A = qd.types.ndarray(dtype=qd.f32, ndim=1)
        a, b = qd.ndarray(qd.f32, 32), qd.ndarray(qd.f32, 32)
        s = qd.create_stream()

        @qd.kernel
        def produce(x: A):
            for i in x:
                x[i] = i * 1.0  # here

        @qd.kernel
        def consume(x: A, y: A):
            for i in x:
                y[i] = x[i]  # here

        with qd.graph.capture() as step:
            produce(a)
        step.launch()  # launch
        s.wait(qd.default_stream())  # safe
        consume(a, b, qd_stream=s)  # launch
        """,
        cpu_streams=True,
    ),
    planted(
        "static",
        """
        # kernel ahead of a graph
        A = qd.types.ndarray(dtype=qd.f32, ndim=1)
        a, b = qd.ndarray(qd.f32, 32), qd.ndarray(qd.f32, 32)
        s = qd.create_stream()

        @qd.kernel
        def produce(x: A):
            for i in x:
                x[i] = i * 1.0  # here

        @qd.kernel
        def consume(x: A, y: A):
            for i in x:
                y[i] = x[i]  # here

        with qd.graph.capture() as step:
            consume(a, b)
        produce(a)  # launch
        qd.sync()  # safe
        step.launch(s)  # launch
        """,
        cpu_streams=True,
    ),
    planted(
        "static",
        """
        # fill of a graph
        A = qd.types.ndarray(dtype=qd.f32, ndim=1)
        a, b = qd.ndarray(qd.f32, 32), qd.ndarray(qd.f32, 32)
        s = qd.create_stream()

        @qd.kernel
        def scale(x: A):
            for i in x:
                x[i] = 2.0 * x[i]  # here

        with qd.graph.capture() as step:
            a.fill(1.0)
        step.launch()  # here launch
        s.wait(qd.default_stream())  # safe
        scale(a, qd_stream=s)  # launch
        """,
        cpu_streams=True,
    ),
    planted(
        "static",
        """
        # loop of a graph in place
        A = qd.types.ndarray(dtype=qd.f32, ndim=1)
        C = qd.types.ndarray(dtype=qd.i32, ndim=0)
        a, b, rounds = qd.ndarray(qd.f32, 32), qd.ndarray(qd.f32, 32), qd.ndarray(qd.i32, ())

        @qd.kernel(graph=True)
        def relax(x: A, y: A, n: C):
            while qd.graph.do_while(n):
                for i in range(1, 31):
                    x[i] = 0.5 * (x[i - 1] + x[i + 1])  # racy here
                    y[i] = 0.5 * (x[i - 1] + x[i + 1])  # safe
                for i in range(1, 31):
                    x[i] = y[i]
                n[()] -= 1

        rounds.fill(2)
        relax(a, b, rounds)
        """,
    ),
    planted(
        "static",
        """
        # second loop of two
        x, y = qd.field(qd.f32, 32), qd.field(qd.f32, 32)

        @qd.kernel
        def steps():
            for i in range(32):
                y[i] = x[i]
            for i in range(31):
                x[i + 1] = 0.5 * x[i]  # racy here
                x[i + 1] = 0.5 * y[i]  # safe

        steps()
        """,
    ),
    planted(
        "static",
        """
        # gradient that is taken too early
        x = qd.field(qd.f32, 16, needs_grad=True)
        loss = qd.field(qd.f32, (), needs_grad=True)
        s1, s2 = qd.create_stream(), qd.create_stream()

        @qd.kernel
        def guess():
            for i in x:
                x[i] = 0.5 * i  # here

        @qd.kernel
        def measure():
            for i in x:
                loss[None] += x[i] ** 2  # here

        loss.grad[None] = 1.0
        guess(qd_stream=s1)  # launch
        s2.wait(s1)  # safe
        measure.grad(qd_stream=s2)  # launch
        """,
        cpu_streams=True,
    ),
]
