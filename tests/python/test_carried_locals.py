"""The warning about loop-carried variables of parallel loops, and programs without the warning."""

import warnings

import numpy as np
import pytest

import octants as qd


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


def warned(kernel, *args):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernel(*args)
    return [w for w in caught if "in another iteration" in str(w.message)]


@qd.kernel
def xorshift(steps: qd.i32) -> qd.u32:
    s = qd.u32(1)
    for _ in range(steps):
        s ^= s << 13
        s ^= s >> 17
    return s


def test_a_loop_carried_variable_warns_with_both_lines():
    found = warned(xorshift, 5)
    first = xorshift.__wrapped__.__code__.co_firstlineno
    assert [w.lineno for w in found] == [first + 4]
    text = str(found[0].message)
    assert "`s`" in text
    assert f"test_carried_locals.py:{first + 3}" in text
    assert "qd.loop_config(serialize=True)" in text
    assert "atomic" in text
    assert warned(xorshift, 7) == []


def test_variants_of_loop_carried_variables_warn():
    x = qd.field(qd.f32, 8)
    following = qd.field(qd.i32, 8)

    @qd.kernel
    def filtered() -> qd.f32:
        mean = 0.0
        for i in x:
            mean = mean * 0.9 + x[i]
        return mean

    @qd.kernel
    def pair(n: qd.i32) -> qd.i32:
        a, b = 0, 1
        for _ in range(n):
            a, b = b, a + b
        return a

    @qd.kernel
    def vector(n: qd.i32) -> qd.f32:
        p = qd.Vector([1.0, 2.0])
        for _ in range(n):
            p = p * 0.5 + qd.Vector([p.y, p.x])
        return p.x

    @qd.kernel
    def pointers(n: qd.i32) -> qd.i32:
        at = 0
        for _ in range(n):
            at = following[at]
        return at

    @qd.kernel
    def inner(n: qd.i32) -> qd.i32:
        s = 1
        for i in range(n):
            for j in range(3):
                s = s * 3 + j + i
        return s

    @qd.func
    def step(a):
        return a * 1664525 + 1013904223

    @qd.kernel
    def by_function(n: qd.i32) -> qd.i32:
        s = 1
        for _ in range(n):
            s = step(s)
        return s

    assert len(warned(filtered)) == 1
    for kernel in (pair, vector, pointers, inner, by_function):
        assert warned(kernel, 4), kernel.__name__


def test_variables_private_to_iterations_do_not_warn():
    x = qd.field(qd.f32, 8)

    @qd.kernel
    def reductions() -> qd.f32:
        total, least, product, bits = 0.0, 1e9, 1.0, 0
        for i in x:
            total += x[i]
            least = qd.min(least, x[i])
            product *= 2.0
            bits |= i
            total = total + x[i]
        return total + least + product + bits

    @qd.kernel
    def flags() -> qd.i32:
        found = 0
        last = 0
        for i in x:
            if x[i] == 0:
                found = 1
                last = i
        return found + last

    @qd.kernel
    def own(n: qd.i32):
        for i in range(n):
            s = i
            for j in range(3):
                s = s * 3 + j
            x[i] = s

    @qd.kernel
    def set_first(n: qd.i32):
        s = 0
        for i in range(n):
            s = i
            s = s * 2 + 1
            x[i] = s

    @qd.kernel
    def in_order(n: qd.i32) -> qd.i32:
        s = 1
        qd.loop_config(serialize=True)
        for _ in range(n):
            s = s * 3 + 1
        return s

    @qd.kernel
    def on_one_thread(n: qd.i32) -> qd.i32:
        s = 1
        qd.loop_config(parallelize=1)
        for _ in range(n):
            s = s * 3 + 1
        return s

    @qd.kernel
    def once() -> qd.i32:
        s = 1
        for _ in range(1):
            s = s * 3 + 1
        return s

    @qd.kernel
    def under_a_condition(n: qd.i32) -> qd.i32:
        s = 1
        for i in range(n):
            if i == 2:
                s = s * 3 + 1
        return s

    @qd.kernel
    def nested(n: qd.i32) -> qd.i32:
        s = 1
        while s < n:
            for _ in range(3):
                s = s * 3 + 1
        return s

    @qd.kernel
    def stays(n: qd.i32) -> qd.i32:
        s = 7
        for _ in range(n):
            s = qd.min(qd.max(s, 0), 5)
        return s

    @qd.kernel
    def read_alone(n: qd.i32):
        s = 7
        for i in range(n):
            x[i] = s * 2 + i
        s = s * 3 + 1
        for i in range(n):
            x[i] += s

    @qd.kernel
    def unrolled() -> qd.i32:
        s = 1
        for i in qd.static(range(4)):
            s = s * 3 + i
        return s

    for kernel in (reductions, flags, once, unrolled):
        assert warned(kernel) == [], kernel.__name__
    for kernel in (own, set_first, in_order, on_one_thread, under_a_condition, nested, stays, read_alone):
        assert warned(kernel, 4) == [], kernel.__name__
    assert in_order(4) == 121
    np.testing.assert_array_equal(x.to_numpy()[:4], 2 * 7 + np.arange(4) + 22)
