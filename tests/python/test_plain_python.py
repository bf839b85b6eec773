"""`arch=qd.python`: kernels run as Python, with the same results as compiled ones."""

import sys

import numpy as np
import pytest

import octants as qd

ARCHS = [qd.python, qd.cpu]


@pytest.fixture(autouse=True)
def program():
    yield
    qd.reset()


@pytest.mark.on_cpu
def test_compiler_options_are_refused():
    qd.init(qd.python)
    assert qd.cfg is None
    qd.init(arch=qd.cpu)
    assert qd.cfg.arch == qd.cpu


def test_arrays_have_lengths_and_items():
    qd.init(qd.python)
    numbers, rows, vectors = qd.ndarray(qd.f32, 4), qd.field(qd.i32, (2, 3)), qd.Vector.field(2, qd.f32, 3)
    numbers.from_numpy(np.arange(4, dtype=np.float32))
    vectors[1] = [1, 2]
    for array in (numbers, qd.tensor(qd.f32, 4), numbers[1:], rows, vectors):
        assert len(array) == array.shape[0] == len(list(array))
        assert array
    assert sum(numbers) == 6
    assert list(numbers[2:]) == [2, 3]
    assert [row.tolist() for row in rows] == [[0, 0, 0], [0, 0, 0]]
    assert [vector.tolist() for vector in vectors][1] == [1, 2]
    assert numbers.size(0) == 4
    assert vectors.size(1) == 2
    assert vectors.size() == (3, 2)
    with pytest.raises(TypeError, match="0-dimensional array"):
        len(qd.field(qd.f32, ()))


def test_compiled_arrays_have_lengths_and_items_only_in_kernels():
    qd.init(arch=qd.cpu)
    for array in (qd.ndarray(qd.f32, 4), qd.field(qd.f32, 4), qd.tensor(qd.f32, 4)):
        assert array
        with pytest.raises(TypeError, match=r"no len\(\)"):
            len(array)
        with pytest.raises((TypeError, NotImplementedError)):
            iter(array)


@qd.kernel(graph=True)
def loop_without_condition(x: qd.types.ndarray()):
    while qd.graph.do_while():
        for _ in range(1):
            x[()] -= 1


@pytest.mark.parametrize("arch", ARCHS)
def test_a_graph_loop_needs_its_condition(arch):
    qd.init(arch)
    with pytest.raises(TypeError, match=r"do_while\(condition\): missing a required argument: 'condition'"):
        loop_without_condition(qd.ndarray(qd.i32, ()))


@qd.func
def exchange(x: qd.template(), i, j):
    before = x[i]
    x[i] = x[j]
    x[j] = before


@qd.func
def doubled(v):
    v *= 2
    return v


@pytest.mark.parametrize("arch", ARCHS)
def test_numbers_and_variables(arch):
    qd.init(arch=arch)
    x = qd.field(qd.i32, shape=6)

    @qd.kernel
    def run(x: qd.template(), n: qd.i32) -> qd.f32:
        for i in x:
            x[i] = i * 7 - 9
        exchange(x, 0, n - 1)
        total = qd.f32(0.1)
        for i in range(n):
            qd.atomic_add(total, x[i])
            old = qd.atomic_max(x[i], 3)
            x[i] += qd.cast(qd.f32(old) * 0.5, qd.i32)
        limit: qd.i32 = 3.7
        return total + limit

    assert run(x, 6) == pytest.approx(54.1, abs=1e-5)
    assert x.to_numpy().tolist() == [39, 2, 7, 18, 28, -1]
    if arch == qd.python:
        assert isinstance(x[0], np.int32)


@pytest.mark.parametrize("arch", ARCHS)
def test_every_atomic(arch):
    qd.init(arch=arch)
    x, old = qd.field(qd.i32, 9), qd.field(qd.i32, 9)

    @qd.kernel
    def run():
        for i in x:
            x[i] = 12
        for _ in range(1):
            old[0] = qd.atomic_add(x[0], 5)
            old[1] = qd.atomic_sub(x[1], 5)
            old[2] = qd.atomic_mul(x[2], 5)
            old[3] = qd.atomic_min(x[3], 5)
            old[4] = qd.atomic_max(x[4], 50)
            old[5] = qd.atomic_and(x[5], 10)
            old[6] = qd.atomic_or(x[6], 3)
            old[7] = qd.atomic_xor(x[7], 10)
            old[8] = qd.atomic_cas(x[8], 12, 8)
            qd.atomic_cas(x[8], 12, 9)

    run()
    assert x.to_numpy().tolist() == [17, 7, 60, 5, 50, 8, 15, 6, 8]
    assert old.to_numpy().tolist() == [12] * 9


@pytest.mark.parametrize("arch", ARCHS)
def test_vectors_have_value_semantics(arch):
    qd.init(arch=arch)
    v = qd.Vector.field(2, qd.f32, shape=(2, 3))

    @qd.kernel
    def run():
        for i, j in v:
            v[i, j] = qd.Vector([i, j]) * 0.5
        for I in qd.grouped(v):
            copy = v[I]
            copy += 10
            twice = doubled(copy)
            v[I].x += 1
            v[I][1] -= twice.x - copy.x
        for i, j in qd.ndrange(1, (1, 3)):
            qd.atomic_add(v[i, j].y, 100)

    run()
    wanted = np.array([[[1, -10], [1, 90.5], [1, 91]], [[1.5, -10.5], [1.5, -10], [1.5, -9.5]]], np.float32)
    np.testing.assert_array_equal(v.to_numpy(), wanted)


@pytest.mark.parametrize("arch", ARCHS)
def test_methods_structs_and_arrays_of_numpy(arch):
    qd.init(arch=arch)
    body = qd.types.struct(place=qd.math.vec3, mass=qd.f32)
    bodies = body.field(shape=3)

    @qd.data_oriented
    class Scene:
        def __init__(self):
            self.count = 3
            self.sums = qd.ndarray(qd.i32, 3)

        @qd.func
        def square(self, i):
            return i * i

        @qd.kernel
        def run(self, array: qd.types.ndarray(ndim=1), pairs: qd.types.NDArray[qd.math.vec2, 1]) -> qd.math.vec2:
            qd.loop_config(serialize=True)
            for i in range(self.count):
                array[i] = self.square(i)
                if qd.static(self.count == 3):
                    self.sums[i] += array[i] + 1
                bodies[i].place = qd.Vector([1.0, 2.0, 3.0]) * i
                bodies[i].place[1] = 9
                body_copy = bodies[i]
                body_copy.mass = 100.0
                bodies[i].mass += body_copy.place.z
            for I in qd.grouped(array):
                pairs[I] += qd.math.vec2(1, array[I])
            return pairs[2]

    scene = Scene()
    array, pairs = np.zeros(3, np.int32), np.zeros((3, 2), np.float32)
    assert list(scene.run(array, pairs)) == [1, 4]
    assert array.tolist() == [0, 1, 4]
    assert pairs.tolist() == [[1, 0], [1, 1], [1, 4]]
    assert scene.sums.to_numpy().tolist() == [1, 2, 5]
    assert bodies.place.to_numpy().tolist() == [[0, 9, 0], [1, 9, 3], [2, 9, 6]]
    assert bodies.mass.to_numpy().tolist() == [0, 3, 6]


def test_shapes_of_elements():
    qd.init(qd.python)
    v = qd.field(qd.math.vec3, shape=(10,))
    v[2] = qd.Vector([5, 4, 3])
    assert (v.shape, v.size()) == ((10,), (10, 3))
    assert (v[2].tolist(), v[2, 1].item()) == ([5, 4, 3], 4)
    v[2, 1] = 7
    m = qd.ndarray(qd.types.matrix(2, 2, qd.i32), (4,))
    m[1, 0, 1] = 3
    assert (m[1].tolist(), m[1, 0, 1], m.size()) == ([[0, 3], [0, 0]], 3, (4, 2, 2))
    for one in (qd.ndarray(qd.i32, ()), qd.field(qd.i32, shape=())):
        one[()] = 3
        assert one[0] == 3


def test_library_functions_and_random_numbers():
    qd.init(qd.python, random_seed=3)

    @qd.kernel
    def run() -> qd.f32:
        u, sigma, v = qd.svd(qd.Matrix([[3.0, 0.0], [0.0, 4.0]]), qd.f32)
        assert not qd.math.isnan(sigma[0, 0])
        assert qd.math.isinf(float("inf"))
        assert 0 <= qd.random() < 1
        assert -(2**31) <= qd.random(qd.i32) < 2**31
        return qd.math.clamp(sigma[0, 0], 0.0, 3.5)

    assert run() == 3.5


def test_a_debugger_sees_the_users_lines():
    qd.init(qd.python)
    x = qd.field(qd.i32, 3)

    @qd.kernel
    def run():
        for i in x:
            x[i] = i  # the line that is traced

    first = run.fn.__code__.co_firstlineno
    seen = set()

    def trace(frame, event, arg):
        if frame.f_code.co_name == "run":
            assert frame.f_code.co_filename == __file__
            if event == "line":
                seen.add((frame.f_lineno - first, frame.f_locals.get("i")))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    assert {(3, 0), (3, 1), (3, 2)} <= seen


def test_unsupported_features_are_reported():
    qd.init(qd.python)
    x = qd.field(qd.f32, 3, needs_grad=True)

    @qd.kernel
    def run():
        for i in x:
            x[i] = i

    run()
    with pytest.raises(qd.OctantsRuntimeError, match="arch=qd.python does not support derivatives"):
        run.grad()
    loss = qd.field(qd.f32, (), needs_grad=True, needs_dual=True)
    for scope in (qd.ad.Tape(loss), qd.ad.FwdMode(loss, loss)):
        with pytest.raises(qd.OctantsRuntimeError, match="arch=qd.python does not support derivatives"), scope:
            run()

    @qd.kernel
    def wrong():
        qd.atomic_add(1 + 2, 3)

    with pytest.raises(qd.OctantsSyntaxError, match=r"qd.atomic_add\(\) needs a variable"):
        wrong()

    @qd.kernel
    def fails():
        assert x[0] == 1, "the user's own text"

    with pytest.raises(AssertionError, match="the user's own text"):
        fails()


def test_the_same_kernel_under_both():
    results = []
    for arch in (qd.python, qd.cpu, qd.python):
        qd.init(arch=arch)
        x = qd.ndarray(qd.i32, 2)

        @qd.kernel
        def one(x: qd.types.ndarray()):
            x[1] = 5

        one(x)
        swapped = qd.field(qd.i32, 2)

        @qd.kernel
        def two(x: qd.types.ndarray()):
            exchange(x, 0, 1)

        two(x)
        results.append(x.to_numpy().tolist())
    assert results == [[5, 0]] * 3


@pytest.mark.parametrize("arch", ARCHS)
def test_graph_loops_branches_and_sections(arch):
    A, C = qd.types.ndarray(qd.i32, ndim=1), qd.types.ndarray(qd.i32, ndim=0)

    @qd.func
    def count_down(x: A, n: C):
        while qd.graph.do_while(n):
            for i in x:
                x[i] += 1
            n[()] -= 1

    @qd.kernel(graph=True)
    def run(x: A, n: C, outer: C):
        while qd.graph.do_while(outer):
            with qd.graph.parallel_context(allow_nesting=True):
                with qd.graph.parallel():
                    n[()] = 3
                    count_down(x, n)
            if qd.graph.cond(n):
                x[0] = 1000
            elif qd.graph.cond(x[0] < 5):
                for i in x:
                    x[i] += 100
            outer[()] -= 1
        while qd.graph.do_while(x[1] < 0):
            x[1] += 1000

    qd.init(arch=arch)
    x, n, outer = qd.ndarray(qd.i32, 3), qd.ndarray(qd.i32, ()), qd.ndarray(qd.i32, ())
    x.fill(0)
    outer.fill(2)
    run(x, n, outer)
    # Three rounds and a branch, then three rounds; the body of the last loop runs once in any case.
    assert x.to_numpy().tolist() == [106, 1106, 106]


def test_stream_parallel_blocks_run_in_order():
    @qd.kernel
    def run(x: qd.types.ndarray(dtype=qd.i32, ndim=1)):
        with qd.stream_parallel():
            for i in range(2):
                x[i] = i + 1
        with qd.stream_parallel():
            for i in range(1):
                x[2] = 7

    for arch in ARCHS:
        qd.init(arch)
        x = qd.ndarray(qd.i32, shape=3)
        run(x)
        assert x.to_numpy().tolist() == [1, 2, 7]
    with pytest.raises(qd.OctantsScopeError, match="belongs in a kernel"):
        qd.stream_parallel()


@pytest.mark.on_cpu
@pytest.mark.parametrize("variable", ["QD_ARCH", "OCTANTS_ARCH"])
def test_the_environment_selects_plain_python(variable, monkeypatch):
    monkeypatch.setenv(variable, "python")
    qd.init()
    assert qd.lang.impl.current_cfg().arch == qd.python
    qd.init(arch=qd.cpu)
    assert qd.lang.impl.current_cfg().arch != qd.python
    qd.reset()
