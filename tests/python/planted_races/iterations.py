"""Races between iterations of a parallel loop whose elements follow from indices and arguments."""

from planted_races.planted import planted

PROGRAMS = [
    planted(
        "static",
        """
        # shift of elements that share words
        x, y = qd.field(qd.types.quant.int(4)), qd.field(qd.types.quant.int(4))
        for field in (x, y):
            qd.root.dense(qd.i, 8).quant_array(qd.i, 8, max_num_bits=32).place(field)

        @qd.kernel
        def shift():
            for i in range(63):
                x[i] = x[i + 1]  # racy here
                y[i] = x[i + 1]  # safe

        shift()
        """,
    ),
    planted(
        "static",
        """
        # shift left
        x, y = qd.field(qd.i32, 64), qd.field(qd.i32, 64)

        @qd.kernel
        def shift():
            for i in range(63):
                x[i] = x[i + 1]  # racy here
                y[i] = x[i + 1]  # safe

        shift()
        """,
    ),
    planted(
        "static",
        """
        # shift right
        x = qd.field(qd.i32, 64)

        @qd.kernel
        def shift():
            qd.loop_config(serialize=True)  # safe
            for i in range(1, 64):
                x[i] = x[i - 1] + 1  # racy here
                x[i] = x[i - 1] + 1  # safe

        shift()
        """,
    ),
    planted(
        "static",
        """
        # spread by two
        x, y = qd.field(qd.i32, 64), qd.field(qd.i32, 64)

        @qd.kernel
        def spread():
            for i in range(32):
                x[2 * i] = x[i]  # racy here
                y[2 * i] = x[i]  # safe

        spread()
        """,
    ),
    planted(
        "static",
        """
        # last one wins
        best = qd.field(qd.i32, ())

        @qd.kernel
        def mark():
            for i in range(64):
                best[None] = i  # racy here
                qd.atomic_max(best[None], i)  # safe

        mark()
        """,
    ),
    planted(
        "static",
        """
        # sum by load and store
        x, total = qd.field(qd.f32, 64), qd.field(qd.f32, 4)

        @qd.kernel
        def add():
            for i in range(64):
                old = total[1]  # racy
                total[1] = old + 2.0 * x[i] * old  # racy here
                total[1] += x[i]  # safe

        add()
        """,
    ),
    planted(
        "static",
        """
        # rows that all iterations write
        row, table = qd.field(qd.i32, 16), qd.field(qd.i32, (8, 16))

        @qd.kernel
        def fill():
            for i in range(8):
                for j in range(16):
                    row[j] = i + j  # racy here
                    table[i, j] = i + j  # safe

        fill()
        """,
    ),
    planted(
        "static",
        """
        # all pairs in place
        x, y = qd.field(qd.f32, 32), qd.field(qd.f32, 32)

        @qd.kernel
        def pull():
            for i in range(32):
                force = 0.0
                for j in range(32):
                    force += x[j] - x[i]  # racy here
                    force += x[j] - x[i]  # safe
                x[i] = force  # racy here
                y[i] = force  # safe

        pull()
        """,
    ),
    planted(
        "static",
        """
        # mirror in place
        x = qd.field(qd.i32, 64)

        @qd.kernel
        def mirror():
            for i in range(64):  # racy
            for i in range(32):  # safe
                x[i] = x[63 - i]  # racy here
                x[i] = x[63 - i]  # safe

        mirror()
        """,
    ),
    planted(
        "static",
        """
        # halves that share an element
        x = qd.field(qd.i32, 64)

        @qd.kernel
        def fold():
            for i in range(33):  # racy
            for i in range(32):  # safe
                x[i] = x[i + 31] + 1  # racy here
                x[i] = x[i + 32] + 1  # safe

        fold()
        """,
    ),
    planted(
        "static",
        """
        # relaxation in place
        u, v = qd.field(qd.f32, (16, 16)), qd.field(qd.f32, (16, 16))

        @qd.kernel
        def relax():
            for i, j in qd.ndrange((1, 15), (1, 15)):
                u[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])  # racy here
                v[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])  # safe

        relax()
        """,
    ),
    planted(
        "static",
        """
        # transpose in place
        a, b = qd.field(qd.f32, (8, 8)), qd.field(qd.f32, (8, 8))

        @qd.kernel
        def transpose():
            for i, j in a:
                a[i, j] = a[j, i]  # racy here
                b[i, j] = a[j, i]  # safe

        transpose()
        """,
    ),
    planted(
        "static",
        """
        # two iterations for one element
        x = qd.field(qd.i32, 64)

        @qd.kernel
        def fill():
            for i in range(64):
                x[i // 2] = i  # racy here
                x[i] = i // 2  # safe

        fill()
        """,
    ),
    planted(
        "static",
        """
        # indices that wrap
        x = qd.field(qd.i32, 64)

        @qd.kernel
        def fill():
            for i in range(64):
                x[i % 8] = i  # racy here
                x[i % 64] = i  # safe

        fill()
        """,
    ),
    planted(
        "static",
        """
        # odd elements only
        x, y = qd.field(qd.i32, 64), qd.field(qd.i32, 64)

        @qd.kernel
        def smooth():
            for i in range(1, 63):
                if i % 3 == 0:
                    x[i + 1] = 5  # racy here
                    y[i + 1] = 5  # safe
                if i % 3 == 1:
                    y[i] = x[i]  # racy here
                    x[i] = 3  # safe

        smooth()
        """,
    ),
    planted(
        "static",
        """
        # guarded neighbor
        x, y = qd.field(qd.i32, 64), qd.field(qd.i32, 64)

        @qd.kernel
        def step():
            for i in x:
                if i > 0:
                    x[i] = x[i - 1] + 1  # racy here
                    y[i] = x[i - 1] + 1  # safe

        step()
        """,
    ),
    planted(
        "static",
        """
        # histogram of remainders
        counts = qd.field(qd.i32, 4)

        @qd.kernel
        def count():
            for i in range(64):
                n = counts[i % 4]  # racy
                counts[i % 4] = n * 2 + i  # racy here
                counts[i % 4] += 1  # safe

        count()
        """,
    ),
    planted(
        "static",
        """
        # components of neighbors
        v = qd.Vector.field(2, qd.f32, 64)

        @qd.kernel
        def step():
            for i in range(63):
                v[i][0] = v[i + 1][0]  # racy here
                v[i][0] = v[i + 1][1]  # safe

        step()
        """,
    ),
    planted(
        "static",
        """
        # one array twice
        A = qd.types.ndarray(dtype=qd.f32, ndim=1)
        x, y = qd.ndarray(qd.f32, 64), qd.ndarray(qd.f32, 64)

        @qd.kernel
        def shift(a: A, b: A):
            for i in range(63):
                a[i] = b[i + 1]  # racy here
                a[i] = b[i + 1]  # safe

        shift(x, x)  # racy
        shift(x, y)  # safe
        """,
    ),
    planted(
        "static",
        """
        # distance by an argument
        A = qd.types.ndarray(dtype=qd.f32, ndim=1)
        x = qd.ndarray(qd.f32, 64)

        @qd.kernel
        def copy(a: A, k: qd.i32):
            for i in range(32):
                a[i] = a[i + k]  # racy here
                a[i] = a[i + k]  # safe

        copy(x, 32)
        copy(x, 5)  # racy
        copy(x, 0)  # safe
        """,
    ),
    planted(
        "static",
        """
        # counted while
        x, y = qd.field(qd.i32, 64), qd.field(qd.i32, (64, 4))

        @qd.kernel
        def walk():
            for i in range(60):
                k = 0
                while k < 4:
                    x[i + k] = i  # racy here
                    y[i, k] = i  # safe
                    k += 1

        walk()
        """,
    ),
    planted(
        "static",
        """
        # unrolled neighbors
        x, y = qd.field(qd.i32, 64), qd.field(qd.i32, (64, 3))

        @qd.kernel
        def spread():
            for i in range(60):
                for k in qd.static(range(3)):
                    x[i + k] = i * k  # racy here
                    y[i, k] = i * k  # safe

        spread()
        """,
    ),
    planted(
        "static",
        """
        # written in a function
        x, y = qd.field(qd.i32, 64), qd.field(qd.i32, 64)

        @qd.func
        def put(k, value):
            x[k] = value  # racy here
            y[k] = value  # safe

        @qd.kernel
        def step():
            for i in range(63):
                put(i + 1, x[i] + 1)  # racy here
                put(i + 1, x[i] + 1)  # safe

        step()
        """,
    ),
    planted(
        "static",
        """
        # grouped indices
        u, v = qd.field(qd.i32, (8, 8)), qd.field(qd.i32, (8, 8))

        @qd.kernel
        def move():
            for I in qd.grouped(qd.ndrange(7, 8)):
                u[I] = u[I + qd.Vector([1, 0])]  # racy here
                v[I] = u[I + qd.Vector([1, 0])]  # safe

        move()
        """,
    ),
    planted(
        "static",
        """
        # counter that is read
        count, y = qd.field(qd.i32, ()), qd.field(qd.i32, 64)

        @qd.kernel
        def number():
            for i in range(64):
                count[None] += 1  # racy here
                y[i] = count[None]  # racy here
                y[i] = qd.atomic_add(count[None], 1)  # safe

        number()
        """,
    ),
    planted(
        "static",
        """
        # cleared meanwhile
        x, total = qd.field(qd.f32, 64), qd.field(qd.f32, ())

        @qd.kernel
        def add():
            total[None] = 0.0  # safe
            for i in range(64):
                if i == 0:  # racy
                    total[None] = 0.0  # racy here
                qd.atomic_add(total[None], x[i])  # racy here
                qd.atomic_add(total[None], x[i])  # safe

        add()
        """,
    ),
    planted(
        "static",
        """
        # smallest by hand
        x, least = qd.field(qd.f32, 64), qd.field(qd.f32, ())

        @qd.kernel
        def find():
            for i in range(64):
                if i > 0:
                    least[None] = qd.sqrt(least[None]) * x[i]  # racy here
                    qd.atomic_min(least[None], x[i])  # safe

        find()
        """,
    ),
    planted(
        "static",
        """
        # running sum in place
        x = qd.field(qd.f32, 64)

        @qd.kernel
        def scan():
            qd.loop_config(serialize=True)  # safe
            for i in range(1, 64):
                x[i] += x[i - 1]  # racy here
                x[i] += x[i - 1]  # safe

        scan()
        """,
    ),
    planted(
        "static",
        """
        # scaled by the first
        x = qd.field(qd.f32, 64)

        @qd.kernel
        def scale():
            first = x[0]  # safe
            for i in range(64):
                x[i] = x[i] / x[0]  # racy here
                x[i] = x[i] / first  # safe

        scale()
        """,
    ),
    planted(
        "static",
        """
        # far apart
        x = qd.field(qd.f32, 9000)

        @qd.kernel
        def fold():
            for i in range(5000):
                x[i] = x[i + 4000]  # racy here
                if i < 4000:  # safe
                    x[i] = x[i + 5000]  # safe

        fold()
        """,
    ),
    planted(
        "static",
        """
        # product without atomics
        a, b, c = qd.field(qd.f32, (8, 8)), qd.field(qd.f32, (8, 8)), qd.field(qd.f32, (8, 8))

        @qd.kernel
        def multiply():
            for i, j, k in qd.ndrange(8, 8, 8):
                old = c[i, j]  # racy
                c[i, j] = qd.max(old, 1.0) + a[i, k] * b[k, j]  # racy here
                c[i, j] += a[i, k] * b[k, j]  # safe

        multiply()
        """,
    ),
    planted(
        "static",
        """
        # swap of neighbors
        x = qd.field(qd.i32, 64)

        @qd.kernel
        def swap():
            for i in range(62):  # racy
            for k in range(31):  # safe
                i = 2 * k  # safe
                a, b = x[i], x[i + 1]
                x[i] = b  # racy here
                x[i + 1] = a  # racy here
                x[i] = b  # safe
                x[i + 1] = a  # safe

        swap()
        """,
    ),
    planted(
        "static",
        """
        # flag with a value
        flag = qd.field(qd.i32, ())

        @qd.kernel
        def raise_flag():
            for i in range(64):
                flag[None] = i + 1  # racy here
                flag[None] = 1  # safe

        raise_flag()
        """,
    ),
    planted(
        "static",
        """
        # value of another array
        x, y = qd.field(qd.f32, 4), qd.field(qd.f32, 64)

        @qd.kernel
        def keep():
            for i in range(64):
                x[0] = y[i]  # racy here
                x[0] = y[5]  # safe

        keep()
        """,
    ),
    planted(
        "static",
        """
        # triangle
        x, y = qd.field(qd.f32, 64), qd.field(qd.f32, (64, 64))

        @qd.kernel
        def eliminate():
            for i in range(64):
                for j in range(i):
                    x[j] = i * 1.0  # racy here
                    y[i, j] = i * 1.0  # safe

        eliminate()
        """,
    ),
    planted(
        "static",
        """
        # blocks of four
        x = qd.field(qd.i32, 64)

        @qd.kernel
        def fill():
            for i in range(64):
                x[i // 4 * 4 + i % 3] = i  # racy here
                x[i // 4 * 4 + i % 4] = i  # safe

        fill()
        """,
    ),
    planted(
        "static",
        """
        # masked index
        x = qd.field(qd.i32, 64)

        @qd.kernel
        def fill():
            for i in range(64):
                x[i & 62] = i  # racy here
                x[i ^ 1] = i  # safe

        fill()
        """,
    ),
    planted(
        "static",
        """
        # members of structs
        cell = qd.types.struct(mass=qd.f32, heat=qd.f32)
        cells = cell.field(shape=64)

        @qd.kernel
        def step():
            for i in range(63):
                cells[i].heat = cells[i + 1].heat * 0.5  # racy here
                cells[i].heat = cells[i + 1].mass * 0.5  # safe

        step()
        """,
    ),
    planted(
        "static",
        """
        # layers of a box
        u, v = qd.field(qd.f32, (4, 4, 4)), qd.field(qd.f32, (4, 4, 4))

        @qd.kernel
        def sink():
            for i, j, k in qd.ndrange(4, 4, 3):
                u[i, j, k] = u[i, j, k + 1]  # racy here
                v[i, j, k] = u[i, j, k + 1]  # safe

        sink()
        """,
    ),
    planted(
        "static",
        """
        # axis that is left out
        sums = qd.field(qd.f32, 8)

        @qd.kernel
        def add():
            for i, j in qd.ndrange(8, 8):
                sums[i] = j * 1.0  # racy here
                sums[i] += j * 1.0  # safe

        add()
        """,
    ),
    planted(
        "static",
        """
        # extent of an ndarray
        A = qd.types.ndarray(dtype=qd.i32, ndim=1)
        x = qd.ndarray(qd.i32, 48)

        @qd.kernel
        def shift(a: A):
            n = a.shape[0]
            for i in range(n // 2):
                a[i] = a[n // 2 + i - 1]  # racy here
                a[i] = a[n // 2 + i]  # safe

        shift(x)
        """,
    ),
    planted(
        "static",
        """
        # ends that wrap around
        x, y = qd.field(qd.f32, 32), qd.field(qd.f32, 32)

        @qd.kernel
        def advect():
            for i in range(32):
                x[i] = 0.5 * x[(i + 31) % 32]  # racy here
                y[i] = 0.5 * x[(i + 31) % 32]  # safe

        advect()
        """,
    ),
    planted(
        "static",
        """
        # random numbers from one state
        @qd.kernel
        def draw(n: qd.i32) -> qd.u32:
            s = qd.u32(1)
            qd.loop_config(serialize=True)  # safe
            for _ in range(n):
                s ^= s << 13  # racy here
                s ^= s << 13  # safe
            return s

        draw(5)
        """,
    ),
    planted(
        "static",
        """
        # filter in a variable
        x = qd.field(qd.f32, 16)

        @qd.kernel
        def smooth() -> qd.f32:
            mean = 0.0
            qd.loop_config(serialize=True)  # safe
            for i in x:
                mean = mean * 0.9 + x[i]  # racy here
                mean = mean * 0.9 + x[i]  # safe
            return mean

        smooth()
        """,
    ),
    planted(
        "full",
        """
        # scattered writes
        x, to = qd.field(qd.i32, 16), qd.field(qd.i32, 16)

        @qd.kernel
        def scatter():
            for i in range(16):
                x[to[i]] = i  # racy here
                x[to[i]] += i  # safe

        scatter()
        """,
    ),
    planted(
        "full",
        """
        # gathered in place
        x, of = qd.field(qd.i32, 16), qd.field(qd.i32, 16)

        @qd.kernel
        def gather():
            for i in range(16):
                x[i] = x[of[i]] + 1  # racy here
                qd.atomic_add(x[i], 1)  # safe

        gather()
        """,
    ),
    planted(
        "static",
        """
        # views that overlap
        x = qd.ndarray(qd.f32, 64)
        View = qd.BufferView[qd.f32]

        @qd.kernel
        def shift(to: View, source: View):
            for i in range(to.size):
                to[i] = source[i] + 1.0  # here

        shift(x[0:32], x[32:64])
        shift(x[0:32], x[1:33])  # racy
        shift(x[0:31], x[33:64])  # safe
        """,
    ),
    planted(
        "static",
        """
        # views with strides that interleave
        A = qd.types.ndarray(dtype=qd.i32, ndim=1)

        @qd.kernel
        def add(x: A, y: A):
            for i in x:
                x[i] = y[i] + 1  # here

        numbers = np.arange(66, dtype=np.int32)
        add(numbers[:64:2], numbers[1:65:2])  # safe
        add(numbers[:64:2], numbers[2:66:2])  # racy
        """,
    ),
    planted(
        "static",
        """
        # view in reverse
        A = qd.types.ndarray(dtype=qd.i32, ndim=1)

        @qd.kernel
        def add(x: A, y: A):
            for i in x:
                x[i] = y[i] + 1  # here

        numbers = np.arange(64, dtype=np.int32)
        add(numbers[:32], numbers[:31:-1])  # safe
        add(numbers[:33], numbers[:30:-1])  # racy
        """,
    ),
    planted(
        "static",
        """
        # transposed view of the same matrix
        A = qd.types.ndarray(dtype=qd.i32, ndim=2)

        @qd.kernel
        def add(x: A, y: A):
            for i, j in x:
                x[i, j] = y[i, j] + 1  # here

        numbers = np.arange(400, dtype=np.int32).reshape(20, 20)
        add(numbers[:10], numbers[10:])  # safe
        add(numbers, numbers.T)  # racy
        """,
    ),
    planted(
        "static",
        """
        # one iteration in the middle of many
        A = qd.types.ndarray(dtype=qd.i32, ndim=1)

        @qd.kernel
        def shift(x: A, special: qd.i32):
            for i in range(100_000):
                if i == special:
                    x[i + 1] = 5  # racy here
                    x[i] = 5  # safe
                else:
                    x[i] = i  # here

        numbers = qd.ndarray(qd.i32, 100_001)
        shift(numbers, 60_000)
        """,
    ),
]
