"""Views of ranges of ndarrays."""

import dataclasses
import re

import numpy as np
import pytest

import octants as qd


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


def numbers(n, dtype=qd.f32):
    data = qd.ndarray(dtype, (n,))
    data.from_numpy(np.arange(n).astype(dtype.numpy))
    return data


def launch_and_wait(kernel, *args):
    kernel(*args)
    qd.sync()


@qd.kernel
def double(v: qd.BufferView[qd.f32]):
    for i in range(v.size):
        v[i] = v[i] * 2.0


def test_slices_are_ranges_of_the_ndarray():
    data = numbers(16)
    a = data[8:24]
    assert (a.offset, a.size, a.shape, a.dtype) == (8, 8, (8,), qd.f32)
    b = a[2:-1]
    assert (b.offset, b.size) == (10, 5)
    assert (b.subview(1, 3).offset, b.subview(1, 3).size) == (11, 3)
    assert (data[-8:].offset, data[:3].size, data[3:3].size, data[5:2].size) == (8, 3, 0, 0)
    assert (qd.BufferView(data, offset=16, size=0).size, qd.BufferView(data, 1, 2).offset) == (0, 1)


def test_a_kernel_sees_only_the_elements_of_the_view():
    data = numbers(16)
    double(data[4:12][1:3])
    expected = np.arange(16, dtype=np.float32)
    expected[5:7] *= 2
    np.testing.assert_array_equal(data.to_numpy(), expected)
    double(data[3:3])
    np.testing.assert_array_equal(data.to_numpy(), expected)


def test_views_that_overlap():
    @qd.kernel
    def shift(to: qd.BufferView, source: qd.BufferView):
        qd.loop_config(serialize=True)
        for i in range(to.size):
            to[i] = source[i]

    data = numbers(8, qd.i32)
    shift(data[1:], data[:7])
    assert data.to_numpy().tolist() == [0] * 8
    data = numbers(8, qd.i32)
    shift(data[4:], data[:4])
    assert data.to_numpy().tolist() == [0, 1, 2, 3] * 2


@pytest.mark.parametrize("options", [{}, {"cpu_separate_memory": True}, {"cpu_streams": True}], ids=str)
def test_the_host_reads_and_writes_a_view(options):
    qd.init(arch=qd.cpu, **options)
    data = numbers(8)
    view = data[2:5]
    view.fill(7.0)
    np.testing.assert_array_equal(data.to_numpy(), [0, 1, 7, 7, 7, 5, 6, 7])
    view.from_numpy(np.array([1, 2, 3], np.float32))
    double(view)
    np.testing.assert_array_equal(view.to_numpy(), [2, 4, 6])
    data[3:6].copy_from(view)
    np.testing.assert_array_equal(data.to_numpy(), [0, 1, 2, 2, 4, 6, 6, 7])


@pytest.mark.in_place
def test_numpy_takes_a_view_by_dlpack():
    qd.init(arch=qd.cpu)
    data = numbers(8)
    view = np.from_dlpack(data[2:5])
    np.testing.assert_array_equal(view, [2, 3, 4])
    data.fill(1.0)
    np.testing.assert_array_equal(view, [1, 1, 1])


def test_views_are_accepted_as_arguments():
    @dataclasses.dataclass
    class Part:
        values: qd.BufferView[qd.f32]
        by: qd.f32

    @qd.func
    def add(v: qd.BufferView[qd.f32], i, by):
        v[i] += by

    @qd.kernel
    def add_all(part: Part):
        for i in range(part.values.size):
            add(part.values, i, part.by)

    @qd.kernel
    def total(values: qd.types.ndarray(qd.f32, ndim=1)) -> qd.f32:
        result = 0.0
        for i in range(values.shape[0]):
            result += values[i]
        return result

    @qd.data_oriented
    class Owner:
        def __init__(self, view):
            self.view = view

        @qd.kernel
        def add(self):
            for i in self.view:
                self.view[i] += 100.0

    data = numbers(8)
    add_all(Part(data[2:4], 10.0))
    assert total(data[1:3]) == 13.0
    Owner(data[:2]).add()
    np.testing.assert_array_equal(data.to_numpy(), [100, 101, 12, 13, 4, 5, 6, 7])
    vectors = qd.ndarray(qd.math.vec2, (4,))

    @qd.kernel
    def set_vectors(v: qd.BufferView):
        for i in range(v.size):
            v[i] = qd.math.vec2(i, v.size)

    set_vectors(vectors[1:3])
    np.testing.assert_array_equal(vectors.to_numpy(), [[0, 0], [0, 2], [1, 2], [0, 0]])


def test_a_view_keeps_the_memory():
    view = numbers(8)[4:]
    numbers(8)
    np.testing.assert_array_equal(view.to_numpy(), [4, 5, 6, 7])


def test_debug_mode_checks_the_range_of_the_view():
    qd.init(arch=qd.cpu, debug=True)
    data = numbers(32)

    @qd.kernel
    def write_behind(v: qd.BufferView[qd.f32]):
        v[v.size] = 99.0

    with pytest.raises(qd.QuadrantsAssertionError, match=r"got index 16 \(offset=0, size=16\)"):
        write_behind(data[:16])
    assert data[16:17].to_numpy() == 16


def test_refusals():
    data = numbers(16)
    with pytest.raises(ValueError, match="step=1, got step=2"):
        data[::2]
    with pytest.raises(ValueError, match="offset=10, size=10, ndarray length=16"):
        qd.BufferView(data, offset=10, size=10)
    with pytest.raises(ValueError, match="subview out of range"):
        data[:4].subview(2, 3)
    with pytest.raises(TypeError, match="view.subview"):
        qd.BufferView(data[:4], 0, 2)
    with pytest.raises(TypeError, match="1D array"):
        qd.ndarray(qd.f32, (4, 4))[1:2]
    with pytest.raises(TypeError, match="needs_grad"):
        qd.ndarray(qd.f32, (4,), needs_grad=True)[1:2]
    with pytest.raises(TypeError, match="to_numpy"):
        data[:4][0]
    with pytest.raises(TypeError, match="Expect element type f32"):
        double(numbers(4, qd.i32)[:2])


def test_kernels_make_views_of_views():
    data = numbers(16)

    @qd.func
    def clear(v: qd.BufferView[qd.f32]):
        for i in range(v.size):
            v[i] = -1.0

    @qd.kernel
    def cut(v: qd.BufferView[qd.f32], n: qd.i32):
        clear(v[1:n])
        rest = v.subview(offset=n, size=3)
        clear(rest[1:][:1])
        v[0] = rest.size + rest[2:].shape[0]

    cut(data[4:12], 3)
    expected = np.arange(16, dtype=np.float32)
    expected[[5, 6, 8]] = -1
    expected[4] = 4
    assert data.to_numpy().tolist() == expected.tolist()


def test_views_in_kernels_are_checked_in_debug_mode():
    qd.init(arch=qd.cpu, debug=True)
    data = numbers(16)

    @qd.func
    def write(v: qd.BufferView[qd.f32], i: qd.i32):
        v[i] = 1.0

    @qd.kernel
    def outside(v: qd.BufferView[qd.f32], i: qd.i32):
        write(v[2:6], i)

    @qd.kernel
    def too_long(v: qd.BufferView[qd.f32], n: qd.i32):
        write(v[2:n], 0)

    outside(data[:8], 3)
    with pytest.raises(
        qd.OctantsAssertionError, match=r"kernel\[outside\] tid=0, got index 4 \(offset=3, size=4\)"
    ) as e:
        launch_and_wait(outside, data[1:9], 4)
    assert re.search(r"Callstack:\noutside \(.*:\d+\)\n  write \(.*:\d+\)", str(e.value))
    text = r"subview Out Of Range: kernel\[too_long\] tid=0, subview offset=2, subview size=7, parent size=8"
    with pytest.raises(qd.OctantsAssertionError, match=text):
        launch_and_wait(too_long, data[:8], 9)


def test_views_that_are_arguments_are_checked_in_debug_mode():
    qd.init(arch=qd.cpu, debug=True)
    data = numbers(16)

    @qd.kernel
    def outside(v: qd.BufferView[qd.f32], i: qd.i32):
        for a, b in qd.ndrange(2, 3):
            if a == 1 and b == 1:
                v[i] = 1.0

    @qd.kernel
    def made(a: qd.types.ndarray(ndim=1), n: qd.i32):
        v = qd.BufferView(a, 10, n)
        v[0] = 1.0

    outside(data[4:8], 3)
    for i in (4, -1):
        with pytest.raises(qd.OctantsAssertionError, match=rf"tid=4, got index {i} \(offset=4, size=4\)"):
            launch_and_wait(outside, data[4:8], i)
    text = "BufferView construction out of range: offset=10, size=7, ndarray length=16"
    with pytest.raises(qd.OctantsAssertionError, match=text):
        launch_and_wait(made, data, 7)


def test_kernels_know_the_source_of_a_view():
    data = numbers(16)

    @qd.func
    def begin(v: qd.BufferView):
        return v.offset

    @qd.kernel
    def offsets(v: qd.BufferView) -> qd.types.vector(4, qd.i32):
        part = v.subview(2, 3)
        return [v.offset, part.offset, begin(part), part[1:].offset]

    @qd.kernel
    def around(v: qd.BufferView) -> qd.types.vector(3, qd.f32):
        return [v.arr[v.offset - 1], v.get_ndarray()[0], v.arr.shape[0]]

    @qd.kernel
    def both(v: qd.BufferView):
        for i in range(v.size):
            v[i] = 7.0
        for i in range(v.arr.shape[0]):
            v.arr[i] += 1.0

    for v in (data[8:], data[4:][2:8]):
        assert offsets(v).to_list() == [v.offset, v.offset + 2, v.offset + 2, v.offset + 3]
        assert around(v).to_list() == [v.offset - 1, 0, 16]
        assert v.arr is data
    both(data[4:6])
    assert data.to_numpy().tolist() == [*range(1, 5), 8, 8, *range(7, 17)]

    @qd.kernel
    def no_view(a: qd.types.ndarray(ndim=1)) -> qd.i32:
        return a.offset

    with pytest.raises(qd.OctantsAttributeError, match="annotate the parameter with `qd.BufferView`"):
        no_view(data)


def test_members_of_dataclasses_that_are_views():
    @dataclasses.dataclass
    class Ranges:
        first: qd.BufferView[qd.f32]
        second: qd.BufferView[qd.f32]

    @qd.kernel
    def offsets(r: Ranges) -> qd.types.vector(2, qd.i32):
        return [r.first.offset, r.second.offset]

    data = numbers(16)
    assert offsets(Ranges(data[3:], data[5:])).to_list() == [3, 5]
    assert offsets(Ranges(data[1:], data[2:])).to_list() == [1, 2]


def test_view_parameters_accept_only_views():
    data = numbers(8)
    assert data[2:].get_ndarray() is data
    assert data[2:].subview(0, 2).get_ndarray() is data
    assert isinstance(qd.BufferView[qd.f32], qd.types.BufferViewType)
    for value in (data, np.zeros(3, np.float32), 3, None, qd.field(qd.f32, 3)):
        with pytest.raises(qd.OctantsRuntimeTypeError, match="expects a BufferView"):
            double(value)

    @qd.kernel
    def steps(v: qd.BufferView[qd.f32]):
        for i in range(v[::2].size):
            v[i] = 1.0

    with pytest.raises(qd.OctantsSyntaxError, match="explicit step"):
        steps(data[:4])


def test_indices_outside_a_view_clamp_to_its_ends():
    @qd.kernel
    def read(view: qd.types.BufferViewType(qd.f32, boundary="clamp")) -> qd.f32:
        return view[-5] * 100 + view[99]

    assert read(qd.BufferView(numbers(8), 2, 4)) == 205
