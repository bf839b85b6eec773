"""A Vulkan device with the features and limits that Vulkan has on Metal (`vulkan_portability=True`), and the code for
it. `pytest --arch vulkan-portability` runs other tests on such a device."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import octants as qd

HERE = Path(__file__).name
Floats = qd.types.ndarray(qd.f32, 1)


@pytest.fixture
def portable() -> Any:
    """Starts a program on such a device, directly: with `--arch`, `qd.init` means another one."""
    init = getattr(qd.init, "original", qd.init)
    try:
        init(arch=qd.vulkan, vulkan_portability=True, enable_fallback=False)
    except RuntimeError as missing:
        pytest.skip(str(missing))
    yield
    qd.reset()


@qd.kernel
def divide(x: Floats):
    for i in x:
        x[i] = qd.cast(qd.cast(x[i], qd.f64) / 3.0, qd.f32)


@qd.kernel
def total(x: qd.types.ndarray(qd.i64, 1), out: qd.types.ndarray(qd.i64, 1)):
    for i in x:
        out[0] += x[i]


@qd.kernel
def largest(x: qd.types.ndarray(qd.u64, 1), out: qd.types.ndarray(qd.u64, 1)):
    for i in x:
        qd.atomic_max(out[0], x[i])


@qd.kernel
def scale(x: qd.types.ndarray(qd.i64, 1), out: qd.types.ndarray(qd.i64, 1)):
    for i in x:
        out[i] = x[i] * 3 // 2


@qd.kernel
def read_clock(x: qd.types.ndarray(qd.u64, 1)):
    for i in x:
        x[i] = qd.clock_counter()


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(Path(__file__).read_text("utf-8").splitlines(), 1) if line.strip() == text)


def refused(launch: Any, reason: str, line: str) -> None:
    with pytest.raises(RuntimeError) as error:
        launch()
    assert reason in str(error.value)
    assert f"{HERE}:{line_of(line)}" in str(error.value)


def test_64_bit_floats_are_refused_where_the_kernel_uses_them(portable: Any) -> None:
    reason = "this device has no 64-bit floats in shaders: use f32"
    refused(lambda: divide(qd.ndarray(qd.f32, 8)), reason, "x[i] = qd.cast(qd.cast(x[i], qd.f64) / 3.0, qd.f32)")


@pytest.mark.parametrize(
    ("kernel", "dtype", "line"),
    [(total, qd.i64, "out[0] += x[i]"), (largest, qd.u64, "qd.atomic_max(out[0], x[i])")],
    ids=["sum", "maximum"],
)
def test_atomic_operations_on_64_bit_integers_are_refused(portable: Any, kernel: Any, dtype: Any, line: str) -> None:
    refused(lambda: kernel(qd.ndarray(dtype, 8), qd.ndarray(dtype, 1)), "this device has no atomic operations on", line)


def test_the_clock_is_refused(portable: Any) -> None:
    refused(lambda: read_clock(qd.ndarray(qd.u64, 8)), "this device has no clock", "x[i] = qd.clock_counter()")


def test_other_arithmetic_on_64_bit_integers_is_not(portable: Any) -> None:
    x, out = qd.ndarray(qd.i64, 1000), qd.ndarray(qd.i64, 1000)
    a = np.arange(1000) * 10**12 - 4 * 10**14
    x.from_numpy(a)
    scale(x, out)
    assert (out.to_numpy() == a * 3 // 2).all()


def test_a_program_continues_after_a_kernel_is_refused(portable: Any) -> None:
    x = qd.ndarray(qd.f32, 8)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no 64-bit floats"):
            divide(x)
    x.fill(2.0)
    assert x[7] == 2.0


def test_a_running_program_keeps_its_limits(portable: Any) -> None:
    with pytest.raises(AttributeError, match="vulkan_portability"):
        qd.cfg.vulkan_portability = False


def test_code_for_metal_shows_what_it_lacks() -> None:
    qd.init(arch=qd.cpu)
    x, sums = qd.ndarray(qd.f32, 8), qd.ndarray(qd.i64, 1)
    for target in ("vulkan", "vulkan-metal"):
        assert "OpCapability Int64" in qd.inspect(scale, qd.ndarray(qd.i64, 8), sums, target=target, emit="spirv")
    assert "OpCapability Float64" in qd.inspect(divide, x, target="vulkan", emit="spirv")
    with pytest.raises(RuntimeError, match="no 64-bit floats"):
        qd.inspect(divide, x, target="vulkan-metal", emit="spirv")
    with pytest.raises(RuntimeError, match="no atomic operations on i64"):
        qd.inspect(total, qd.ndarray(qd.i64, 8), sums, target="vulkan-metal", emit="spirv")
