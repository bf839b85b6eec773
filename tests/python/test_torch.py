"""Torch tensors: as arguments of kernels, and to and from fields and arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import octants as qd

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def program() -> Iterator[None]:
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


@qd.kernel
def add(x: qd.types.ndarray(), y: qd.types.ndarray(dtype=qd.f32, ndim=2)):
    for i, j in y:
        y[i, j] += x[i, j]


@pytest.mark.parametrize(
    "x",
    [
        torch.arange(12.0).reshape(3, 4),
        torch.arange(12.0).reshape(4, 3).T,
        torch.arange(24.0).reshape(3, 8)[:, ::2],
        torch.ones(1, 1).expand(3, 4),
        torch.ones(3, 4, dtype=torch.float16),
        torch.ones(3, 4, dtype=torch.bool),
        torch.nn.Parameter(torch.ones(3, 4)),
    ],
)
def test_kernels_read_and_write_tensors_in_place(x: Any) -> None:
    y, columns = torch.zeros(3, 4), torch.zeros(4, 3)
    add(x, y)
    add(x, columns.T)
    assert torch.equal(y, x.to(torch.float32))
    assert torch.equal(columns.T, y)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.zeros(3, 4, dtype=torch.float64), "required array has dtype=f32, array with dtype=f64"),
        (torch.zeros(3, 4, dtype=torch.bfloat16), "dtype torch.bfloat16 cannot be used"),
        (torch.zeros(3, 4, device="meta"), "on device `meta`"),
        (torch.zeros(4).expand(3, 4), r"`y` share memory, but the kernel writes to it: .* `tensor.contiguous\(\)`"),
        (torch.zeros(6).as_strided((3, 4), (1, 1)), "`y` share memory"),
        (
            torch.eye(3, 4).to_sparse(),
            r"layout torch.sparse_coo cannot be used in a kernel: pass `tensor.to_dense\(\)`",
        ),
        (torch.eye(3, 4).to_sparse_csr(), "layout torch.sparse_csr cannot be used"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(tensor: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        add(torch.zeros(3, 4), tensor)


@pytest.mark.parametrize("make", [qd.field, qd.ndarray])
def test_views_share_memory_and_copies_do_not(make: Any) -> None:
    a = make(qd.f32, (3, 4))
    a.from_torch(torch.arange(12.0).reshape(4, 3).T)
    view, copy = a.to_torch(copy=False), a.to_torch(copy=True)
    view[1, 2] = -5
    assert a[1, 2] == -5
    assert copy[1, 2] == 7
    default = a.to_torch()
    default[1, 2] = 9
    assert a[1, 2] == -5


def test_types_have_names_in_torch():
    from octants.lang.util import to_pytorch_type, to_quadrants_type

    for dtype in (qd.f16, qd.f32, qd.f64, qd.i8, qd.i64, qd.u1, qd.u8):
        assert to_quadrants_type(to_pytorch_type(dtype)) is dtype
    with pytest.raises(TypeError, match="no scalar type"):
        to_quadrants_type(torch.complex64)


def test_fields_are_copied_into_existing_tensors():
    from octants._kernels import tensor_to_ext_arr

    x, out = qd.field(qd.i32, 4), torch.zeros(4, dtype=torch.int32)
    x.fill(3)
    tensor_to_ext_arr(x, out)
    assert out.tolist() == [3] * 4
