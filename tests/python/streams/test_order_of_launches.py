"""Updates that only other launches could disturb: plain while a program has one stream, atomic once it has more."""

import threading

import pytest

import octants as qd

Values = qd.types.ndarray(dtype=qd.i32, ndim=1)
SIZE = 5000


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu, cpu_streams=True)
    yield
    qd.reset()


@qd.kernel
def increment(x: Values):
    for i in x:
        x[i] += 1


def is_atomic(kernel, *args) -> bool:
    return "atomic add" in qd.inspect(kernel, *args, emit="ir")


def zeros():
    x = qd.ndarray(qd.i32, SIZE)
    x.fill(0)
    return x


def launch_on_two_streams(launch, count=40):
    streams = [qd.create_stream() for _ in range(2)]
    for _ in range(count):
        for stream in streams:
            launch(stream)
    for stream in streams:
        stream.synchronize()


def test_updates_are_atomic_once_there_are_streams(request):
    x = zeros()
    # On the CPU, the program has asked for streams.
    assert is_atomic(increment, x) == request.config.getoption("--arch").startswith("cpu")
    stream = qd.create_stream()
    assert is_atomic(increment, x)
    stream.destroy()
    assert is_atomic(increment, x)


def test_code_from_before_the_first_stream_is_replaced():
    x = zeros()
    for _ in range(3):
        increment(x)
    launch_on_two_streams(lambda stream: increment(x, qd_stream=stream))
    increment(x)
    assert (x.to_numpy() == 3 + 80 + 1).all()


def test_fields_and_dataclasses():
    y = qd.field(qd.i32, SIZE)

    @qd.data_oriented
    class Solver:
        def __init__(self):
            self.x = zeros()

        @qd.kernel
        def step(self):
            for i in y:
                y[i] += 1
                self.x[i] += 2

    solver = Solver()
    solver.step()
    launch_on_two_streams(lambda stream: solver.step(qd_stream=stream))
    solver.step()
    assert (y.to_numpy() == 82).all()
    assert (solver.x.to_numpy() == 164).all()


def test_a_captured_graph_may_run_beside_other_launches():
    x = zeros()
    increment(x)
    with qd.graph.capture() as graph:
        increment(x)
        increment(x)
    graph.launch()

    def launch(stream):
        increment(x, qd_stream=stream)

    streams = [qd.create_stream() for _ in range(2)]
    for _ in range(30):
        graph.launch(stream=streams[0])
        launch(streams[1])
    qd.sync()
    assert (x.to_numpy() == 1 + 2 + 30 * 3).all()


def test_concurrent_groups_of_a_kernel_update_atomically():
    @qd.kernel
    def both(x: Values):
        with qd.stream_parallel():
            for i in range(SIZE):
                x[i] += 1
        with qd.stream_parallel():
            for i in range(SIZE):
                x[i] += 2

    x = zeros()
    assert is_atomic(both, x)


def test_inferred_concurrency():
    x, y = zeros(), zeros()
    increment(x)
    with qd.concurrent():
        for _ in range(10):
            increment(x)
            increment(y)
    assert (x.to_numpy() == 11).all()
    assert (y.to_numpy() == 10).all()


def test_threads_that_launch_while_another_creates_streams():
    x = zeros()
    increment(x)
    failures: list[BaseException] = []

    def launch():
        try:
            for _ in range(50):
                increment(x)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=launch) for _ in range(2)]
    for thread in threads:
        thread.start()
    streams = [qd.create_stream() for _ in range(2)]
    for thread in threads:
        thread.join()
    for stream in streams:
        increment(x, qd_stream=stream)
    qd.sync()
    launched = int(x.to_numpy()[0])
    assert all("launch again" in str(failure) for failure in failures)
    assert (x.to_numpy() == launched).all()
    if not failures:
        assert launched == 1 + 100 + 2
