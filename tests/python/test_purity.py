"""`@qd.kernel(fastcache=True)`, `pure=True` and `@qd.pure` check that a kernel depends on its arguments only."""

import enum
import math
import warnings

import numpy as np
import pytest

import octants as qd

size = 2
SIZE = 3


class Config:
    size = 4
    SIZE = 5


class Color(enum.IntEnum):
    RED = 7


class Shape(enum.Enum):
    ROUND = 8


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


def declared_by_keyword(function):
    with pytest.warns(UserWarning, match="parameter `pure` is deprecated"):
        return qd.kernel(pure=True)(function)


def declared_by_decorator(function):
    with pytest.warns(UserWarning, match=r"@qd\.pure is deprecated"):
        return qd.pure(qd.kernel(function))


@pytest.mark.parametrize("declare", [qd.kernel(fastcache=True), declared_by_keyword, declared_by_decorator])
def test_a_captured_variable_is_an_error(declare):
    def uses_global() -> qd.i32:
        return size

    def takes_it(n: qd.template()) -> qd.i32:
        return n

    with pytest.raises(qd.OctantsCompilationError, match=r"\[PURE.VIOLATION\].*uses `size`"):
        declare(uses_global)()
    assert declare(takes_it)(size) == 2
    assert declare(takes_it).is_pure
    assert not qd.kernel(takes_it).is_pure


def test_captured_fields_arrays_closures_and_attributes_are_errors():
    x = qd.field(qd.i32, shape=2)
    a = qd.ndarray(qd.i32, 2)
    n = 1

    @qd.kernel(fastcache=True)
    def field():
        x[0] = 1

    @qd.kernel(fastcache=True)
    def array():
        a[0] = 1

    @qd.kernel(fastcache=True)
    def closure() -> qd.i32:
        return n

    @qd.kernel(fastcache=True)
    def attribute() -> qd.i32:
        return Config.size

    for kernel in (field, array, closure, attribute):
        with pytest.raises(qd.OctantsCompilationError, match="PURE.VIOLATION"):
            kernel()


def test_uppercase_constants_and_static_values_warn():
    @qd.kernel(fastcache=True)
    def capitals() -> qd.i32:
        return SIZE + Config.SIZE

    @qd.kernel(fastcache=True)
    def static() -> qd.i32:
        return qd.static(size) + qd.static(Config.size)

    for kernel, expected in ((capitals, 8), (static, 6)):
        with pytest.warns(UserWarning, match=r"\[PURE.VIOLATION\]") as seen:
            assert kernel() == expected
        assert len(seen) == 2
        assert all(str(w.filename).endswith("test_purity.py") for w in seen)


def test_immutable_values_are_allowed():
    @qd.func
    def helper(a):
        return a + 1

    @qd.data_oriented
    class Box:
        def __init__(self):
            self.n = 1
            self.x = qd.field(qd.i32, shape=())

        @qd.kernel(fastcache=True)
        def get(self) -> qd.i32:
            self.x[None] = self.n
            return self.x[None] + helper(1)

    @qd.kernel(fastcache=True)
    def constants() -> qd.f64:
        return math.pi + np.pi + qd.math.pi + Color.RED + Shape.ROUND.value + qd.math.length(qd.Vector([3.0, 4.0]))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Box().get() == 3
        assert constants() == pytest.approx(3 * math.pi + 20, rel=1e-6)


def test_an_undeclared_kernel_may_capture_anything():
    @qd.kernel
    def k() -> qd.i32:
        return size + SIZE + Config.size

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert k() == 9
