"""Kernels and functions as Python objects: names, declarations, sources, copies, garbage collection, and their
program."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import typing
import weakref

import numpy as np
import pytest
from call_kernels import add, scale

import octants as qd


def test_names_are_those_of_the_function():
    assert add.__name__ == "add"
    assert add.__doc__ == "Adds."
    assert add.__wrapped__ is add.fn


def test_declarations_are_checked_at_the_declaration():
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


def test_annotations_may_name_local_variables():
    vec = qd.types.vector(2, qd.f32)

    @qd.kernel
    def total(v: vec) -> qd.f32:
        return v[0] + v[1]

    assert total([1.0, 2.0]) == 3.0


def test_annotations_of_functions_may_name_local_variables() -> None:
    scalar, size = qd.f32, 2

    @dataclasses.dataclass
    class Line:
        x: qd.types.ndarray(dtype=scalar, ndim=1)

    def make() -> qd.Kernel:
        vec = qd.types.vector(size, scalar)

        @qd.func
        def first(v: vec, line: Line, i: "qd.i32") -> scalar:
            return v[0] + line.x[i]

        @qd.real_func
        def doubled(v: scalar) -> scalar:
            return 2 * v

        @qd.data_oriented
        class Sum:
            @qd.func
            def of(self, a: scalar, b: scalar):
                return a + b

        sums = Sum()

        @qd.kernel
        def total(line: Line) -> scalar:
            return sums.of(first(vec(1, 2), line, 1), doubled(3.0))

        return total

    assert make()(Line(np.array([10, 20], np.float32))) == 27.0


count = qd.i32


def test_a_local_name_hides_a_global_one_in_annotations() -> None:
    count = qd.f32

    @qd.kernel
    def same(a: count) -> count:
        return a

    assert same(1.5) == 1.5


def test_a_self_referential_annotation_is_refused() -> None:
    number = "number"  # noqa: F841 (named in an annotation)

    def declare():
        @qd.kernel
        def k(n: number):
            pass

    with pytest.raises(qd.OctantsSyntaxError, match="number"):
        declare()


@pytest.mark.parametrize("decorate", [qd.kernel, qd.func], ids=["kernel", "func"])
def test_an_invalid_annotation_is_refused_at_its_line(decorate) -> None:
    with pytest.raises(qd.OctantsSyntaxError, match="Invalid type annotation in .*: name 'Later' is not defined"):

        @decorate
        def unknown(a: Later):  # noqa: F821
            pass

    for wrong in (3, str, list, object, None, typing.Callable):
        with pytest.raises(qd.OctantsSyntaxError, match=r"Invalid type annotation \(argument 1\) of .*odd"):

            @decorate
            def odd(a: qd.i32, b: wrong):
                pass

    @qd.func
    def by_reference(a: qd.ref(qd.f32), b: typing.Any, c: "qd.i32"):
        a = b + c

    assert by_reference.__name__ == "by_reference"


def test_graphs_without_checkpoints_return_values() -> None:
    @qd.kernel(graph=True)
    def fill(x: qd.types.ndarray(dtype=qd.f32, ndim=1)) -> None:
        for i in x:
            x[i] = 2

    a = np.zeros(2, np.float32)
    fill(a)
    assert a.tolist() == [2, 2]

    @qd.kernel(graph=True)
    def total(x: qd.types.ndarray(dtype=qd.f32, ndim=1)) -> qd.f32:
        s = 0.0
        for i in x:
            s += x[i]
        return s

    assert total(a) == 4
    with pytest.raises(qd.OctantsSyntaxError, match="cannot return a value"):

        @qd.kernel(graph=True, checkpoints=True)
        def two() -> qd.i32:
            return 2


def test_functions_of_the_kernel_language_are_not_called_from_python():
    @qd.func
    def inner(x):
        return x

    with pytest.raises(qd.OctantsRuntimeError, match="`inner` is a @qd.func"):
        inner(1)


def test_sources_must_be_available():
    scope: dict = {"qd": qd}
    exec("@qd.kernel\ndef made() -> qd.i32:\n    return 1\n", scope)
    with pytest.raises(qd.OctantsCompilationError, match="source of `made` is not available"):
        scope["made"]()


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


def test_the_source_of_a_kernel_ends_at_its_last_line() -> None:
    assert oddly_laid_out(1) == 4


@qd.func
def doubled(x):
    return x + x


def test_kernels_and_functions_copy_and_pickle_like_functions() -> None:
    for made in (add, doubled):
        assert copy.copy(made) is made
        assert copy.deepcopy({"callback": made})["callback"] is made
        assert pickle.loads(pickle.dumps(made)) is made


def test_garbage_collection_may_run_at_any_time() -> None:
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        made = [(qd.func(lambda: None), qd.kernel(lambda: None)) for _ in range(100)]
    finally:
        gc.set_threshold(*threshold)
    assert len(made) == 100


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


def test_arguments_of_kernels_can_be_collected() -> None:
    """Also in reference cycles: a kernel exposes the objects of its signature and its calls to the garbage
    collector."""

    def of_a_dataclass():
        @dataclasses.dataclass
        class Local:
            x: qd.types.ndarray(dtype=qd.f32, ndim=1)
            n: qd.i32

        @qd.kernel
        def fill(local: Local):
            for i in range(local.n):
                local.x[i] = 1.0

        Local.fill = fill
        fill(Local(qd.ndarray(qd.f32, shape=4), 4))
        return Local, fill

    def of_a_captured_array():
        x = qd.ndarray(qd.f32, shape=3)

        @qd.kernel
        def copy(y: qd.types.ndarray()):
            for i in x:
                y[i] = x[i]

        x.copy = copy
        copy(x)
        return x, copy

    def of_a_result():
        Pair = qd.types.struct(a=qd.f32, b=qd.types.vector(3, qd.f32))

        @qd.kernel
        def give() -> Pair:
            return Pair(a=1.0, b=[1.0, 2.0, 3.0])

        Pair.give = give
        assert give().a == 1.0
        return Pair, give

    def of_what_was_read():
        class Holder:
            pass

        @qd.kernel
        def run(holder: qd.template()) -> qd.i32:
            return holder.numbers[1]

        holder = Holder()
        holder.numbers = [3, 4]
        run.holder = holder
        assert run(holder) == 4
        return Holder, run

    for make in [of_a_dataclass, of_a_captured_array, of_a_result, of_what_was_read]:
        gone = [weakref.ref(made) for made in make()]
        gc.collect()
        assert [ref() for ref in gone] == [None, None], make.__name__


def test_kernels_work_during_garbage_collection() -> None:
    x = qd.ndarray(qd.f32, shape=3)

    @qd.kernel
    def fill(y: qd.types.ndarray(), value: qd.f32) -> qd.f32:
        for i in y:
            y[i] = value
        return value

    x.fill_by = fill
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        assert [fill(x, i) for i in range(100)] == list(range(100))
    finally:
        gc.set_threshold(*threshold)
    assert x[2] == 99.0


def test_use_before_init_names_the_remedy():
    qd.reset()
    with pytest.raises(RuntimeError, match=r"init\(\)"):
        add(1, 2.0)


def test_objects_of_a_dead_program_raise():
    a = qd.ndarray(qd.f32, 3)
    qd.init(arch=qd.cpu)
    with pytest.raises(RuntimeError, match="has ended"):
        scale(a, 1.0)


def test_an_ndarray_of_a_dead_program_has_no_shape_and_refuses_every_use():
    old, made = qd.ndarray(qd.f32, (3, 4)), [qd.tensor(qd.f32, 3), qd.Vector.ndarray(2, qd.f32, 3)]
    qd.init(arch=qd.cpu)
    new = qd.ndarray(qd.f32, (3, 4))
    assert old.shape is None
    assert old.arr is None
    assert new.shape == (3, 4)
    uses = [copy.deepcopy, pickle.dumps, lambda a: a[0], lambda a: a.fill(1), lambda a: a.to_numpy()]
    for array in (old, *made):
        assert "3" not in repr(array).replace("f32", "")
        for use in uses:
            with pytest.raises(RuntimeError, match="has ended"):
                use(array)
    for source, target in ((old, new), (new, old)):
        with pytest.raises(RuntimeError, match="has ended"):
            target.copy_from(source)


def test_kernels_are_recompiled_under_new_options():
    @qd.kernel
    def third() -> float:
        return 1.0 / 3.0

    assert third() == np.float32(1) / np.float32(3)
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    assert third() == 1.0 / 3.0


@pytest.mark.parametrize("decorate", [qd.kernel, qd.func], ids=["kernel", "func"])
def test_an_invalid_annotation_string_is_refused_with_its_line(decorate) -> None:
    for text, why in (("hello world", "invalid syntax"), ("qd.f33", "no attribute 'f33'")):

        def declared(x):
            pass

        declared.__annotations__["x"] = text
        line = declared.__code__.co_firstlineno
        match = rf"Invalid type annotation in `.*declared` \(.*test_kernel_objects\.py:{line}\): .*{why}.*`{text}`"
        with pytest.raises(qd.OctantsSyntaxError, match=match):
            decorate(declared)


def test_an_unpacked_vector_type_is_refused_for_parameters() -> None:
    unpacked = qd.types.vector(4, qd.f32, unpacked=True)
    with pytest.raises(qd.OctantsSyntaxError, match="parameter `v` of `first`: .*remove unpacked=True"):

        @qd.func
        def first(v: unpacked):
            return v[0]
