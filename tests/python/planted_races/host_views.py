"""Accesses of the host through a NumPy view of memory that a launch on a stream uses."""

from planted_races.planted import planted

KERNELS = """
A = qd.types.ndarray(dtype=qd.i32, ndim=1)
x, y = qd.ndarray(qd.i32, 1000), qd.ndarray(qd.i32, 1000)
grid = qd.field(qd.i32, (20, 30))
s = qd.create_stream()
view, table = x.to_numpy(copy=False), grid.to_numpy(copy=False)


@qd.kernel
def fill(x: A, value: qd.i32):
    for i in x:
        x[i] = value + i  # fill


@qd.kernel
def double(x: A, y: A):
    for i in x:
        y[i] = 2 * x[i]  # double


@qd.kernel
def rows(begin: qd.i32, end: qd.i32):
    for i, j in qd.ndrange((begin, end), 30):
        grid[i, j] = i + j  # rows
"""

TEXTS = [
    (
        "fill",
        """
        # element read before the stream is waited for
        fill(x, 5, qd_stream=s)  # launch
        s.synchronize()  # safe
        assert view[700] >= 0  # here
        """,
    ),
    (
        "double",
        """
        # element written while a launch reads it
        double(x, y, qd_stream=s)  # launch
        s.synchronize()  # safe
        view[3] = 7  # here
        """,
    ),
    (
        "double",
        """
        # result of a NumPy function written while a launch reads the array
        double(x, y, qd_stream=s)  # launch
        s.synchronize()  # safe
        np.cumsum(np.ones(4, np.int32), out=view[:4])  # here
        """,
    ),
    (
        "fill",
        """
        # sum of a slice
        fill(x, 5, qd_stream=s)  # launch
        qd.sync()  # safe
        total = view[10:20].sum()  # here
        """,
    ),
    (
        "fill",
        """
        # event recorded before the launch
        done = qd.create_event()
        done.record(s)  # racy
        fill(x, 5, qd_stream=s)  # launch
        done.record(s)  # safe
        done.synchronize()
        found = np.max(view)  # here
        """,
    ),
    (
        "fill",
        """
        # plain array over a view
        plain = np.asarray(view)[2:]
        fill(x, 5, qd_stream=s)  # launch
        s.synchronize()  # safe
        plain[3] = 4  # here
        """,
    ),
    (
        "fill",
        """
        # copy of a view
        fill(x, 5, qd_stream=s)  # launch
        s.synchronize()  # safe
        copied = np.array(view)  # here
        """,
    ),
    (
        "double",
        """
        # array that is exchanged by DLPack
        exchanged = np.from_dlpack(view)
        double(x, y, qd_stream=s)  # launch
        s.synchronize()  # safe
        exchanged += 1  # here
        """,
    ),
    (
        "double",
        """
        # array over a memoryview of a view
        exported = np.asarray(memoryview(view))
        double(x, y, qd_stream=s)  # launch
        s.synchronize()  # safe
        exported[3] = 1  # here
        """,
    ),
    (
        "fill",
        """
        # array over the buffer of a view
        exported = np.frombuffer(view, np.int32)
        fill(x, 5, qd_stream=s)  # launch
        s.synchronize()  # safe
        found = exported[999]  # here
        """,
    ),
    (
        "fill",
        """
        # array of another shape
        square = np.reshape(view, (10, 100))
        fill(x, 5, qd_stream=s)  # launch
        s.synchronize()  # safe
        found = square[3, 4]  # here
        """,
    ),
    (
        "double",
        """
        # parts of a view
        first, second = np.split(view, 2)
        double(x, y, qd_stream=s)  # launch
        s.synchronize()  # safe
        second[:] = 1  # here
        """,
    ),
    (
        "fill",
        """
        # list of views
        fill(x, 5, qd_stream=s)  # launch
        s.synchronize()  # safe
        copied = np.array([view[3:5], view[5:7]])  # here
        """,
    ),
    (
        "fill",
        """
        # operator on a view
        fill(x, 5, qd_stream=s)  # launch
        x.to_numpy()  # safe
        view += 1  # here
        """,
    ),
    (
        "rows",
        """
        # rows that a launch writes
        rows(0, 10, qd_stream=s)  # launch
        table[9:12] = 4  # racy here
        table[10:12] = 4  # safe
        """,
    ),
    (
        "fill",
        """
        # elements chosen by an array
        fill(x, 5, qd_stream=s)  # launch
        grid[0, 0]  # racy
        x[0]  # safe
        view[np.array([3, 4, 800])] = 0  # here
        """,
    ),
]

PROGRAMS = []
for kernel, text in TEXTS:
    first, _, rest = text.lstrip("\n").partition("\n")
    body = "\n".join(line.removeprefix(" " * 8) for line in rest.splitlines())
    kernels = "\n".join(
        line if "  # " not in line else line.partition("  # ")[0] + ("  # here" if line.endswith(f"# {kernel}") else "")
        for line in KERNELS.splitlines()
    )
    PROGRAMS.append(planted("static", f"{first.strip()}\n{kernels}\n{body}"))
