"""A device whose memory the host cannot address, emulated by the CPU (`cpu_separate_memory=True`), with immediate and
delayed work.

All host access to memory must copy; a missing copy is an error, not a wrong result.
"""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest

import octants as qd


@pytest.fixture(params=["", "seed:1"], ids=["threads", "schedule"], autouse=True)
def program(request):
    qd.init(arch=qd.cpu, cpu_separate_memory=True, cpu_stream_schedule=request.param)
    yield
    qd.reset()


@qd.kernel
def add(x: qd.types.ndarray(), value: qd.f32):
    for I in qd.grouped(x):
        x[I] += value


def buffer_of(array):
    return array._root.buffer if hasattr(array, "_root") else array.buffer


def everything():
    """A field or ndarray of each kind with its element's shape."""
    columns = qd.field(qd.f32, shape=(3, 4), order="ji")
    a, b = qd.field(qd.f32), qd.Vector.field(3, qd.i16)
    qd.root.dense(qd.ij, (2, 2)).dense(qd.ij, (2, 3)).place(a, b)
    apart = qd.Matrix.field(2, 2, qd.f64, shape=(3,), layout=qd.Layout.SOA)
    return {
        "scalar": qd.field(qd.u1, shape=()),
        "columns": columns,
        "tree scalar": a,
        "tree vector": b,
        "apart": apart,
        "offset": qd.field(qd.i64, shape=(4,), offset=(-2,)),
        "component": qd.Vector.field(3, qd.f32, shape=(5,)).get_scalar_field(1),
        "grad": qd.field(qd.f32, shape=(6,), needs_grad=True).grad,
        "ndarray": qd.ndarray(qd.u8, shape=(4, 5)),
        "vectors": qd.Vector.ndarray(3, qd.f32, shape=(2, 3)),
        "matrices": qd.Matrix.ndarray(2, 3, qd.i32, shape=(4,)),
        "tensor": qd.tensor(qd.f32, (2, 3, 4), layout=(2, 0, 1)),
        "ndarray grad": qd.ndarray(qd.f32, shape=(7,), needs_grad=True).grad,
    }


def random_values(array, rng):
    shape = array.to_numpy().shape
    dtype = array.to_numpy().dtype
    return np.array(rng.random(shape) > 0.5 if dtype == np.bool_ else rng.integers(1, 100, shape), dtype)


def test_whole_arrays_and_elements_agree_with_numpy():
    rng = np.random.default_rng(1)
    arrays = everything()
    expected = {}
    for name, array in arrays.items():
        expected[name] = random_values(array, rng)
        array.from_numpy(expected[name])
    for name, array in arrays.items():
        assert (array.to_numpy() == expected[name]).all(), name
        assert array.to_numpy(dtype=np.float64).dtype == np.float64
        values = expected[name]
        first = -2 if name == "offset" else 0
        for index in np.ndindex(*array.shape):
            place = tuple(i + first for i in index) if index else None
            found = array[place]
            assert (np.asarray(found.to_numpy() if hasattr(found, "to_numpy") else found) == values[index]).all()
        # The first and the last element change, and nothing else does.
        for index in ((0,) * len(array.shape), tuple(n - 1 for n in array.shape)):
            place = tuple(i + first for i in index) if index else None
            changed = np.asarray(values[index]) == 0 if values.dtype == np.bool_ else np.asarray(values[index]) + 1
            array[place] = changed.tolist()
            values[index] = changed
    for name, array in arrays.items():
        assert (array.to_numpy() == expected[name]).all(), name


def test_components_and_slices_of_elements():
    field = qd.Matrix.field(2, 3, qd.f32, shape=(4,))
    vectors = qd.Vector.ndarray(3, qd.i32, shape=(4,))
    field[1][0, 2] = 5.0
    field[1][1, :] = [1.0, 2.0, 3.0]
    vectors[2].y = 7
    vectors[2][-1] = 9
    assert field[1].to_list() == [[0, 0, 5], [1, 2, 3]]
    assert field.to_numpy().sum() == 11
    assert vectors[2].to_list() == [0, 7, 9]
    assert vectors.to_numpy().sum() == 16


def test_fill_copy_from_copies_and_pickles():
    x, y = qd.ndarray(qd.f32, shape=(5,)), qd.ndarray(qd.f32, shape=(5,))
    x.fill(2.5)
    y.copy_from(x)
    add(y, 1.0)
    assert y.to_numpy().tolist() == [3.5] * 5
    assert copy.deepcopy(y)[4] == 3.5
    assert pickle.loads(pickle.dumps(y))[0] == 3.5
    f, g = qd.Vector.field(2, qd.f32, shape=(3,)), qd.Vector.field(2, qd.f32, shape=(3,))
    f.fill([1.0, 2.0])
    g.copy_from(f)
    assert g.to_numpy().tolist() == [[1.0, 2.0]] * 3
    tensor = qd.tensor(qd.f32, (3,), backend=qd.Backend.FIELD)
    tensor.fill(4)
    assert pickle.loads(pickle.dumps(tensor)).to_numpy().tolist() == [4.0] * 3


def test_structs():
    point = qd.types.struct(place=qd.types.vector(2, qd.f32), mass=qd.f64)
    for layout in (qd.Layout.AOS, qd.Layout.SOA):
        points = point.field(shape=(3,), layout=layout)
        points[1] = point(place=[1, 2], mass=3)
        points[2].mass = 4.0
        points[2].place = [5, 6]
        assert points[1].to_dict() == {"place": [1, 2], "mass": 3}
        values = points.to_numpy()
        assert values["place"].tolist() == [[0, 0], [1, 2], [5, 6]]
        assert values["mass"].tolist() == [0, 3, 4]
        other = point.field(shape=(3,))
        other.copy_from(points)
        other.fill(8)
        other.mass.from_numpy(np.arange(3.0))
        assert other[2].to_dict() == {"place": [8, 8], "mass": 2}


def test_views_are_refused():
    for array in everything().values():
        buffer = buffer_of(array._unwrap() if isinstance(array, qd.Tensor) else array)
        assert not buffer.host_addressable
        with pytest.raises(BufferError, match="the host cannot address the memory of this device"):
            memoryview(buffer)
        with pytest.raises(ValueError, match="the host cannot address the memory of this device"):
            array.to_numpy(copy=False)
        copied = array.to_numpy(copy=None)
        copied[...] = 1
        assert not array.to_numpy().any()


def test_buffers_read_and_write_bytes():
    x = qd.ndarray(qd.i32, shape=(10,))
    x.buffer.write(8, np.arange(3, dtype=np.int32))
    x.buffer.write(40, b"")
    assert x.to_numpy().tolist() == [0, 0, 0, 1, 2, 0, 0, 0, 0, 0]
    assert np.frombuffer(x.buffer.read(12, 8), np.int32).tolist() == [1, 2]
    assert x.buffer.read(0, 0) == b""
    for call in (lambda: x.buffer.read(39, 2), lambda: x.buffer.write(0, bytes(41))):
        with pytest.raises(RuntimeError, match="are outside a buffer of 40 bytes"):
            call()
    with pytest.raises(BufferError, match="contiguous"):
        x.buffer.write(0, np.arange(6, dtype=np.int32)[::2])
    qd.reset()
    with pytest.raises(RuntimeError, match="has ended"):
        x.buffer.read(0, 4)


def test_reads_wait_for_the_writers_of_the_memory():
    n = 200_000
    x, y = qd.ndarray(qd.f32, shape=(n,)), qd.field(qd.f32, shape=(n,))

    @qd.kernel
    def both(x: qd.types.ndarray(), value: qd.f32):
        for i in range(n):
            x[i] += value
            y[i] = x[i]

    with qd.create_stream() as stream:
        for _ in range(5):
            both(x, 1.0, qd_stream=stream)
        assert x[n - 1] == 5.0
        assert y[n - 1] == 5.0
        both(x, 1.0, qd_stream=stream)
        x[3] = 100.0
        both(x, 1.0, qd_stream=stream)
        assert x.to_numpy()[2:4].tolist() == [7.0, 101.0]


@qd.kernel
def copy_array(y: qd.types.ndarray(), x: qd.types.ndarray()):
    for I in qd.grouped(y):
        y[I] = x[I]


@qd.kernel
def shift(y: qd.types.ndarray(dtype=qd.f32, ndim=1), x: qd.types.ndarray(dtype=qd.f32, ndim=1)):
    qd.loop_config(serialize=True)
    for i in range(y.shape[0]):
        y[i] = x[i] + 1


def test_numpy_arrays_of_all_kinds_are_copied_in_and_out():
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    y = np.zeros((6, 4), np.float32)
    copy_array(y, values.T)
    assert (y == values.T).all()
    frozen = values.copy()
    frozen.flags.writeable = False
    copy_array(y.T, frozen)
    with pytest.raises(ValueError, match="read-only"):
        add(frozen, 1.0)
    scalar = np.array(5.0, np.float32)
    add(scalar, 1.0)
    assert scalar == 6.0
    add(np.zeros((0, 3), np.float32), 1.0)
    line = np.arange(10, dtype=np.float32)
    add(line[::-2], 10.0)
    assert line.tolist() == [0, 11, 2, 13, 4, 15, 6, 17, 8, 19]
    # Overlaps on the host are preserved on the device.
    line[:] = 0
    shift(line[1:], line[:-1])
    assert line.tolist() == list(range(10))
    big = np.zeros(3_000_000, np.float32)
    add(big[1:-1], 1.0)
    assert big.sum() == len(big) - 2
    # Memory between the elements of a slice is unchanged.
    columns = np.zeros((100, 2), np.float32)
    columns[:, 1] = 7
    add(columns[:, 0], 1.0)
    assert columns.sum() == 800


@pytest.mark.parametrize("rows", [100, 100_000])
def test_threads_that_write_different_columns_do_not_interfere(rows):
    columns, rounds = np.zeros((rows, 4), np.float32), 30
    add(columns[:, 0], 0.0)

    def work(k):
        with qd.create_stream() as stream:
            for _ in range(rounds):
                add(columns[:, k], 1.0, qd_stream=stream)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (columns == rounds).all()


@qd.kernel
def slow_ones(x: qd.template(), rounds: qd.i32):
    qd.loop_config(serialize=True)
    for _ in range(1):
        s = 1
        for k in range(rounds):
            s = (s * 1103515245 + k) & 0x7FFFFFFF
        for I in qd.grouped(x):
            x[I] = 1 if s != 123456789 else 2


@pytest.mark.parametrize("dtype", [qd.u1, qd.i8, qd.u16, qd.i64, qd.f16, qd.f32, qd.f64], ids=str)
def test_strided_elements_are_filled_and_copied_on_the_device(dtype):
    a, b, c = qd.field(dtype), qd.Vector.field(3, dtype), qd.field(qd.i32)
    qd.root.dense(qd.ij, (2, 3)).dense(qd.ij, (4, 2)).place(a, b, c)
    plain, other = qd.field(dtype, shape=(8, 6)), qd.field(dtype)
    qd.root.dense(qd.j, 3).dense(qd.i, 4).dense(qd.ij, (2, 2)).place(other)
    values = (np.arange(48).reshape(8, 6) % 2).astype(dtype.numpy)
    plain.from_numpy(values)
    c.fill(7)
    b.fill([1, 0, 1])
    a.copy_from(plain)
    other.copy_from(a)
    assert (a.to_numpy() == values).all()
    assert (other.to_numpy() == values).all()
    assert (b.to_numpy() == [1, 0, 1]).all()
    b.fill(1)
    a.fill(0)
    assert b.to_numpy().all()
    assert not a.to_numpy().any()
    assert (c.to_numpy() == 7).all()
    wide = qd.field(qd.f64, shape=(8, 6))
    wide.copy_from(plain)
    assert (wide.to_numpy() == values).all()


def test_unrelated_layouts_are_copied_by_the_host():
    a, b = qd.field(qd.f32), qd.field(qd.f32)
    qd.root.dense(qd.i, 4).dense(qd.i, 3).place(a)
    qd.root.dense(qd.i, 3).dense(qd.i, 4).place(b)
    a.from_numpy(np.arange(12, dtype=np.float32))
    b.copy_from(a)
    assert b.to_numpy().tolist() == list(range(12))


def test_fills_and_copies_are_ordered_on_their_stream():
    qd.init(arch=qd.cpu, cpu_separate_memory=True)
    x, apart = qd.field(qd.f32, shape=(100,)), qd.field(qd.f32)
    qd.root.dense(qd.i, 100).place(apart, qd.field(qd.f32))
    apart.fill(5.0)  # compiles the kernels that fill and copy
    x.copy_from(apart)
    qd.sync()
    with qd.create_stream() as stream, qd.create_event() as done:
        slow_ones(x, 10, qd_stream=stream)
        stream.synchronize()
        slow_ones(x, 100_000_000, qd_stream=stream)
        apart.fill(3.0, qd_stream=stream)
        x.copy_from(apart, qd_stream=stream)
        done.record(stream)
        assert not done.query()
        assert x.to_numpy().tolist() == [3.0] * 100


def test_fills_and_copies_without_a_stream_are_ordered_like_host_work():
    x, y = qd.field(qd.f32, shape=(1000,)), qd.field(qd.f32)
    qd.root.dense(qd.i, 1000).place(y, qd.field(qd.i8))
    assert qd.stream_pool_stats()["created"] == 0
    for value in range(1, 4):
        x.fill(value)
        y.copy_from(x)
        # A stream that is created now is ordered after them.
        with qd.create_stream() as stream, qd.create_stream() as other:
            add_to_field(y, x, qd_stream=stream)
            # They run after all work that uses the memory, on any stream,
            x.fill(10 * value)
            # and before launches from now on, on any stream.
            add_to_field(x, x, qd_stream=other)
            assert x.to_numpy().tolist() == [20 * value] * 1000
            assert y.to_numpy().tolist() == [2 * value] * 1000


@qd.kernel
def add_to_field(y: qd.template(), x: qd.template()):
    for i in y:
        y[i] += x[i]
