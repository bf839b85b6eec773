"""`print` and f-strings: conversions that match the type, constants formatted as in Python, sequences."""

import pytest

import octants as qd


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu, debug=True)
    yield
    qd.reset()


@pytest.mark.parametrize(
    ("kind", "fits", "does_not"),
    [
        (qd.i32, "d i 5d", "u x X o f .2f e g"),
        (qd.u8, "u x X o", "d i .2f"),
        (qd.f64, "f .2f e g a", "d i u x"),
        (qd.u1, "u", "d f"),
    ],
    ids=str,
)
def test_conversions_fit_the_type(kind, fits, does_not, capfd):
    for spec in fits.split() + does_not.split():
        # The specification is part of the text of the kernel.
        @qd.kernel
        def show(x: kind):
            print(("{:" + spec + "}").format(x))

        if spec in fits.split():
            show(1)
        else:
            with pytest.raises(qd.OctantsTypeError, match="doesn't match"):
                show(1)
    qd.sync()
    assert len(capfd.readouterr().out.split("\n")) == len(fits.split()) + 1


@pytest.mark.parametrize("spec", ["c", "s", "n", "p"])
def test_unknown_conversions_are_refused(spec):
    @qd.kernel
    def show(x: qd.i32):
        print(("{:" + spec + "}").format(x))

    with pytest.raises(qd.OctantsTypeError, match="is not supported"):
        show(1)


@pytest.mark.parametrize("spec", ["q", ",", "5%"])
def test_non_numeric_formats_are_refused(spec):
    @qd.kernel
    def show(x: qd.f32):
        print(("{:" + spec + "}").format(x))

    with pytest.raises(qd.OctantsTypeError, match="is not a valid number format"):
        show(1)


def test_constants_in_f_strings_are_as_in_python(capfd):
    @qd.kernel
    def show(n: qd.template()):
        print(n, f"{n}", f"{(n, 2)} {True} {1.5} {1.5:.3f}")

    show(2.5)
    show(True)
    qd.sync()
    out = capfd.readouterr().out.split("\n")
    assert out[0] == "2.500000 2.5 (2.5, 2) True 1.5 1.500"
    assert out[1] == "1 True (True, 2) True 1.5 1.500"


def test_sequences(capfd):
    @qd.kernel
    def show(a: qd.i32):
        print([1, 2.5], (1, (2, 3)), (a, [a, 2]))

    show(7)
    qd.sync()
    assert capfd.readouterr().out == "[1, 2.500000] [1, [2, 3]] [7, [7, 2]]\n"


def test_arrays_and_fields_are_not_printable():
    x = qd.field(qd.i32, 3)

    @qd.kernel
    def show():
        print(x)

    with pytest.raises(qd.OctantsTypeError, match="print its elements"):
        show()


def test_messages_of_assertions_are_text():
    @qd.kernel
    def number(a: qd.i32):
        assert a > 0, a

    @qd.kernel
    def text(a: qd.i32):
        assert a > 0, f"got {a}"

    with pytest.raises(qd.OctantsSyntaxError, match="constant or a formatted string"):
        number(1)
    with pytest.raises(AssertionError, match="got -1"):
        text(-1)


def test_numbers_in_messages_of_assertions():
    @qd.kernel
    def check(a: qd.f32, b: qd.f64, i: qd.i32, n: qd.u8):
        assert a > 0, f"{a} {b} {i:.2f} {a:d} {n:d} {i:s} {qd.Vector([a, 0.5])} {a:.3f}"

    @qd.kernel
    def formatted(a: qd.f32, i: qd.i32):
        assert a > 0, "{} {:x} {:.1f}".format(a, i, i)

    with pytest.raises(AssertionError, match=r"^-1.5 -0.1 3.00 -1.5 4 3 \[-1.5, 0.5\] -1.500"):
        check(-1.5, -0.1, 3, 4)
    with pytest.raises(AssertionError, match=r"^-10000000000.0 ff 255.0"):
        formatted(-1e10, 255)


def test_percent_formats_as_python_does(capfd):
    @qd.kernel
    def show(x: qd.f32, i: qd.i32):
        print("%d|%s|%5d|%f|%d" % (x, i, -x, i, 2.75))
        print("%x|%d" % (i, i), "%d" % True)

    @qd.kernel
    def hexadecimal(x: qd.f32):
        print("%x" % x)

    show(1.5, 12)
    qd.sync()
    assert capfd.readouterr().out == "1|12|   -1|12.000000|2\nc|12 1\n"
    with pytest.raises(qd.OctantsTypeError, match="`%x` is for integers, not for f32"):
        hexadecimal(1.0)
