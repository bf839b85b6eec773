"""Compile-time values behave as in Python."""

import itertools
import operator

import numpy as np
import pytest

import octants as qd

ROWS = (("a", "b"), ("c", "d"))
WORD = "hello"
PAIRS = [(1, (2, 3)), (4, (5, 6))]
NUMBER = 3


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


def test_strings_are_indexed_sliced_and_formatted():
    @qd.kernel
    def found() -> qd.i32:
        n = 0
        for r in qd.static(range(2)):
            if qd.static(ROWS[r][1] == "d" and ROWS[r][1][0] == "d"):
                n += 1
        for letter in qd.static(WORD[1:3]):
            if qd.static(letter in "el"):
                n += 10
        if qd.static(f"x{NUMBER:03d}".upper() == "X003"):
            n += 100
        if qd.static(f"{WORD[0]}{1.5}" == "h1.5"):
            n += 1000
        return n

    @qd.kernel
    def runs(i: qd.i32) -> qd.i32:
        return qd.static(WORD)[i] == "h"

    assert found() == 1121
    with pytest.raises(qd.OctantsTypeError, match="known at compile time"):
        runs(0)


def test_sets_and_ranges_are_values():
    @qd.kernel
    def found() -> qd.i32:
        n = 0
        for x in qd.static(sorted({3, 1, 2} & {2, 3, 4})):
            n = n * 10 + x
        for x in qd.static(sorted({i % 2 for i in range(4)})):
            n = n * 10 + x
        for i, j in qd.static(itertools.product(range(2), range(2))):
            n += (i + j) * 10000
        if qd.static(3 in {1, 3}):
            n += 100000
        return n

    @qd.kernel
    def outside():
        s = {1, 2}

    assert found() == 2301 + 40000 + 100000
    with pytest.raises(qd.OctantsSyntaxError, match='Unsupported node "Set"'):
        outside()


def test_loops_over_compile_time_items_unpack_them():
    @qd.kernel
    def found() -> qd.i32:
        n = 0
        for a, (b, c) in qd.static(PAIRS):
            n = n * 100 + a * b * c
        return n

    @qd.kernel
    def mismatch():
        for a, b, c in qd.static(PAIRS):
            pass

    assert found() == 6 * 100 + 120
    with pytest.raises(qd.OctantsSyntaxError, match="3 targets, 2 values"):
        mismatch()


def test_functions_of_the_operator_module_are_operators():
    binary = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.xor]

    @qd.kernel
    def results(a: qd.i32, b: qd.i32, out: qd.types.ndarray()):
        for i in qd.static(range(6)):
            out[i] = binary[i](a, b)
        out[6] = operator.neg(a)
        out[7] = operator.lt(a, b)
        out[8] = operator.getitem(out, 0)

    out = np.zeros(9, np.int32)
    results(17, 5, out)
    assert out.tolist() == [22, 12, 85, 3, 2, 20, -17, 0, 22]


def test_messages_name_a_remedy():
    import functools

    def decorated(function):
        @functools.wraps(function)
        def inner(*args, **kwargs):
            return function(*args, **kwargs)

        return inner

    @decorated
    @qd.func
    def five():
        return 5

    @qd.kernel
    def calls() -> qd.i32:
        return five()

    with pytest.raises(qd.OctantsSyntaxError, match="functools.wraps"):
        calls()

    @decorated
    def between():
        pass

    with pytest.raises(qd.OctantsSyntaxError, match="put the other decorator above"):
        qd.kernel(between)

    @qd.data_oriented
    class Base:
        @qd.func
        def value(self):
            return 1

    @qd.data_oriented
    class Derived(Base):
        @qd.func
        def value(self):
            return super().value() + 1

        @qd.func
        def named(self):
            return super(Derived, self).value() + 1

        @qd.kernel
        def short(self) -> qd.i32:
            return self.value()

        @qd.kernel
        def long(self) -> qd.i32:
            return self.named()

    with pytest.raises(qd.OctantsSyntaxError, match=r"super\(Class, self\)"):
        Derived().short()
    assert Derived().long() == 2


def test_lists_change_while_the_kernel_is_compiled():
    @qd.kernel
    def changed(n: qd.i32) -> qd.i32:
        items = [1, 2]
        items.append(n)
        items.extend([4, 5])
        items.insert(0, 9)
        items.insert(-1, 8)
        last = items.pop()
        first = items.pop(0)
        total = 0
        for k in qd.static(range(5)):
            total = total * 10 + items[k]
        return total * 100 + first * 10 + last

    @qd.kernel
    def empty():
        items = [1]
        items.pop()
        items.pop()

    assert changed(3) == 1234895
    with pytest.raises(qd.OctantsIndexError, match="pop from an empty list or index out of range: `items`"):
        empty()


def test_lists_and_tuples_of_run_time_values_repeat():
    @qd.kernel
    def repeated(n: qd.i32, x: qd.f32) -> qd.f32:
        ones = [n] * 3
        ones[0] = 5
        pairs = 2 * (n, x)
        rows = qd.Matrix([[x] * 2] * 3)
        return len(ones) + 10 * len(pairs) + 100 * ones[1] + 1000 * ones[0] + 10000 * pairs[2] + 100000 * rows.sum()

    @qd.kernel
    def components(v: qd.types.vector(3, qd.f32)) -> qd.f32:
        return (v.xy * 2).sum() + (3 * v[1:3]).sum()

    assert repeated(2, 0.5) == 3 + 40 + 200 + 5000 + 20000 + 300000
    assert components([1, 2, 3]) == 6 + 15
