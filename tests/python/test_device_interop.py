"""Arrays and streams shared with other libraries on a GPU: with a minimal library (`other_library.py`), and with torch
and CuPy if they are installed.

The GPU is the one that `--arch` names; by default, CUDA's. Without it, tests are skipped, with the reason.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from typing import Any

import hip_standin
import numpy as np
import other_library
import pytest
from interop_kernels import add, copy, slow_ones
from tensor_types import tensor_type

import octants as qd

N = 4096
# Steps that keep a thread of a GPU busy for some tens of milliseconds.
LONG = 20_000_000


@pytest.fixture
def begin(pytestconfig: pytest.Config) -> Any:
    """Begins a program on the GPU."""
    on_gpu = not pytestconfig.getoption("--arch").startswith("cpu")

    def begin(**options: Any) -> None:
        # If tests do not run on the CPU, this means the device that they run on.
        qd.init(arch=qd.cpu if on_gpu else qd.cuda, enable_fallback=False, **options)

    return begin


@pytest.fixture(autouse=True)
def program(begin: Any) -> Any:
    try:
        begin()
    except Exception as error:  # the reason is printed with the skip
        pytest.skip(f"no GPU: {error}")
    if not qd.ndarray(qd.f32, shape=1).buffer.array_protocol:
        pytest.skip("this device has no memory to share")
    yield
    qd.reset()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "library" in metafunc.fixturenames:
        schedules = ["", "seed:1", "seed:2"] if metafunc.config.getoption("--arch") in hip_standin.ARCHS else [""]
        metafunc.parametrize("library", schedules, indirect=True, ids=lambda name: name or "no schedule")


@pytest.fixture
def library(request: pytest.FixtureRequest, begin: Any) -> Any:
    options = {"cpu_stream_schedule": request.param} if request.param else {}
    begin(**options)
    library = other_library.of_program()
    library.options = options
    yield library
    library.close()


def skip_unless_same_gpu(module: str, hip: bool) -> None:
    if hip != (qd.cfg.arch == qd.amdgpu) or qd.cfg.driver_library:
        pytest.skip(f"this {module} is for other devices")


@pytest.fixture
def torch() -> Any:
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("this torch has no GPU")
    skip_unless_same_gpu("torch", module.version.hip is not None)
    return module


@pytest.fixture
def cupy() -> Any:
    module = pytest.importorskip("cupy")
    skip_unless_same_gpu("CuPy", module.cuda.runtime.is_hip)
    return module


@pytest.fixture
def cuda() -> None:
    if qd.cfg.arch != qd.cuda:
        pytest.skip("this is not CUDA")


# A small library's arrays as arguments


class ByDlpack:
    """An array that shows itself by DLPack only."""

    def __init__(self, array: Any) -> None:
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


class ByProtocol:
    """An array that shows itself by the array protocol only."""

    def __init__(self, array: Any) -> None:
        self.__cuda_array_interface__ = array.__cuda_array_interface__


@pytest.mark.parametrize("dtype", ["bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"])
def test_arrays_of_every_type_are_read_and_written_in_place(library, dtype):
    values = (np.arange(24) % 2).astype(dtype).reshape(4, 6)
    for shown in (ByDlpack, ByProtocol):
        x, y = library.array(values), library.array(np.zeros_like(values))
        copy(shown(y), shown(x))
        assert (y.on(0) == values).all()
        assert set(x.asked) <= {-1}, "the order is the launch's"


def test_types_with_the_dlpack_exchange_table_use_it(library):
    tensor = tensor_type(library.device)
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    x, y = library.array(values), library.array(np.zeros((4, 3), np.float32))
    copy(tensor(y), tensor(x[:, ::2]))
    assert (y.on(0) == values[:, ::2]).all()
    assert tensor.described >= 2
    assert x.asked == y.asked == [], "no other way was gone"


def test_arrays_with_gaps(library):
    expected = np.arange(48, dtype=np.float32).reshape(6, 8)
    for shown in (ByDlpack, ByProtocol):
        base = library.array(expected)
        add(shown(base[::2, 1::3]), 100.0)
        after = expected.copy()
        after[::2, 1::3] += 100
        assert (base.on(0) == after).all()


def test_arrays_of_another_device_are_refused(library):
    other = library.array(np.zeros(4, np.float32))
    other.library = type("Elsewhere", (), {"device": (library.device[0], library.device[1] + 1)})()
    with pytest.raises(ValueError, match="move it to that device, or to the host, first"):
        add(ByDlpack(other), 1.0)


# Its streams

ROUNDS = 20


def check_rounds(copies: list[Any], stream: int) -> None:
    for number, array in enumerate(copies):
        assert (array.on(stream) == number + 1).all()


def rounds(library: Any) -> tuple[Any, list[Any]]:
    zeros = np.zeros(N, np.uint8)
    return library.array(zeros), [library.array(zeros) for _ in range(ROUNDS)]


def test_the_null_stream_synchronizes_with_the_default_stream(library):
    x, copies = rounds(library)
    for number, y in enumerate(copies):
        x.set_bytes(number + 1, 0)
        copy(y, x)
    check_rounds(copies, 0)


@pytest.mark.parametrize("blocking", [False, True])
def test_launches_on_foreign_streams(library, blocking):
    side = library.stream(blocking)
    handle = side.handle
    forms = [
        side,
        type("Protocol", (), {"__cuda_stream__": lambda _: (0, handle)})(),
        qd.Stream.from_handle(handle),
    ]
    x, copies = rounds(library)
    for number, y in enumerate(copies):
        x.set_bytes(number + 1, handle)
        if number % 4 == 3:
            with qd.stream_scope(side):
                copy(y, x)
        else:
            copy(y, x, qd_stream=forms[number % 4])
    check_rounds(copies, handle)
    qd.sync()
    del forms
    side.destroy()


def test_foreign_work_on_octants_streams(library):
    x, copies = rounds(library)
    with qd.create_stream() as ours:
        version, handle = ours.__cuda_stream__()
        assert (version, handle) == (0, ours.handle)
        for number, y in enumerate(copies):
            x.set_bytes(number + 1, handle)
            copy(y, x, qd_stream=ours)
        check_rounds(copies, handle)


def test_events_between_foreign_and_octants_streams(library):
    side = library.stream()
    x, copies = rounds(library)
    with qd.create_stream() as ours, qd.create_event() as event:
        for number, y in enumerate(copies):
            x.set_bytes(number + 1, side.handle)
            if number % 2:
                ours.wait(side)
            else:
                event.record(side)
                event.wait(ours)
            copy(y, x, qd_stream=ours)
            qd.Stream.from_handle(side.handle).wait(ours)
        check_rounds(copies, ours.handle)


def test_the_stream_that_an_array_is_ready_on_is_waited_for(library):
    side = library.stream()
    for number in range(ROUNDS):
        x, y = (library.array(np.zeros(N, np.uint8), side.handle) for _ in range(2))
        x.set_bytes(number + 1, side.handle)
        copy(y, ByProtocol(x))
        assert (y.on(0) == number + 1).all()


def test_a_launch_with_foreign_arrays_on_a_foreign_stream_does_not_wait(library):
    side = library.stream()
    x = library.array(np.zeros(64, np.float32), side.handle)
    slow_ones(x, 10, qd_stream=side)
    side.synchronize()
    slow_ones(x, 5 * LONG, qd_stream=side)
    assert not qd.Stream.from_handle(side.handle).query()
    assert (x.on(side.handle) == 1).all()


# Our arrays for it


def test_imported_arrays_share_memory(library):
    x = qd.ndarray(qd.f32, shape=(8, 16))
    f = qd.Matrix.field(2, 3, qd.f32, shape=(5,))
    for array in (x, f):
        array.fill(2.0)
        taken = library.take(array)
        assert taken.shape == array.to_numpy().shape
        taken.fill(5.0)
        assert (array.to_numpy() == 5).all()
        add(x, 1.0)
    assert library.take(x).address == x.buffer.ptr


@pytest.mark.parametrize("named", ["a stream", "the null stream", "none"])
def test_consumers_of_an_array_wait_for_its_writers(library, named):
    side = library.stream()
    stream = {"a stream": side.handle, "the null stream": library.unnamed, "none": None}[named]
    x = qd.ndarray(qd.f32, shape=(N,))
    with qd.create_stream() as writer:
        slow_ones(x, 10, qd_stream=writer)
        x.fill(0.0)
        slow_ones(x, 5 * LONG, qd_stream=writer)
        taken = library.take(x, stream=stream)
        assert not writer.query(), "nobody waits here"
        assert (taken.on(stream or 0) == 1).all()


def test_the_array_protocol_names_the_stream_or_waits(library):
    x = qd.ndarray(qd.f32, shape=(N,))
    side = library.stream()
    with qd.create_stream() as writer:
        for _ in range(3):
            x.fill(0.0)
            slow_ones(x, 20_000, qd_stream=writer)
            shown = x.__cuda_array_interface__
            assert shown["data"] == (x.buffer.ptr, False)
            # None: the consumer may use it immediately, on any stream. 0 is not allowed.
            assert shown["stream"] in (None, 1)
            if shown["stream"] is not None:
                library.order(shown["stream"], side.handle)
            values = library.read(shown["data"][0], np.dtype(shown["typestr"]), shown["shape"], (4,), side.handle)
            assert (values == 1).all()


def test_exported_memory_outlives_its_ndarray_and_the_program(library, begin):
    for end in (lambda: None, qd.reset):
        begin(**library.options)
        x = qd.ndarray(qd.f32, shape=(N,))
        x.fill(3.0)
        taken = library.take(x)
        del x
        end()
        assert np.asarray(taken).sum() == 3 * N


def test_tensors_are_copied_by_the_device(library):
    side = library.stream()
    source = library.array(np.zeros((8, 16), np.float32), side.handle)

    class Tensor:
        """As torch's look."""

        shape = source.shape
        device = type("device", (), {"type": "cuda"})()
        __cuda_array_interface__ = source.__cuda_array_interface__
        __dlpack_device__ = source.__dlpack_device__
        __dlpack__ = source.__dlpack__

        def detach(self):
            return self

        def cpu(self):
            raise AssertionError("not by the host")

    x = qd.ndarray(qd.f32, shape=(8, 16))
    for byte in range(1, 10):
        source.set_bytes(byte, side.handle)
        x.from_torch(Tensor())
        assert (x.to_numpy().view(np.uint8) == byte).all()
        assert source.asked.pop(0) == library.unnamed


# Its captures


@qd.kernel
def total(x: qd.types.ndarray(dtype=qd.f32, ndim=1)) -> qd.f32:
    s = 0.0
    for i in x:
        s += x[i]
    return s


@qd.kernel
def in_sections(x: qd.types.ndarray(dtype=qd.f32, ndim=1), y: qd.types.ndarray(dtype=qd.f32, ndim=1)):
    with qd.stream_parallel():
        for i in x:
            x[i] += 1.0
    with qd.stream_parallel():
        for i in y:
            y[i] += 2.0


def test_launches_on_a_captured_stream_are_part_of_the_graph(library):
    side, zeros = library.stream(), np.zeros(N, np.float32)
    x, y, z = (library.array(zeros, side.handle) for _ in range(3))
    own, *others = (qd.ndarray(qd.f32, shape=N) for _ in range(3))
    for kernel in (lambda: add(x, 0.0), lambda: copy(z, x), lambda: in_sections(own, y), lambda: total(own)):
        kernel()
    for array in (own, y):
        add(array, -1.0 if array is own else -2.0)
    qd.sync()
    for number in (1, 2):
        with library.captured(side) as graph:
            add(x, 1.0, qd_stream=side)
            in_sections(own, y, qd_stream=side)
            copy(z, x, qd_stream=side)
            # Unrelated work continues during the capture, with other workers for its sections.
            in_sections(*others)
            assert [total(array) for array in others] == [number * N, 2 * number * N]
        assert (x.on(side.handle) == 3 * (number - 1)).all(), "nothing has run"
        for _ in range(3):
            graph.launch(side.handle)
        for array, each in ((x, 1), (y, 2), (z, 1)):
            assert (array.on(side.handle) == 3 * number * each).all()
        graph.destroy()
    assert (own.to_numpy() == 6).all()


def test_waiting_for_a_captured_stream_is_refused(library):
    side, x = library.stream(), qd.ndarray(qd.f32, shape=N)
    host = np.zeros(N, np.float32)
    x.fill(1.0)
    total(x)
    add(x, 0.0)
    add(host, 0.0)
    with library.captured(side) as graph:
        for refused in (
            lambda: qd.Stream.from_handle(side.handle).synchronize(),
            lambda: total(x, qd_stream=side),
            lambda: add(host, 1.0, qd_stream=side),
        ):
            with pytest.raises(RuntimeError, match="captured into a graph"):
                refused()
        add(x, 1.0, qd_stream=side)
    assert not host.any()
    graph.launch(side.handle)
    assert total(x, qd_stream=side) == 2 * N
    graph.destroy()


@qd.kernel
def spread(x: qd.types.ndarray(dtype=qd.f32, ndim=1), y: qd.types.ndarray(dtype=qd.f32, ndim=1)):
    s = 0.0
    for i in x:
        s += x[i]
    for i in y:
        y[i] = s


def test_a_captured_graph_is_a_part_of_another_librarys_graph(library):
    side, own = library.stream(), qd.create_stream()
    x, y, z = (qd.ndarray(qd.f32, shape=N) for _ in range(3))
    with qd.graph.capture() as step:
        own.wait(qd.default_stream())
        add(x, 1.0)
        add(z, 2.0, qd_stream=own)
        qd.default_stream().wait(own)
        spread(x, y)
        in_sections(x, z)
    step.launch()
    qd.sync()
    for number in (1, 2):
        with library.captured(side) as graph:
            step.launch(side)
            add(x, 1.0, qd_stream=side)
            # Its own launches use other memory for values passed between tasks.
            step.launch(own)
        own.synchronize()
        rounds = 3 * number - 2
        assert (z.to_numpy() == 4 * (rounds + number)).all(), "what was captured has not run"
        for _ in range(2):
            graph.launch(side.handle)
        side.synchronize()
        step.launch()
        qd.sync()
        graph.destroy()
    assert (z.to_numpy() == 4 * 9).all()
    assert (x.to_numpy() == 2 * 9 + 4).all()
    assert (y.to_numpy() == N * (2 * 8 + 4 + 1)).all()


def test_another_librarys_graph_is_a_step_of_a_captured_graph(library):
    side = library.stream()
    x, y = (qd.ndarray(qd.f32, shape=N) for _ in range(2))
    add(x, 0.0)
    qd.sync()
    with library.captured(side) as graph:
        add(x, 1.0, qd_stream=side)
    with qd.graph.capture() as step:
        copy(y, x)
        step.add_graph(graph.graph.value)
        add(x, 10.0)
    with pytest.raises(RuntimeError, match="inside the `with` block"):
        step.add_graph(graph.graph.value)
    # It was taken as it was.
    graph.destroy()
    for _ in range(2):
        step.launch()
    qd.sync()
    assert (x.to_numpy() == 22.0).all()
    assert (y.to_numpy() == 11.0).all()
    assert [what for what, *_ in step.steps][1] == "graph of another library"
    with pytest.raises(RuntimeError, match="no gradient if another library's graph"):
        step.grad()
    with qd.graph.capture() as other, pytest.raises(TypeError, match="has no graph handle"):
        other.add_graph("a graph")


def test_torchs_graph_is_a_step_of_a_captured_graph(torch):
    if not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph"):
        pytest.skip("this torch shows no handle of its graphs")
    x = torch.zeros(N, device="cuda")
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        x += 1.0
    with qd.graph.capture() as step:
        add(x, 10.0)
        step.add_graph(graph)
        add(x, 100.0)
    for _ in range(3):
        step.launch()
    qd.sync()
    torch.cuda.synchronize()
    assert (x == 333.0).all()


def test_a_graph_with_host_work_is_refused_in_a_capture(library):
    side, x = library.stream(), qd.ndarray(qd.f32, shape=N)
    host = np.zeros(N, np.float32)
    add(host, 0.0)
    with qd.graph.capture() as step:
        add(x, 1.0)
        add(host, 1.0)
    step.launch()
    with library.captured(side) as graph:
        with pytest.raises(RuntimeError, match="captured into a graph"):
            step.launch(side)
        add(x, 1.0, qd_stream=side)
    step.launch()
    qd.sync()
    assert host[0] == 2.0
    graph.destroy()


def test_torchs_graph_contains_a_captured_graph(torch):
    x, y = (torch.zeros(N, device="cuda") for _ in range(2))
    with qd.graph.capture() as step:
        add(x, 1.0)
        spread(x, y)
    step.launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x += 1.0
        step.launch(torch.cuda.current_stream())
        y *= 2.0
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert (x == 1.0 + 2 * 3).all()
    assert (y == 2.0 * N * 7).all()


@qd.kernel
def tell(x: qd.types.ndarray(dtype=qd.f32, ndim=1), limit: qd.i32):
    for i in x:
        x[i] += 1.0
        if i == 3:
            print("element 3:", x[i])
        assert i < limit, "too far"


@qd.kernel
def draw(x: qd.types.ndarray(dtype=qd.f32, ndim=1)):
    for i in x:
        x[i] = qd.random()


def test_a_graph_fills_copies_prints_checks_and_draws(library, begin, capfd):
    begin(debug=True, **library.options)
    side = library.stream()
    x, y, z = (qd.ndarray(qd.f32, shape=N) for _ in range(3))
    tell(x, N, qd_stream=side)
    draw(z, qd_stream=side)
    qd.sync()
    capfd.readouterr()
    with library.captured(side) as graph:
        x.fill(4.0, qd_stream=side)
        tell(x, N, qd_stream=side)
        y.copy_from(x, qd_stream=side)
        draw(z, qd_stream=side)
    drawn = []
    for _ in range(3):
        graph.launch(side.handle)
        side.synchronize()
        drawn.append(z.to_numpy())
    qd.sync()
    assert capfd.readouterr().out == "element 3: 5.000000\n" * 3
    assert (y.to_numpy() == 5).all()
    assert (drawn[0] == drawn[1]).all()
    assert len(set(drawn[0])) > N // 2
    with library.captured(side) as failing:
        tell(x, N // 2, qd_stream=side)
    failing.launch(side.handle)
    side.synchronize()
    with pytest.raises(AssertionError, match="too far"):
        qd.sync()


def test_a_kernel_may_print_first_on_a_stream_that_is_captured(library, begin, capfd):
    begin(debug=True, **library.options)
    x, side = qd.ndarray(qd.f32, shape=N), library.stream()
    tell(x, N)
    qd.sync()
    capfd.readouterr()
    with library.captured(side) as graph:
        tell(x, N, qd_stream=side)
    graph.launch(side.handle)
    side.synchronize()
    qd.sync()
    assert capfd.readouterr().out == "element 3: 2.000000\n"


@pytest.mark.parametrize("way", ["dlpack", "array protocol", "graph"])
def test_trip_counts_in_foreign_memory_are_recomputed(library, begin, way):
    begin(kernel_profiler=True, **library.options)
    side = library.stream()
    x, loss = (qd.field(qd.f32, shape=shape, needs_grad=True) for shape in (8, ()))
    n = qd.ndarray(qd.i32, shape=8)
    x.fill(2.0)

    @qd.kernel
    def lengthen(n: qd.types.ndarray()):
        for i in n:
            n[i] += 1

    @qd.kernel
    def carried(n: qd.types.ndarray()):
        for i in x:
            s = x[i]
            for _ in range(n[i]):
                s = s * s
            loss[None] += s

    def check(length, counts):
        x.grad.fill(0)
        loss.grad[None] = 1
        carried.grad(n)
        assert (x.grad.to_numpy() == 2**length * 2.0 ** (2**length - 1)).all()
        qd.sync()
        assert qd.profiler.query_kernel_profiler_info("carried_grad_count").counter == counts

    lengthen(n)
    counts = 1
    check(1, counts)
    check(1, counts)
    if way == "graph":
        with library.captured(side) as graph:
            lengthen(n, qd_stream=side)
    else:
        shown = n.__cuda_array_interface__ if way == "array protocol" else None
        address = shown["data"][0] if shown else library.take(n).address
    for length in (2, 3):
        if way == "graph":
            graph.launch(side.handle)
        else:
            library.write(address, np.full(8, length, np.int32), side.handle)
        side.synchronize()
        for _ in range(2):
            counts += 1
            check(length, counts)
    if way == "graph":
        graph.destroy()


# Torch's tensors as arguments


@pytest.mark.parametrize("name", ["bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64"])
def test_tensors_of_every_type_are_read_and_written_in_place(torch, name):
    x = (torch.arange(24, device="cuda") % 2).to(getattr(torch, name)).reshape(4, 6)
    y = torch.zeros_like(x)
    copy(y, x)
    assert torch.equal(x, y)


def test_tensors_with_gaps_and_parameters(torch):
    base = torch.arange(48.0, device="cuda").reshape(6, 8)
    expected = base.clone()
    add(base[::2, 1::3], 100.0)
    expected[::2, 1::3] += 100
    assert torch.equal(base, expected)
    add(base.T, 1.0)
    assert torch.equal(base, expected + 1)
    parameter = torch.nn.Parameter(torch.ones(N, device="cuda"))
    add(parameter, 1.0)
    assert parameter.detach().sum().item() == 2 * N


def test_torchs_default_stream_synchronizes_with_the_default_stream(torch):
    x = torch.zeros(1 << 20, device="cuda")
    for _ in range(20):
        x += 1
        add(x, 1.0)
        x *= 1
    assert x.min().item() == x.max().item() == 40


def test_launches_on_torchs_streams(torch):
    side = torch.cuda.Stream()
    x = torch.zeros(1 << 20, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(20):
            x += 1
            add(x, 1.0, qd_stream=side)
    side.synchronize()
    assert x.min().item() == x.max().item() == 40


def test_launches_follow_torchs_current_stream(torch, begin):
    begin(follow_torch_stream=True)
    x = torch.zeros(1 << 20, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        assert qd.current_stream() == qd.Stream.from_handle(side.cuda_stream)
        for _ in range(20):
            x += 1
            add(x, 1.0)
    side.synchronize()
    assert x.min().item() == x.max().item() == 40
    assert qd.current_stream() == qd.default_stream()


def test_a_launch_with_tensors_does_not_wait(torch):
    x = torch.zeros(64, device="cuda")
    with qd.create_stream() as stream, qd.create_event() as done:
        stream.wait(torch.cuda.current_stream())
        slow_ones(x, 10, qd_stream=stream)
        stream.synchronize()
        slow_ones(x, LONG, qd_stream=stream)
        done.record(stream)
        assert not done.query()
        stream.synchronize()
    assert x[63].item() == 1.0


def test_tensors_on_the_host_are_staged(torch):
    x = torch.arange(24.0).reshape(4, 6)
    y = torch.zeros(6, 4)
    copy(y, x.T)
    assert torch.equal(y, x.T)
    add(x[:, ::2], 10.0)
    assert x[0].tolist() == [10, 1, 12, 3, 14, 5]


def test_a_program_on_the_cpu_refuses_tensors_on_a_gpu(torch):
    # Whatever device the tests run on.
    getattr(qd.init, "original", qd.init)(arch=qd.cpu)
    with pytest.raises(ValueError, match="move it to the host"):
        add(torch.zeros(4, device="cuda"), 1.0)


# To torch


def test_to_torch_without_a_copy_shares_memory(torch):
    x = qd.ndarray(qd.f32, shape=(8, 16))
    f = qd.Matrix.field(2, 3, qd.f32, shape=(5,))
    for array, where in ((x, x.buffer.ptr), (f, None)):
        array.fill(2.0)
        for tensor in (array.to_torch(copy=False), array.to_torch(copy=None), array.to_torch("cuda", copy=False)):
            assert tensor.is_cuda
            assert tuple(tensor.shape) == array.to_numpy().shape
            assert where is None or tensor.data_ptr() == where
            tensor += 1
        assert (array.to_numpy() == 5).all()
    with pytest.raises(ValueError, match="copy=False"):
        x.to_torch("cpu", copy=False)
    assert not x.to_torch().is_cuda
    copied = x.to_torch("cuda")
    copied.zero_()
    assert x[0, 0] == 5
    x.from_torch(torch.full((8, 16), 7.0, device="cuda"))
    assert (x.to_numpy() == 7).all()


def test_torch_waits_for_the_writers(torch):
    x = qd.ndarray(qd.f32, shape=(N,))
    with qd.create_stream() as stream:
        slow_ones(x, LONG, qd_stream=stream)
        assert torch.from_dlpack(x).sum().item() == N
        x.fill(0.0)
        slow_ones(x, LONG, qd_stream=stream)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            total = torch.from_dlpack(x).sum()
        side.synchronize()
        assert total.item() == N


def test_memory_exported_to_torch_outlives_its_ndarray_and_the_program(torch, begin):
    for end in (lambda: None, qd.reset):
        begin()
        x = qd.ndarray(qd.f32, shape=(N,))
        x.fill(3.0)
        tensor = torch.from_dlpack(x)
        del x
        end()
        assert tensor.sum().item() == 3 * N


# CuPy


def test_cupy_both_ways(cupy):
    x = cupy.arange(24, dtype=cupy.float32).reshape(4, 6)
    y = qd.ndarray(qd.f32, shape=(6, 4))
    copy(y, x.T)
    assert (y.to_numpy() == cupy.asnumpy(x.T)).all()
    add(x[:, ::2], 10.0)
    assert cupy.asnumpy(x)[0].tolist() == [10, 1, 12, 3, 14, 5]
    for seen in (cupy.asarray(y), cupy.from_dlpack(y)):
        assert seen.data.ptr == y.buffer.ptr
        seen += 1
    assert (y.to_numpy() == np.arange(24).reshape(4, 6).T + 2).all()


def test_cupy_on_a_stream_of_its_own(cupy):
    side = cupy.cuda.Stream(non_blocking=True)
    with side:
        x = cupy.zeros(1 << 20, dtype=cupy.float32)
        for _ in range(20):
            x += 1
            add(x, 1.0)  # runs after `side`, the stream on which the array is declared ready
            side.wait_event(_recorded(cupy))
    side.synchronize()
    assert cupy.asnumpy(x).min() == 40


def _recorded(cupy: Any) -> Any:
    """An event after the work queued on our default stream, which is ordered with CUDA's."""
    event = cupy.cuda.Event()
    event.record(cupy.cuda.Stream.null)
    return event


# The host's arrays


def test_numpy_arrays_of_all_kinds():
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    y = np.zeros((6, 4), np.float32)
    copy(y, values.T)
    assert (y == values.T).all()
    frozen = values.copy()
    frozen.flags.writeable = False
    copy(y, frozen.T)
    with pytest.raises(ValueError, match="read-only"):
        add(frozen, 1.0)
    scalar = np.array(5.0, np.float32)
    add(scalar, 1.0)
    assert scalar == 6.0
    line = np.arange(10, dtype=np.float32)
    copy(line[5:], line[:5])
    assert line.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    reverse = line[::-1]
    add(reverse[:5], 10.0)
    assert line.tolist() == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]


LOST = """
import octants as qd

class Bad:
    __cuda_array_interface__ = {"data": (16, False), "shape": (4,), "typestr": "<f4", "version": 3}

qd.init(arch=qd.cuda, debug=True, enable_fallback=False)

@qd.kernel
def touch(x: qd.types.ndarray(dtype=qd.f32, ndim=1)):
    for i in x:
        x[i] = 1.0

for _ in range(2):
    try:
        touch(Bad())
    except RuntimeError as error:
        print(error.__traceback__.tb_lineno, error)
"""


def test_debug_mode_reports_a_lost_device_at_the_kernel_call(cuda, tmp_path):
    script = tmp_path / "lost.py"
    script.write_text(LOST)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False)
    first, again = done.stdout.splitlines()
    line = LOST.splitlines().index("        touch(Bad())") + 1
    assert re.match(
        rf"{line} cuStream(Synchronize|Query) failed with code 700 .*; "
        r"launched last: `touch` \(defined at .*lost.py:9\)",
        first,
    ), done
    assert "The GPU is lost to this process" in first
    assert "the device is lost to this process since an earlier error" in again


def test_machine_code_is_cached_when_the_driver_has_an_assembler(cuda, tmp_path):
    try:
        ctypes.CDLL("libnvidia-ptxjitcompiler.so.1").nvPTXCompilerGetVersion
    except (OSError, AttributeError):
        pytest.skip("this driver has no assembler to call")
    kept = {"offline_cache": True, "offline_cache_file_path": str(tmp_path)}
    for _ in range(2):
        qd.init(arch=qd.cuda, enable_fallback=False, **kept)
        x = qd.ndarray(qd.f32, 100)
        for _ in range(4):
            add(x, 1.5)
        assert (x.to_numpy() == 6.0).all()
    contents = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    # The loop's ordinary form and its wide one are machine code both, and no text is left.
    assert sum(text.count(b"\x7fELF") for text in contents) >= 2
    assert not any(b".visible .entry" in text for text in contents)
