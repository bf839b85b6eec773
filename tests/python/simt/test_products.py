"""Products of matrices from fragments and tiles, against numpy."""

from typing import Any

import numpy as np
import pytest
from lane_kernels import need_threads

import octants as qd
from octants import simt

N = 16
KINDS = {
    "f16": (lambda: simt.MatrixProduct(qd.f16), np.float16, np.float32, 1e-5),
    "f32": (lambda: simt.MatrixProduct(qd.f32), np.float32, np.float32, 1e-5),
    "tf32": (lambda: simt.MatrixProduct(qd.f32, precision="tf32"), np.float32, np.float32, 2e-2),
    "f64": (lambda: simt.MatrixProduct(qd.f64), np.float64, np.float64, 1e-13),
}
kinds = pytest.mark.parametrize("kind", KINDS)


def given(kind: str, rows: int, depth: int, columns: int) -> tuple[Any, ...]:
    """The product, its operands, sums, and their result in f64."""
    make, operand, total, tolerance = KINDS[kind]
    random = np.random.default_rng(7)
    a, b = (random.standard_normal(shape).astype(operand) for shape in ((rows, depth), (depth, columns)))
    c = random.standard_normal((rows, columns)).astype(total)
    return make(), a, b, c, a.astype(np.float64) @ b.astype(np.float64), tolerance


@kinds
def test_products_of_several_subgroups(group_size: int, kind: str) -> None:
    product, a, b, c, wanted, tolerance = given(kind, 32, 48, 32)
    wanted = c + wanted

    @qd.kernel
    def multiply(a: qd.types.ndarray(), b: qd.types.ndarray(), c: qd.types.ndarray()):
        qd.loop_config(block_dim=2 * group_size)
        for i in range(4 * group_size):
            tile = i // group_size
            row, column = tile // 2 * N, tile % 2 * N
            left, right, sums = product.a.zeros(), product.b.zeros(), product.sums.zeros()
            sums.load_(c, row, column)
            for k in range(3):
                left.load_(a, row, k * N)
                right.load_(b, k * N, column)
                sums += left @ right
            sums.store_(c, row, column)

    multiply(a, b, c)
    assert np.abs(c - wanted).max() <= tolerance * 10


@kinds
def test_parts_transposes_and_differences(group_size: int, kind: str) -> None:
    product, a, b, c, _, tolerance = given(kind, 13, 16, 16)
    wanted = 2 * (1 - a.astype(np.float64) @ b.astype(np.float64).T)

    @qd.kernel
    def multiply(a: qd.types.ndarray(), b: qd.types.ndarray(), c: qd.types.ndarray()):
        qd.loop_config(block_dim=group_size)
        for i in range(group_size):
            left, right, sums = product.a.zeros(), product.b.zeros(), product.sums.zeros()
            left[:] = a[0:13, 0:N]
            right.load_transposed_(b, 0, 0)
            sums.fill_(1)
            sums -= left @ right
            sums.values *= 2
            c[0:13, 0:N] = sums

    multiply(a, b, c)
    assert np.abs(c - wanted).max() <= tolerance * 10


def test_tf32_rounds_and_f32_does_not(group_size: int) -> None:
    # 1 + 2**-20 has more bits than tf32.
    a = np.eye(N, dtype=np.float32) * np.float32(1 + 2**-20)
    ones = np.ones((N, N), np.float32)
    results = []
    for precision in (None, "tf32"):
        product = simt.MatrixProduct(qd.f32, precision=precision)

        @qd.kernel
        def multiply(a: qd.types.ndarray(), b: qd.types.ndarray(), c: qd.types.ndarray()):
            qd.loop_config(block_dim=group_size)
            for i in range(group_size):
                left, right, sums = product.a.zeros(), product.b.zeros(), product.sums.zeros()
                left.load_(a, 0, 0)
                right.load_(b, 0, 0)
                sums += left @ right
                sums.store_(c, 0, 0)

        c = np.zeros((N, N), np.float32)
        multiply(a, ones, c)
        results.append(c)
    assert (results[0] == np.float32(1 + 2**-20)).all()
    assert np.abs(results[1] - 1).max() <= 2**-11


def test_shared_arrays_and_functions(group_size: int) -> None:
    product, a, b, c, wanted, tolerance = given("f16", 16, 16, 16)

    @qd.func
    def multiply_add(sums: qd.template(), left: qd.template(), right: qd.template()):
        sums += left @ right

    @qd.kernel
    def multiply(a: qd.types.ndarray(), b: qd.types.ndarray(), c: qd.types.ndarray()):
        qd.loop_config(block_dim=group_size)
        for i in range(group_size):
            shared = simt.block.SharedArray((N, N + 8), qd.f16)
            for k in range(N * N // group_size):
                at = k * group_size + simt.block.thread_idx()
                shared[at // N, at % N] = a[at // N, at % N]
            simt.block.sync()
            left, right, sums = product.a.zeros(), product.b.zeros(), product.sums.zeros()
            left.load_(shared, 0, 0)
            right.load_(b, 0, 0)
            multiply_add(sums, left, right)
            sums.store_(c, 0, 0)

    multiply(a, b, c)
    assert np.abs(c - wanted).max() <= tolerance * 10


@pytest.mark.parametrize("n", [16, 32])
@pytest.mark.parametrize("operand", ["f16", "f32"])
def test_products_of_tiles(group_size: int, n: int, operand: str) -> None:
    need_threads(group_size, n)
    tile = {16: simt.Tile16x16, 32: simt.Tile32x32}[n]
    dtype = getattr(qd, operand)
    random = np.random.default_rng(3)
    a, b, c = (random.standard_normal((n, n)).astype(np.float32) for _ in range(3))
    a, b = (x.astype({"f16": np.float16, "f32": np.float32}[operand]) for x in (a, b))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    wanted = c - 2 * exact + exact

    @qd.kernel
    def multiply(a: qd.types.ndarray(), b: qd.types.ndarray(), c: qd.types.ndarray()):
        qd.loop_config(block_dim=n)
        for i in range(n):
            left, right, sums = tile.zeros(dtype=dtype), tile.zeros(dtype=dtype), tile.zeros(dtype=qd.f32)
            left[:] = a[0:n, 0:n]
            right[:] = b[0:n, 0:n]
            sums[:] = c[0:n, 0:n]
            sums += left @ right
            for _ in range(2):
                sums -= left @ right
            c[0:n, 0:n] = sums

    multiply(a, b, c)
    assert np.abs(c - wanted).max() <= 1e-3


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_gradients(group_size: int, kind: str) -> None:
    product, a, b, _, exact, tolerance = given(kind, 16, 16, 16)
    dtype = {"f32": qd.f32, "f64": qd.f64}[kind]
    x, y = (qd.field(dtype, (N, N), needs_grad=True) for _ in range(2))
    loss = qd.field(dtype, (), needs_grad=True)

    @qd.kernel
    def sum_of_squares():
        qd.loop_config(block_dim=group_size)
        for i in range(group_size):
            left, right, sums = product.a.zeros(), product.b.zeros(), product.sums.zeros()
            left.load_(x, 0, 0)
            right.load_(y, 0, 0)
            sums += left @ right
            total = sums.values[0] * 0
            for k in qd.static(range(N * N // group_size)):
                total += sums.values[k] * sums.values[k]
            loss[None] += total

    x.from_numpy(a)
    y.from_numpy(b)
    sum_of_squares()
    loss.grad[None] = 1
    sum_of_squares.grad()
    assert np.allclose(loss[None], (exact**2).sum(), rtol=1e-4)
    assert np.abs(x.grad.to_numpy() - 2 * exact @ b.T).max() <= tolerance * 1e3
    assert np.abs(y.grad.to_numpy() - 2 * a.T @ exact).max() <= tolerance * 1e3


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(qd.OctantsTypeError, match="MatrixProduct does not support"):
        simt.MatrixProduct(qd.i32)
    with pytest.raises(qd.OctantsTypeError, match="qd.f32 with precision='tf32'"):
        simt.MatrixProduct(qd.f16, precision="tf32")


MISUSE = [
    (64, "s += b @ a", "an `a` and a `b` fragment"),
    (64, "s += a @ other.b.zeros()", "an `a` and a `b` fragment"),
    (64, "s = a @ b", "added to or subtracted from a tile"),
    (64, "s *= a @ b", "added to or subtracted from a tile"),
    (64, "a += a @ b", "to or subtracted from a `sums` fragment"),
    (64, "b -= a @ b", "to or subtracted from a `sums` fragment"),
    (48, "s += a @ b", "whole subgroups of"),
]


@pytest.mark.parametrize("block_dim, statement, text", MISUSE)
def test_misuse_names_its_line(group_size: int, block_dim: int, statement: str, text: str, tmp_path: Any) -> None:
    if block_dim % group_size == 0 and text.startswith("whole subgroups"):
        pytest.skip(f"a block of {block_dim} threads is whole subgroups of {group_size}")
    source = f"""import octants as qd
from octants import simt
product, other = simt.MatrixProduct(qd.f32), simt.MatrixProduct(qd.f32, precision="tf32")
@qd.kernel
def k():
    qd.loop_config(block_dim={block_dim})
    for i in range({block_dim}):
        a, b, s = product.a.zeros(), product.b.zeros(), product.sums.zeros()
        {statement}
"""
    file = tmp_path / "program.py"
    file.write_text(source)
    names: dict[str, Any] = {}
    exec(compile(source, str(file), "exec"), names)
    with pytest.raises(qd.OctantsCompilationError, match=text) as caught:
        names["k"]()
    assert f'program.py", line {9 if block_dim == 64 else 7}' in str(caught.value)


def code_of_tiles(pad: int, column: int, reads_early: bool) -> str:
    """PTX of a product of a tile that is copied to shared memory in runs of eight elements."""
    product = simt.MatrixProduct(qd.f16)
    size = qd.simt.subgroup.group_size()

    @qd.kernel
    def multiply(a: qd.types.ndarray(dtype=qd.f16, ndim=2), c: qd.types.ndarray(dtype=qd.f32, ndim=2)):
        qd.loop_config(block_dim=64)
        for i in range(64):
            shared = simt.block.SharedArray((32, 32 + pad), qd.f16)
            thread = simt.block.thread_idx()
            row, first = thread // 2, thread % 2 * 8
            for k in qd.static(range(8)):
                shared[row, first + k] = a[row, first + k]
            if qd.static(reads_early):
                c[thread, 0] = shared[row, first]
            simt.block.sync()
            left, right, sums = product.a.zeros(), product.b.zeros(), product.sums.zeros()
            at = thread // size * 16
            left.load_(shared, at, 0)
            right.load_transposed_(shared, 0, column)
            sums += left @ right
            sums.store_(c, at, 0)

    a, c = np.zeros((32, 32), np.float16), np.zeros((64, 16), np.float32)
    return str(qd.inspect(multiply, a, c, target="sm_90", emit="asm"))


def test_tiles_of_shared_arrays_on_nvidia(group_size: int) -> None:
    if group_size != 32:
        pytest.skip("threads of subgroups are those of the running program's device")
    code = code_of_tiles(8, 0, reads_early=False)
    assert code.count("ldmatrix.sync.aligned.m8n8.x4.shared.b16") == 2, code
    assert "cp.async.cg.shared.global" in code
    assert "cp.async.wait_all" in code
    # Rows, or a column, that are not at multiples of 16 bytes; a thread that reads elements that it copied.
    assert "ldmatrix" not in code_of_tiles(4, 0, reads_early=False)
    assert code_of_tiles(8, 4, reads_early=False).count("ldmatrix") == 1
    assert "cp.async" not in code_of_tiles(8, 0, reads_early=True)


def test_code_for_subgroups_of_another_size_is_refused(group_size: int) -> None:
    product = simt.MatrixProduct(qd.f32)

    @qd.kernel
    def multiply(a: qd.types.ndarray(), c: qd.types.ndarray()):
        qd.loop_config(block_dim=64)
        for _ in range(64):
            left, right, sums = product.a.zeros(), product.b.zeros(), product.sums.zeros()
            left.load_(a, 0, 0)
            sums += left @ right
            sums.store_(c, 0, 0)

    a, c = (np.zeros((16, 16), np.float32) for _ in range(2))
    other, size = ("gfx90a", 64) if group_size == 32 else ("sm_90", 32)
    with pytest.raises(
        qd.OctantsRuntimeError,
        match=f"kernel `multiply`, .* for subgroups of {group_size} threads, .* machine has subgroups of {size}",
    ):
        qd.inspect(multiply, a, c, target=other)
