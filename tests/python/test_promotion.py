"""The result type of every operator on every pair of scalar types.

The result type is inferred from the values of three numbers after a store to a variable of that type.
"""

import kernel_operators as operators
import numpy as np
import pytest

import octants as qd

NAMES = "u1 i8 i16 i32 i64 u8 u16 u32 u64 f16 f32 f64".split()
INTEGERS = NAMES[:9]
FLOATS = NAMES[9:]
NUMPY = dict(
    zip(NAMES, "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split(), strict=True)
)
BITS = {name: 1 if name == "u1" else int(name[1:]) for name in NAMES}

FRACTION = 0.5
WIDE = 2**40 + 2**20 + 2**10 + 1


def promoted(left, right):
    """Floats win over integers, then the wider type, then the unsigned one."""
    if (left in FLOATS) != (right in FLOATS):
        return left if left in FLOATS else right
    if BITS[left] != BITS[right]:
        return left if BITS[left] > BITS[right] else right
    return left if left[0] == "u" else right


def divided(left, right):
    as_float = [name if name in FLOATS else "f32" for name in (left, right)]
    return promoted(*as_float)


def powered(left, right):
    if right in INTEGERS:
        return left
    return right if left in INTEGERS else promoted(left, right)


def compared(left, right):
    return "u1"


def shifted(left, right):
    return left


def signature_of(name):
    if name in FLOATS:
        kept = np.array([FRACTION, WIDE, -1.0]).astype(NUMPY[name]).astype(np.float64)
        return [float(kept[0]), float(kept[1]), float(kept[2])]
    if name == "u1":
        return [1.0, 1.0, 1.0]
    kept = np.array([0, WIDE, -1]).astype(NUMPY[name])
    return [float(x) for x in kept]


@qd.func
def _less(a, b):
    return a < b


@qd.func
def _equal(a, b):
    return a == b


@qd.func
def _min(a, b):
    return qd.min(a, b)


@qd.func
def _select(a, b):
    return qd.select(True, a, b)


OPERATORS = {
    "add": (operators.add, promoted, NAMES),
    "sub": (operators.sub, promoted, NAMES),
    "mul": (operators.mul, promoted, NAMES),
    "floordiv": (operators.floordiv, promoted, NAMES[1:]),
    "mod": (operators.modulo, promoted, NAMES[1:]),
    "max": (operators.maximum, promoted, NAMES),
    "min": (_min, promoted, NAMES),
    "select": (_select, promoted, NAMES),
    "raw_div": (operators.raw_div, promoted, NAMES[1:]),
    "div": (operators.divide, divided, NAMES),
    "pow": (operators.power, powered, NAMES[1:]),
    "and": (operators.bit_and, promoted, INTEGERS),
    "or": (operators.bit_or, promoted, INTEGERS),
    "xor": (operators.bit_xor, promoted, INTEGERS),
    "shl": (operators.shl, shifted, INTEGERS[1:]),
    "shr": (operators.shr, shifted, INTEGERS[1:]),
    "less": (_less, compared, NAMES),
    "equal": (_equal, compared, NAMES),
}


@pytest.fixture(autouse=True)
def session():
    qd.init(arch=qd.cpu, log_level=qd.ERROR)
    yield
    qd.reset()


@qd.func
def _signature(value, row: qd.template(), out: qd.template()):
    kept = value
    kept = qd.cast(0.5, qd.f64)
    out[row, 0] = qd.cast(kept, qd.f64)
    kept = (qd.cast(1, qd.i64) << 40) + 1049601
    out[row, 1] = qd.cast(kept, qd.f64)
    kept = -1
    out[row, 2] = qd.cast(kept, qd.f64)


def signatures(op, left, rights):
    out = qd.field(qd.f64, shape=(len(rights), 3))
    types = [getattr(qd, name) for name in rights]
    left_type = getattr(qd, left)
    count = len(rights)

    @qd.kernel
    def run():
        a = qd.cast(1, left_type)
        for j in qd.static(range(count)):
            _signature(op(a, qd.cast(1, types[j])), j, out)

    run()
    return out.to_numpy()


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("left", NAMES)
def test_result_types(name, left):
    op, rule, accepted = OPERATORS[name]
    if left not in accepted:
        pytest.skip(f"{name} does not take {left}")
    found = signatures(op, left, accepted)
    for right, kept in zip(accepted, found, strict=True):
        expected = rule(left, right)
        want = signature_of(expected)
        if expected in FLOATS:
            np.testing.assert_allclose(kept, want, rtol=1e-12, err_msg=f"{left} {name} {right}")
        else:
            assert kept.tolist() == want, f"{left} {name} {right}: expected {expected}"


@pytest.mark.parametrize("name", ["and", "or", "xor", "shl", "shr"])
@pytest.mark.parametrize("left, right", [("f32", "i32"), ("i32", "f64"), ("f16", "f16")])
def test_bitwise_operators_refuse_floats(name, left, right):
    op = OPERATORS[name][0]
    left_type, right_type = getattr(qd, left), getattr(qd, right)

    @qd.kernel
    def run():
        c = op(qd.cast(1, left_type), qd.cast(1, right_type))

    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for"):
        run()


def test_division_of_integers_has_the_default_float_type():
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level=qd.ERROR)
    out = qd.field(qd.f64, shape=3)

    @qd.kernel
    def run(a: qd.i32, b: qd.f32):
        out[0] = a / 3
        out[1] = qd.exp(a)
        out[2] = qd.sqrt(a)

    run(1, 1.0)
    np.testing.assert_allclose(out.to_numpy(), [1 / 3, np.e, 1.0], rtol=1e-15)


def test_the_quotient_of_long_constants_follows_python():
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level=qd.ERROR)

    @qd.kernel
    def third() -> qd.f64:
        return qd.static((2**53 + 1) / 3)

    @qd.kernel
    def folded() -> qd.f64:
        return (9007199254740992 + 1) / 3

    assert third() == folded() == (2**53 + 1) / 3


def test_variables_keep_the_type_of_their_first_value():
    @qd.kernel
    def whole() -> qd.f64:
        x = 1
        x = 2.7
        x += 1.6
        return x

    @qd.kernel
    def filled() -> qd.types.vector(2, qd.f64):
        v = qd.Vector([1, 2])
        v = 3.5
        return v

    @qd.kernel
    def wrong():
        v = qd.Vector([1, 2])
        v = qd.Vector([1, 2, 3])

    assert whole() == 3.0
    assert filled().to_numpy().tolist() == [3.0, 3.0]
    with pytest.raises(TypeError, match="cannot assign"):
        wrong()
