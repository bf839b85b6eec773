"""Races on local variables of a kernel that the iterations of a parallel loop share."""

from planted_races.planted import planted

PROGRAMS = [
    planted(
        "static",
        """
        # last index in a local
        @qd.kernel
        def last() -> qd.i32:
            found = 0
            for i in range(1000):
                found = i  # racy here
                qd.atomic_max(found, i)  # safe
            return found

        last()
        """,
    ),
    planted(
        "static",
        """
        # sum that other iterations read
        x, sums = qd.field(qd.i32, 64), qd.field(qd.i32, 64)

        @qd.kernel
        def scan():
            total = 0
            for i in range(64):
                total += x[i]  # racy here
                sums[i] = total  # racy here
                sums[i] = qd.atomic_add(total, x[i])  # safe

        scan()
        """,
    ),
    planted(
        "static",
        """
        # local that each iteration sets first
        x, y = qd.field(qd.f32, 64), qd.field(qd.f32, 64)

        @qd.kernel
        def double():
            twice = 0.0
            for i in range(64):
                y[i] = twice  # racy
                twice = 2 * x[i]  # racy here
                twice = 2 * x[i]  # safe
                y[i] = twice  # safe

        double()
        """,
    ),
    planted(
        "static",
        """
        # last index in rounds of a graph
        x, rounds = qd.field(qd.i32, 64), qd.ndarray(qd.i32, ())
        Rounds = qd.types.ndarray(qd.i32, ndim=0)

        @qd.kernel(graph=True)
        def last(n: Rounds):
            found = 0
            while qd.graph.do_while(n):
                for i in range(64):
                    found = i  # racy here
                    qd.atomic_max(found, i)  # safe
                n[()] -= 1
            x[0] = found

        rounds.fill(2)
        last(rounds)
        """,
    ),
    planted(
        "static",
        """
        # recurrence over two lines
        y = qd.field(qd.i32, 64)

        @qd.kernel
        def powers():
            state = 1
            for i in range(64):
                old = state  # racy here
                old = i  # safe
                state = old * 3 + 1  # racy here
                y[i] = old * 3 + 1  # safe

        powers()
        """,
    ),
]
