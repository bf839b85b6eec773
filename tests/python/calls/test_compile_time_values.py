"""Compile-time values: templates, attributes of objects. A change takes effect at the next launch."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from typing import NamedTuple

import numpy as np
import pytest
from call_kernels import compiled

import octants as qd


def test_values_of_equal_type_share_code():
    @qd.kernel
    def twice(n: qd.template()) -> qd.f32:
        return n * 2

    assert [twice(1), twice(1), twice(2), twice(1.0), twice(True)] == [2, 2, 4, 2, 2]
    assert compiled(twice) == 4


def test_tuples_and_none():
    @qd.kernel
    def total(items: qd.template(), more: qd.template()) -> qd.i32:
        s = 0
        for i in qd.static(range(len(items))):
            s += items[i]
        if qd.static(more is not None):
            s += 100
        return s

    assert (total((1, 2), None), total((1, 2), 0), total((1, 2, 3), None)) == (3, 103, 6)


def test_fields_by_identity():
    @qd.kernel
    def fill(f: qd.template(), v: qd.i32):
        for i in f:
            f[i] = v

    a, b = qd.field(qd.i32, 3), qd.field(qd.i32, 3)
    fill(a, 1)
    fill(b, 2)
    fill(a, 3)
    assert (a.to_numpy().tolist(), b.to_numpy().tolist(), compiled(fill)) == ([3] * 3, [2] * 3, 2)


def test_objects_are_not_kept_alive():
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


def test_objects_are_not_kept_alive_by_back_references():
    @qd.data_oriented
    class Part:
        def __init__(self, whole: Whole, weight: int) -> None:
            self.whole = whole
            self.weight = weight

    @qd.data_oriented
    class Whole:
        def __init__(self) -> None:
            self.parts = [Part(self, 1), Part(self, 2)]
            self.places = {"first": (self.parts[0], 3), "self": (self, 4)}

        @qd.kernel
        def total(self) -> qd.i32:
            total = self.places["self"][1]
            for part in qd.static(self.parts):
                total += part.weight
            return total

    whole = Whole()
    assert whole.total() == whole.total() == 7
    assert compiled(Whole.total) == 1
    whole.parts[1].weight = 5
    assert whole.total() == 10
    whole.parts = [*whole.parts, Part(whole, 1)]
    assert whole.total() == 11
    whole.parts[0] = Part(whole, 2)
    assert whole.total() == 12
    whole.places["self"] = (whole, 5)
    assert whole.total() == 13
    gone = weakref.ref(whole)
    del whole
    gc.collect()
    assert gone() is None


def test_equal_items_share_code():
    @dataclasses.dataclass(frozen=True)
    class Size:
        n: int

    @qd.data_oriented
    class Grid:
        n = 3

        @property
        def sizes(self) -> list[Size]:
            return [Size(self.n), Size(2)]

        @qd.kernel
        def total(self) -> qd.i32:
            return self.sizes[0].n * self.sizes[1].n

    grid = Grid()
    assert grid.total() == grid.total() == 6
    assert compiled(Grid.total) == 1
    grid.n = 4
    assert grid.total() == 8


def test_equal_items_of_different_types_do_not_share_code():
    @qd.data_oriented
    class Weights:
        def __init__(self) -> None:
            self.items = [1, 2]

        @qd.kernel
        def plus(self, n: qd.i32) -> qd.f32:
            return self.items[0] + n

    weights = Weights()
    assert weights.plus(2**31 - 1) == -(2.0**31)
    weights.items = [1.0, 2]
    assert weights.plus(2**31 - 1) == 2.0**31


def test_ndarrays_are_refused():
    @qd.kernel
    def fill(f: qd.template()):
        pass

    with pytest.raises(qd.OctantsRuntimeTypeError, match="qd.types.ndarray"):
        fill(qd.ndarray(qd.f32, 3))


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


def test_changes_of_compile_time_lists_are_seen() -> None:
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


class Numbers(NamedTuple):
    """Constants by name; `b` is a color component elsewhere, `index` a method of tuples."""

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


def test_changed_attributes_are_seen():
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


def test_arrays_of_objects_are_found_at_each_launch():
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


def test_the_class_must_be_declared():
    class Plain:
        @qd.kernel
        def run(self):
            pass

    with pytest.raises(qd.OctantsSyntaxError, match="Please decorate class Plain with @qd.data_oriented"):
        Plain().run()


def test_values_behind_lists_and_dicts():
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


@pytest.mark.parametrize("needs_grad", [False, True])
def test_arrays_in_lists_and_dicts_of_objects(needs_grad: bool):
    @qd.data_oriented
    class Part:
        def __init__(self) -> None:
            self.x = array()

        @qd.func
        def add(self, v: qd.f32):
            self.x[0] += v

    @qd.data_oriented
    class Sim:
        def __init__(self) -> None:
            self.named = {"a": array(), 2: array()}
            self.listed = [array()]
            self.parts = {"p": Part()}

        @qd.kernel
        def run(self):
            self.named["a"][0] += 1
            self.named[2][0] += 2
            self.listed[0][0] += 3
            self.parts["p"].add(4.0)
            self.parts["p"].x[0] += 5

        def values(self) -> list[float]:
            arrays = [self.named["a"], self.named[2], self.listed[0], self.parts["p"].x]
            return [x[0] for x in arrays]

    def array() -> qd.Ndarray:
        return qd.ndarray(qd.f32, 2, needs_grad=needs_grad)

    sim = Sim()
    sim.run()
    assert sim.values() == [1, 2, 3, 9]
    sim.run()
    assert sim.values() == [2, 4, 6, 18]
    before = compiled(Sim.run)
    sim.named["a"], sim.parts["p"] = array(), Part()
    sim.run()
    assert sim.values() == [1, 6, 9, 9]
    assert compiled(Sim.run) == before + 1


def test_vectors_created_by_a_property():
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


def test_arrays_created_by_a_property():
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


def test_numbers_may_be_read_at_launch() -> None:
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
    with pytest.raises(TypeError, match="lifted as a kernel argument of type i32"):
        sim.get()


DEFAULTS = {"size": 1, "depth": 7}


def test_the_last_dict_entry_with_a_key_wins() -> None:
    @qd.func
    def volume(size, depth):
        return 10 * size + depth

    @qd.kernel
    def literal() -> qd.i32:
        d = {"size": 1, "size": 5}  # noqa: F601
        return d["size"]

    @qd.kernel
    def merged() -> qd.i32:
        own = {"size": 2}
        d = {**DEFAULTS, **own, 3: 100, "four": 4}
        return d["size"] * 10 + d["depth"] + d[3]

    @qd.kernel
    def made() -> qd.i32:
        d = {k % 2: k for k in qd.static(range(5))}
        return len(d) * 100 + d[0] * 10 + d[1]

    @qd.kernel
    def named() -> qd.i32:
        return volume(**DEFAULTS)

    assert (literal(), merged(), made(), named()) == (5, 127, 243, 17)


def test_a_changed_dict_is_merged_again() -> None:
    @qd.data_oriented
    class Sim:
        def __init__(self) -> None:
            self.options = {"size": 1}

        @qd.kernel
        def size(self) -> qd.i32:
            d = {"size": 0, **self.options}
            return d["size"]

    sim = Sim()
    assert sim.size() == 1
    sim.options["size"] = 2
    assert sim.size() == 2


def test_an_attribute_that_keeps_changing_is_named() -> None:
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


def test_python_only_calls_are_refused_in_kernels() -> None:
    """It would run once, while the kernel is compiled, and be left out of all later calls."""
    x, y = qd.field(qd.f32, shape=3), qd.field(qd.f32, shape=3)
    v = qd.Vector.field(2, qd.f32, shape=3)
    array = qd.ndarray(qd.f32, shape=3)

    @qd.kernel
    def copies():
        y.copy_from(x)

    @qd.kernel
    def exports():
        v.to_numpy()

    @qd.kernel
    def exports_array():
        array.to_numpy()

    @qd.kernel
    def makes_field():
        _ = qd.field(qd.f32, shape=3)

    @qd.kernel
    def makes_vectors():
        _ = qd.Vector.field(2, qd.f32, shape=3)

    @qd.kernel
    def makes_array():
        _ = qd.ndarray(qd.f32, shape=3)

    names = ["copy_from", "to_numpy", "to_numpy", "field", "field", "ndarray"]
    for kernel, name in zip(
        [copies, exports, exports_array, makes_field, makes_vectors, makes_array], names, strict=True
    ):
        with pytest.raises(qd.OctantsCompilationError, match=rf"{name}\(\) cannot be called in") as error:
            kernel()
        assert f"{name}(" in str(error.value).split("cannot")[0]

    @qd.kernel
    def fills(value: qd.f32):
        x.fill(value)

    for value in [1.0, 2.0]:
        fills(value)
        assert x[2] == value


def test_plain_functions_may_inspect_arrays_at_compile_time() -> None:
    x = qd.field(qd.f32, shape=3)
    x.fill(2.0)

    def largest() -> float:
        return float(x.to_numpy().max())

    @qd.kernel
    def get() -> qd.f32:
        return qd.static(largest())

    assert get() == 2.0


def test_a_grouped_ndrange_of_no_axes_is_one_iteration():
    vector = qd.Vector.field(3, qd.f32, shape=())
    scalar = qd.field(qd.f32, shape=())

    @qd.kernel
    def add(to: qd.template()):
        for i in qd.grouped(qd.ndrange(*to.shape)):
            to[i] += 2.0

    @qd.kernel
    def count() -> qd.i32:
        n = 0
        for _ in range(2):
            for _i in qd.static(qd.grouped(qd.ndrange(*scalar.shape))):
                n += 1
            for _i in qd.grouped(qd.ndrange(*scalar.shape)):
                n += 10
        return n

    add(vector)
    add(scalar)
    assert (vector.to_numpy() == 2.0).all()
    assert scalar[None] == 2.0
    assert count() == 22
