"""Updates that only other launches could disturb: plain until streams update the same memory, and then in order, and
atomic."""

import random
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


@qd.kernel
def increase_slowly(x: Values, rounds: qd.i32):
    for i in x:
        by = 1
        if i % 8 == 0:
            for k in range(rounds):
                by = (by * 5 + k) % 7919
            by = by * 0 + 1
        x[i] += by


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


def test_updates_are_atomic_once_streams_share_memory(request):
    # On the CPU, the program has asked for streams.
    on_cpu = request.config.getoption("--arch").startswith("cpu")
    streams = [qd.create_stream() for _ in range(3)]
    own = [zeros() for _ in streams]
    for _ in range(20):
        for x, stream in zip(own, streams, strict=True):
            increment(x, qd_stream=stream)
    assert is_atomic(increment, own[0]) == on_cpu
    shared = zeros()
    for _ in range(10):
        for stream in streams:
            increase_slowly(shared, 3_000, qd_stream=stream)
    # A launch has waited for another stream's several times.
    assert is_atomic(increment, shared)
    for stream in streams:
        increment(shared, qd_stream=stream)
    qd.sync()
    assert all((x.to_numpy() == 20).all() for x in own)
    assert (shared.to_numpy() == 10 * 3 + 3).all()


def test_one_stream_waits_for_the_slow_update_of_another(request):
    x, slow, fast = zeros(), qd.create_stream(), qd.create_stream()
    updated = qd.create_event()
    increase_slowly(x, 50_000, qd_stream=slow)
    updated.record(slow)
    increment(x, qd_stream=fast)
    fast.synchronize()
    # On the CPU, both are atomic.
    assert updated.query() or request.config.getoption("--arch").startswith("cpu")
    assert (x.to_numpy() == 2).all()


def test_updates_are_atomic_once_another_library_has_a_stream():
    x, stream = zeros(), qd.create_stream()
    increment(x, qd_stream=stream)
    if stream.handle == 0:
        pytest.skip("this device has no streams of a vendor")
    increment(x, qd_stream=stream)
    assert is_atomic(increment, x)
    qd.sync()
    assert (x.to_numpy() == 2).all()


def test_launches_before_the_first_stream_and_after_it():
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
    assert failures == []
    assert (x.to_numpy() == 1 + 100 + 2).all()


def test_threads_with_a_stream_each():
    x, failures = zeros(), []

    def launch(stream, count):
        try:
            for _ in range(count):
                increment(x, qd_stream=stream)
        except BaseException as failure:
            failures.append(failure)

    streams = [qd.create_stream() for _ in range(3)]
    threads = [threading.Thread(target=launch, args=(s, 15 + n)) for n, s in enumerate(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    qd.sync()
    assert failures == []
    assert (x.to_numpy() == 15 + 16 + 17).all()


@qd.kernel
def add(x: Values, y: Values, by: qd.i32):
    for i in x:
        x[i] += by
        y[i] -= by


@qd.kernel
def scatter(x: Values, by: qd.i32):
    for i in x:
        x[i * 7 % x.shape[0]] += by


@qd.kernel(graph=True)
def repeat(x: Values, left: qd.types.ndarray(dtype=qd.i32, ndim=0)):
    while qd.graph.do_while(left):
        for i in x:
            x[i] += 1
        left[()] -= 1


@pytest.mark.parametrize("seed", range(10))
def test_random_launches_on_streams(seed):
    draw = random.Random(seed)
    streams = [None, *(qd.create_stream() for _ in range(3))]
    arrays = [zeros() for _ in range(4)]
    counters = [qd.ndarray(qd.i32, ()) for _ in streams]
    expected = [0] * len(arrays)
    captured = draw.randrange(len(arrays))
    with qd.graph.capture() as graph:
        scatter(arrays[captured], 5)
        increment(arrays[captured])
    # Few streams update each array, so that launches wait before order ends.
    reach = {s: draw.sample(range(len(arrays)), draw.choice([1, 2, 4])) for s in range(len(streams))}
    for _ in range(60):
        at = draw.randrange(len(streams))
        stream, (a, b) = streams[at], (draw.choice(reach[at]) for _ in range(2))
        by = draw.randint(1, 9)
        match draw.randrange(6):
            case 0 | 1:
                increment(arrays[a], qd_stream=stream)
                expected[a] += 1
            case 2 if a != b:
                add(arrays[a], arrays[b], by, qd_stream=stream)
                expected[a] += by
                expected[b] -= by
            case 3:
                scatter(arrays[a], by, qd_stream=stream)
                expected[a] += by
            case 4:
                counters[at].fill(by)
                repeat(arrays[a], counters[at], qd_stream=stream)
                expected[a] += by
            case 5 if draw.random() < 0.3:
                graph.launch(stream=stream)
                expected[captured] += 6
            case _ if draw.random() < 0.2 and stream is not None:
                stream.synchronize()
    qd.sync()
    for array, sums in zip(arrays, expected, strict=True):
        assert (array.to_numpy() == sums).all()
