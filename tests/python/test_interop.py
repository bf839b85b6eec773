"""Export and import of arrays of other libraries: DLPack, the array protocol of a device, torch's tensor interface.

The CPU emulates a device with separate memory; its array protocol is `__octants_array_interface__`. On a GPU, or a
stand-in for one, the other library is `other_library.py`'s.
"""

from __future__ import annotations

import ctypes
import re
import sys
import types

import numpy as np
import other_library
import pytest
from interop_kernels import add, copy, slow_ones
from tensor_types import tensor_type

import octants as qd

SCALARS = [qd.u1, qd.i8, qd.i16, qd.i32, qd.i64, qd.u8, qd.u16, qd.u32, qd.u64, qd.f16, qd.f32, qd.f64]


@pytest.fixture(params=["", "seed:1", "seed:2"], ids=["threads", "schedule 1", "schedule 2"])
def device(request):
    qd.init(arch=qd.cpu, cpu_separate_memory=True, cpu_stream_schedule=request.param)
    yield
    qd.reset()


@pytest.fixture
def library(device):
    library = other_library.of_program()
    yield library
    library.close()


@pytest.fixture
def host():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


class OnlyDlpack:
    """An array that supports only DLPack."""

    def __init__(self, array, older=False):
        self.array = array
        self.older = older

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **keywords):
        if self.older and "max_version" in keywords:
            raise TypeError("unexpected keyword")
        return self.array.__dlpack__(**keywords)


class OnDevice:
    """Another library's array in the device's memory."""

    def __init__(self, array, **changed):
        self.array = array
        name = array.buffer.array_protocol
        self.__dict__[name] = {**getattr(array, name), **changed}


# Out


@pytest.mark.parametrize("dtype", SCALARS, ids=str)
def test_capsules_describe_ndarrays_and_fields(library, dtype):
    values = (np.arange(24).reshape(2, 3, 4) % 2).astype(dtype.numpy)
    arrays = [
        qd.ndarray(dtype, shape=(2, 3, 4)),
        qd.tensor(dtype, (2, 3, 4), layout=(2, 0, 1)),
        qd.field(dtype, shape=(2, 3, 4)),
        qd.Vector.ndarray(4, dtype, shape=(2, 3)),
        qd.Matrix.field(3, 4, dtype, shape=(2,)),
    ]
    for array in arrays:
        array.from_numpy(values)
        for capsule in (array.to_dlpack(), array.to_dlpack(versioned=True)):
            methods = {"__dlpack__": lambda _, c=capsule, **k: c, "__dlpack_device__": lambda _: library.device}
            view = library.take(type("Keeper", (), methods)())
            assert view.dtype == dtype.numpy
            assert view.shape == values.shape
            assert (np.asarray(view) == values).all()


def test_capsules_are_the_memory_and_outlive_the_program(library):
    x = qd.ndarray(qd.f32, shape=(5,))
    x.fill(1.0)
    view = library.take(x)
    add(x, 1.0)
    assert x[4] == 2.0
    assert np.asarray(view).tolist() == [2.0] * 5
    view.fill(4.0)
    assert x[4] == 4.0
    unused = x.to_dlpack()
    del x, unused
    qd.reset()
    assert np.asarray(view).tolist() == [4.0] * 5
    view.fill(3.0)


def test_arrays_unsupported_by_dlpack_are_refused(library):
    a, b = qd.field(qd.f32), qd.field(qd.f32)
    qd.root.dense(qd.ij, 2).dense(qd.ij, 2).place(a, b)
    with pytest.raises(ValueError, match="one stride per axis"):
        a.__dlpack__()
    c, d = qd.field(qd.f64), qd.field(qd.i8)
    qd.root.dense(qd.i, 4).place(c, d)
    assert library.take(c).strides == (16,)
    x = qd.ndarray(qd.f32, shape=(2,))
    with pytest.raises(BufferError, match=re.escape(f"is on device {library.device}, not on (99, 0)")):
        x.__dlpack__(dl_device=(99, 0))
    with pytest.raises(BufferError, match="copy=True"):
        x.__dlpack__(copy=True)
    with pytest.raises(TypeError, match="flavor"):
        x.__dlpack__(flavor=1)


def test_the_host_gets_a_copy_of_a_devices_memory(library):
    x = qd.ndarray(qd.f32, shape=(3, 4))
    x.fill(2.0)
    capsule = x.__dlpack__(dl_device=(1, 0), max_version=(1, 0))
    methods = {"__dlpack__": lambda _, **k: capsule, "__dlpack_device__": lambda _: (1, 0)}
    assert np.from_dlpack(type("Keeper", (), methods)()).tolist() == [[2.0] * 4] * 3
    if library.device != (1, 0):
        with pytest.raises(BufferError, match="not on"):
            x.__dlpack__(dl_device=(1, 0), copy=False)


def test_the_stream_of_the_consumer_waits_for_the_writers(device):
    x, y = qd.ndarray(qd.f32, shape=(1000,)), qd.ndarray(qd.f32, shape=(1000,))
    shown = OnDevice(x)
    with qd.create_stream() as writer, qd.create_stream() as reader:
        for _ in range(5):
            x.fill(0.0)
            slow_ones(x, 100, qd_stream=writer)
            capsule = x.__dlpack__(stream=reader.handle)
            # The launch sees memory that it knows nothing of: the order is the capsule's.
            copy(y, shown, qd_stream=reader)
            assert y.to_numpy().tolist() == [1.0] * 1000
            del capsule
        # A reader is in the way of a consumer too, which may write.
        copy(y, x, qd_stream=reader)
        x.__dlpack__(stream=writer.handle)
        add(shown, 1.0, qd_stream=writer)
        assert y.to_numpy().tolist() == [1.0] * 1000


def test_the_array_protocol_of_the_device(library):
    x = qd.Vector.ndarray(3, qd.f32, shape=(4, 2))
    x.fill([1, 2, 3])
    shown = getattr(x, library.protocol)
    assert shown["shape"] == (4, 2, 3)
    assert shown["strides"] == (24, 12, 4)
    assert shown["typestr"] == "<f4"
    assert shown["data"] == (x.buffer.ptr, False)
    assert shown["version"] == 3
    assert not hasattr(x, "__other_array_interface__")
    tensor = qd.tensor(qd.f32, (3, 5), layout=(1, 0))
    assert getattr(tensor, library.protocol)["strides"] == (4, 12)


@pytest.mark.in_place
def test_arrays_on_the_host_have_no_protocol_of_a_device(host):
    x = qd.ndarray(qd.f32, shape=(4,))
    assert not hasattr(x, "__octants_array_interface__")
    assert x.__dlpack_device__() == (1, 0)
    assert np.from_dlpack(x).tolist() == [0.0] * 4


# In


def test_device_memory_is_used_in_place(device):
    x, y = qd.ndarray(qd.f32, shape=(4, 6)), qd.ndarray(qd.f32, shape=(4, 3))
    x.from_numpy(np.arange(24, dtype=np.float32).reshape(4, 6))
    columns = OnDevice(x, shape=(4, 3), strides=(24, 8))
    copy(y, columns)
    assert y.to_numpy().tolist() == np.arange(24).reshape(4, 6)[:, ::2].tolist()
    add(columns, 100.0)
    qd.sync()
    assert x.to_numpy()[0].tolist() == [100, 1, 102, 3, 104, 5]


def test_a_launch_does_not_wait_for_memory_of_the_device():
    qd.init(arch=qd.cpu, cpu_separate_memory=True)
    x = qd.ndarray(qd.f32, shape=(64,))
    shown = OnDevice(x)
    with qd.create_stream() as stream, qd.create_event() as done:
        slow_ones(shown, 10, qd_stream=stream)
        stream.synchronize()
        slow_ones(shown, 100_000_000, qd_stream=stream)
        done.record(stream)
        assert not done.query()
        stream.synchronize()
        assert x[3] == 1.0


def test_the_stream_that_an_array_is_ready_on_is_waited_for(device):
    x, y = qd.ndarray(qd.f32, shape=(1000,)), qd.ndarray(qd.f32, shape=(1000,))
    with qd.create_stream() as writer:
        shown = OnDevice(x, stream=writer.handle)
        for _ in range(5):
            x.fill(0.0)
            slow_ones(shown, 100, qd_stream=writer)
            copy(y, shown)
            assert y.to_numpy().tolist() == [1.0] * 1000


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"typestr": ">f4"}, "arrays of type >f4"),
        ({"typestr": "<c8"}, "arrays of type <c8"),
        ({"mask": [1]}, "masked arrays"),
        ({"data": None}, "`data` is missing"),
    ],
)
def test_malformed_descriptions_of_arrays_are_refused(device, changed, message):
    x = qd.ndarray(qd.f32, shape=(4,))
    with pytest.raises((TypeError, ValueError), match=message):
        add(OnDevice(x, **changed), 1.0)


def test_read_only_memory_of_the_device_is_not_written(device):
    x = qd.ndarray(qd.f32, shape=(4,))
    shown = OnDevice(x, data=(x.buffer.ptr, True))
    with pytest.raises(ValueError, match="read-only"):
        add(shown, 1.0)


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("kind", ["device", "host"])
def test_arrays_with_dlpack_alone_are_arguments(request, kind, older):
    request.getfixturevalue("host") if kind == "host" else qd.init(arch=qd.cpu, cpu_separate_memory=True)
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    y = qd.ndarray(qd.f32, shape=(4, 3))
    copy(y, OnlyDlpack(array.T, older))
    assert y.to_numpy().tolist() == array.T.tolist()
    add(OnlyDlpack(array, older), 1.0)
    assert array[2].tolist() == [9, 10, 11, 12]
    with pytest.raises(ValueError, match=r"element type \(code 5, 64 bits, 1 lanes\)"):
        add(OnlyDlpack(np.zeros(3, np.complex64)), 1.0)


@pytest.mark.parametrize("dtype", SCALARS, ids=str)
def test_types_with_the_dlpack_exchange_table_use_it(host, dtype):
    tensor = tensor_type()
    x = (np.arange(24) % 2).astype(dtype.numpy).reshape(4, 6)
    y = qd.ndarray(dtype, shape=(6, 4))
    copy(y, tensor(x.T))
    assert (y.to_numpy() == x.T).all()
    z = np.zeros((6, 8), dtype.numpy)
    copy(tensor(z[:, ::2]), y)
    assert (z[:, ::2] == x.T).all()
    assert not z[:, 1::2].any()
    assert tensor.described >= 2
    scalar = np.array(1, dtype.numpy)
    copy(tensor(scalar), qd.ndarray(dtype, shape=()))
    assert not scalar


@pytest.mark.parametrize(("fails", "major", "asked"), [(True, 1, True), (False, 2, False)])
def test_types_unsupported_by_the_table_use_dlpack(host, fails, major, asked):
    tensor = tensor_type(fails=fails, major=major)
    x = np.zeros((2, 3), np.float32)
    add(tensor(x), 1.0)
    assert x.sum() == 6
    assert (tensor.described > 0) == asked
    with pytest.raises(ValueError, match="element type"):
        add(tensor(np.zeros(3, np.complex64)), 1.0)


def test_tables_name_the_device(host):
    with pytest.raises(ValueError, match="an array on device 98 cannot be used by a kernel on .+: move it"):
        add(tensor_type((98, 0))(np.zeros(3, np.float32)), 1.0)


@pytest.fixture
def torch_like(monkeypatch):
    """A module that passes for torch, with a stream that tests set."""
    tensor = tensor_type()
    module = types.ModuleType("torch")
    module.Tensor, module.stream, module.asked = tensor, None, []

    def current_stream(kind, number, out):
        module.asked.append((kind, number))
        out[0] = module.stream
        return 0

    ask = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
    tensor.ask = ask(current_stream)
    tensor.table.stream = ctypes.cast(tensor.ask, ctypes.c_void_p).value
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def test_launches_follow_torchs_current_stream(torch_like):
    qd.init(arch=qd.cpu, cpu_separate_memory=True, follow_torch_stream=True)
    x, y = qd.ndarray(qd.f32, shape=(64,)), qd.ndarray(qd.f32, shape=(64,))
    library = other_library.of_program()
    made = library.stream() if library.has_streams else qd.create_stream()
    theirs = qd.Stream.from_handle(made.handle)
    with qd.create_stream() as other, qd.create_event() as done:
        slow_ones(x, 10)
        add(y, 1.0)
        assert torch_like.asked
        assert set(torch_like.asked) == {x.__dlpack_device__()}
        assert qd.current_stream() == qd.default_stream()
        torch_like.stream = theirs.handle
        assert qd.current_stream() == theirs
        slow_ones(x, 100_000_000)
        done.record()
        assert not theirs.query()
        assert other.query()
        # The named stream takes precedence.
        add(y, 1.0, qd_stream=other)
        other.synchronize()
        with qd.stream_scope(other):
            assert qd.current_stream() == other
        assert not done.query()
        theirs.synchronize()
        assert done.query()
    library.close()
    torch_like.stream = None
    qd.init(arch=qd.cpu, cpu_separate_memory=True)
    torch_like.asked.clear()
    slow_ones(qd.ndarray(qd.f32, shape=(64,)), 10)
    assert not torch_like.asked


def test_tapes_follow_torchs_current_stream(torch_like):
    qd.init(arch=qd.cpu, cpu_separate_memory=True, follow_torch_stream=True)
    x = qd.field(qd.f32, shape=4, needs_grad=True)
    length = qd.field(qd.i32, shape=())
    loss = qd.field(qd.f32, shape=(), needs_grad=True)

    @qd.kernel
    def power():
        for i in x:
            product = 1.0
            for _ in range(length[None]):
                product *= x[i]
            loss[None] += product

    x.fill(3.0)
    length[None] = 2
    library = other_library.of_program()
    made = library.stream() if library.has_streams else qd.create_stream()
    theirs = qd.Stream.from_handle(made.handle)
    torch_like.stream = theirs.handle
    with qd.profiler.timeline({"theirs": theirs}) as timeline, qd.ad.Tape(loss):
        power()
    launched = [task for task in timeline.tasks if task.name.startswith("power")]
    # The kernel, its trip counts, the trip counts before the gradient, the size of its store, and the gradient.
    assert len({task.launch for task in launched}) >= 4
    assert {task.lane for task in launched} == {"theirs"}
    assert x.grad.to_numpy().tolist() == [6.0] * 4
    library.close()


def test_following_requires_a_torch_that_reports_its_stream(torch_like, monkeypatch):
    qd.init(arch=qd.cpu, cpu_separate_memory=True, follow_torch_stream=True)
    x = qd.ndarray(qd.f32, shape=(64,))
    torch_like.Tensor = object
    with pytest.raises(RuntimeError, match="follow_torch_stream=True needs torch 2.10"):
        slow_ones(x, 10)
    monkeypatch.delitem(sys.modules, "torch")
    slow_ones(x, 10)
    assert x[0] == 1.0


class TensorElsewhere:
    """As torch's tensors on another device look."""

    dtype = "torch.float32"
    shape = (4,)

    class device:  # noqa: N801
        type = "elsewhere"
        index = 1

    def data_ptr(self):
        raise AssertionError("refused before anyone asks")

    def element_size(self):
        return 4

    def __dlpack_device__(self):
        return (99, 1)


def test_arrays_of_other_devices_are_refused_with_a_remedy(host):
    elsewhere = type("Elsewhere", (), {"__dlpack_device__": lambda _: (98, 0)})()
    for array, name in ((TensorElsewhere(), "device `"), (elsewhere, r"device \(98, 0\)")):
        with pytest.raises(
            ValueError, match=f"an array on {name}.* a kernel on .+: move it to (that device, or to )?the host"
        ):
            add(array, 1.0)


def test_arrays_of_numpy_and_of_its_subclasses_are_the_same_to_a_kernel():
    from octants import _octants

    class Special(np.ndarray):
        pass

    @qd.kernel
    def double(x: qd.types.ndarray(), y: qd.types.ndarray(dtype=qd.f32, ndim=2)):
        for i, j in y:
            y[i, j] += 2.0 * x[i, j]

    qd.init(arch=qd.cpu)
    # Plain arrays take a fast path, which must select the same code.
    made = [np.ones((3, 5), np.float32), np.ones((3, 5), np.float32).view(Special)]
    for x in made:
        for y in made:
            before = np.array(y)
            double(x, y)
            if x is not y:
                assert (y == before + 2.0 * np.asarray(x)).all()
    shared = _octants.compiled_count()
    assert shared == 2, "one for two arrays, one for the same array twice"
    own = qd.ndarray(qd.f32, shape=(3, 5))
    double(own, made[0])
    double(made[0], own)
    assert _octants.compiled_count() == shared


@pytest.mark.in_place
def test_levels_of_one_axis_without_gaps_are_exported_as_one_array(host):
    x = qd.field(qd.f32)
    qd.root.dense(qd.i, 2).dense(qd.i, 3).place(x)
    view = x.to_numpy(copy=False)
    view[...] = range(6)
    assert view.shape == (6,)
    assert x[4] == 4

    blocks = qd.field(qd.f32)
    qd.root.dense(qd.ij, 2).dense(qd.ij, 2).place(blocks)
    with pytest.raises(ValueError, match="copy=False"):
        blocks.to_numpy(copy=False)
