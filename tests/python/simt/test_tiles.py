"""Tiles: loads and stores, rank-1 updates, factorization, solves."""

from typing import Any

import numpy as np
import pytest
from lane_kernels import need_threads

import octants as qd
from octants import simt

TILES = pytest.mark.parametrize("n", [16, 32])
DTYPES = {"f32": (qd.f32, np.float32, 2e-4), "f64": (qd.f64, np.float64, 1e-10)}


def tile_of(n: int) -> Any:
    return {16: simt.Tile16x16, 32: simt.Tile32x32}[n]


@TILES
@pytest.mark.parametrize("rows, columns", [(0, 0), (3, 5)])
def test_loads_and_stores(group_size: int, n: int, rows: int, columns: int) -> None:
    need_threads(group_size, n)
    tile = tile_of(n)

    @qd.kernel
    def copy(a: qd.types.ndarray(), b: qd.types.ndarray()):
        qd.loop_config(block_dim=n)
        for i in range(n):
            t = tile.eye(dtype=qd.f32)
            t[:] = a[rows : rows + n, columns : columns + n]
            b[0:n, 0:n] = t

    a = np.random.default_rng(0).random((n + 1, n + 2), np.float32)
    b = np.zeros((n, n), np.float32)
    copy(a, b)
    wanted = np.eye(n, dtype=np.float32)
    part = a[rows : rows + n, columns : columns + n]
    wanted[: part.shape[0], : part.shape[1]] = part
    assert (b == wanted).all()


def test_parts_batches_fields_and_shared_arrays(group_size: int) -> None:
    need_threads(group_size, 16)
    x = qd.field(qd.f32, (3, 16, 16))
    y = qd.field(qd.f32, (3, 16, 16))

    @qd.kernel
    def copy(rows: qd.i32):
        qd.loop_config(block_dim=16)
        for i in range(3 * 16):
            n = qd.static(simt.Tile16x16.SIZE)
            batch = i // 16
            t = simt.Tile16x16.zeros()
            t[:] = x[batch, 0:rows, 0:n]
            s = simt.block.SharedArray((16, 12), qd.f32)
            s[0:n, 0:n] = t
            simt.block.sync()
            u = simt.Tile16x16.zeros(dtype=qd.f32)
            u[:] = s[0:n, 0:n]
            y[batch, 0:n, 0:n] = u

    values = np.random.default_rng(1).random((3, 16, 16)).astype(np.float32)
    x.from_numpy(values)
    copy(10)
    values[:, 10:] = 0
    values[:, :, 12:] = 0
    assert (y.to_numpy() == values).all()


@TILES
@pytest.mark.parametrize("dtype", DTYPES)
def test_factorization_and_solve(group_size: int, n: int, dtype: str) -> None:
    need_threads(group_size, n)
    tile = tile_of(n)
    kind, np_type, tolerance = DTYPES[dtype]

    @qd.kernel
    def factor(a: qd.types.ndarray(), b: qd.types.ndarray()):
        qd.loop_config(block_dim=n)
        for i in range(a.shape[0] * n):
            batch = i // n
            t = tile.zeros(dtype=kind)
            t[:] = a[batch, 0:n, 0:n]
            t.cholesky_(1e-12)
            a[batch, 0:n, 0:n] = t
            u = tile.zeros(dtype=kind)
            u[:] = b[batch, 0:n, 0:n]
            t.solve_triangular_(u)
            b[batch, 0:n, 0:n] = u

    rng = np.random.default_rng(2)
    m = rng.random((2, n, n)) - 0.5
    a = (m @ m.transpose(0, 2, 1) + n * np.eye(n)).astype(np_type)
    b = rng.random((2, n, n)).astype(np_type)
    lower, solved = a.copy(), b.copy()
    factor(lower, solved)
    wanted = np.linalg.cholesky(a.astype(np.float64))
    assert np.allclose(np.tril(lower), wanted, atol=tolerance)
    assert np.allclose(solved @ wanted.transpose(0, 2, 1), b, atol=tolerance)


@TILES
def test_rank_one_updates(group_size: int, n: int) -> None:
    need_threads(group_size, n)
    tile = tile_of(n)

    @qd.kernel
    def update(a: qd.types.ndarray(), v: qd.types.ndarray(), w: qd.types.ndarray()):
        qd.loop_config(block_dim=n)
        for i in range(n):
            t = tile.zeros(dtype=qd.f32)
            t[:] = a[0:n, 0:n]
            for k in range(v.shape[1]):
                own = v[0:n, k]
                t -= qd.outer(own, w[0, 0:n, k])
                t -= qd.outer(own, own)
            a[0:n, 0:n] = t

    rng = np.random.default_rng(3)
    a, v = rng.random((n, n), np.float32), rng.random((n - 2, 3), np.float32)
    w = rng.random((1, n, 3), np.float32)
    full = np.zeros((n, 3))
    full[: n - 2] = v
    wanted = a - full @ w[0].T - full @ full.T
    update(a, v, w)
    assert np.allclose(a, wanted, atol=1e-5)


def test_pivots_are_at_least_eps(group_size: int) -> None:
    need_threads(group_size, 16)

    @qd.kernel
    def factor(a: qd.types.ndarray()):
        qd.loop_config(block_dim=16)
        for i in range(16):
            t = simt.Tile16x16.zeros(dtype=qd.f32)
            t[:] = a[0:16, 0:16]
            t.cholesky_(qd.select(i == 3, 4.0, 0.25))
            a[0:16, 0:16] = t

    a = np.zeros((16, 16), np.float32)
    factor(a)
    assert np.diag(a).tolist() == [0.5] * 3 + [2.0] + [0.5] * 12


@pytest.mark.parametrize(
    "statement, text",
    [
        ("t = a[0:16, 0:16]", "t\\[:\\] = "),
        ("t[:] = a[:16, 0:16]", "needs both bounds"),
        ("t[:] = a[0:16:2, 0:16]", "cannot have a step"),
        ("t += qd.outer(1.0, 1.0)", "subtracted from a tile"),
        ("t[:] = qd.outer(1.0, 1.0)", "subtracted from a tile"),
        ("s = 1.0; s -= qd.outer(1.0, 1.0)", "subtracted from a tile"),
        ("a[0:16, 0:16] = 1.0", "stored from a tile"),
        ("t[:] = a[0, 0:16, 0:16]", "takes 2 indices"),
        ("t.solve_triangular_(t, lower=False)", "lower triangles"),
        ("u = qd.simt.Tile32x32.zeros(dtype=qd.f32); t.solve_triangular_(u)", "a tile of the same size"),
    ],
)
def test_misuse_names_its_line(group_size: int, statement: str, text: str, tmp_path: Any) -> None:
    need_threads(group_size, 16)
    source = f"""import octants as qd
@qd.kernel
def k(a: qd.types.ndarray()):
    qd.loop_config(block_dim=16)
    for i in range(16):
        {"pass" if statement.startswith("t = ") else "t = qd.simt.Tile16x16.zeros(dtype=qd.f32)"}
        {statement}
"""
    file = tmp_path / "program.py"
    file.write_text(source)
    names: dict[str, Any] = {}
    exec(compile(source, str(file), "exec"), names)
    with pytest.raises(Exception, match=text) as caught:
        names["k"](np.zeros((16, 16), np.float32))
    assert 'program.py", line 7' in str(caught.value)


@qd.kernel(fastcache=True)
def _identities(a: qd.types.ndarray(), n: qd.template(), tile: qd.template()):
    qd.loop_config(block_dim=n)
    for i in range(n):
        a[i, 0] = tile.SIZE
        t = tile.eye(qd.f32)
        u = qd.simt.Tile16x16.eye(qd.f32)
        t[:] = a[0:1, 0:1]
        a[0:n, 0:n] = t
        a[n, i] = qd.simt.subgroup.reduce_all_add_tiled(u.row[0], 4)


def test_tiles_in_pure_kernels(group_size: int) -> None:
    need_threads(group_size, 16)
    a = np.zeros((17, 16), np.float32)
    _identities(a, 16, simt.Tile16x16)
    assert (a[1:16] == np.eye(16)[1:]).all()
    assert a[0, 0] == 16
    assert (a[16] == 1).all()


@TILES
def test_sizes_in_variables(group_size: int, n: int) -> None:
    need_threads(group_size, n)
    tile = tile_of(n)

    @qd.kernel
    def double(a: qd.types.ndarray()):
        size = tile.SIZE
        qd.loop_config(block_dim=size)
        for i in range(size):
            s = qd.simt.block.SharedArray((n, n), qd.f32)
            t = tile.eye(dtype=qd.f32)
            s[0:size, 0:size] = t
            qd.simt.block.sync()
            t[:] = s[0:size, 0:size]
            a[0:size, 0:size] = t

    a = np.zeros((n, n), np.float32)
    double(a)
    assert (a == np.eye(n)).all()

    @qd.kernel
    def unknown(a: qd.types.ndarray(), size: qd.i32):
        qd.loop_config(block_dim=size)
        for i in range(a.shape[0]):
            a[i, 0] = 1

    with pytest.raises(qd.OctantsTypeError, match="`block_dim` of loop_config must be an integer that is known"):
        unknown(a, n)
