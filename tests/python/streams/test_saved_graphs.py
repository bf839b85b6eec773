"""`g.save` and `qd.graph.load`: captured graphs that other processes launch."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

import octants as qd

A = qd.types.ndarray(dtype=qd.f32, ndim=1)
C = qd.types.ndarray(dtype=qd.i32, ndim=0)


@pytest.fixture(params=["in order", "streams"], autouse=True)
def program(request, tmp_path):
    options = {"arch": qd.cpu, "cpu_streams": request.param == "streams", "offline_cache": True}
    options["offline_cache_file_path"] = str(tmp_path / "kernels")
    qd.init(**options)
    yield options
    qd.reset()


@qd.kernel
def add(x: A, y: A, k: qd.f32):
    for i in x:
        x[i] += k * y[i]


@qd.kernel
def scale(y: A, s: qd.f32):
    for i in y:
        y[i] *= s


def array(value, n=50):
    x = qd.ndarray(qd.f32, n)
    x.fill(value)
    return x


def held(x):
    values = x.to_numpy()
    assert (values == values.flat[0]).all()
    return float(values.flat[0])


OTHER_PROCESS = """
import sys, numpy as np, octants as qd
qd.init(arch=qd.cpu, cpu_streams=sys.argv[2] == "True", offline_cache=False)
f = qd.field(qd.f32, shape=50)
x, y = qd.ndarray(qd.f32, 50), qd.ndarray(qd.f32, 50)
x.fill(1.0), y.fill(2.0), f.fill(3.0)
g = qd.graph.load(sys.argv[1], x=x, y=y, f=f)
g.launch()
g.launch()
print([float(a.to_numpy()[7]) for a in (x, y, f)], len(g))
"""


@pytest.mark.on_cpu
def test_another_process_runs_the_steps_on_its_own_arrays(program, tmp_path):
    f = qd.field(qd.f32, shape=50)

    @qd.kernel
    def collect(x: A):
        for i in f:
            f[i] += x[i]

    def step(x, y):
        stream = qd.create_stream()
        add(x, y, 0.5)
        work = qd.ndarray(qd.f32, 50)
        add(work, x, 1.0)
        collect(work)
        scale(y, 3.0, qd_stream=stream)
        qd.current_stream().wait(stream)

    x, y = array(1), array(2)
    f.fill(3.0)
    with qd.graph.capture(f=f) as g:
        step(x, y)
    path = tmp_path / "saved" / "step.graph"
    g.save(path, x=x, y=y)
    for _ in range(2):
        g.launch()
    expected = [held(x), held(y), held(f)]
    run = [sys.executable, "-c", OTHER_PROCESS, str(path), str(program["cpu_streams"])]
    out = subprocess.run(run, capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr
    assert out.stdout.strip() == f"{expected} {len(g)}"


def test_scratch_memory_of_algorithms_is_part_of_the_file(tmp_path):
    keys, total = qd.ndarray(qd.i32, 3000), qd.ndarray(qd.i32, 1)
    values = np.arange(3000, dtype=np.int32) * 7919 % 3001
    with qd.graph.capture(keys=keys, total=total) as g:
        qd.algorithms.launch.sort(keys)
        qd.algorithms.launch.reduce(keys, total)
    g.save(tmp_path / "g")
    other, sum_of_other = qd.ndarray(qd.i32, 3000), qd.ndarray(qd.i32, 1)
    other.from_numpy(values)
    qd.graph.load(tmp_path / "g", keys=other, total=sum_of_other).launch()
    assert (other.to_numpy() == np.sort(values)).all()
    assert sum_of_other[0] == values.sum()


def test_loops_branches_fills_and_copies_are_saved(tmp_path):
    @qd.kernel(graph=True)
    def halve(x: A, n: C):
        while qd.graph.do_while(n):
            if qd.graph.cond(n[()] > 1):
                for i in x:
                    x[i] *= 0.5
            n[()] -= 1

    x, y, n = array(0), array(0), qd.ndarray(qd.i32, ())
    values = np.arange(50, dtype=np.float32)
    with qd.graph.capture() as g:
        n.fill(3)
        x.from_numpy(values, qd_stream=qd.current_stream())
        halve(x, n)
        y.copy_from(x)
    g.save(tmp_path / "g", y=y)
    for _ in range(2):
        x2, y2, n2 = array(5), array(5), qd.ndarray(qd.i32, ())
        loaded = qd.graph.load(tmp_path / "g", x=x2, y=y2, n=n2)
        loaded.launch()
        loaded.launch()
        assert (y2.to_numpy() == values / 4).all()
        assert int(n2.to_numpy()) == 0
    assert [name for name, *_ in loaded.steps] == [name for name, *_ in g.steps]


def test_members_and_gradients_have_names_by_their_owners(tmp_path):
    @dataclasses.dataclass
    class State:
        x: qd.types.NDArray[qd.f32, 1]
        v: qd.types.NDArray[qd.f32, 1]

    @qd.kernel
    def move(state: State, k: qd.f32):
        for i in state.x:
            state.x[i] += k * state.v[i]

    G = qd.types.ndarray(dtype=qd.f32, ndim=1, needs_grad=True)

    @qd.kernel
    def square(a: G, b: G):
        for i in a:
            b[i] += a[i] ** 2

    def made():
        state = State(array(1), array(2))
        a, b = (qd.ndarray(qd.f32, 50, needs_grad=True) for _ in range(2))
        a.fill(3.0)
        b.grad.fill(1.0)
        return state, a, b

    state, a, b = made()
    with qd.graph.capture() as g:
        move(state, 0.5)
        square(a, b)
        square.grad(a, b)
    g.save(tmp_path / "g")
    state, a, b = made()
    loaded = qd.graph.load(tmp_path / "g", state=state, a=a, b=b)
    loaded.launch()
    assert [held(array_) for array_ in (state.x, b, a.grad)] == [2.0, 9.0, 6.0]


def test_a_loaded_graph_updates_its_arrays(tmp_path):
    x, y = array(1), array(2)
    with qd.graph.capture() as g:
        add(x, y, 1.0)
    g.save(tmp_path / "g")
    loaded = qd.graph.load(tmp_path / "g", x=x, y=y)
    loaded.launch()
    assert (held(x), held(y)) == (3.0, 2.0)
    loaded(x=y, y=x)
    assert (held(x), held(y)) == (3.0, 5.0)
    other = array(10)
    loaded.update(x=other)
    loaded.launch()
    assert (held(other), held(x)) == (13.0, 3.0)
    with pytest.raises(TypeError, match=r"can only update the arrays that it was loaded with \(x, y\), not `k`"):
        loaded.update(k=2.0)
    with pytest.raises(TypeError, match="got an ndarray of f32 with shape"):
        loaded.update(x=array(0, 51))
    with pytest.raises(RuntimeError, match="has no gradient"):
        loaded.grad()
    with pytest.raises(RuntimeError, match="cannot be saved again"):
        loaded.save(tmp_path / "again")


def test_mismatches_are_reported_by_name(tmp_path):
    x, y = array(1), array(2)
    with qd.graph.capture() as g:
        add(x, y, 1.0)
    g.save(tmp_path / "g")
    with pytest.raises(TypeError, match=r"uses `y`, an ndarray of f32 .*: pass it as `y=` \(the graph needs x, y\)"):
        qd.graph.load(tmp_path / "g", x=x)
    with pytest.raises(TypeError, match="uses no array `z`"):
        qd.graph.load(tmp_path / "g", x=x, y=y, z=y)
    with pytest.raises(TypeError, match="got a 'float' object"):
        qd.graph.load(tmp_path / "g", x=x, y=1.0)
    with pytest.raises(TypeError, match="got an ndarray of f64"):
        qd.graph.load(tmp_path / "g", x=x, y=qd.ndarray(qd.f64, 50))
    saved = bytearray((tmp_path / "g").read_bytes())
    saved[-1] ^= 1
    (tmp_path / "damaged").write_bytes(saved)
    with pytest.raises(RuntimeError, match="contains no graph, or is damaged"):
        qd.graph.load(tmp_path / "damaged", x=x, y=y)
    with pytest.raises(FileNotFoundError):
        qd.graph.load(tmp_path / "absent", x=x, y=y)


def test_process_specific_steps_are_not_saved(program, tmp_path):
    x, y, other = array(1), array(2), array(3)
    with qd.graph.capture() as g:
        add(x, y, 1.0)
        add(x, other, 1.0)
    with pytest.raises(RuntimeError, match="`add` uses 200 bytes of memory without a name"):
        g.save(tmp_path / "g")
    g.save(tmp_path / "g", first=y, second=other)
    loaded = qd.graph.load(tmp_path / "g", x=x, first=y, second=other)
    loaded.launch()
    assert held(x) == 6.0
    of_numpy = np.zeros(50, np.float32)
    with qd.graph.capture() as g:
        add(of_numpy, y, 1.0)
    with pytest.raises(RuntimeError, match="kernel `add` uses memory that is not the device's own"):
        g.save(tmp_path / "g")
    qd.init(**program | {"offline_cache": False})
    x, y = array(1), array(2)
    with qd.graph.capture() as g:
        add(x, y, 1.0)
    with pytest.raises(RuntimeError, match="the code of kernel `add` is not cached on disk"):
        g.save(tmp_path / "g")


def test_streams_without_steps_are_omitted(tmp_path):
    x, y = array(1), array(2)
    waiting = [qd.create_stream() for _ in range(3)]
    last = qd.create_stream()
    with qd.graph.capture() as g:
        add(x, y, 1.0)
        for stream in [*waiting, last]:
            stream.wait(qd.current_stream())
        scale(y, 3.0, qd_stream=last)
        qd.current_stream().wait(last)
    g.save(tmp_path / "g")
    loaded = qd.graph.load(tmp_path / "g", x=x, y=y)
    loaded.launch()
    assert (held(x), held(y)) == (3.0, 6.0)
    assert [behind for _, _, behind in loaded.steps] == [[], [0]]
