"""Stress tests with many streams and threads: launches, allocations, frees, events, creation and destruction of
streams."""

import random
import threading

import pytest

import octants as qd

Ints = qd.types.ndarray(dtype=qd.i32, ndim=1)
THREADS = 8


@qd.kernel
def add(x: Ints, value: qd.i32):
    for i in x:
        x[i] += value


@qd.kernel
def total(x: Ints) -> qd.i32:
    sum = 0
    for i in range(x.shape[0]):
        sum += x[i]
    return sum


@qd.kernel
def move(source: Ints, target: Ints):
    for i in target:
        target[i] += source[i]


def one_thread(seed: int, launches: int, streams_of_one: int) -> None:
    """Performs random operations and checks their results."""
    rng = random.Random(seed)
    streams = [qd.create_stream() for _ in range(streams_of_one)]
    # Per stream, an array that only it writes, and the expected value of its elements.
    arrays = [qd.ndarray(qd.i32, 257) for _ in streams]
    expected = [0] * len(streams)
    event = qd.create_event()
    done = 0
    while done < launches:
        k = rng.randrange(len(streams))
        what = rng.random()
        if what < 0.70:
            value = rng.randrange(100)
            add(arrays[k], value, qd_stream=streams[k])
            expected[k] += value
            done += 1
        elif what < 0.80:
            # A temporary that is freed while the stream may still use it.
            temporary = qd.ndarray(qd.i32, 257)
            add(temporary, 5, qd_stream=streams[k])
            move(temporary, arrays[k], qd_stream=streams[k])
            expected[k] += 5
            done += 2
            del temporary
        elif what < 0.88:
            # Reads data that another stream wrote, after an event.
            other = rng.randrange(len(streams))
            if other != k:
                event.record(streams[other])
                event.wait(streams[k])
                move(arrays[other], arrays[k], qd_stream=streams[k])
                expected[k] += expected[other]
                # The other stream must not change data that is still being read.
                event.record(streams[k])
                event.wait(streams[other])
                # Numbers stay small enough for their sum.
                expected[k] %= 1 << 16
                wrap(arrays[k], qd_stream=streams[k])
                done += 2
        elif what < 0.92:
            assert total(arrays[k], qd_stream=streams[k]) == expected[k] * 257
            done += 1
        elif what < 0.95:
            streams[k].destroy()
            streams[k] = qd.create_stream(priority=rng.choice([0, -1]))
        elif what < 0.97:
            streams[k].query()
        else:
            assert arrays[k][rng.randrange(257)] == expected[k]
    for array, value, stream in zip(arrays, expected, streams, strict=True):
        assert (array.to_numpy() == value).all()
        stream.destroy()


@qd.kernel
def wrap(x: Ints):
    for i in x:
        x[i] = x[i] % (1 << 16)


@pytest.mark.parametrize("cycle", range(3))
def test_s22_threads_and_streams_under_stress(real, request, cycle):
    on_device = request.config.getoption("--arch") != "cpu"
    launches = (10_000 if on_device else 800) // THREADS
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            one_thread(seed, launches, 4)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(100 * cycle + k,)) for k in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_programs_start_and_end_many_times(request):
    on_device = request.config.getoption("--arch") != "cpu"
    for cycle in range(200 if on_device else 20):
        qd.init(arch=qd.cpu, cpu_streams=True)
        stream = qd.create_stream()
        event = qd.create_event()
        array = qd.ndarray(qd.i32, 1000)
        add(array, cycle, qd_stream=stream)
        event.record(stream)
        if cycle % 3 == 0:
            stream.destroy()
        if cycle % 2 == 0:
            assert array[7] == cycle
        # Remaining objects end with the program, including work in flight.
    qd.reset()
