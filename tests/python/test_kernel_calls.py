"""Calls of kernels: how arguments are taken, when code is compiled anew, what is refused."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import threading
import weakref
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

import octants as qd


@pytest.fixture(autouse=True)
def program() -> Iterator[None]:
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


def compiled(kernel: qd.Kernel) -> int:
    return kernel._specialization_count()


@qd.kernel
def add(a: qd.i32, b: qd.f32) -> qd.f32:
    """Adds."""
    return a + b


@qd.kernel
def scale(x: qd.types.ndarray(dtype=qd.f32, ndim=1), by: qd.f32):
    for i in x:
        x[i] *= by


@qd.kernel
def shift(to: qd.types.ndarray(dtype=qd.f32, ndim=1), source: qd.types.ndarray(dtype=qd.f32, ndim=1)):
    for _ in range(1):
        for i in range(1, to.shape[0]):
            to[i] = source[i - 1]


class TestBinding:
    def test_positional_and_keyword_arguments_mean_the_same(self) -> None:
        assert add(1, 2.5) == add(1, b=2.5) == add(b=2.5, a=1) == 3.5
        assert compiled(add) == 1

    @pytest.mark.parametrize(
        ("args", "kwargs", "message"),
        [
            ((1,), {}, "Missing argument 'b'"),
            ((1, 2, 3), {}, "Too many arguments"),
            ((1,), {"c": 2}, "Unexpected argument 'c'"),
            ((1, 2), {"a": 2}, "Multiple values for argument 'a'"),
        ],
    )
    def test_wrong_arguments_are_named(self, args: tuple, kwargs: dict, message: str) -> None:
        with pytest.raises(qd.OctantsSyntaxError, match=message):
            add(*args, **kwargs)

    def test_a_stream_argument_may_be_none(self) -> None:
        assert add(1, 2.0, qd_stream=None) == 3.0

    def test_names_are_those_of_the_function(self) -> None:
        assert add.__name__ == "add"
        assert add.__doc__ == "Adds."
        assert add.__wrapped__ is add.fn

    def test_declarations_are_checked_where_they_stand(self) -> None:
        with pytest.raises(qd.OctantsSyntaxError, match="must be type annotated.*`a: qd.f32`"):

            @qd.kernel
            def bare(a):
                pass

        with pytest.raises(qd.OctantsSyntaxError, match="variable positional parameters"):

            @qd.kernel
            def many(*a):
                pass

        with pytest.raises(qd.OctantsSyntaxError, match="default values"):

            @qd.kernel
            def default(a: qd.i32 = 3):
                pass

        with pytest.raises(qd.OctantsSyntaxError, match="Invalid type annotation"):

            @qd.kernel
            def odd(a: 3):
                pass

    def test_annotations_may_name_local_variables(self) -> None:
        vec = qd.types.vector(2, qd.f32)

        @qd.kernel
        def total(v: vec) -> qd.f32:
            return v[0] + v[1]

        assert total([1.0, 2.0]) == 3.0


class TestScalars:
    def test_integers_keep_their_low_bits(self) -> None:
        @qd.kernel
        def same(a: qd.u8) -> qd.i32:
            return a

        assert same(300) == 44

    @pytest.mark.parametrize("value", [1.5, "1", None, [1], np.float32(1)])
    def test_what_is_no_integer_is_refused(self, value: object) -> None:
        with pytest.raises(qd.OctantsRuntimeTypeError, match="required type i32 .parameter `a` of kernel `add`"):
            add(value, 1.0)

    @pytest.mark.parametrize("value", [np.int64(2), np.uint8(2), True])
    def test_numpy_integers_and_booleans_are_integers(self, value: object) -> None:
        assert add(value, 0.0) == int(value)

    def test_out_of_range_is_refused(self) -> None:
        @qd.kernel
        def same(a: qd.u64) -> qd.u64:
            return a

        assert same(2**64 - 1) == 2**64 - 1
        for value in (-1, 2**64):
            with pytest.raises(TypeError, match="does not fit u64"):
                same(value)


class TestArrays:
    def test_numpy_arrays_are_not_copied(self) -> None:
        a = np.arange(4, dtype=np.float32)
        scale(a, 2.0)
        assert a.tolist() == [0, 2, 4, 6]

    def test_strided_arrays_are_written_in_place(self) -> None:
        a = np.ones((3, 4), np.float32)
        scale(a[:, 1], 5.0)
        scale(a[2, ::-2], 3.0)
        assert a.tolist() == [[1, 5, 1, 1], [1, 5, 1, 1], [1, 15, 1, 3]]

    def test_contiguous_and_strided_arrays_have_code_of_their_own(self) -> None:
        before = compiled(scale)
        a = np.ones((4, 4), np.float32)
        scale(a[0], 1.0)
        scale(a[:, 0], 1.0)
        scale(a[1], 1.0)
        assert compiled(scale) <= before + 2

    def test_vectors_fold_the_last_axis(self) -> None:
        @qd.kernel
        def norms(x: qd.types.ndarray(dtype=qd.types.vector(3, qd.f32), ndim=1)) -> qd.f32:
            s = 0.0
            for i in range(x.shape[0]):
                s += x[i].dot(x[i])
            return s

        assert norms(np.ones((5, 3), np.float32)) == 15
        with pytest.raises(ValueError, match=r"required element_shape=\(3,\), array with element shape of \(2,\)"):
            norms(np.ones((5, 2), np.float32))
        with pytest.raises(ValueError, match="required array has ndim=1 element_dim=1, array with 1 dimensions"):
            norms(np.ones(3, np.float32))
        assert norms(np.ones((10, 3), np.float32)[::2]) == 15
        with pytest.raises(ValueError, match="one after the other"):
            norms(np.ones((3, 5), np.float32).T)

    def test_read_only_arrays_may_be_read(self) -> None:
        a, b = np.ones(3, np.float32), np.zeros(3, np.float32)
        a.flags.writeable = False
        shift(b, a)
        assert b.tolist() == [0, 1, 1]
        with pytest.raises(ValueError, match="read-only"):
            shift(a, b)

    @pytest.mark.parametrize(
        ("value", "error", "message"),
        [
            (np.zeros(3), ValueError, "required array has dtype=f32, array with dtype=f64"),
            (np.zeros((2, 2), np.float32), ValueError, "required array has ndim=1, array with 2 dimensions"),
            (np.zeros(3, np.complex64), ValueError, "complex64 cannot be used"),
            (np.zeros(3, ">f4"), ValueError, "cannot be used"),
            ([1.0], TypeError, "Invalid type for argument x"),
            (3, TypeError, "Invalid type for argument x"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, value: object, error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            scale(value, 1.0)

    def test_overlapping_arrays_are_read_after_they_are_written(self) -> None:
        a = np.arange(64, dtype=np.float32)
        shift(np.zeros(64, np.float32), a)
        shift(a[1:], a[:-1])
        expected = np.arange(64, dtype=np.float32)
        for i in range(1, 63):
            expected[i + 1] = expected[i - 1]
        assert a.tolist() == expected.tolist()

    def test_memoryviews_are_arrays(self) -> None:
        a = np.ones(3, np.float32)
        scale(memoryview(a), 4.0)
        assert a.tolist() == [4, 4, 4]


class TestTemplates:
    def test_values_of_equal_type_share_code(self) -> None:
        @qd.kernel
        def twice(n: qd.template()) -> qd.f32:
            return n * 2

        assert [twice(1), twice(1), twice(2), twice(1.0), twice(True)] == [2, 2, 4, 2, 2]
        assert compiled(twice) == 4

    def test_tuples_and_none(self) -> None:
        @qd.kernel
        def total(items: qd.template(), more: qd.template()) -> qd.i32:
            s = 0
            for i in qd.static(range(len(items))):
                s += items[i]
            if qd.static(more is not None):
                s += 100
            return s

        assert (total((1, 2), None), total((1, 2), 0), total((1, 2, 3), None)) == (3, 103, 6)

    def test_fields_by_identity(self) -> None:
        @qd.kernel
        def fill(f: qd.template(), v: qd.i32):
            for i in f:
                f[i] = v

        a, b = qd.field(qd.i32, 3), qd.field(qd.i32, 3)
        fill(a, 1)
        fill(b, 2)
        fill(a, 3)
        assert (a.to_numpy().tolist(), b.to_numpy().tolist(), compiled(fill)) == ([3] * 3, [2] * 3, 2)

    def test_objects_are_not_kept_alive(self) -> None:
        @qd.data_oriented
        class Holder:
            def __init__(self, n: int) -> None:
                self.n = n

            @qd.kernel
            def get(self) -> qd.i32:
                return self.n

        kept = []
        for n in range(5):
            holder = Holder(n)
            assert holder.get() == n
            kept.append(weakref.ref(holder))
            del holder
        gc.collect()
        assert [r() for r in kept] == [None] * 5

    def test_ndarrays_are_refused(self) -> None:
        @qd.kernel
        def fill(f: qd.template()):
            pass

        with pytest.raises(qd.OctantsRuntimeTypeError, match="qd.types.ndarray"):
            fill(qd.ndarray(qd.f32, 3))


class TestObjects:
    def test_changed_attributes_are_seen(self) -> None:
        @qd.data_oriented
        class Sim:
            def __init__(self) -> None:
                self.n = 3
                self.x = qd.field(qd.i32, 8)

            @qd.kernel
            def fill(self):
                for i in range(self.n):
                    self.x[i] += 1

        sim = Sim()
        sim.fill()
        sim.n = 5
        sim.fill()
        sim.x = qd.field(qd.i32, 8)
        sim.fill()
        assert sim.x.to_numpy().tolist() == [1] * 5 + [0] * 3
        assert compiled(Sim.fill) == 3
        sim.fill()
        assert compiled(Sim.fill) == 3

    def test_arrays_of_objects_are_found_at_each_launch(self) -> None:
        @qd.data_oriented
        class Sim:
            def __init__(self) -> None:
                self.x = qd.ndarray(qd.f32, 4)

            @qd.kernel
            def fill(self, v: qd.f32):
                for i in self.x:
                    self.x[i] = v

        sim = Sim()
        first = sim.x
        sim.fill(1.0)
        sim.x = qd.ndarray(qd.f32, 6)
        sim.fill(2.0)
        assert first.to_numpy().tolist() == [1.0] * 4
        assert sim.x.to_numpy().tolist() == [2.0] * 6
        assert compiled(Sim.fill) == 1

    def test_the_class_must_be_declared(self) -> None:
        class Plain:
            @qd.kernel
            def run(self):
                pass

        with pytest.raises(qd.OctantsSyntaxError, match="Please decorate class Plain with @qd.data_oriented"):
            Plain().run()

    def test_dataclasses_of_arrays_and_numbers(self) -> None:
        @dataclasses.dataclass
        class Inner:
            y: qd.types.NDArray[qd.f32, 1]

        @dataclasses.dataclass
        class State:
            x: qd.types.NDArray[qd.f32, 1]
            dt: qd.f32
            inner: Inner

        @qd.kernel
        def step(s: State):
            for i in s.x:
                s.x[i] += s.dt * s.inner.y[i]

        s = State(np.ones(3, np.float32), 0.5, Inner(np.full(3, 4, np.float32)))
        step(s)
        s.dt = 1.0
        step(s)
        assert s.x.tolist() == [7.0] * 3
        assert compiled(step) == 1
        with pytest.raises(RuntimeError, match="parameter `s` of kernel `step`"):
            step(3)


class TestResults:
    def test_tuples_vectors_matrices_and_structs(self) -> None:
        pair = qd.types.struct(a=qd.i32, v=qd.types.vector(2, qd.f32))

        @qd.kernel
        def several(n: qd.i32) -> tuple[qd.i32, qd.types.vector(2, qd.f32)]:
            return n, qd.Vector([1.0, 2.0])

        @qd.kernel
        def matrix() -> qd.types.matrix(2, 3, qd.i32):
            return qd.Matrix([[1, 2, 3], [4, 5, 6]])

        @qd.kernel
        def struct(s: pair) -> pair:
            return pair(a=s.a + 1, v=s.v * 2)

        n, v = several(3)
        assert (n, v.to_numpy().tolist()) == (3, [1, 2])
        assert matrix().to_numpy().tolist() == [[1, 2, 3], [4, 5, 6]]
        s = struct(pair(a=1, v=[1, 2]))
        assert (s.a, s.v.to_numpy().tolist()) == (2, [2, 4])

    @pytest.mark.parametrize(
        ("dtype", "value"),
        [(qd.i8, -5), (qd.u64, 2**63 + 1), (qd.i64, -(2**40)), (qd.f64, 0.1), (qd.f16, 0.5), (qd.u1, 1)],
    )
    def test_scalars_of_every_width(self, dtype: qd.types.DataType, value: float) -> None:
        @qd.kernel
        def same(a: dtype) -> dtype:
            return a

        assert same(value) == value


class TestProgram:
    def test_use_before_init_says_what_to_do(self) -> None:
        qd.reset()
        with pytest.raises(RuntimeError, match=r"init\(\)"):
            add(1, 2.0)

    def test_objects_of_a_dead_program_raise(self) -> None:
        a = qd.ndarray(qd.f32, 3)
        qd.init(arch=qd.cpu)
        with pytest.raises(RuntimeError, match="has ended"):
            scale(a, 1.0)

    def test_kernels_are_compiled_anew_under_new_options(self) -> None:
        @qd.kernel
        def third() -> float:
            return 1.0 / 3.0

        assert third() == np.float32(1) / np.float32(3)
        qd.init(arch=qd.cpu, default_fp=qd.f64)
        assert third() == 1.0 / 3.0

    def test_unknown_options_are_refused_with_the_near_miss(self) -> None:
        with pytest.raises(KeyError, match="fastmath.*did you mean `fast_math`"):
            qd.init(arch=qd.cpu, fastmath=True)

    def test_many_programs_leak_no_memory(self) -> None:
        def resident() -> int:
            with open("/proc/self/statm") as f:
                return int(f.read().split()[1]) * 4096

        def cycle() -> None:
            qd.init(arch=qd.cpu)
            f = qd.field(qd.f32, shape=1 << 22)
            f.fill(1.0)

        cycle()
        start = resident()
        for _ in range(8):
            cycle()
        assert resident() - start < 3 * (1 << 24)

    def test_threads_launch_at_once(self) -> None:
        def work(out: np.ndarray) -> None:
            for _ in range(200):
                scale(out, 2.0)
                scale(out, 0.5)

        outs = [np.arange(1000, dtype=np.float32) for _ in range(4)]
        threads = [threading.Thread(target=work, args=(o,)) for o in outs]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert all((o == np.arange(1000)).all() for o in outs)

    def test_functions_of_the_kernel_language_are_not_called_from_python(self) -> None:
        @qd.func
        def inner(x):
            return x

        with pytest.raises(qd.OctantsRuntimeError, match="`inner` is a function of the kernel language"):
            inner(1)

    def test_sources_must_be_available(self) -> None:
        scope: dict = {"qd": qd}
        exec("@qd.kernel\ndef made() -> qd.i32:\n    return 1\n", scope)
        with pytest.raises(qd.OctantsCompilationError, match="source of `made` is not available"):
            scope["made"]()


class TestGuards:
    """Code is made for what was read of compile-time objects; a change is seen at the next launch."""

    def test_values_behind_lists_and_dicts(self) -> None:
        class Part:
            def __init__(self, n: int) -> None:
                self.n = n

        @qd.data_oriented
        class Sim:
            def __init__(self) -> None:
                self.sizes = [1, 2]
                self.named = {"a": 10}
                self.parts = [Part(100), Part(200)]

            @qd.kernel
            def total(self) -> qd.i32:
                s = self.sizes[0] + self.named["a"]
                for p in qd.static(self.parts):
                    s += p.n
                return s

        sim = Sim()
        assert sim.total() == 311
        sim.sizes[0] = 2
        assert sim.total() == 312
        sim.named["a"] = 20
        assert sim.total() == 322
        sim.parts[1].n = 300
        assert sim.total() == 422
        before = compiled(Sim.total)
        assert sim.total() == 422
        assert compiled(Sim.total) == before

    def test_vectors_that_a_property_makes_anew(self) -> None:
        @qd.data_oriented
        class Sim:
            def __init__(self) -> None:
                self.scale = 1.0

            @property
            def gravity(self) -> qd.Vector:
                return qd.Vector([0.0, self.scale])

            @qd.kernel
            def get(self) -> qd.f32:
                return self.gravity[1]

        sim = Sim()
        assert [sim.get(), sim.get()] == [1.0, 1.0]
        assert compiled(Sim.get) == 1
        sim.scale = 2.0
        assert sim.get() == 2.0

    def test_arrays_that_a_property_makes_anew(self) -> None:
        @qd.data_oriented
        class Sim:
            @property
            def x(self) -> qd.Ndarray:
                a = qd.ndarray(qd.f32, 3)
                a.fill(2.0)
                return a

            @qd.kernel
            def total(self) -> qd.f32:
                s = 0.0
                for i in range(3):
                    s += self.x[i]
                return s

        sim = Sim()
        assert [sim.total() for _ in range(20)] == [6.0] * 20
        assert compiled(Sim.total) == 1


class _Torchlike:
    """What the binding asks of a torch tensor, over a numpy array."""

    def __init__(self, array: np.ndarray, device: str = "cpu") -> None:
        self.array = array
        self.device = type("device", (), {"type": device})()
        self.dtype = f"torch.{array.dtype}"
        self.shape = array.shape

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def element_size(self) -> int:
        return self.array.itemsize

    def is_contiguous(self) -> bool:
        return self.array.flags.c_contiguous

    def stride(self) -> tuple[int, ...]:
        return tuple(s // self.array.itemsize for s in self.array.strides)


def test_tensors_are_taken_by_their_memory() -> None:
    a = np.ones((3, 4), np.float32)
    scale(_Torchlike(a[:, 1]), 3.0)
    scale(_Torchlike(a[0]), 2.0)
    assert a[:, 1].tolist() == [6, 3, 3]
    with pytest.raises(ValueError, match="device `cuda`"):
        scale(_Torchlike(a[0], "cuda"), 2.0)


def test_classes_with_kernels_can_be_collected() -> None:
    def make() -> weakref.ref:
        @qd.data_oriented
        class Local:
            n = 3

            @qd.func
            def three(self):
                return Local.n

            @qd.kernel
            def get(self) -> qd.i32:
                return Local.n + self.three()

        assert Local().get() == 6
        return weakref.ref(Local)

    ref = make()
    gc.collect()
    assert ref() is None


def test_dataclasses_may_be_compile_time_values() -> None:
    @dataclasses.dataclass(frozen=True)
    class Params:
        n: int
        x: qd.Ndarray

    @qd.kernel
    def fill(p: qd.template(), v: qd.f32):
        for i in range(p.n):
            p.x[i] = v

    a, b = Params(2, qd.ndarray(qd.f32, 3)), Params(3, qd.ndarray(qd.f32, 3))
    fill(a, 1.0)
    fill(b, 2.0)
    fill(a, 3.0)
    assert (a.x.to_numpy().tolist(), b.x.to_numpy().tolist()) == ([3, 3, 0], [2, 2, 2])


def test_numbers_may_be_read_at_launch_instead_of_being_compiled_in() -> None:
    @qd.func
    def twice(x):
        return 2 * x

    @qd.data_oriented(template_primitives=False)
    class Sim:
        def __init__(self) -> None:
            self.t = 0.5
            self.n = 2
            self.on = True

        @qd.kernel
        def get(self) -> qd.f32:
            s = 0.0
            for _ in range(self.n):
                s += twice(self.t)
            return s if self.on else -1.0

    sim = Sim()
    assert sim.get() == 2.0
    sim.t = 3
    sim.n = 3
    assert sim.get() == 18.0
    sim.on = False
    assert sim.get() == -1.0
    assert compiled(Sim.get) == 1
    sim.n = 1.5
    with pytest.raises(TypeError, match="attribute `n` was compiled as i32"):
        sim.get()


def test_numpy_scalars_and_long_integers_as_compile_time_values() -> None:
    @qd.kernel
    def same(n: qd.template()) -> qd.i32:
        return n

    assert [same(np.int32(3)) for _ in range(5)] == [3] * 5
    assert compiled(same) == 1
    assert same(np.int64(3)) == 3
    assert compiled(same) == 2

    @qd.kernel
    def bits(n: qd.template()) -> qd.i32:
        return qd.static(n >> 64)

    assert [bits(2**k) for k in (70, 80, 90)] == [2**6, 2**16, 2**26]


def test_lists_given_as_compile_time_values_may_change() -> None:
    @qd.kernel
    def total(items: qd.template()) -> qd.i32:
        s = 0
        for i in qd.static(items):
            s += i
        return s

    items = [1, 2]
    assert total(items) == 3
    items.append(4)
    assert total(items) == 7


def test_an_attribute_that_changes_all_the_time_is_named() -> None:
    @qd.data_oriented
    class Sim:
        def __init__(self) -> None:
            self.step = 0

        @qd.kernel
        def get(self) -> qd.i32:
            return self.step

    sim = Sim()

    def run(steps: range) -> list[int]:
        out = []
        for sim.step in steps:
            out.append(sim.get())
        return out

    assert run(range(16)) == list(range(16))
    with pytest.warns(RuntimeWarning, match=r"compiled 16 times for different values of `self.step`"):
        assert run(range(16, 20)) == [16, 17, 18, 19]


def test_arrays_without_axes() -> None:
    @qd.kernel
    def fill(x: qd.types.ndarray(dtype=qd.f32, ndim=0), v: qd.f32):
        x[None] = v

    a = np.zeros((), np.float32)
    fill(a, 2.0)
    assert a[()] == 2.0


# fmt: off
@qd.kernel
def oddly_laid_out(
    a: qd.i32,  # a comment with a ) and a "quote
) -> qd.i32:
    """A text that goes on
at the first column, with ''' in it
    """
    b = (a +
1)
# A comment at the first column.

    c = b + \
2
    s = "# no comment ("
    return c
not_part_of_it = "but the next line would be, were it indented"
# fmt: on


def test_the_text_of_a_kernel_ends_where_it_ends() -> None:
    assert oddly_laid_out(1) == 4


@qd.func
def doubled(x):
    return x + x


def test_kernels_and_functions_are_copied_and_pickled_as_functions_are() -> None:
    for made in (add, doubled):
        assert copy.copy(made) is made
        assert copy.deepcopy({"callback": made})["callback"] is made
        assert pickle.loads(pickle.dumps(made)) is made


@qd.kernel
def sum_rows(a: qd.types.ndarray(element_dim=1), b: qd.types.ndarray()):
    for i in range(a.shape[0]):
        b[i] = a[i].sum()


def test_elements_of_a_number_of_axes_have_the_last_extents() -> None:
    for n in (3, 2):
        a, b = np.arange(4 * n, dtype=np.float32).reshape(4, n), np.zeros(4, np.float32)
        sum_rows(a, b)
        np.testing.assert_equal(b, a.sum(axis=1))
    with pytest.raises(ValueError, match="a vector of any size, but f32"):
        sum_rows(qd.ndarray(qd.f32, (4,)), b)


def test_the_collector_may_run_at_any_time() -> None:
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        made = [(qd.func(lambda: None), qd.kernel(lambda: None)) for _ in range(100)]
    finally:
        gc.set_threshold(*threshold)
    assert len(made) == 100


class Numbers(NamedTuple):
    """Constants by name; `b` is a colour component elsewhere, `index` a method of tuples."""

    x: float
    b: int


NUMBERS = Numbers(1.5, 4)


def test_members_of_named_tuples_are_constants():
    @qd.kernel
    def by_name_and_position() -> qd.f32:
        return NUMBERS.x * NUMBERS.b + NUMBERS[1] * 100 + NUMBERS.index(4) * 1000

    @qd.kernel
    def by_argument(numbers: qd.template()) -> qd.f32:
        return numbers.x + numbers.b

    assert by_name_and_position() == 1406
    assert by_argument(NUMBERS) == 5.5


Floats = qd.types.ndarray(dtype=qd.f32, ndim=1)


@qd.kernel
def three_tasks(x: Floats, total: Floats, n: qd.i32, by: qd.f32):
    total[0] = 0.0
    for i in range(n):
        x[i] += by
    for i in range(n):
        total[0] += x[i]


@qd.kernel
def draw_twice(x: Floats, y: Floats):
    for i in x:
        x[i] = qd.random()
    for i in y:
        y[i] = qd.random()


def test_kernels_of_several_tasks_launched_again_and_again():
    arrays = [qd.ndarray(qd.f32, 5000) for _ in range(2)]
    totals = [qd.ndarray(qd.f32, 1) for _ in range(2)]
    values = np.zeros((2, 5000))
    host = np.zeros(5000, np.float32)
    for step in range(12):
        which, n = step // 3 % 2, [5000, 5000, 0, 17][step % 4]
        three_tasks(arrays[which], totals[which], n, step)
        values[which, :n] += step
        three_tasks(host, totals[1 - which], 10, 1.0)
        assert totals[which][0] == values[which, :n].sum()
        assert totals[1 - which][0] == 10 * (step + 1)
    np.testing.assert_array_equal([a.to_numpy() for a in arrays], values)
    with qd.create_stream() as s:
        for _ in range(5):
            three_tasks(arrays[0], totals[0], 5000, 1.0, qd_stream=s)
            three_tasks(arrays[1], totals[1], 5000, 1.0)
    np.testing.assert_array_equal([a.to_numpy() for a in arrays], values + 5)


def test_launches_of_several_tasks_draw_new_numbers():
    drawn = []
    x, y = (qd.ndarray(qd.f32, 100) for _ in range(2))
    for _ in range(6):
        draw_twice(x, y)
        drawn += [x.to_numpy(), y.to_numpy()]
    assert len(np.unique(drawn)) > 1190


def test_several_tasks_from_several_threads():
    counts = [qd.ndarray(qd.i32, 256) for _ in range(4)]

    @qd.kernel
    def count(x: qd.types.ndarray(dtype=qd.i32, ndim=1), by: qd.i32):
        for i in x:
            x[i] += by
        for i in x:
            x[i] += 1

    def launch(number: int):
        with qd.create_stream() as s:
            for _ in range(50):
                count(counts[number], number, qd_stream=s if number % 2 else qd.default_stream())

    threads = [threading.Thread(target=launch, args=(number,)) for number in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for number, x in enumerate(counts):
        assert (x.to_numpy() == 50 * (number + 1)).all()


def test_two_of_many_arrays_that_are_one_are_found():
    qd.init(arch=qd.cpu)
    Array = qd.types.ndarray(dtype=qd.i32, ndim=1)
    Many = dataclasses.make_dataclass("Many", [(f"a{n}", Array) for n in range(20)])

    @qd.kernel
    def write(many: Many):
        with qd.stream_parallel():
            for i in many.a3:
                many.a3[i] = 1
        with qd.stream_parallel():
            for i in many.a17:
                many.a17[i] = 2

    arrays = [qd.ndarray(qd.i32, 4) for _ in range(20)]
    write(Many(*arrays))
    assert (arrays[3][0], arrays[17][0]) == (1, 2)
    arrays[17] = arrays[3]
    with pytest.raises(qd.QuadrantsSyntaxError, match="the same memory in this call"):
        write(Many(*arrays))


Line = qd.types.ndarray(dtype=qd.i32, ndim=1)


@dataclasses.dataclass(frozen=True)
class FrozenInner:
    y: Line
    scale: qd.i32


@dataclasses.dataclass(frozen=True)
class FrozenOuter:
    x: Line
    inner: FrozenInner


@dataclasses.dataclass
class Open:
    x: Line
    scale: qd.i32


@qd.kernel
def into(before: qd.i32, s: FrozenOuter, after: Line):
    for i in s.x:
        s.x[i] += before
        s.inner.y[i] += s.inner.scale
        after[i] += 1


@qd.kernel
def open_into(s: Open):
    for i in s.x:
        s.x[i] += s.scale


def lines(count, extent=4):
    return [qd.ndarray(qd.i32, extent) for _ in range(count)]


def test_a_frozen_dataclass_that_comes_again_is_itself():
    qd.init(arch=qd.cpu)
    a, b, c, d, after = lines(5)
    one, other = FrozenOuter(a, FrozenInner(b, 10)), FrozenOuter(c, FrozenInner(d, 20))
    for _ in range(4):
        into(1, one, after)
    into(1, other, after)
    into(1, one, after)
    for _ in range(3):
        into(2, other, a)
    assert [x[0] for x in (a, b, c, d, after)] == [5 + 3, 50, 1 + 6, 20 + 60, 6]


def test_an_object_at_the_address_of_a_dead_one_is_another():
    qd.init(arch=qd.cpu)
    (after,) = lines(1)
    for n in range(20):
        x, y = lines(2, extent=3 + n % 2)
        s = FrozenOuter(x, FrozenInner(y, n))
        for _ in range(3):
            into(n, s, qd.ndarray(qd.i32, 8))
        assert (x[2], y[2]) == (3 * n, 3 * n)
        del s, x, y
    assert after[0] == 0


def test_a_dataclass_that_may_change_is_read_anew():
    qd.init(arch=qd.cpu)
    a, b = lines(2)
    s = Open(a, 1)
    for _ in range(3):
        open_into(s)
    s.scale = 100
    open_into(s)
    s.x = b
    open_into(s)
    assert (a[0], b[0]) == (103, 100)


def test_a_frozen_dataclass_of_other_arrays_is_looked_at():
    qd.init(arch=qd.cpu)
    x, y = np.zeros(4, np.int32), np.zeros(4, np.int32)
    s, (after,) = FrozenOuter(x, FrozenInner(y, 3)), lines(1)
    for _ in range(3):
        into(1, s, after)
    assert (x[0], y[0]) == (3, 9)
    # Its memory moves.
    x.resize(64, refcheck=False)
    x[:] = 0
    y.resize(64, refcheck=False)
    into(1, s, qd.ndarray(qd.i32, 64))
    assert x.tolist() == [1] * 64


def test_arrays_of_a_dataclass_whose_program_has_ended_are_refused():
    qd.init(arch=qd.cpu)
    a, b, after = lines(3)
    s = FrozenOuter(a, FrozenInner(b, 1))
    for _ in range(3):
        into(1, s, after)
    qd.init(arch=qd.cpu)
    with pytest.raises(RuntimeError):
        into(1, s, lines(1)[0])


def test_components_written_as_calls():
    @qd.kernel
    def old() -> qd.f32:
        v = qd.Vector([1.0, 2.0])
        m = qd.Matrix([[1.0, 2.0], [3.0, 4.0]])
        return v(1) + m(1, 0)

    assert old() == 5.0
