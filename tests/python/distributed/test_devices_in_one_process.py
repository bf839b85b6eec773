"""Split arrays on several devices of one process: programs give the same results as on one device."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import split_programs
from split_gradients import check_gradients_of_rows

import octants as qd

pytestmark = [pytest.mark.on_cpu, pytest.mark.usefixtures("ends")]

APART = ("float_scatter", "gradients", "gradients_of_rows", "save", "load")
PROGRAMS = [program for program in split_programs.PROGRAMS if program.__name__ not in APART]
N = 24


@pytest.fixture
def ends():
    yield
    qd.reset()


def results(program, folder, **options):
    qd.init(arch=qd.cpu, **options)
    return program(folder)


@pytest.mark.parametrize(
    "options",
    [{}, {"debug": True}, {"cpu_streams": True}, {"cpu_separate_memory": True}],
    ids=["plain", "debug", "streams", "separate"],
)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_any_number_of_devices_gives_the_same_results(program, options, tmp_path):
    one = results(program, tmp_path, **options)
    assert one
    for devices in (4,) if options else (2, 3, 4):
        several = results(program, tmp_path, devices=devices, **options)
        for name in one:
            np.testing.assert_array_equal(several[name], one[name], err_msg=f"{name} on {devices} devices")


@pytest.mark.parametrize("options", [{}, {"cpu_separate_memory": True}], ids=["plain", "separate"])
def test_sums_of_floats_agree_to_rounding(options, tmp_path):
    one = results(split_programs.float_scatter, tmp_path, **options)
    for devices in (2, 3, 4):
        several = results(split_programs.float_scatter, tmp_path, devices=devices, **options)
        np.testing.assert_allclose(several["y"], one["y"], rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(("writers", "readers"), [(1, 4), (4, 1), (2, 3)])
def test_saved_arrays_are_read_by_any_number_of_devices(writers, readers, tmp_path):
    results(split_programs.save, tmp_path, devices=writers)
    loaded = results(split_programs.load, tmp_path, devices=readers)
    np.testing.assert_array_equal(loaded["x"], np.arange(37 * 11, dtype=np.float32).reshape(37, 11))
    assert (loaded["s"] == 9).all()
    np.testing.assert_array_equal(loaded["y"], np.arange(37 * 11, dtype=np.float32).reshape(11, 37))
    assert len(list((tmp_path / "state").glob("rank-*.npz"))) == 1


def test_this_process_has_all_rows():
    qd.init(devices=["cpu:0", "cpu:1", "cpu:2"])
    x = qd.ndarray(qd.f32, shape=(8, 2), split=0)
    assert isinstance(x, qd.distributed.SplitNdarray)
    assert (qd.distributed.rank(), qd.distributed.size()) == (0, 1)
    assert x.rows == (0, 8)
    assert x.blocks == ((0, 2), (2, 5), (5, 8))
    assert "split over 3 devices" in repr(x)
    v = qd.field(qd.types.vector(2, qd.f32), shape=8, split=0)
    v[7] = [1.0, 2.0]
    assert (v[7] == [1.0, 2.0]).all()
    assert (v.to_numpy()[:7] == 0).all()
    v.fill(3.0)
    w = qd.field(qd.types.vector(2, qd.f32), shape=8, split=0)
    w.copy_from(v)
    assert (w.to_numpy() == 3.0).all()


def test_one_device_behaves_like_a_program_without_devices():
    for devices in (1, ["cpu:0"]):
        qd.init(arch=qd.cpu, devices=devices)
        x = qd.ndarray(qd.f32, shape=8, split=0)
        assert x.blocks == ((0, 8),)
        assert type(x) is qd.distributed.SplitNdarray


@qd.kernel
def shift(x: qd.types.ndarray(), y: qd.types.ndarray()):
    for i in range(N - 1):
        y[i] = x[i + 1]


def make(**options):
    return qd.ndarray(qd.i32, shape=(N,), split=0, **options)


@pytest.mark.parametrize("options", [{}, {"cpu_streams": True}, {"cpu_separate_memory": True}])
def test_unsplit_memory_belongs_to_the_first_device(options):
    """The host, other kernels and copies change it between launches."""
    qd.init(arch=qd.cpu, devices=3, **options)
    x = make()
    scale = qd.field(qd.i32, shape=())
    table = qd.ndarray(qd.i32, shape=(4,))
    total = qd.ndarray(qd.i32, shape=(2,))

    @qd.kernel
    def run(x: qd.types.ndarray(), table: qd.types.ndarray(), total: qd.types.ndarray()):
        for i in x:
            x[i] = scale[None] * i + table[i % 4]
        for k in table:
            table[k] += 1
        for i in x:
            total[i % 2] += x[i]

    @qd.kernel
    def double(table: qd.types.ndarray()):
        for k in table:
            table[k] *= 2
        scale[None] += 1

    values, factor, sums = np.arange(4), 5, np.zeros(2, int)
    scale[None] = 5
    table.from_numpy(values.astype(np.int32))
    i = np.arange(N)
    for step in range(4):
        run(x, table, total)
        expected = factor * i + values[i % 4]
        values = values + 1
        sums += [expected[0::2].sum(), expected[1::2].sum()]
        assert (x.to_numpy() == expected).all()
        assert (total.to_numpy() == sums).all()
        assert (table.to_numpy() == values).all()
        if step == 1:
            double(table)
            values, factor = 2 * values, factor + 1
        elif step == 2:
            table[3] = -7
            values[3] = -7
            total.fill(4)
            sums[:] = 4


def test_random_numbers_match_those_of_one_device():
    def draw(devices):
        qd.init(arch=qd.cpu, devices=devices, random_seed=3)
        noise = qd.field(qd.f32, shape=N)
        x = qd.ndarray(qd.f32, shape=(N,), split=0)

        @qd.kernel
        def roughen():
            for i in noise:
                noise[i] = qd.random()

        @qd.kernel
        def run(x: qd.types.ndarray()):
            for i in noise:
                noise[i] += qd.random()
            for i in x:
                x[i] = noise[i]

        run(x)
        roughen()
        run(x)
        return x.to_numpy()

    np.testing.assert_array_equal(draw(3), draw(1))


@pytest.mark.parametrize("options", [{}, {"cpu_streams": True}, {"cpu_separate_memory": True}])
@pytest.mark.parametrize("devices", [1, 3])
def test_iterations_draw_the_numbers_of_loops_over_other_arrays(devices, options):
    def draw(split):
        qd.init(arch=qd.cpu, devices=devices, random_seed=11, **options)
        x = qd.ndarray(qd.f64, shape=(N, 3), **split)
        y = qd.ndarray(qd.i32, shape=(N,), **split)

        @qd.kernel
        def run(x: qd.types.ndarray(), y: qd.types.ndarray()):
            for i, j in qd.ndrange((1, N), 3):
                x[i, j] = qd.random(qd.f32)
                for _ in range(i % 3):
                    x[i, j] += qd.random(qd.f64)
            for i in range(1, N - 1):
                y[i] = qd.random(qd.i32) % 100 + int(10 * (x[i - 1, 0] + x[i + 1, 2]))

        run(x, y)
        run(x, y)
        return x.to_numpy(), y.to_numpy()

    for found, expected in zip(draw({"split": 0}), draw({}), strict=True):
        assert len(np.unique(expected)) > N // 2
        np.testing.assert_array_equal(found, expected)


def test_captured_arrays_and_their_local_rows():
    def deposit(devices):
        qd.init(arch=qd.cpu, devices=devices)
        grid, place = make(halo=3), make()
        place.from_numpy(
            np.clip(np.arange(N, dtype=np.int32) + np.tile([-2, 0, 1, 2], N // 4), 0, N - 1).astype(np.int32)
        )

        @qd.kernel
        def run():
            for p in place:
                grid[qd.distributed.assume_local(grid, place[p])] += 1 + p

        run()
        run()
        return grid.to_numpy()

    np.testing.assert_array_equal(deposit(4), deposit(1))


def test_a_kernel_returns_the_first_devices_value():
    qd.init(arch=qd.cpu, devices=2)
    x = make()
    total = qd.field(qd.i32, shape=())

    @qd.kernel
    def run(x: qd.types.ndarray()) -> qd.i32:
        for i in x:
            total[None] += i
        return total[None]

    assert run(x) == N * (N - 1) // 2


def test_numpy_arrays_are_read_only_arguments():
    qd.init(arch=qd.cpu, devices=2)
    x = make()

    @qd.kernel
    def read(x: qd.types.ndarray(), a: qd.types.ndarray()):
        for i in x:
            x[i] = a[i]

    @qd.kernel
    def count(x: qd.types.ndarray(), a: qd.types.ndarray()):
        for i in x:
            a[0] += x[i]

    values = np.arange(N, dtype=np.int32) ** 2
    read(x, values)
    assert (x.to_numpy() == values).all()
    with pytest.raises(RuntimeError, match="cannot write to arrays in host memory"):
        count(x, values)


def test_unsupported_launches_are_refused():
    qd.init(arch=qd.cpu, devices=2, cpu_streams=True)
    x, y = make(), make()
    with qd.create_stream() as stream, pytest.raises(RuntimeError, match="run on the default streams"):
        shift(x, y, qd_stream=stream)
    x.fill(1)
    shift(x, y)
    assert y.to_numpy().sum() == N - 1


@pytest.mark.parametrize("options", [{}, {"cpu_separate_memory": True}], ids=["plain", "separate"])
@pytest.mark.parametrize("program", ["gradients", "gradients_of_rows"])
def test_gradients(program, options, tmp_path):
    one = results(getattr(split_programs, program), tmp_path, **options)
    if program == "gradients_of_rows":
        check_gradients_of_rows(one)
    for devices in (2, 3):
        several = results(getattr(split_programs, program), tmp_path, devices=devices, **options)
        for name in one:
            np.testing.assert_allclose(several[name], one[name], rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("devices", [1, 3])
def test_gradients_along_another_axis(devices):
    qd.init(arch=qd.cpu, devices=devices)
    x = qd.field(qd.f64, shape=(3, N), split=1, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def energy():
        for k, i in qd.ndrange(3, (1, N - 1)):
            loss[None] += x[k, i - 1] * x[k, i + 1] * (k + 1)

    values = np.arange(3.0 * N).reshape(3, N) % 7
    x.from_numpy(values)
    with qd.ad.Tape(loss):
        energy()
    expected = np.zeros((3, N))
    expected[:, :-2] += values[:, 2:]
    expected[:, 2:] += values[:, :-2]
    assert (x.grad.to_numpy() == expected * np.array([[1], [2], [3]])).all()


def test_split_arrays_of_another_device_group_are_refused():
    qd.init(arch=qd.cpu, devices=2)
    x, y = make(), make()
    with qd.device("cpu:5"), pytest.raises(qd.OctantsRuntimeTypeError, match="is on cpu:0"):
        shift(x, y)
    with qd.device("cpu:5"):
        alone = make()
    assert alone.blocks == ((0, N),)


@pytest.mark.parametrize("options", [{}, {"cpu_streams": True}])
def test_a_failed_check_on_any_device_is_raised(options):
    qd.init(arch=qd.cpu, devices=3, debug=True, **options)
    x = make()

    @qd.kernel
    def check(x: qd.types.ndarray(), most: qd.i32):
        for i in x:
            assert i < most
            x[i] = i

    with pytest.raises(AssertionError, match=r"(?s)i < most.*test_devices_in_one_process.py"):
        check(x, N - 1)
    check(x, N)
    assert (x.to_numpy() == np.arange(N)).all()


def test_arrays_end_with_the_program():
    qd.init(arch=qd.cpu, devices=2)
    x, y = make(), make()
    shift(x, y)
    qd.init(arch=qd.cpu)
    with pytest.raises(RuntimeError, match="ended"):
        shift(x, y)
    x, y = make(), make()
    shift(x, y)
    assert x.blocks == ((0, N),)


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        (0, "at least 1"),
        ([], "a number or a list"),
        ("cpu:0", "a number or a list"),
        (["cpu"], "a kind and a number"),
        (["cpu:0", "cpu:0"], "twice"),
        (["cpu:0", "cuda:0"], "one kind"),
        (["cpu:1", "cpu:2"], 'must be "cpu:0"'),
        (["cuda:0", "cuda:1"], "arch is 'cpu'"),
    ],
)
def test_names_are_checked(devices, said):
    with pytest.raises(qd.OctantsOptionError, match=said):
        qd.init(arch=qd.cpu, devices=devices)


def test_the_environment_chooses_devices(tmp_path):
    program = str(Path(__file__).with_name("split_programs.py"))
    ran = subprocess.run(
        [sys.executable, program, "heat", str(tmp_path)],
        env={**os.environ, "OCTANTS_DEVICES": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    several = np.load(tmp_path / "heat.npz")
    one = results(split_programs.heat, tmp_path)
    np.testing.assert_array_equal(several["u"], one["u"])
