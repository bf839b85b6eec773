"""A device whose memory the host cannot address: the CPU playing one (`cpu_separate_memory=True`), at once and late.

All that the package does with memory has to copy then; what forgets to is an error, not a wrong result.
"""

from __future__ import annotations

import copy
import pickle

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
