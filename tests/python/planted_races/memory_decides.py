"""Launches on different streams whose elements depend on values in memory: indices, conditions and lengths of loops."""

from planted_races.planted import planted

KERNELS = """
A = qd.types.ndarray(dtype=qd.i32, ndim=1)
a, b = qd.ndarray(qd.i32, 200), qd.ndarray(qd.i32, 200)
s1, s2 = qd.create_stream(), qd.create_stream()

def array(values):
    made = qd.ndarray(qd.i32, len(values))
    made.from_numpy(np.asarray(values).astype(np.int32))
    return made

"""

TEXTS = [
    """
    # loop over the active cells of a pointer level
    cells = qd.field(qd.i32)
    qd.root.pointer(qd.i, 16).dense(qd.i, 4).place(cells)

    @qd.kernel
    def activate(at: qd.i32):
        for i in range(2):
            cells[at * i] = 7

    @qd.kernel
    def collect(x: A):
        for i in cells:
            x[i] = cells[i]  # here

    @qd.kernel
    def mark(x: A, begin: qd.i32, end: qd.i32):
        for i in range(begin, end):
            x[i] = 5  # here

    activate(21)
    qd.sync()
    collect(a, qd_stream=s1)  # launch
    mark(a, 4, 21, qd_stream=s2)  # racy launch
    mark(a, 4, 20, qd_stream=s2)  # safe
    """,
    """
    # loop over active cells while another stream writes one of them
    cells = qd.field(qd.i32)
    qd.root.dense(qd.i, 4).bitmasked(qd.i, 16).place(cells)

    @qd.kernel
    def activate():
        for i in range(60):
            if i % 7 == 3:
                cells[i] = i

    @qd.kernel
    def shift(by: qd.i32):
        for i in cells:
            cells[i] += by  # here

    @qd.kernel
    def reset(chosen: A):
        for i in range(1):
            cells[chosen[i]] = 0  # here

    activate()
    qd.sync()
    shift(1, qd_stream=s1)  # launch
    s2.wait(s1)  # safe
    reset(array([24]), qd_stream=s2)  # launch
    """,
    """
    # indices that a launch computes itself
    @qd.kernel
    def select(x: A, data: A, listed: A, count: A):
        for _ in range(1):
            count[0] = 0
        for i in data:
            if data[i] == 3:
                listed[qd.atomic_add(count[0], 1)] = i
        for i in range(count[0]):
            x[listed[i]] = 1  # here

    @qd.kernel
    def mark(x: A, begin: qd.i32, end: qd.i32):
        for i in range(begin, end):
            x[i] = 5  # here

    data, listed, count = array(np.arange(64) % 7), array(np.zeros(64)), array([0])
    select(a, data, listed, count, qd_stream=s1)  # launch
    mark(a, 11, 18, qd_stream=s2)  # racy launch
    mark(a, 11, 17, qd_stream=s2)  # safe
    """,
    """
    # scatters on two streams
    @qd.kernel
    def scatter(x: A, indices: A, first: qd.i32):
        for i in indices:
            x[indices[i]] = first + i  # here

    scatter(a, array(np.arange(100)), 1, qd_stream=s1)  # launch
    scatter(a, array(np.arange(100) + 99), 1000, qd_stream=s2)  # racy launch
    scatter(a, array(np.arange(100) + 100), 1000, qd_stream=s2)  # safe
    """,
    """
    # gather from what another stream writes
    @qd.kernel
    def fill(x: A):
        for i in range(100):
            x[i] = i + 1  # here

    @qd.kernel
    def gather(x: A, indices: A, y: A):
        for i in indices:
            y[i] = x[indices[i]]  # here

    fill(a, qd_stream=s1)  # launch
    gather(a, array(np.arange(100) + 99), b, qd_stream=s2)  # racy launch
    gather(a, array(np.arange(100) + 100), b, qd_stream=s2)  # safe
    """,
    """
    # conditions on two streams
    @qd.kernel
    def select(x: A, chosen: A, value: qd.i32):
        for i in chosen:
            if chosen[i] == value:
                x[i] = value * 10 + i  # here

    chosen = np.arange(200) % 2
    select(a, array(chosen), 1, qd_stream=s1)  # launch
    chosen[150] = 1  # safe
    chosen[151] = 0  # racy
    select(a, array(1 - chosen), 1, qd_stream=s2)  # racy launch
    select(a, array(chosen), 0, qd_stream=s2)  # safe
    """,
    """
    # length of a loop in memory
    @qd.kernel
    def below(x: A, n: A):
        for i in range(n[0]):
            x[i] = i + 1  # here

    @qd.kernel
    def above(x: A, begin: qd.i32):
        for i in range(begin, 100):
            x[i] = 1000 + i  # here

    below(a, array([50]), qd_stream=s1)  # launch
    above(a, 49, qd_stream=s2)  # racy launch
    above(a, 50, qd_stream=s2)  # safe
    """,
    """
    # rows of a sparse matrix
    @qd.kernel
    def rows(starts: A, x: A, first: qd.i32, end: qd.i32):
        for row in range(first, end):
            for k in range(starts[row], starts[row + 1]):
                x[k] = row  # here

    starts = array([0, 40, 80, 150, 200])
    rows(starts, a, 0, 2, qd_stream=s1)  # launch
    rows(starts, a, 1, 4, qd_stream=s2)  # racy launch
    rows(starts, a, 2, 4, qd_stream=s2)  # safe
    """,
    """
    # fill of what a scatter writes
    @qd.kernel
    def scatter(x: A, indices: A):
        for i in indices:
            x[indices[i]] = i + 1  # here

    s2.wait(s1)
    scatter(a, array(np.arange(100) + 100), qd_stream=s1)  # launch
    a.fill(3, qd_stream=s2)  # racy here launch
    b.fill(3, qd_stream=s2)  # safe
    """,
]

PROGRAMS = []
for text in TEXTS:
    first, _, rest = text.lstrip("\n").partition("\n")
    body = "\n".join(line.removeprefix("    ") for line in rest.splitlines())
    PROGRAMS.append(planted("full", f"{first.strip()}\n{KERNELS}\n{body}"))
