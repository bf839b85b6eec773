"""Graphs with steps on split arrays and with collectives: launches give the same results as the same steps one by one,
in one process on one device."""

import captured_programs
import numpy as np
import pytest
from run_ranks import MPIEXEC, run

import octants as qd

PROGRAMS = [program.__name__ for program in captured_programs.PROGRAMS if program.__name__ != "collectives"]
needs_mpi = pytest.mark.skipif(not MPIEXEC.exists(), reason="mpich is not installed")
N = captured_programs.N

pytestmark = [pytest.mark.on_cpu, pytest.mark.usefixtures("ends")]


@pytest.fixture
def ends():
    yield
    qd.reset()


@pytest.fixture(scope="module")
def results_of_all(tmp_path_factory):
    """Runs all programs in the same processes, once for each number of ranks and options."""
    folders = {}

    def of(ranks, options):
        if (ranks, options) not in folders:
            folder = tmp_path_factory.mktemp("ranks")
            names = ",".join([*PROGRAMS, *(["collectives"] if ranks > 1 else [])])
            script = "captured_programs.py"
            folders[ranks, options] = folder, run(ranks, names, folder, *options, script=script, limit=300)
        return folders[ranks, options]

    return of


def same(found, expected, what):
    assert set(found) == set(expected)
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=f"{name} {what}")


# One worker runs the programs.
@pytest.mark.xdist_group("graphs on ranks")
@needs_mpi
@pytest.mark.parametrize("options", [(), ("debug=1",), ("cpu_streams=1",)], ids=["plain", "debug", "streams"])
@pytest.mark.parametrize("program", [*PROGRAMS, "collectives"])
def test_graphs_on_ranks(program, options, results_of_all):
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")

    def found(ranks, options):
        folder, done = results_of_all(ranks, options)
        path = folder / f"{program}.npz"
        assert path.exists(), done.stdout + done.stderr
        return dict(np.load(path))

    counts = (4,) if options else (2, 4)
    if program == "collectives":
        # It checks itself.
        assert all(found(ranks, ("captured=1", *options))["done"] for ranks in counts)
        return
    one = found(1, options)
    for ranks in counts:
        same(found(ranks, ("captured=1", *options)), one, f"on {ranks} ranks")


@pytest.mark.parametrize(
    "options",
    [{}, {"debug": True}, {"cpu_streams": True}, {"cpu_separate_memory": True}],
    ids=["plain", "debug", "streams", "separate"],
)
@pytest.mark.parametrize("program", PROGRAMS)
def test_graphs_on_devices(program, options):
    program = getattr(captured_programs, program)
    qd.init(arch=qd.cpu, **options)
    one = program(False)
    for devices in (1, 2, 4):
        qd.init(arch=qd.cpu, devices=devices, **options)
        same(program(True), one, f"on {devices} devices")


def shift_kernel():
    @qd.kernel
    def shift(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in range(N - 1):
            y[i] = x[i + 1]

    return shift


def test_the_steps_are_named():
    qd.init(arch=qd.cpu, devices=2)
    x, y = (qd.ndarray(qd.i32, shape=(N,), split=0) for _ in range(2))
    t = qd.ndarray(qd.i32, shape=(4,))
    with qd.graph.capture() as graph:
        t.fill(1)
        x.fill(3)
        shift_kernel()(x, y)
        y.copy_from(x)
    assert [name for name, *_ in graph.steps] == ["copy 16 bytes", "fill", "shift", "copy"]
    assert graph.plot().startswith("<svg") or "<svg" in graph.plot()


def test_graphs_with_exchanges_cannot_be_saved(tmp_path):
    qd.init(arch=qd.cpu, devices=2)
    x, y = (qd.ndarray(qd.i32, shape=(N,), split=0) for _ in range(2))
    with qd.graph.capture() as graph:
        shift_kernel()(x, y)
    with pytest.raises(RuntimeError, match="one step, shift, exchanges memory"):
        graph.save(tmp_path / "g", x=x, y=y)


def test_results_are_not_available_in_the_block():
    qd.init(arch=qd.cpu, devices=2)
    x = qd.ndarray(qd.i32, shape=(N,), split=0)
    for access in (lambda: x[3], lambda: x.to_numpy(), lambda: x.from_numpy(np.zeros(N, np.int32))):
        with pytest.raises(RuntimeError, match="while this thread captures"), qd.graph.capture():
            access()
    with pytest.raises(RuntimeError, match="while this thread captures"), qd.graph.capture():
        x[3] = 1


def test_graphs_on_devices_run_on_the_default_stream():
    qd.init(arch=qd.cpu, devices=2, cpu_streams=True)
    x, y = (qd.ndarray(qd.i32, shape=(N,), split=0) for _ in range(2))
    shift = shift_kernel()
    with qd.graph.capture() as graph:
        shift(x, y)
    with qd.create_stream() as stream, pytest.raises(RuntimeError, match="run on the default streams"):
        graph.launch(stream)
    x.fill(2)
    graph.launch()
    assert y.to_numpy().sum() == 2 * (N - 1)


def test_a_kernel_that_returns_a_value_is_refused():
    qd.init(arch=qd.cpu, devices=2)
    x = qd.ndarray(qd.i32, shape=(N,), split=0)
    total = qd.field(qd.i32, shape=())

    @qd.kernel
    def run(x: qd.types.ndarray()) -> qd.i32:
        for i in x:
            total[None] += i
        return total[None]

    with pytest.raises(RuntimeError, match="cannot return a value"), qd.graph.capture():
        run(x)


def test_a_failed_check_in_a_launch_of_a_graph_is_raised():
    qd.init(arch=qd.cpu, devices=3, debug=True)
    x = qd.ndarray(qd.i32, shape=(N,), split=0)

    @qd.kernel
    def check(x: qd.types.ndarray(), most: qd.i32):
        for i in x:
            assert i < most
            x[i] = i

    with qd.graph.capture() as graph:
        check(x, N - 1)
    with pytest.raises(AssertionError, match=r"(?s)i < most.*test_captured_split_arrays.py"):
        graph.launch()
    graph(most=N)
    assert (x.to_numpy() == np.arange(N)).all()


def test_collectives_of_a_lone_process():
    qd.init(arch=qd.cpu)
    x = qd.ndarray(qd.f32, shape=(3,))
    with qd.graph.capture() as graph:
        x.fill(2.0)
        qd.distributed.all_reduce(x)
        parts = qd.distributed.all_gather(x)
        qd.distributed.broadcast(x)
        qd.distributed.barrier()
    assert (parts[0] == 0).all()
    graph.launch()
    assert len(parts) == 1
    assert (parts[0] == 2).all()
    with pytest.raises(TypeError, match="expected a field, an ndarray or a numpy array"), qd.graph.capture():
        qd.distributed.all_reduce([1, 2])


def test_threads_use_a_graph_that_another_one_launches():
    """The host's steps need the interpreter, which a thread that reads the graph holds."""
    import threading

    qd.init(arch=qd.cpu, devices=2)
    x, y = (qd.ndarray(qd.i32, shape=(N,), split=0) for _ in range(2))
    shift = shift_kernel()
    with qd.graph.capture() as graph:
        for _ in range(20):
            shift(x, y)
    ended = threading.Event()

    def look():
        while not ended.is_set():
            assert len(graph) == 20

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(50):
        graph.launch()
    ended.set()
    thread.join(20)
    assert not thread.is_alive()


@needs_mpi
@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("other_graph", "rank 1 runs kernel `shift_back` as exchange 1 of a graph"),
        ("shorter_graph", "but rank 0 runs kernel `shift_back` as exchange 2 of a graph"),
        ("graph_for_kernel", "rank 1 runs kernel `shift_back` on split arrays"),
        ("lost_in_a_graph", "no answer from rank 1 after 3 s"),
    ],
)
def test_ranks_with_different_graphs_end(program, said, tmp_path):
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    done = run(2, program, tmp_path, script="failing_programs.py", limit=50)
    text = done.stdout + done.stderr
    assert done.returncode != 0, text
    assert said in text, text
    assert "OctantsDistributedError" in text
    assert "failing_programs.py" in text
    assert "no error" not in text
