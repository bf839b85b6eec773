"""Repeated launches with the same dataclasses: all possible changes between launches take effect."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from call_kernels import compiled

import octants as qd

COUNT = 20


def tensors(backend=qd.Backend.NDARRAY, count=COUNT, extent=4):
    return [qd.tensor(qd.i32, shape=(extent,), backend=backend) for _ in range(count)]


def struct(frozen):
    members = [(f"m{i}", qd.Tensor) for i in range(COUNT)]
    return dataclasses.make_dataclass("Struct", members, frozen=frozen)


Frozen, Open = struct(True), struct(False)


@qd.kernel
def add_frozen(s: Frozen, n: qd.i32, flag: qd.template()):
    for i in range(4):
        s.m0[i] += n
        if qd.static(flag):
            s.m19[i] += 1


@qd.kernel
def add_open(s: Open, n: qd.i32):
    for i in range(4):
        s.m0[i] += n
        s.m19[i] += 1


def first(tensor):
    return int(tensor.to_numpy()[0])


@pytest.mark.parametrize("backend", list(qd.Backend))
def test_numbers_and_compile_time_values_may_differ_between_calls(backend):
    s = Frozen(*tensors(backend))
    for n in range(1, 6):
        add_frozen(s, n, n % 2 == 0)
        add_frozen(s, 10 * n, n % 2 == 0)
    assert (first(s.m0), first(s.m19)) == (15 + 150, 4)
    assert compiled(add_frozen) == 2


@pytest.mark.parametrize("backend", list(qd.Backend))
def test_calls_may_alternate_between_objects(backend):
    several = [Frozen(*tensors(backend)) for _ in range(6)]
    for round in range(5):
        for number, s in enumerate(several):
            add_frozen(s, number + round, False)
    assert [first(s.m0) for s in several] == [10 + 5 * number for number in range(6)]


@pytest.mark.parametrize("backend", list(qd.Backend))
def test_assignments_to_members_are_seen(backend):
    s = Open(*tensors(backend))
    for _ in range(4):
        add_open(s, 1)
    old, (new,) = s.m0, tensors(backend, 1)
    s.m0 = new
    for _ in range(4):
        add_open(s, 10)
    s.m0 = old
    add_open(s, 100)
    assert (first(old), first(new), first(s.m19)) == (104, 40, 9)
    # One that the kernel does not know changes nothing.
    s.note = "text"
    add_open(s, 1000)
    assert first(old) == 1104


def test_another_array_argument_may_alias_members():
    @dataclasses.dataclass(frozen=True)
    class State:
        x: qd.Tensor
        y: qd.Tensor

    @qd.kernel
    def shift(s: State, other: qd.types.ndarray(dtype=qd.i32, ndim=1)):
        qd.loop_config(serialize=True)
        for i in range(1, 4):
            s.x[i] = other[i - 1] + s.y[i]

    x, y, far = tensors(count=3)
    s = State(x, y)
    y.fill(1)
    for other in (far, far, far, x._unwrap(), far, x._unwrap(), x._unwrap()):
        x.fill(0)
        shift(s, other)
        expected = [0, 1, 1, 1] if other is far else [0, 1, 2, 3]
        assert x.to_numpy().tolist() == expected
    hosts = [np.full(4, n, np.int32) for n in (5, 6, 7, 8)]
    for host in hosts:
        shift(s, host)
        assert x.to_numpy().tolist()[1:] == [int(host[0]) + 1] * 3


def test_objects_at_reused_addresses_are_not_confused():
    class Setting:
        def __init__(self, factor):
            self.factor = factor

    @qd.kernel
    def scale(s: Frozen, setting: qd.template()):
        for i in range(4):
            s.m0[i] = setting.factor * 2

    s = Frozen(*tensors())
    for factor in range(12):
        setting = Setting(factor % 3)
        scale(s, setting)
        scale(s, setting)
        assert first(s.m0) == factor % 3 * 2
        del setting


class Settings:
    """Plain attributes, properties of them, and one that reads something else."""

    scale = 3
    outside = [1]  # noqa: RUF012: shared on purpose

    def __init__(self):
        self.a, self.b, self.items = 1, 2, [1, 2]

    @property
    def total(self):
        return max(1, self.a + self.twice)

    @property
    def twice(self):
        return 2 * self.b

    @property
    def elsewhere(self):
        return self.outside[0]


@qd.kernel
def read_settings(s: Frozen, c: qd.template()):
    for i in range(1):
        s.m0[i] = qd.i32(c.a + 10 * c.total + 1000 * c.elsewhere + 10000 * c.scale + 100000 * len(c.items))


def test_changes_of_an_object_are_seen():
    s, c = Frozen(*tensors()), Settings()

    def value():
        values = []
        for _ in range(3):
            read_settings(s, c)
            values.append(first(s.m0))
        assert len(set(values)) == 1
        return values[0]

    assert value() == 231051
    c.a = 2
    assert value() == 231062
    c.b = 3
    assert value() == 231082
    try:
        Settings.outside[0] = 2
        assert value() == 232082
        Settings.scale = 4
        assert value() == 242082
        c.scale = 5
        assert value() == 252082
        c.items.append(3)
        assert value() == 352082
        Settings.total = property(lambda self: 9)
        assert value() == 352092
    finally:
        Settings.outside[0], Settings.scale = 1, 3
        Settings.total = property(lambda self: max(1, self.a + self.twice))


def test_repeated_launches_return_results_and_errors():
    @qd.kernel
    def total(s: Frozen, n: qd.i32) -> qd.i32:
        sum = 0
        for i in range(n):
            sum += s.m0[i]
        return sum

    s = Frozen(*tensors())
    s.m0.fill(3)
    assert [total(s, n) for n in (1, 2, 3, 4, 2)] == [3, 6, 9, 12, 6]
    with pytest.raises(TypeError):
        total(s, 1.5)
    assert total(s, 4) == 12
