"""`python -m octants.devices`, the choice among devices, and several of them in one process."""

import copy
import dataclasses
import os
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

import octants as qd
from octants.devices import list_devices


def run(**variables):
    env = {**{k: v for k, v in os.environ.items() if k != "OCTANTS_VISIBLE_DEVICES"}, **variables}
    ran = subprocess.run([sys.executable, "-m", "octants.devices"], capture_output=True, text=True, env=env, check=True)
    return ran.stdout.splitlines()


def test_each_kind_has_a_line_for_each_device_or_a_reason():
    lines = run()
    kinds = [line.split()[0] for line in lines]
    assert kinds[0] == "cpu"
    assert {"cuda", "amdgpu", "vulkan"} <= set(kinds)
    found, reasons = list_devices()
    assert len(lines) == len(found) + len(reasons)
    numbers = [d.number for d in found if d.arch == "cpu"]
    assert numbers == [0]
    assert found[0].memory_bytes > 2**20
    assert all(reasons.values())


def test_hidden_devices_are_not_listed():
    shown = [line for line in run(OCTANTS_VISIBLE_DEVICES="77") if line.split()[1] != "-"]
    assert [line.split()[0] for line in shown] == ["cpu"], "the host's processor cannot be hidden"


def test_numbers_of_visible_devices_are_checked():
    with pytest.raises(ValueError, match=r"comma-separated numbers, such as `2,0`, got `x`"):
        qd.init(arch=qd.vulkan, visible_devices="1,x")
    init = getattr(qd.init, "original", qd.init)
    with pytest.raises(RuntimeError, match=r"no device 2: `visible_devices` \(1,0\) shows 2"):
        init(arch=qd.cuda, visible_devices="1,0", device=2, enable_fallback=False)
    # The CPU has no numbers.
    init(arch=qd.cpu, visible_devices="7")


def test_gpus_may_be_named_by_their_identifiers():
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no NVIDIA GPU")
    last = re.findall(r"UUID: (GPU-[0-9a-f-]+)", listed)[-1]
    lines = [line.split()[:2] for line in run(CUDA_VISIBLE_DEVICES=last)]
    assert [line for line in lines if line[0] == "cuda"] == [["cuda", "0"]]


# Several devices in one process


@pytest.fixture(params=["in_place", "separate"])
def two(request):
    """The device of `qd.init`, and another one: a second GPU if there is one, otherwise (or if memory must be separate)
    one that the CPU emulates."""
    separate = request.param == "separate"
    qd.init(arch=qd.cpu)
    first = qd.current_device()
    if first.kind == "cpu":
        return first, qd.device("cpu:1", cpu_separate_memory=separate)
    other = another_of_its_kind(first)
    if other is not None and not separate:
        return first, qd.device(other)
    return first, qd.device("cpu", cpu_separate_memory=True)


def another_of_its_kind(device):
    """The name of another device of the same kind; None if there is none."""
    if device.kind == "vulkan":
        return None
    # The stand-in of HIP's library has two devices.
    counts = {"cpu": 2, "amdgpu": 2, "cuda": sum(d.arch == "cuda" for d in list_devices()[0])}
    names = [f"{device.kind}:{n}" for n in range(counts[device.kind])]
    return next((name for name in names if name != device.name), None)


array = qd.types.ndarray(dtype=qd.f32, ndim=1)


@qd.kernel
def add_to(x: array, n: qd.f32):
    for i in x:
        x[i] += n


@qd.kernel
def add_to_field(x: qd.template(), n: qd.f32):
    for i in x:
        x[i] += n


def test_a_name_stands_for_one_device(two):
    first, second = two
    assert first != second
    assert qd.device(first.name) == first
    assert qd.device(second.name) == second == qd.device(second)
    assert {first, second} == {qd.device(second.name), qd.current_device()}
    assert repr(second) == f"<octants device {second.name}>"
    if first.kind == "cpu":
        assert qd.device(qd.cpu) == qd.device("cpu") == qd.device("x64:0") == first


def test_kernels_run_on_the_current_device(two):
    first, second = two
    x, y = qd.ndarray(qd.f32, shape=4), qd.ndarray(qd.f32, shape=4, device=second)
    f, g = qd.field(qd.f32, shape=4), qd.field(qd.f32, shape=4, device=second.name)
    assert (x.device, y.device, f.device, g.device) == (first, second, first, second)
    for n in range(3):
        add_to(x, 1)
        add_to_field(f, 1)
        with second as entered:
            assert entered is second
            assert qd.current_device() == second
            add_to(y, 10)
            add_to_field(g, 10)
            z = qd.ndarray(qd.f32, shape=4)
            assert z.device == second
            add_to(z, 7)
            with first:
                add_to(x, 1)
                assert qd.current_device() == first
            assert qd.current_device() == second
        assert qd.current_device() == first
        assert z.to_numpy().tolist() == [7.0] * 4
        assert x.to_numpy().tolist() == [2.0 * (n + 1)] * 4
        assert y.to_numpy().tolist() == g.to_numpy().tolist() == [10.0 * (n + 1)] * 4
        assert f.to_numpy().tolist() == [n + 1.0] * 4


def test_arrays_are_used_from_python_on_any_device(two):
    _, second = two
    f = qd.Vector.field(3, qd.f32, shape=(2, 5), device=second)
    x = qd.Matrix.ndarray(2, 2, qd.i32, shape=3, device=second)
    t = qd.tensor(qd.f64, shape=4, backend=qd.Backend.FIELD, device=second)
    s = qd.Struct.field({"a": qd.f32, "b": qd.i32}, shape=3, device=second)
    values = np.arange(30, dtype=np.float32).reshape(2, 5, 3)
    f.from_numpy(values)
    f[1, 2] = [7, 8, 9]
    values[1, 2] = [7, 8, 9]
    assert (f.to_numpy() == values).all()
    assert f[1, 2][1] == 8
    x.fill(3)
    x[1] = [[1, 2], [3, 4]]
    assert x.to_numpy().tolist() == [[[3, 3], [3, 3]], [[1, 2], [3, 4]], [[3, 3], [3, 3]]]
    t.fill(0.5)
    assert t.to_numpy().tolist() == [0.5] * 4
    s.b.fill(4)
    s[1].a = 2.5
    assert s.to_numpy()["b"].tolist() == [4] * 3
    assert s.a[1] == 2.5
    copied = copy.deepcopy(x)
    assert copied.device == second
    assert (copied.to_numpy() == x.to_numpy()).all()
    with pytest.raises(qd.OctantsSyntaxError, match=r"FieldsBuilder\(device=\.\.\.\)"):
        qd.field(qd.f32, device=second)
    with pytest.raises(TypeError, match="or its name; got 3"):
        qd.ndarray(qd.f32, shape=3, device=3)


def test_field_trees_belong_to_one_device(two):
    first, second = two
    a, b, c, d = (qd.field(qd.i32) for _ in range(4))
    qd.root.dense(qd.i, 4).place(a)
    with second:
        qd.root.dense(qd.i, 4).place(b)
    builder = qd.FieldsBuilder(device=second)
    builder.dense(qd.i, 4).place(c)
    builder.finalize()
    qd.root.dense(qd.i, 4).place(d)
    assert [x.device for x in (a, b, c, d)] == [first, second, second, first]

    @qd.kernel
    def count(x: qd.template()):
        for i in x:
            x[i] += i

    count(a)
    count(d)
    with second:
        count(b)
        count(c)
    assert [x.to_numpy().tolist() for x in (a, b, c, d)] == [[0, 1, 2, 3]] * 4
    sparse, values = qd.FieldsBuilder(device=second), qd.field(qd.i32)
    sparse.pointer(qd.i, 4).dense(qd.i, 4).place(values)
    sparse.finalize()
    values[5] = 3
    values.fill(2)
    assert values.to_numpy().tolist() == [0] * 4 + [2] * 4 + [0] * 8
    sparse.deactivate_all()
    assert not values.to_numpy().any()


def mixed(two):
    """Expects a refusal of arrays of a device other than the current one."""
    first, second = two
    return pytest.raises(qd.OctantsRuntimeTypeError, match=f"runs on {first.name}.*is on {second.name}.*qd.device")


def test_an_array_of_another_device_is_refused(two):
    _, second = two
    x, y = qd.ndarray(qd.f32, shape=4), qd.ndarray(qd.f32, shape=4, device=second)

    @qd.kernel
    def both(a: array, b: array):
        for i in a:
            a[i] = b[i]

    for _ in range(2):
        with mixed(two) as raised:
            both(x, y)
        assert "kernel `both`" in str(raised.value)
        assert "given for `b`" in str(raised.value)
        both(x, x)
    with second:
        both(y, y)
        with mixed(two[::-1]):
            both(y, x)
    with mixed(two):
        add_to(y, 1)
    with mixed(two):
        add_to(y[1:3], 1)
    with mixed(two):
        add_to(qd.tensor(qd.f32, shape=4, device=second), 1)
    assert not y.to_numpy().any()


def test_a_field_of_another_device_is_refused(two):
    _, second = two
    f, g = qd.field(qd.f32, shape=4), qd.field(qd.f32, shape=4, name="g", device=second)
    x = qd.ndarray(qd.f32, shape=4, device=second)

    @qd.kernel
    def use_field():
        for i in f:
            f[i] = g[i]

    @qd.kernel
    def use_ndarray():
        for i in f:
            f[i] = x[i]

    for _ in range(2):
        with mixed(two) as raised:
            use_field()
        assert "kernel `use_field`" in str(raised.value)
        with mixed(two):
            use_ndarray()
        with mixed(two):
            add_to_field(g, 1)
        add_to_field(f, 1)
    with second:
        add_to_field(g, 1)
        with mixed(two[::-1]):
            use_field()
    assert g.to_numpy().tolist() == [1.0] * 4


def test_arrays_of_objects_are_checked_in_each_launch(two):
    _, second = two

    @qd.data_oriented
    class Holder:
        def __init__(self, x):
            self.x = x

        @qd.kernel
        def add(self):
            for i in range(4):
                self.x[i] += 1

    @dataclasses.dataclass
    class Pair:
        x: array
        y: array

    @qd.kernel
    def add_pair(pair: Pair):
        for i in range(4):
            pair.x[i] += pair.y[i]

    here, there = qd.ndarray(qd.f32, shape=4), qd.ndarray(qd.f32, shape=4, device=second)
    holder = Holder(here)
    holder.add()
    holder.x = there
    for _ in range(2):
        with mixed(two):
            holder.add()
    with second:
        holder.add()
    holder.x = here
    holder.add()
    assert here.to_numpy().tolist() == [2.0] * 4
    assert there.to_numpy().tolist() == [1.0] * 4
    pair = Pair(here, here)
    for _ in range(4):
        add_pair(pair)
    pair.y = there
    for _ in range(4):
        with mixed(two):
            add_pair(pair)
    with second, mixed(two[::-1]):
        add_pair(pair)
    pair.x = there
    with second:
        for _ in range(4):
            add_pair(pair)
    assert here.to_numpy().tolist() == [32.0] * 4
    assert there.to_numpy().tolist() == [16.0] * 4


def test_arrays_copy_between_devices(two):
    _, second = two
    n = 1000
    x, y = qd.ndarray(qd.f32, shape=n), qd.ndarray(qd.f32, shape=n, device=second)
    for k in range(5):
        add_to(x, 1)
        y.copy_from(x)
        with second:
            add_to(y, 100)
        # The copy reads the array before this launch writes to it.
        add_to(x, -1000)
        x.copy_from(y)
        assert (y.to_numpy() == 101.0 * (k + 1)).all()
    assert (x.to_numpy() == 505.0).all()
    d = qd.ndarray(qd.f64, shape=n, device=second)
    d.copy_from(x)
    assert (d.to_numpy() == 505.0).all()
    f = qd.Vector.field(3, qd.f32, shape=(4, 6), order="ji")
    g = qd.Vector.field(3, qd.f32, shape=(4, 6), layout=qd.Layout.SOA, device=second)
    h = qd.Vector.field(3, qd.f32, shape=(4, 6), order="ji", device=second)
    values = np.random.default_rng(1).random((4, 6, 3), dtype=np.float32)
    f.from_numpy(values)
    g.copy_from(f)
    h.copy_from(f)
    assert (g.to_numpy() == values).all()
    assert (h.to_numpy() == values).all()
    f.fill(0)
    f.copy_from(g)
    assert (f.to_numpy() == values).all()


def test_a_copy_between_devices_is_queued_on_a_stream(two):
    _, second = two
    x, y = qd.ndarray(qd.f32, shape=100), qd.ndarray(qd.f32, shape=100, device=second)
    with qd.create_stream(device=second) as stream:
        for k in range(5):
            add_to(x, 1)
            with second:
                add_to(y, 5, qd_stream=stream)
            y.copy_from(x, qd_stream=stream)
            with second:
                add_to(y, 0.5, qd_stream=stream)
            add_to(x, 1)
            stream.synchronize()
            assert (y.to_numpy() == 2 * k + 1.5).all()


def test_streams_belong_to_one_device(two):
    first, second = two
    x, y = qd.ndarray(qd.f32, shape=4), qd.ndarray(qd.f32, shape=4, device=second)
    here, there = qd.create_stream(), qd.create_stream(device=second)
    with pytest.raises(RuntimeError, match=f"qd_stream is a stream of {second.name}.*current device is {first.name}"):
        add_to(x, 1, qd_stream=there)
    with second:
        assert qd.default_stream() != here
        assert qd.current_stream() == qd.default_stream()
        add_to(y, 1, qd_stream=there)
        default = qd.default_stream()
    assert default != qd.default_stream()
    with qd.stream_scope(here):
        add_to(x, 1)
        with second:
            assert qd.current_stream() == default
            add_to(y, 1)
            with qd.stream_scope(there):
                add_to(y, 1)
        assert qd.current_stream() == here
    # The scope of a stream is one of its device.
    with qd.stream_scope(there):
        assert qd.current_device() == second
        add_to(y, 1)
        x.fill(9)
    event = qd.create_event(device=second)
    with second:
        event.record(there)
        event.synchronize()
    assert y.to_numpy().tolist() == [4.0] * 4
    assert x.to_numpy().tolist() == [9.0] * 4
    with pytest.raises(RuntimeError, match="another device"):
        event.record(here)
    here.destroy()
    there.destroy()


def test_each_thread_has_its_own_current_device(two):
    first, second = two
    arrays = [qd.ndarray(qd.f32, shape=50, device=device) for device in two]
    failed = []

    def work(device, x):
        try:
            assert qd.current_device() == first
            with device:
                for _ in range(50):
                    add_to(x, 1)
                    x.copy_from(x)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(two, arrays, strict=True)]
    with second:
        [t.start() for t in threads]
        [t.join() for t in threads]
    assert not failed
    assert [x.to_numpy().tolist() for x in arrays] == [[50.0] * 50] * 2


@pytest.mark.parametrize("on_disk", [False, True])
def test_devices_of_one_kind_share_machine_code(tmp_path, on_disk):
    qd.init(arch=qd.cpu, offline_cache=on_disk, offline_cache_file_path=str(tmp_path))
    first = qd.current_device()
    other = another_of_its_kind(first)
    if other is None:
        pytest.skip("there is no second device of this kind")
    second = qd.device(other)

    @qd.kernel
    def once(x: array):
        for i in x:
            x[i] = x[i] * 3 + 1

    for device in (first, second, first, second):
        with device:
            x = qd.ndarray(qd.f32, shape=8)
            once(x)
            assert x.to_numpy().tolist() == [1.0] * 8
    found = []
    for device in (first, second):
        with device:
            found.append([one.kept for one in qd.profiler.compile_report().compilations if one.kernel == "once"])
    assert found == [[False], [True]]


def test_all_devices_end_with_the_program(two):
    first, second = two
    x = qd.ndarray(qd.f32, shape=4, device=second)
    f = qd.field(qd.f32, shape=4, device=second)
    stream = qd.create_stream(device=second)
    qd.init(arch=qd.cpu)
    assert not second.alive
    assert "has ended" in repr(second)
    for use in (
        second.__enter__,
        second.sync,
        lambda: qd.ndarray(qd.f32, shape=4, device=second),
        lambda: x[0],
        lambda: f[0],
        lambda: add_to(x, 1),
        stream.synchronize,
    ):
        with pytest.raises(RuntimeError, match="has ended"):
            use()
    again = qd.device(second.name)
    assert again != second
    with again:
        qd.reset()
        with pytest.raises(RuntimeError, match="no program is running"):
            qd.ndarray(qd.f32, shape=4)
    with pytest.raises(RuntimeError, match=r"qd\.init\(\)"):
        qd.device(first.name)


def test_missing_and_malformed_devices_are_refused():
    qd.init(arch=qd.cpu)
    with pytest.raises(RuntimeError, match="not available"):
        qd.device("cuda:77")
    for name, match in [("cuda:x", "a kind and a number"), ("toaster", "toaster"), (3, "a kind and a number")]:
        with pytest.raises((ValueError, TypeError), match=match):
            qd.device(name)
    with pytest.raises(qd.OctantsOptionError, match="`default_fp` cannot be set for a single device"):
        qd.device("cpu:7", default_fp="f64")
    with pytest.raises(qd.OctantsOptionError, match="no_such_option"):
        qd.device("cpu:7", no_such_option=True)
    getattr(qd.init, "original", qd.init)(arch=qd.python)
    with pytest.raises(RuntimeError, match="one device"):
        qd.device("cpu:1")


def test_options_default_to_those_of_init():
    qd.init(arch=qd.cpu, debug=True, device_memory_GB=1, random_seed=5)
    other = qd.device("cpu:3", debug=False, device_memory_GB=2)
    assert qd.cfg.debug
    assert qd.cfg.random_seed == 5
    with other:
        assert not qd.cfg.debug
        assert qd.cfg.random_seed == 5
        qd.cfg.fast_math = False
    assert qd.cfg.fast_math
    assert qd.device("cpu:3", debug=False) == other
    with pytest.raises(qd.OctantsOptionError, match="in use with another value of `debug`"):
        qd.device("cpu:3", debug=True)
    # Annotations and the log know of no device.
    qd.cfg.default_fp = qd.f64
    qd.cfg.log_level = "warn"
    with other:
        assert qd.cfg.default_fp == qd.f64
        assert qd.cfg.log_level == "warn"


def test_sync_waits_for_devices(two):
    _, second = two
    x = qd.ndarray(qd.f32, shape=4, device=second)
    with second:
        add_to(x, 1)
    qd.sync()
    with second:
        add_to(x, 1)
    second.sync()
    assert x[3] == 2


def test_gradients_run_on_the_device_of_their_launch(two):
    _, second = two

    def parts(device):
        return [qd.field(qd.f32, shape=s, needs_grad=True, device=device) for s in (4, ())]

    @qd.kernel
    def square(x: qd.template(), loss: qd.template()):
        for i in x:
            loss[None] += x[i] ** 2

    x, loss = parts(second)
    x.from_numpy(np.arange(4, dtype=np.float32))
    with second:
        with qd.ad.Tape(loss):
            square(x, loss)
    assert x.grad.to_numpy().tolist() == [0, 2, 4, 6]
    # The gradients run where the launches did.
    with qd.ad.Tape(loss):
        with second:
            square(x, loss)
    assert x.grad.to_numpy().tolist() == [0, 2, 4, 6]

    # So do gradients that the user wrote.
    @qd.ad.grad_replaced
    def squares():
        square(x, loss)

    @qd.ad.grad_for(squares)
    def double():
        x.grad.fill(7)
        add_to_field(x.grad, 1)

    with qd.ad.Tape(loss):
        with second:
            squares()
            square(x, loss)
    assert x.grad.to_numpy().tolist() == [8] * 4
    # Devices alternate in a tape. Inputs that do not affect its loss have a zero gradient.
    y, other = parts(None)
    y.fill(3)
    with qd.ad.Tape(other):
        square(y, other)
        with second:
            square(x, loss)
        square(y, other)
    assert other[None] == 72
    assert y.grad.to_numpy().tolist() == [12] * 4
    assert x.grad.to_numpy().tolist() == [0] * 4


def test_a_captured_graph_runs_on_its_device(two):
    _, second = two
    x = qd.ndarray(qd.f32, shape=4, device=second)
    with second:
        with qd.graph.capture() as graph:
            add_to(x, 2)
    graph.launch()
    with second:
        graph.launch()
    assert x.to_numpy().tolist() == [4.0] * 4
    y = qd.ndarray(qd.f32, shape=4)
    with pytest.raises(RuntimeError, match="captured"):
        with qd.graph.capture():
            y.copy_from(x)


def test_program_queries_apply_to_the_current_device(two):
    _, second = two
    calls = []

    @qd.perf_dispatch(get_geometry_hash=lambda x: x.shape, warmup=1, first_warmup=1, active=1)
    def work(x: array): ...

    @work.register
    def one(x: array):
        calls.append(("one", qd.current_device()))
        add_to(x, 1)

    @work.register
    def other(x: array):
        calls.append(("other", qd.current_device()))
        add_to(x, 1)

    arrays = [qd.ndarray(qd.f32, shape=4, device=device) for device in two]
    for _ in range(6):
        for device, x in zip(two, arrays, strict=True):
            with device:
                work(x)
    for device in two:
        assert {name for name, where in calls if where == device} == {"one", "other"}
    assert [x[0] for x in arrays] == [6, 6]

    @qd.kernel
    def precompiled(x: array):
        for i in x:
            x[i] += 2

    with second:
        qd.precompile([(precompiled, arrays[1])])
        assert "precompiled" in [one.kernel for one in qd.profiler.compile_report().compilations]
        precompiled(arrays[1])
    assert arrays[1][0] == 8
