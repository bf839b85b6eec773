"""Programs with data-dependent races, and their race-free twins.

A program is a function with a parameter that selects the racy version. The lines of its kernel that take part in the
race end in `# meets`: one line if two iterations race there, otherwise two. The twin uses other data, or another
kernel.
"""

import numpy as np

import octants as qd

PROGRAMS = []
N = 64
ints = qd.types.NDArray[qd.i32, 1]
floats = qd.types.NDArray[qd.f32, 1]


def program(function):
    """Adds a program to the list."""
    PROGRAMS.append(function)
    return function


def array(values, dtype=qd.i32):
    """An array of the device with these values."""
    values = np.asarray(values)
    made = qd.ndarray(dtype, values.shape)
    made.from_numpy(values.astype(np.float32 if dtype == qd.f32 else np.int32))
    return made


def shuffled(seed=1, n=N):
    return np.random.default_rng(seed).permutation(n)


def doubled(n=N):
    """Two iterations have the same index, somewhere."""
    indices = shuffled(n=n)
    indices[n // 2] = indices[3]
    return indices


@program
def scatter_through_an_index_array(races):
    @qd.kernel
    def scatter(x: ints, at: ints):
        for i in range(at.shape[0]):
            x[at[i]] = i  # meets

    scatter(array(np.zeros(N)), array(doubled() if races else shuffled()))


@program
def scatter_to_a_field(races):
    x = qd.field(qd.f32, N)
    at = qd.field(qd.i32, N)

    @qd.kernel
    def scatter():
        for i in at:
            x[at[i]] = 0.5 * i  # meets

    at.from_numpy((doubled() if races else shuffled()).astype(np.int32))
    scatter()


@program
def histogram_by_plain_sums(races):
    @qd.kernel
    def plain(bins: ints, values: ints):
        for i in range(values.shape[0]):
            bins[values[i]] = bins[values[i]] + 1  # meets

    @qd.kernel
    def atomic(bins: ints, values: ints):
        for i in range(values.shape[0]):
            bins[values[i]] += 1

    (plain if races else atomic)(array(np.zeros(8)), array(np.arange(N) % 8))


@program
def histogram_in_two_statements(races):
    @qd.kernel
    def count(bins: ints, values: ints):
        for i in range(values.shape[0]):
            old = bins[values[i]]  # meets
            bins[values[i]] = old + 1  # meets

    count(array(np.zeros(N)), array(doubled() if races else shuffled()))


@program
def neighbors_from_memory(races):
    @qd.kernel
    def relax(x: floats, neighbor: ints):
        for i in range(x.shape[0]):
            x[i] = 0.5 * x[neighbor[i]]  # meets

    relax(array(np.arange(N), qd.f32), array(np.roll(np.arange(N), 1) if races else np.arange(N)))


@program
def neighbors_read_from_a_copy(races):
    @qd.kernel
    def in_place(x: floats, y: floats, neighbor: ints):
        for i in range(x.shape[0]):
            x[i] = y[i] + x[neighbor[i]]  # meets

    @qd.kernel
    def from_copy(x: floats, y: floats, neighbor: ints):
        for i in range(x.shape[0]):
            y[i] = x[i]
        for i in range(x.shape[0]):
            x[i] = y[i] + y[neighbor[i]]

    neighbor = array(shuffled())
    (in_place if races else from_copy)(array(np.arange(N), qd.f32), array(np.arange(N), qd.f32), neighbor)


@program
def linked_lists(races):
    @qd.kernel
    def mark(head: ints, following: ints, marks: ints):
        for i in range(head.shape[0]):
            node = head[i]
            while node >= 0:
                marks[node] = i  # meets
                node = following[node]

    following = np.full(N, -1)
    following[: N // 2] = np.arange(N // 2) + N // 2
    heads = np.arange(N // 2)
    if races:
        following[4] = N // 2 + 5
    mark(array(heads), array(following), array(np.zeros(N)))


@program
def lists_with_a_shared_tail(races):
    @qd.kernel
    def add(head: ints, following: ints, sums: floats):
        for i in range(head.shape[0]):
            node = head[i]
            while node >= 0:
                sums[node] = sums[node] + 1.0 + i  # meets
                node = following[node]

    following = np.append(np.full(N - 1, N - 1), -1) if races else np.full(N, -1)
    add(array(np.arange(N - 1)), array(following), array(np.zeros(N), qd.f32))


@program
def stencil_in_place_with_wrapped_index(races):
    @qd.kernel
    def smooth(x: floats, shift: qd.i32):
        for i in range(N):
            x[i] = 0.5 * (x[(i + shift) % N] + 1.0)  # meets

    smooth(array(np.arange(N), qd.f32), 1 if races else N)


@program
def wrapped_writes(races):
    @qd.kernel
    def put(x: ints, m: qd.i32):
        for i in range(N):
            x[i % m] = i  # meets

    put(array(np.zeros(N)), N // 2 if races else N)


@program
def writes_at_quotients(races):
    @qd.kernel
    def put(x: ints, m: qd.i32):
        for i in range(N):
            x[i // m] = i  # meets

    put(array(np.zeros(N)), 2 if races else 1)


@program
def writes_at_masked_indices(races):
    @qd.kernel
    def put(x: ints, mask: qd.i32):
        for i in range(N):
            x[i & mask] = i  # meets

    put(array(np.zeros(N)), 15 if races else N - 1)


@program
def writes_at_mirrored_indices(races):
    @qd.kernel
    def put(x: ints, y: ints, flip: qd.i32):
        for i in range(N):
            x[i ^ flip] = x[i] + 1  # meets

    @qd.kernel
    def put_apart(x: ints, y: ints, flip: qd.i32):
        for i in range(N):
            y[i ^ flip] = x[i] + 1

    (put if races else put_apart)(array(np.arange(N)), array(np.zeros(N)), 1)


@program
def squares_as_indices(races):
    @qd.kernel
    def put(x: ints, n: qd.i32):
        for i in range(n):
            x[(i * i) % 61] = i  # meets

    put(array(np.zeros(N)), 60 if races else 31)


@program
def maximum_by_plain_store(races):
    best = qd.field(qd.i32, ())

    @qd.kernel
    def plain(x: ints):
        for i in range(x.shape[0]):
            if x[i] > best[None]:  # meets
                best[None] = x[i]  # meets

    @qd.kernel
    def atomic(x: ints):
        for i in range(x.shape[0]):
            qd.atomic_max(best[None], x[i])

    (plain if races else atomic)(array(np.arange(N)))


@program
def last_writer_of_one_element(races):
    found = qd.field(qd.i32, ())

    @qd.kernel
    def find(x: ints, wanted: qd.i32):
        for i in range(x.shape[0]):
            if x[i] == wanted:
                found[None] = i  # meets

    find(array(np.arange(N) % (N // 2) if races else np.arange(N)), 7)


@program
def flag_of_the_same_value(races):
    flag = qd.field(qd.i32, ())

    @qd.kernel
    def tell(x: ints, of_index: qd.i32):
        for i in range(x.shape[0]):
            if x[i] > 5:
                flag[None] = 1 + of_index * i  # meets

    tell(array(np.arange(N)), int(races))


@program
def flag_that_is_read(races):
    flag = qd.field(qd.i32, ())
    count = qd.field(qd.i32, ())

    @qd.kernel
    def tell(x: ints):
        for i in range(x.shape[0]):
            if x[i] > 5:
                flag[None] = 1  # meets
            if x[i] < 2:
                count[None] += flag[None]  # meets

    @qd.kernel
    def tell_first(x: ints):
        for i in range(x.shape[0]):
            if x[i] > 5:
                flag[None] = 1
        for i in range(x.shape[0]):
            if x[i] < 2:
                count[None] += flag[None]

    (tell if races else tell_first)(array(np.arange(N)))


@program
def values_that_stay_what_they_are(races):
    @qd.kernel
    def clamp(x: ints, at: ints, most: qd.i32):
        for i in range(at.shape[0]):
            x[at[i]] = most  # meets
            x[i] = most + 1 - most // 9 + at[i] * 0  # meets

    @qd.kernel
    def clamp_alike(x: ints, at: ints, most: qd.i32):
        for i in range(at.shape[0]):
            x[at[i]] = most

    (clamp if races else clamp_alike)(array(np.zeros(N)), array(np.roll(np.arange(N), 1)), 9 if not races else 8)


@program
def strides_from_memory(races):
    @qd.kernel
    def fill(x: ints, begin: ints, stride: ints):
        for i in range(begin.shape[0]):
            k = begin[i]
            while k < N:
                x[k] = i  # meets
                k += stride[i]

    strides = [4, 4, 4, 3] if races else [4, 4, 4, 4]
    fill(array(np.zeros(N)), array([0, 1, 2, 3]), array(strides))


@program
def segments_from_memory(races):
    @qd.kernel
    def fill(x: ints, begin: ints):
        for s in range(begin.shape[0] - 1):
            for k in range(begin[s], begin[s + 1] + (s == 3) * begin[0]):
                x[k] = s  # meets

    @qd.kernel
    def fill_over(x: ints, begin: ints):
        for s in range(begin.shape[0] - 1):
            for k in range(begin[s], begin[s + 1] + 1):
                x[k] = s  # meets

    (fill_over if races else fill)(array(np.zeros(N)), array(np.arange(0, N, 8)))


@program
def rows_of_a_sparse_matrix(races):
    @qd.kernel
    def product(of_entry: ints, column: ints, x: floats, y: floats):
        for k in range(of_entry.shape[0]):
            y[of_entry[k]] = y[of_entry[k]] + x[column[k]]  # meets

    rows = np.arange(N) // 2 if races else np.arange(N)
    ones = array(np.ones(N), qd.f32)
    product(array(rows), array(shuffled()), ones, array(np.zeros(N), qd.f32))


@program
def colors_of_a_graph(races):
    @qd.kernel
    def relax(x: floats, color: ints, now: qd.i32, left: ints, right: ints):
        for i in range(x.shape[0]):
            if color[i] == now:
                x[i] = 0.5 * (x[left[i]] + x[right[i]])  # meets

    color = np.arange(N) % 2
    if races:
        color[11] = 0
    left, right = np.roll(np.arange(N), 1), np.roll(np.arange(N), -1)
    # A store of the current value would not be a race.
    x = array(np.arange(N) ** 2, qd.f32)
    for now in range(2):
        relax(x, array(color), now, array(left), array(right))


@program
def constraints_of_a_cloth(races):
    points = qd.Vector.field(2, qd.f32, N)

    @qd.kernel
    def solve(a: ints, b: ints):
        for c in range(a.shape[0]):
            d = 0.25 * (points[b[c]] - points[a[c]]) + 0.125  # meets
            points[a[c]] = points[a[c]] + d  # meets
            points[b[c]] = points[b[c]] - d  # meets

    a = np.arange(0, N - 1, 1 if races else 2)
    points.from_numpy(np.random.default_rng(3).random((N, 2)).astype(np.float32))
    solve(array(a), array(a + 1))


@program
def particles_to_grid(races):
    grid = qd.field(qd.f32, (8, 8))

    @qd.kernel
    def stored(x: floats, y: floats):
        for p in range(x.shape[0]):
            i, j = int(x[p]), int(y[p])
            grid[i, j] = grid[i, j] + x[p] - i  # meets

    @qd.kernel
    def summed(x: floats, y: floats):
        for p in range(x.shape[0]):
            i, j = int(x[p]), int(y[p])
            grid[i, j] += x[p] - i

    random = np.random.default_rng(5).random((2, 4 * N)) * 8
    (stored if races else summed)(array(random[0], qd.f32), array(random[1], qd.f32))


@program
def particles_to_grid_with_weights(races):
    momentum = qd.Vector.field(2, qd.f32, (10, 10))
    mass = qd.field(qd.f32, (10, 10))

    @qd.kernel
    def spread(x: floats, y: floats, plain: qd.template()):
        for p in range(x.shape[0]):
            base = qd.Vector([int(x[p]), int(y[p])])
            for i, j in qd.static(qd.ndrange(2, 2)):
                at = base + qd.Vector([i, j])
                momentum[at] += qd.Vector([x[p], y[p]]) * 0.25
                if qd.static(plain):
                    mass[at] = mass[at] + 0.25 * x[p]  # meets
                else:
                    mass[at] += 0.25 * x[p]

    random = np.random.default_rng(6).random((2, 4 * N)) * 8
    spread(array(random[0], qd.f32), array(random[1], qd.f32), races)


@program
def grid_cells_of_particles(races):
    count = qd.field(qd.i32, 8)
    cells = qd.field(qd.i32, (8, N))

    @qd.kernel
    def sort(x: floats, plain: qd.template()):
        for p in range(x.shape[0]):
            c = int(x[p])
            slot = 0
            if qd.static(plain):
                slot = count[c]  # meets
                count[c] = slot + 1  # meets
            else:
                slot = qd.atomic_add(count[c], 1)
            cells[c, slot] = p

    @qd.kernel
    def sort_only(x: floats):
        for p in range(x.shape[0]):
            c = int(x[p])
            slot = count[c]  # meets
            count[c] = slot + 1  # meets

    x = array(np.random.default_rng(7).random(N) * 8, qd.f32)
    if races:
        sort_only(x)
    else:
        sort(x, False)


@program
def compaction(races):
    @qd.kernel
    def keep(x: ints, out: ints, at: ints):
        for i in range(x.shape[0]):
            if x[i] > 10:
                out[at[i]] = x[i]  # meets

    x = np.arange(N)
    at = np.cumsum(x > 10) - 1
    if races:
        at[40] -= 1
    keep(array(x), array(np.zeros(N)), array(at))


@program
def atomics_that_are_read_meanwhile(races):
    total = qd.field(qd.i32, ())

    @qd.kernel
    def reads(x: ints, seen: ints):
        for i in range(x.shape[0]):
            total[None] += x[i]  # meets
            seen[i] = total[None]  # meets

    @qd.kernel
    def keeps(x: ints, seen: ints):
        for i in range(x.shape[0]):
            seen[i] = qd.atomic_add(total[None], x[i])

    (reads if races else keeps)(array(np.ones(N)), array(np.zeros(N)))


@program
def atomics_that_are_overwritten(races):
    @qd.kernel
    def both(x: ints, at: ints):
        for i in range(at.shape[0]):
            x[at[i]] += 3  # meets
            if at[i] == 5:
                x[i] = -1  # meets

    indices = np.roll(np.arange(N), 3)
    both(array(np.zeros(N)), array(indices if races else np.arange(N)))


@program
def components_of_one_vector(races):
    v = qd.Vector.field(3, qd.f32, N)

    @qd.kernel
    def put(at: ints, component: ints):
        for i in range(at.shape[0]):
            v[at[i]][component[i]] = 1.0 + i  # meets

    at = np.arange(N) // 2
    put(array(at), array(np.zeros(N) if races else np.arange(N) % 2))


@program
def members_of_one_struct(races):
    s = qd.Struct.field({"a": qd.f32, "b": qd.f32}, shape=N)

    @qd.kernel
    def put(at: ints):
        for i in range(at.shape[0]):
            if i % 2 == 0:
                s[at[i]].a = 1.0 + i  # meets
            else:
                s[at[i]].b = 2.0 + i

    put(array(np.zeros(N) if races else np.arange(N) // 2))


@program
def whole_matrices(races):
    m = qd.Matrix.field(2, 2, qd.f32, N)

    @qd.kernel
    def move(source: ints):
        for i in range(source.shape[0]):
            m[i] = m[source[i]] + 1.0 * i  # meets

    move(array(np.roll(np.arange(N), 5) if races else np.arange(N)))


@program
def two_axes(races):
    grid = qd.field(qd.i32, (16, 16))

    @qd.kernel
    def put(rows: ints, columns: ints):
        for i in range(rows.shape[0]):
            grid[rows[i], columns[i]] = i  # meets

    put(array(np.arange(N) // 16), array(np.arange(N) % (8 if races else 16)))


@program
def field_with_an_offset(races):
    x = qd.field(qd.i32, N, offset=-32)

    @qd.kernel
    def put(at: ints):
        for i in range(at.shape[0]):
            x[at[i] - 32] = i  # meets

    put(array(doubled() if races else shuffled()))


@program
def in_a_function(races):
    @qd.func
    def put(x: qd.template(), i, value):
        x[i] = value  # meets

    x = qd.field(qd.i32, N)

    @qd.kernel
    def scatter(at: ints):
        for i in range(at.shape[0]):
            put(x, at[i], i)

    scatter(array(doubled() if races else shuffled()))


@program
def in_a_function_that_is_called(races):
    x = qd.field(qd.i32, N)

    @qd.real_func
    def put(i: qd.i32, value: qd.i32) -> qd.i32:
        k = value
        for n in range(value % 3):
            if k > 2 * N:
                return k
            k += n
        x[i] = k + value  # meets
        return k

    @qd.kernel
    def scatter(at: ints) -> qd.i32:
        total = 0
        for i in range(at.shape[0]):
            total += put(at[i], i)
        return total

    scatter(array(doubled() if races else shuffled()))


@program
def two_loops_of_one_kernel(races):
    @qd.kernel
    def move(x: ints, y: ints, at: ints, back: ints):
        for i in range(at.shape[0]):
            y[at[i]] = x[i]
        for i in range(at.shape[0]):
            x[back[i]] = y[i] + i  # meets

    at = shuffled()
    move(array(np.arange(N)), array(np.zeros(N)), array(at), array(doubled() if races else np.argsort(at)))


@program
def launched_again_and_again(races):
    @qd.kernel
    def scatter(x: ints, at: ints):
        for i in range(at.shape[0]):
            x[at[i]] = i  # meets

    x = array(np.zeros(N))
    for seed in range(20):
        scatter(x, array(shuffled(seed)))
    if races:
        scatter(x, array(doubled()))


@program
def rounds_of_a_graph(races):
    @qd.kernel(graph=True)
    def rounds(x: ints, at: ints, left: qd.types.ndarray(qd.i32, 0)):
        while qd.graph.do_while(left):
            for i in range(at.shape[0]):
                x[(at[i] + left[None]) % N] = i  # meets
            for _ in range(1):
                left[None] -= 1

    count = qd.ndarray(qd.i32, ())
    count.from_numpy(np.array(5, np.int32))
    rounds(array(np.zeros(N)), array(doubled() if races else shuffled()), count)


@program
def gradients_of_a_gather(races):
    x = qd.field(qd.f32, N, needs_grad=True)
    y = qd.field(qd.f32, N, needs_grad=True)

    @qd.kernel
    def gather(at: ints):
        for i in range(at.shape[0]):
            y[i] = 2.0 * x[at[i]]

    @qd.kernel
    def by_hand(at: ints):
        for i in range(at.shape[0]):
            x.grad[at[i]] = x.grad[at[i]] + 2.0 * y.grad[i]  # meets

    at = array(np.arange(N) // 4)
    y.grad.fill(1.0)
    if races:
        by_hand(at)
    else:
        gather(at)
        gather.grad(at)


@program
def gradients_of_a_scatter(races):
    x = qd.field(qd.f32, N, needs_grad=True)
    y = qd.field(qd.f32, N, needs_grad=True)

    @qd.kernel
    def scatter(at: ints):
        for i in range(at.shape[0]):
            y[at[i]] = 2.0 * x[i]  # meets

    x.from_numpy(np.arange(N, dtype=np.float32))
    at = array(doubled() if races else shuffled())
    scatter(at)
    scatter.grad(at)


@program
def matching_of_vertices(races):
    @qd.kernel
    def match(u: ints, v: ints, mate: ints, plain: qd.template()):
        for e in range(u.shape[0]):
            if qd.static(plain):
                if mate[u[e]] < 0:  # meets
                    mate[u[e]] = v[e]  # meets
            else:
                qd.atomic_max(mate[u[e]], v[e])

    match(array(np.arange(N) // 4), array(np.arange(N)), array(np.full(N, -1)), races)


@program
def levels_of_a_search(races):
    level = qd.field(qd.i32, N)

    @qd.kernel
    def visit(begin: ints, target: ints, now: qd.i32):
        for v in range(begin.shape[0] - 1):
            if level[v] == now:  # meets
                for k in range(begin[v], begin[v + 1]):
                    level[target[k]] = now + 1  # meets

    @qd.kernel
    def visit_from_copy(begin: ints, target: ints, now: qd.i32, frontier: ints):
        for v in range(begin.shape[0] - 1):
            if frontier[v] == 1:
                for k in range(begin[v], begin[v + 1]):
                    level[target[k]] = now + 1

    level.fill(-1)
    level[0] = 0
    begin = np.minimum(np.arange(N + 1) * 2, N - 1)
    target = np.arange(1, N)
    if races:
        visit(array(begin), array(target), 0)
    else:
        visit_from_copy(array(begin), array(target), 0, array(np.arange(N) == 0))


@program
def pointer_jumping(races):
    @qd.kernel
    def in_place(parent: ints):
        for i in range(parent.shape[0]):
            parent[i] = parent[parent[i]]  # meets

    @qd.kernel
    def to_copy(parent: ints, new: ints):
        for i in range(parent.shape[0]):
            new[i] = parent[parent[i]]

    parent = array(np.maximum(np.arange(N) - 1, 0))
    if races:
        in_place(parent)
    else:
        to_copy(parent, array(np.zeros(N)))


@program
def exchange_of_pairs(races):
    @qd.kernel
    def swap(x: ints, a: ints, b: ints):
        for p in range(a.shape[0]):
            first = x[a[p]]  # meets
            second = x[b[p]]  # meets
            x[a[p]] = second  # meets
            x[b[p]] = first  # meets

    order = shuffled()
    a, b = order[: N // 2].copy(), order[N // 2 :].copy()
    if races:
        # An additional pair writes an element that another one writes; both only write there.
        a, b = a[:1].repeat(2), np.array([b[0], b[1]])
    swap(array(np.arange(N)), array(a), array(b))


@program
def sort_by_transpositions(races):
    @qd.kernel
    def step(x: ints, parity: qd.i32, stride: qd.i32):
        for p in range(N // 2 - 1):
            i = stride * p + parity
            if x[i] > x[i + 1]:  # meets
                x[i] = x[i + 1]  # meets

    step(array(np.arange(N)[::-1].copy()), 0, 1 if races else 2)


@program
def queue_of_work(races):
    tail = qd.field(qd.i32, ())

    @qd.kernel
    def push(x: ints, out: ints):
        for i in range(x.shape[0]):
            if x[i] % 3 == 0:
                at = tail[None]  # meets
                tail[None] = at + 1  # meets

    @qd.kernel
    def push_atomic(x: ints, out: ints):
        for i in range(x.shape[0]):
            if x[i] % 3 == 0:
                out[qd.atomic_add(tail[None], 1)] = x[i]

    (push if races else push_atomic)(array(np.arange(N)), array(np.zeros(N)))
