"""Fields of quantized types: their formats, words that several elements share, and misuse."""

import math
from typing import Any

import numpy as np
import pytest

import octants as qd

Q = qd.types.quant


@pytest.fixture(autouse=True)
def program() -> None:
    qd.init(arch=qd.cpu)


def packed(bits: int, *fields: Any, n: int | None = None, shared: bool = False) -> None:
    """Places fields in one word, for each of n cells or at the root."""
    word = qd.BitpackedFields(max_num_bits=bits)
    word.place(*fields, shared_exponent=shared)
    (qd.root if n is None else qd.root.dense(qd.i, n)).place(word)


def round_away(x: Any) -> Any:
    return np.trunc(np.abs(x) + 0.5) * np.sign(x)


def as_float(values: Any, exponent_bits: int, digits: int, signed: bool) -> Any:
    """The f32 values after a round trip through a float with this many digits after the leading one."""
    bias = 2 ** (exponent_bits - 1) - 1
    found = []
    for value in values:
        mantissa, exponent = math.frexp(abs(float(value)))
        scaled = math.floor(mantissa * 2 ** (digits + 1) + 0.5)
        if scaled == 2 ** (digits + 1):
            scaled, exponent = scaled // 2, exponent + 1
        stored = exponent - 1 + bias
        largest = min(2**exponent_bits - 1, 254 - 127 + bias)
        if value == 0 or stored <= 0:
            found.append(0.0)
            continue
        if stored > largest:
            scaled, exponent = 2 ** (digits + 1) - 1, largest - bias + 1
        magnitude = scaled * 2.0 ** (exponent - digits - 1)
        found.append(math.copysign(magnitude, value) if signed else magnitude)
    return np.array(found, np.float32)


@pytest.mark.parametrize(("word", "widths"), [(8, (3, 1, 4)), (16, (9, 7)), (32, (13, 14, 5)), (64, (33, 1, 30))])
def test_integers_sharing_a_word(word: int, widths: tuple[int, ...]) -> None:
    n = 1000
    compute = qd.i64 if word == 64 else qd.i32
    fields = [qd.field(Q.int(bits, number % 2 == 0, compute)) for number, bits in enumerate(widths)]
    packed(word, *fields, n=n)
    values = np.random.default_rng(1).integers(-(2**31), 2**31, size=(len(widths), n), dtype=np.int64)
    given = [row.astype(compute.numpy) for row in values]

    @qd.kernel
    def store(x: qd.template(), source: qd.types.ndarray()):
        for i in x:
            x[i] = source[i]

    for x, row in zip(fields, given, strict=True):
        store(x, row)
    for number, (x, row, bits) in enumerate(zip(fields, given, widths, strict=True)):
        wanted = row.astype(np.int64) & (2**bits - 1)
        if number % 2 == 0:
            wanted = np.where(wanted >> (bits - 1), wanted - 2**bits, wanted)
        np.testing.assert_array_equal(x.to_numpy(), wanted)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("bits", [1, 7, 13, 24, 31, 32])
def test_fixed_point_numbers(bits: int, signed: bool) -> None:
    x = qd.field(Q.fixed(bits, signed, max_value=3.0, compute=qd.f64))
    packed(32, x, n=500)
    values = np.random.default_rng(2).uniform(-4, 4, 500)
    x.from_numpy(values)
    scale = 3.0 / 2 ** (bits - 1 if signed else bits)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    np.testing.assert_allclose(x.to_numpy(), np.clip(round_away(values / scale), low, high) * scale, rtol=1e-12)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(("exponent_bits", "digits"), [(5, 10), (6, 13), (8, 23), (4, 3), (8, 7), (2, 1)])
def test_floats(exponent_bits: int, digits: int, signed: bool) -> None:
    x = qd.field(Q.float(exponent_bits, digits + signed, signed))
    packed(64, x, n=400)
    rng = np.random.default_rng(3)
    values = (rng.uniform(-2, 2, 400) * 2.0 ** rng.integers(-40, 40, 400)).astype(np.float32)
    values[:5] = [0, 1, -1, 1.5, 65504]
    x.from_numpy(values)
    np.testing.assert_array_equal(x.to_numpy(), as_float(values, exponent_bits, digits, signed))


def test_a_shared_exponent_fits_the_largest_number() -> None:
    a, b = qd.field(Q.float(6, 10, signed=False)), qd.field(Q.float(6, 14))
    packed(32, a, b, n=300, shared=True)
    rng = np.random.default_rng(4)
    given = [(rng.uniform(0.1, 2, 300) * 2.0 ** rng.integers(-6, 6, 300)).astype(np.float32) for _ in range(2)]
    given[1] *= rng.choice([-1, 1], 300).astype(np.float32)

    @qd.kernel
    def store(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in a:
            a[i] = x[i]
            b[i] = y[i]

    store(*given)
    for field, values, digits in zip((a, b), given, (10, 13), strict=True):
        # The leading one of the largest is among the digits.
        largest = np.maximum(np.abs(given[0]), np.abs(given[1]))
        step = 2.0 ** (np.floor(np.log2(largest)) - digits + 1)
        error = np.abs(field.to_numpy() - values)
        assert (error <= step).all(), (error / step).max()
    # A number that grows takes digits from the others, and one that shrinks returns them to later stores.
    a[0], b[0] = 1.0, 0.001
    b[0] = 512.0
    assert (a[0], b[0]) == (1.0, 512.0)
    b[0] = 1e-3
    assert abs(b[0] - 1e-3) < 2e-4


@pytest.mark.parametrize("word", [8, 16, 32, 64])
def test_elements_of_one_word_written_concurrently(word: int) -> None:
    x = qd.field(Q.int(2, False))
    n, each = 4096, word // 2
    qd.root.dense(qd.i, n // each).quant_array(qd.i, each, max_num_bits=word).place(x)

    @qd.kernel
    def store():
        for i in x:
            x[i] = i % 4

    @qd.kernel
    def add():
        for i in range(4 * n):
            x[i % n] += 1

    store()
    np.testing.assert_array_equal(x.to_numpy(), np.arange(n) % 4)
    add()
    np.testing.assert_array_equal(x.to_numpy(), np.arange(n) % 4)


def test_atomic_updates_return_each_old_value_once() -> None:
    n = 1 << 12
    x, y = qd.field(Q.int(20, False)), qd.field(Q.int(12))
    packed(32, x, y)

    @qd.kernel
    def count(old: qd.types.ndarray()):
        for i in range(n):
            old[i] = qd.atomic_add(x[None], 1)
            qd.atomic_max(y[None], i % 2000)

    old = np.zeros(n, np.int32)
    count(old)
    np.testing.assert_array_equal(np.sort(old), np.arange(n))
    assert (x[None], y[None]) == (n, 1999)


def test_sums_of_fixed_point_numbers_do_not_depend_on_their_order() -> None:
    x = qd.field(Q.fixed(28, scale=2.0**-10))
    packed(32, x)

    @qd.kernel
    def add(values: qd.types.ndarray()):
        for i in values:
            x[None] += values[i]

    values = np.random.default_rng(5).uniform(-1, 1, 10000).astype(np.float32)
    wanted = round_away(values.astype(np.float64) * 2**10).sum() * 2.0**-10
    for _ in range(3):
        x[None] = 0
        add(values)
        assert x[None] == wanted


def test_matrices_and_components() -> None:
    x = qd.Matrix.field(2, 2, Q.fixed(16, max_value=8.0))
    for row in range(2):
        word = qd.BitpackedFields(max_num_bits=32)
        word.place(x.get_scalar_field(row, 0), x.get_scalar_field(row, 1))
        qd.root.dense(qd.i, 5).place(word)

    @qd.func
    def double(m: qd.template()):
        m[1, 0] *= 2.0

    @qd.kernel
    def store(row: int, column: int):
        for i in x:
            x[i] = qd.Matrix([[1.0, 2.0], [3.0, -4.0]]) * 0.5
            x[i][row, column] += 1.0
            double(x[i])
            x[i] = x[i] @ x[i]

    store(1, 1)
    m = np.array([[0.5, 1.0], [3.0, -1.0]])
    np.testing.assert_allclose(x.to_numpy(), np.broadcast_to(m @ m, (5, 2, 2)), atol=1e-3)
    x[2] = [[1, 2], [3, 4]]
    assert x[2].to_list() == [[1, 2], [3, 4]]
    x[2][0, 1] = -2
    assert x[2][0, 1] == -2


def test_a_real_function_takes_an_element_by_reference() -> None:
    x, y = qd.field(Q.int(7)), qd.field(Q.int(9))
    packed(16, x, y, n=64)

    @qd.real_func
    def step(v: qd.ref(qd.i32), by: qd.i32):
        v = v + by

    @qd.kernel
    def run():
        for i in x:
            step(x[i], i)
            step(y[i], -i)

    run()
    np.testing.assert_array_equal(x.to_numpy(), np.arange(64))
    np.testing.assert_array_equal(y.to_numpy(), -np.arange(64))


def test_whole_fields() -> None:
    x, y = qd.field(Q.int(9)), qd.field(Q.int(9))
    word = qd.BitpackedFields(max_num_bits=32)
    word.place(x)
    qd.root.dense(qd.ij, (3, 4)).place(word, offset=(-1, 2))
    other = qd.BitpackedFields(max_num_bits=32)
    other.place(y)
    qd.root.dense(qd.ij, (3, 4)).place(other)
    values = np.arange(12, dtype=np.int32).reshape(3, 4)
    x.from_numpy(values)
    assert (x[-1, 2], x[1, 5]) == (0, 11)
    y.copy_from(x)
    np.testing.assert_array_equal(y.to_numpy(), values)
    plain = qd.field(qd.i32, shape=(3, 4))
    plain.copy_from(y)
    np.testing.assert_array_equal(plain.to_numpy(), values)
    y.fill(-7)
    np.testing.assert_array_equal(y.to_numpy(), -7)
    with pytest.raises(AssertionError, match="out of bounds"):
        x[-2, 2]
    with pytest.raises(ValueError, match="copy=False"):
        x.to_numpy(copy=False)
    with pytest.raises(qd.OctantsRuntimeError, match="DLPack"):
        x.to_dlpack()


def test_quantized_fields_under_sparse_levels() -> None:
    x, y = qd.field(Q.int(7)), qd.field(Q.fixed(20, max_value=100.0))
    cells = qd.root.pointer(qd.i, 8)
    cells.dense(qd.i, 4).quant_array(qd.i, 4, max_num_bits=32).place(x)
    word = qd.BitpackedFields(max_num_bits=32)
    word.place(y)
    cells.dense(qd.i, 16).place(word)

    @qd.kernel
    def store(first: int):
        for i in range(first, first + 16):
            x[i] = i % 50
            y[i] = i * 0.5

    @qd.kernel
    def visit() -> int:
        count = 0
        for i in x:
            x[i] += 1
            count += 1
        return count

    store(32)
    assert visit() == 16
    wanted = np.zeros(128, np.int32)
    wanted[32:48] = np.arange(32, 48) % 50 + 1
    np.testing.assert_array_equal(x.to_numpy(), wanted)
    np.testing.assert_allclose(y.to_numpy()[32:48], np.arange(32, 48) * 0.5, atol=1e-3)
    cells.deactivate_all()
    assert visit() == 0
    assert not x.to_numpy().any()
    assert not y.to_numpy().any()


def test_gradients_pass_through_quantized_fields() -> None:
    x = qd.field(Q.fixed(24, max_value=8.0), needs_grad=True)
    packed(32, x, n=4)
    qd.root.lazy_grad()
    loss = qd.field(qd.f32, shape=(), needs_grad=True)

    @qd.kernel
    def square():
        for i in x:
            loss[None] += x[i] ** 2

    x.from_numpy(np.array([0.5, 1.0, -2.0, 3.0], np.float32))
    with qd.ad.Tape(loss):
        square()
    np.testing.assert_allclose(x.grad.to_numpy(), [1.0, 2.0, -4.0, 6.0], atol=1e-5)


def test_stores_to_one_word_are_merged() -> None:
    x, y = qd.field(Q.int(16)), qd.field(Q.int(16))
    packed(32, x, y, n=8)

    @qd.kernel
    def store():
        for i in x:
            x[i] = i
            y[i] = i + 1

    store()
    text = qd.inspect(store, emit="ir")
    assert "atomic_cas" not in text
    # Together they fill the word, so its old value is not read.
    assert text.count(" store %") == 1
    np.testing.assert_array_equal(x.to_numpy(), np.arange(8))
    np.testing.assert_array_equal(y.to_numpy(), np.arange(8) + 1)


def test_groups_of_one_kernel_share_words() -> None:
    x, y = qd.field(Q.int(16)), qd.field(Q.int(16))
    packed(32, x, y, n=4096)

    @qd.kernel
    def store():
        with qd.stream_parallel(allow_overlap=True):
            for i in range(4096):
                x[i] = i
        with qd.stream_parallel(allow_overlap=True):
            for i in range(4096):
                y[i] = -i

    store()
    np.testing.assert_array_equal(x.to_numpy(), np.arange(4096))
    np.testing.assert_array_equal(y.to_numpy(), -np.arange(4096))


def test_misuse_of_types() -> None:
    for make, text in (
        (lambda: Q.int(0), "1 to 64 bits"),
        (lambda: Q.int(65), "1 to 64 bits"),
        (lambda: Q.int(5, compute=qd.f32), "integer type"),
        (lambda: Q.fixed(33), "1 to 32 bits"),
        (lambda: Q.fixed(8, scale=0.0), "positive"),
        (lambda: Q.fixed(8, compute=qd.i32), "float type"),
        (lambda: Q.float(9, 8), "1 to 8 exponent bits"),
        (lambda: Q.float(5, 25), "1 to 24 fraction bits"),
        (lambda: Q.float(5, 1), "2 fraction bits"),
        (lambda: qd.BitpackedFields(max_num_bits=33), "8, 16, 32 or 64"),
    ):
        with pytest.raises(qd.OctantsRuntimeError, match=text):
            make()


def test_misuse_of_placements() -> None:
    word = qd.BitpackedFields(max_num_bits=32)
    x = qd.field(Q.int(20), name="x")
    word.place(x)
    with pytest.raises(qd.OctantsRuntimeError, match="take 40 bits, but the word has only 32"):
        word.place(qd.field(Q.int(20)))
    with pytest.raises(qd.OctantsRuntimeError, match="only fields of quantized types can be packed"):
        qd.BitpackedFields(max_num_bits=32).place(qd.field(qd.i32))
    with pytest.raises(qd.OctantsRuntimeError, match="the field x has the quantized type qi20"):
        qd.root.dense(qd.i, 4).place(x)
    with pytest.raises(qd.OctantsRuntimeError, match="80 bits"):
        qd.root.quant_array(qd.i, 4, max_num_bits=32).place(x)
    with pytest.raises(qd.OctantsRuntimeError, match="cannot have levels below"):
        qd.root.quant_array(qd.i, 4, max_num_bits=32).dense(qd.i, 2)
    with pytest.raises(qd.OctantsRuntimeError, match="not qf6e5"):
        qd.root.quant_array(qd.i, 4, max_num_bits=32).place(qd.field(Q.float(5, 6)))
    with pytest.raises(qd.OctantsCompilationError, match="At least 2 fields"):
        qd.BitpackedFields(max_num_bits=32).place(qd.field(Q.float(5, 6)), shared_exponent=True)
    with pytest.raises(qd.OctantsRuntimeError, match="are empty"):
        qd.root.place(qd.BitpackedFields(max_num_bits=32))
    with pytest.raises(qd.OctantsRuntimeError, match="qi5"):
        qd.ndarray(Q.int(5), 4)


def test_vectors_and_structs_of_quantized_types() -> None:
    vector = qd.types.vector(2, Q.fixed(12))
    body = qd.types.struct(alive=Q.int(1, False), at=vector).field()
    word = qd.BitpackedFields(max_num_bits=32)
    word.place(body)
    qd.root.dense(qd.i, 4).place(word)

    @qd.kernel
    def move():
        for i in body:
            body[i].at += vector(0.25, -0.5)
            body[i].alive = qd.cast(i % 2, body.alive.dtype)

    move()
    assert body[3].alive == 1
    assert body[3].at.to_list() == [0.25, -0.5]
    np.testing.assert_array_equal(body.alive.to_numpy(), [0, 1, 0, 1])
    with pytest.raises(qd.OctantsRuntimeError, match="not supported as ndarray element type"):
        qd.ndarray(vector, 4)


def test_debug_mode_does_not_report_conversions(capfd: pytest.CaptureFixture[str]) -> None:
    qd.init(arch=qd.cpu, debug=True)
    x, y = qd.field(Q.int(5)), qd.field(Q.fixed(11))
    packed(16, x, y, n=4)
    z = qd.field(Q.int(7))
    qd.root.quant_array(qd.i, 4, max_num_bits=32).place(z)

    @qd.kernel
    def store():
        for i in x:
            x[i] = -i
            y[i] = -0.25 * i
            z[i] = x[i] - 1

    store()
    np.testing.assert_array_equal(x.to_numpy(), -np.arange(4))
    np.testing.assert_array_equal(z.to_numpy(), -np.arange(4) - 1)
    qd.sync()
    assert "overflow" not in capfd.readouterr().out


def test_quantized_elements_have_no_address() -> None:
    x = qd.field(Q.int(5))
    packed(32, x)

    @qd.kernel
    def swap() -> int:
        return qd.atomic_cas(x[None], 0, 1)

    @qd.kernel
    def address() -> qd.u64:
        return qd.get_addr(x, None)

    @qd.kernel
    def watch() -> int:
        return qd.volatile_load(x[None])

    for kernel, name in ((swap, "atomic_cas"), (address, "get_addr"), (watch, "volatile_load")):
        with pytest.raises(qd.OctantsTypeError, match=f"`{name}` does not support elements of quantized types"):
            kernel()


def test_bounds_errors_name_the_field() -> None:
    qd.init(arch=qd.cpu, debug=True)
    x, y, z = qd.field(Q.int(7)), qd.field(Q.int(9)), qd.field(Q.int(5))
    qd.root.dense(qd.i, 8).quant_array(qd.i, 4, max_num_bits=32).place(x)
    word = qd.BitpackedFields(max_num_bits=32)
    word.place(y, z)
    qd.root.dense(qd.i, 8).place(word)

    @qd.kernel
    def of_array(i: qd.i32):
        x[i] = 1

    @qd.kernel
    def of_words(i: qd.i32):
        y[i] = z[i]

    for kernel, i, name in ((of_array, 32, "x"), (of_words, 8, "(z, y|z)")):
        with pytest.raises(qd.OctantsAssertionError, match=f"`{name}` at"):
            kernel(i)


def one_bit_fields(count: int, shape: tuple[int, ...], bits: int = 1, sparse: bool = False) -> list[Any]:
    """Fields of small numbers, whose words are of 32 bits of elements along the last axis."""
    fields = [qd.field(Q.int(bits, False)) for _ in range(count)]
    axes = (qd.i, qd.ij)[len(shape) - 1]
    in_word = 32 // bits
    for field in fields:
        top = qd.root.pointer(axes, (2,) * len(shape)) if sparse else qd.root
        extents = [n // 2 if sparse else n for n in shape]
        extents[-1] //= in_word
        top.dense(axes, tuple(extents)).quant_array((qd.i, qd.j)[len(shape) - 1], in_word, max_num_bits=32).place(field)
    return fields


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("bits", [1, 4])
def test_a_loop_over_whole_words_computes_the_same(bits: int, sparse: bool) -> None:
    shape, margins = (16, 128), (1, 32)
    y, z = one_bit_fields(2, shape, bits, sparse)
    # The neighbors of all elements of `y` are inside.
    (x,) = one_bit_fields(1, tuple(n + 2 * margin for n, margin in zip(shape, margins, strict=True)), bits, sparse)
    random = np.random.default_rng(5)
    values, others = (random.integers(0, 1 << bits, field.shape, dtype=np.int32) for field in (x, y))

    @qd.kernel
    def store(field: qd.template(), array: qd.types.ndarray(dtype=qd.i32, ndim=2)):
        for i, j in array:
            field[i, j] = array[i, j]

    store(x, values)
    store(y, others)

    @qd.kernel
    def by_word(row: qd.template(), column: qd.template()):
        qd.loop_config(bit_vectorize=True)
        for i, j in y:
            y[i, j] = x[i + row, j + column]
            sum = qd.cast(x[i + 1, j + 32], qd.i32) + 1
            sum += 2 * x[i + row, j + column]
            z[i, j] = qd.min(sum, 3) ^ qd.select(i < j, 1, 0)

    @qd.kernel
    def in_place():
        qd.loop_config(bit_vectorize=True)
        for I in qd.grouped(y):
            y[I] = y[I] ^ 1
            y[I] += z[I] & 1

    def part(row: int, column: int) -> np.ndarray:
        return values[row : row + shape[0], column : column + shape[1]]

    for row, column in ((1, 32), (1, 33), (2, 31), (0, 35), (1, 64)):
        by_word(row, column)
        np.testing.assert_array_equal(y.to_numpy(), part(row, column))
        i, j = np.indices(shape)
        expected = (np.minimum(part(1, 32) + 1 + 2 * part(row, column), 3) ^ (i < j)) & ((1 << bits) - 1)
        np.testing.assert_array_equal(z.to_numpy(), expected)
    store(y, others)
    store(z, others)
    in_place()
    expected = ((others ^ 1) + (others & 1)) & ((1 << bits) - 1)
    np.testing.assert_array_equal(y.to_numpy(), expected)


def test_a_loop_over_whole_words_stores_each_word_once() -> None:
    (x, y) = one_bit_fields(2, (4096,))

    @qd.kernel
    def copy():
        qd.loop_config(bit_vectorize=True)
        for i in x:
            y[i] = x[i]

    @qd.kernel
    def copy_one_by_one():
        for i in x:
            y[i] = x[i]

    @qd.kernel
    def branches():
        qd.loop_config(bit_vectorize=True)
        for i in x:
            if x[i] == 1:
                y[i] = 0

    text = qd.inspect(copy, emit="ir")
    assert "atomic_cas" not in text
    assert text.count(" store ") == 1
    assert "atomic_cas" in qd.inspect(copy_one_by_one, emit="ir")
    x.fill(1)
    copy()
    assert y.to_numpy().sum() == 4096
    branches()
    assert y.to_numpy().sum() == 0


def test_a_loop_over_whole_words_in_debug_mode() -> None:
    qd.init(arch=qd.cpu, debug=True)
    (x, y) = one_bit_fields(2, (64,))

    @qd.kernel
    def shift():
        qd.loop_config(bit_vectorize=True)
        for i in x:
            y[i] = x[i + 1]

    with pytest.raises(AssertionError, match="Out of bound"):
        shift()
