"""Arrays shared with torch and CuPy on a GPU, with `arch=qd.cuda`; skipped, with the reason, where that is not available."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from interop_kernels import add, copy, slow_ones

import octants as qd

N = 4096
# Steps that keep a thread of a GPU busy for some tens of milliseconds.
LONG = 20_000_000


@pytest.fixture(autouse=True)
def program() -> Any:
    try:
        qd.init(arch=qd.cuda, enable_fallback=False)
    except Exception as error:  # the reason is printed with the skip
        pytest.skip(f"no CUDA device: {error}")
    yield
    qd.reset()


@pytest.fixture
def torch() -> Any:
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("this torch has no CUDA device")
    return module


@pytest.fixture
def cupy() -> Any:
    return pytest.importorskip("cupy")


# Torch's tensors as arguments


@pytest.mark.parametrize("name", ["bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64"])
def test_tensors_of_every_type_are_read_and_written_in_place(torch, name):
    x = (torch.arange(24, device="cuda") % 2).to(getattr(torch, name)).reshape(4, 6)
    y = torch.zeros_like(x)
    copy(y, x)
    assert torch.equal(x, y)


def test_tensors_with_gaps_and_parameters(torch):
    base = torch.arange(48.0, device="cuda").reshape(6, 8)
    expected = base.clone()
    add(base[::2, 1::3], 100.0)
    expected[::2, 1::3] += 100
    assert torch.equal(base, expected)
    add(base.T, 1.0)
    assert torch.equal(base, expected + 1)
    parameter = torch.nn.Parameter(torch.ones(N, device="cuda"))
    add(parameter, 1.0)
    assert parameter.detach().sum().item() == 2 * N


def test_torchs_default_stream_and_ours_are_in_step(torch):
    x = torch.zeros(1 << 20, device="cuda")
    for _ in range(20):
        x += 1
        add(x, 1.0)
        x *= 1
    assert x.min().item() == x.max().item() == 40


def test_launches_on_torchs_streams(torch):
    side = torch.cuda.Stream()
    x = torch.zeros(1 << 20, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(20):
            x += 1
            add(x, 1.0, qd_stream=side)
    side.synchronize()
    assert x.min().item() == x.max().item() == 40


def test_launches_follow_torchs_current_stream(torch):
    qd.init(arch=qd.cuda, follow_torch_stream=True)
    x = torch.zeros(1 << 20, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        assert qd.current_stream() == qd.Stream.from_handle(side.cuda_stream)
        for _ in range(20):
            x += 1
            add(x, 1.0)
    side.synchronize()
    assert x.min().item() == x.max().item() == 40
    assert qd.current_stream() == qd.default_stream()


def test_a_launch_with_tensors_does_not_wait(torch):
    x = torch.zeros(64, device="cuda")
    with qd.create_stream() as stream, qd.create_event() as done:
        stream.wait(torch.cuda.current_stream())
        slow_ones(x, 10, qd_stream=stream)
        stream.synchronize()
        slow_ones(x, LONG, qd_stream=stream)
        done.record(stream)
        assert not done.query()
        stream.synchronize()
    assert x[63].item() == 1.0


def test_tensors_on_the_host_are_staged(torch):
    x = torch.arange(24.0).reshape(4, 6)
    y = torch.zeros(6, 4)
    copy(y, x.T)
    assert torch.equal(y, x.T)
    add(x[:, ::2], 10.0)
    assert x[0].tolist() == [10, 1, 12, 3, 14, 5]


def test_a_program_on_the_cpu_refuses_tensors_on_a_gpu(torch):
    # Whatever device the tests run on.
    getattr(qd.init, "original", qd.init)(arch=qd.cpu)
    with pytest.raises(ValueError, match="move it to the host"):
        add(torch.zeros(4, device="cuda"), 1.0)


# To torch


def test_to_torch_without_a_copy_is_the_memory(torch):
    x = qd.ndarray(qd.f32, shape=(8, 16))
    f = qd.Matrix.field(2, 3, qd.f32, shape=(5,))
    for array, where in ((x, x.buffer.ptr), (f, None)):
        array.fill(2.0)
        for tensor in (array.to_torch(copy=False), array.to_torch(copy=None), array.to_torch("cuda", copy=False)):
            assert tensor.is_cuda
            assert tuple(tensor.shape) == array.to_numpy().shape
            assert where is None or tensor.data_ptr() == where
            tensor += 1
        assert (array.to_numpy() == 5).all()
    with pytest.raises(ValueError, match="copy=False"):
        x.to_torch("cpu", copy=False)
    assert not x.to_torch().is_cuda
    copied = x.to_torch("cuda")
    copied.zero_()
    assert x[0, 0] == 5
    x.from_torch(torch.full((8, 16), 7.0, device="cuda"))
    assert (x.to_numpy() == 7).all()


def test_torch_waits_for_the_work_that_writes(torch):
    x = qd.ndarray(qd.f32, shape=(N,))
    with qd.create_stream() as stream:
        slow_ones(x, LONG, qd_stream=stream)
        assert torch.from_dlpack(x).sum().item() == N
        x.fill(0.0)
        slow_ones(x, LONG, qd_stream=stream)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            total = torch.from_dlpack(x).sum()
        side.synchronize()
        assert total.item() == N


def test_memory_given_away_outlives_its_ndarray_and_the_program(torch):
    for end in (lambda: None, qd.reset):
        qd.init(arch=qd.cuda)
        x = qd.ndarray(qd.f32, shape=(N,))
        x.fill(3.0)
        tensor = torch.from_dlpack(x)
        del x
        end()
        assert tensor.sum().item() == 3 * N


# CuPy


def test_cupy_both_ways(cupy):
    x = cupy.arange(24, dtype=cupy.float32).reshape(4, 6)
    y = qd.ndarray(qd.f32, shape=(6, 4))
    copy(y, x.T)
    assert (y.to_numpy() == cupy.asnumpy(x.T)).all()
    add(x[:, ::2], 10.0)
    assert cupy.asnumpy(x)[0].tolist() == [10, 1, 12, 3, 14, 5]
    for seen in (cupy.asarray(y), cupy.from_dlpack(y)):
        assert seen.data.ptr == y.buffer.ptr
        seen += 1
    assert (y.to_numpy() == np.arange(24).reshape(4, 6).T + 2).all()


def test_cupy_on_a_stream_of_its_own(cupy):
    side = cupy.cuda.Stream(non_blocking=True)
    with side:
        x = cupy.zeros(1 << 20, dtype=cupy.float32)
        for _ in range(20):
            x += 1
            add(x, 1.0)  # comes behind `side`, which the array says it is ready on
            side.wait_event(_recorded(cupy))
    side.synchronize()
    assert cupy.asnumpy(x).min() == 40


def _recorded(cupy: Any) -> Any:
    """An event behind what is queued on our default stream, which is in step with CUDA's."""
    event = cupy.cuda.Event()
    event.record(cupy.cuda.Stream.null)
    return event


# The host's arrays


def test_numpy_arrays_of_all_kinds():
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    y = np.zeros((6, 4), np.float32)
    copy(y, values.T)
    assert (y == values.T).all()
    frozen = values.copy()
    frozen.flags.writeable = False
    copy(y, frozen.T)
    with pytest.raises(ValueError, match="read-only"):
        add(frozen, 1.0)
    scalar = np.array(5.0, np.float32)
    add(scalar, 1.0)
    assert scalar == 6.0
    line = np.arange(10, dtype=np.float32)
    copy(line[5:], line[:5])
    assert line.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    reverse = line[::-1]
    add(reverse[:5], 10.0)
    assert line.tolist() == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]


LOST = """
import octants as qd

class Bad:
    __cuda_array_interface__ = {"data": (16, False), "shape": (4,), "typestr": "<f4", "version": 3}

qd.init(arch=qd.cuda, debug=True, enable_fallback=False)

@qd.kernel
def touch(x: qd.types.ndarray(dtype=qd.f32, ndim=1)):
    for i in x:
        x[i] = 1.0

for _ in range(2):
    try:
        touch(Bad())
    except RuntimeError as error:
        print(error.__traceback__.tb_lineno, error)
"""


def test_in_debug_mode_a_lost_device_is_told_by_the_call_of_the_kernel(tmp_path):
    script = tmp_path / "lost.py"
    script.write_text(LOST)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=100, check=False)
    first, again = done.stdout.splitlines()
    line = LOST.splitlines().index("        touch(Bad())") + 1
    assert re.match(rf"{line} cuStreamSynchronize failed with code 700 .*; launched last: `touch` \(defined at .*lost.py:9\)", first), done
    assert "The GPU is lost to this process" in first
    assert "the device is lost to this process since an earlier error" in again


def test_machine_code_is_kept_where_the_driver_has_an_assembler(tmp_path):
    try:
        ctypes.CDLL("libnvidia-ptxjitcompiler.so.1").nvPTXCompilerGetVersion
    except (OSError, AttributeError):
        pytest.skip("this driver has no assembler to call")
    kept = {"offline_cache": True, "offline_cache_file_path": str(tmp_path)}
    for _ in range(2):
        qd.init(arch=qd.cuda, enable_fallback=False, **kept)
        x = qd.ndarray(qd.f32, 100)
        for _ in range(4):
            add(x, 1.5)
        assert (x.to_numpy() == 6.0).all()
    contents = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    # The loop's ordinary form and its wide one are machine code both, and no text is left.
    assert sum(text.count(b"\x7fELF") for text in contents) >= 2
    assert not any(b".visible .entry" in text for text in contents)
