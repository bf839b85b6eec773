"""Literals and constants: the types they take, and what is refused because it does not fit."""

import numpy as np
import pytest

import octants as qd


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


@pytest.mark.parametrize("dtype, bits", [(qd.i32, 32), (qd.i64, 64)])
def test_bit_functions_use_literals_of_the_default_width(dtype, bits):
    qd.init(arch=qd.cpu, default_ip=dtype)

    @qd.kernel
    def shifted() -> qd.i64:
        return qd.bit_shr(-1, 4)

    @qd.kernel
    def zeros() -> qd.i32:
        return qd.math.clz(1)

    @qd.kernel
    def ones() -> qd.i32:
        return qd.math.popcnt(-1)

    assert (shifted(), zeros(), ones()) == (2 ** (bits - 4) - 1, bits - 1, bits)


def test_a_literal_that_exceeds_its_type_is_refused_where_it_is_stored():
    narrow, wide = qd.field(qd.i32, 1), qd.field(qd.i64, 1)

    @qd.kernel
    def store(x: qd.template()):
        x[0] = 3000000000

    store(wide)
    assert wide[0] == 3000000000
    with pytest.raises(qd.OctantsTypeError, match="3000000000 exceeded the range of default_ip"):
        store(narrow)


def test_constants_are_divided_as_in_python():
    @qd.kernel
    def floor() -> qd.i32:
        return 5 // 0

    @qd.kernel
    def rest() -> qd.i32:
        return 5 % 0

    for kernel in (floor, rest):
        with pytest.raises(qd.OctantsCompilationError, match="ZeroDivisionError"):
            kernel()


def test_a_constant_condition_promotes_both_sides():
    @qd.kernel
    def promoted() -> qd.f32:
        a = 7
        b = 2.5
        x = a if True else b
        x += 0.5
        return x

    @qd.kernel
    def static() -> qd.f32:
        a = 7
        b = 2.5
        x = a if qd.static(True) else b
        x += 0.5
        return x

    @qd.kernel
    def other_side_does_not_run(y: qd.types.ndarray()) -> qd.i32:
        a = 7
        return a if True else qd.atomic_add(y[0], 1)

    counter = np.zeros(1, np.int32)
    assert (promoted(), static(), other_side_does_not_run(counter), counter[0]) == (7.5, 7.0, 7, 0)


@pytest.mark.parametrize(
    "dtype, fits, exceeds",
    [
        (qd.i8, (-128, 127), (-129, 256, 300)),
        (qd.u8, (0, 255), (-1, 256)),
        (qd.i16, (-(2**15), 2**15 - 1), (2**16,)),
        (qd.i32, (-(2**31), 2**31 - 1), (2**32, -(2**31) - 1)),
        (qd.u32, (0, 2**32 - 1), (-1, 2**32)),
        (qd.u64, (0, 2**64 - 1), (-1, 2**64)),
    ],
)
def test_arguments_that_do_not_fit_are_refused(dtype, fits, exceeds):
    @qd.kernel
    def same(a: dtype) -> dtype:
        return a

    assert tuple(same(a) for a in fits) == fits
    for a in exceeds:
        with pytest.raises(TypeError, match=f"{a} does not fit {dtype}"):
            same(a)


def test_unsigned_bits_are_accepted_for_a_signed_parameter():
    @qd.kernel
    def same(a: qd.i8, b: qd.i32) -> qd.i64:
        return a + b

    assert same(255, 0xFFFFFFFF) == -2


def test_masked_and_byteswapped_arrays_are_refused():
    @qd.kernel
    def first(a: qd.types.ndarray()) -> qd.i32:
        return a[0]

    masked = np.ma.array([1, 2, 3], mask=[1, 0, 0], dtype=np.int32)
    with pytest.raises(ValueError, match="masked"):
        first(masked)
    with pytest.raises(ValueError, match=">i4"):
        first(np.array([1], dtype=">i4"))
    assert first(masked.filled(5)) == 5
    with pytest.raises(ValueError, match="mask"):
        qd.field(qd.i32, 3).from_numpy(masked)


def test_overflow_is_reported_once_for_each_place_and_launch(capfd):
    qd.init(arch=qd.cpu, debug=True)
    x = qd.field(qd.i32, 1000)

    @qd.kernel
    def twice():
        for i in x:
            x[i] = (x[i] + 2147483647) + 2147483647

    @qd.kernel
    def text():
        for i in range(3):
            print("Addition overflow detected")

    for launches in (1, 2):
        x.fill(1)
        twice()
        qd.sync()
        out = capfd.readouterr().out
        assert out.count("Addition overflow detected") == 1, (launches, out)
        assert "test_literals.py" in out
    text()
    qd.sync()
    assert capfd.readouterr().out.count("detected") == 3


def test_conditional_expressions_of_literals_promote_all_of_them():
    @qd.kernel
    def chosen() -> qd.types.vector(3, qd.f32):
        a = qd.select(1 > 0, 2, 3.5)
        b = min(2.5, 1)
        c = qd.max(3, 1.5, 2)
        a, b, c = a + 0.5, b + 0.5, c + 0.5
        return [a, b, c]

    assert chosen().to_list() == [2.5, 1.5, 3.5]


def test_conversions_that_may_lose_precision_are_logged(caplog):
    small, whole = qd.field(qd.u8, shape=2), qd.field(qd.i32, shape=2)
    real, double = qd.field(qd.f32, shape=2), qd.field(qd.f64, shape=2)
    pair = qd.Vector.field(2, qd.i32, shape=1)

    @qd.kernel
    def store(n: qd.i32, x: qd.f32):
        whole[0] = 2.5
        whole[1] += x
        small[0] = n
        real[0] = double[0]
        pair[0] = [1.5, x]
        qd.atomic_max(whole[0], x)
        # No conversion loses anything here, or the literal fits.
        real[1] = n
        small[1] = 3
        double[1] = x
        real[1] += 0.1

    with caplog.at_level("WARNING", logger="octants"):
        store(1, 2.0)
    lines = [record.getMessage().partition(f"{__file__}:")[2] for record in caplog.records]
    said = [line.partition(": ")[2] for line in lines]
    assert said == [
        "Assign may lose precision: i32 <- f32",
        "Atomic add may lose precision: i32 <- f32",
        "Assign may lose precision: u8 <- i32",
        "Assign may lose precision: f32 <- f64",
        "Assign may lose precision: i32 <- f32",
        "Atomic max may lose precision: i32 <- f32",
    ]
    first = store.fn.__code__.co_firstlineno + 2
    assert [int(line.partition(":")[0]) - first for line in lines] == [0, 1, 2, 3, 4, 5]


def test_a_literal_that_exceeds_the_type_it_is_cast_to():
    @qd.kernel
    def cut() -> qd.i32:
        return qd.cast(2**40, qd.i32)

    with pytest.raises(qd.OctantsTypeError, match="Integer literal 1099511627776 exceeded the range of default_ip"):
        cut()

    @qd.kernel
    def wide() -> qd.i64:
        return qd.cast(2**40, qd.i64) + qd.cast(300, qd.u8)

    assert wide() == 2**40 + 44
