"""The option `cpu_target`: code for another processor runs if this machine has its features, and is refused if not."""

import platform
import re

import numpy as np
import pytest

import octants as qd

I1 = qd.types.ndarray(dtype=qd.i32, ndim=1)

pytestmark = [
    pytest.mark.on_cpu,
    pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="names x86-64 processors"),
]


@pytest.fixture(autouse=True)
def program():
    yield
    qd.reset()


@qd.kernel
def sums(x: I1) -> qd.i32:
    total = 0
    for i in range(x.shape[0]):
        total += x[i] * i
    return total


def code():
    return qd.inspect(sums, np.arange(100, dtype=np.int32), emit="asm")


@pytest.mark.parametrize("target", ["", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "znver5"])
def test_code_for_a_processor_runs(target):
    try:
        qd.init(arch=qd.cpu, cpu_target=target)
    except ValueError as error:
        if not re.search("`cpu_target`: this machine .* cannot run code for .*: it lacks ", str(error)):
            raise
        pytest.skip(str(error))
    assert qd.cfg.cpu_target == target
    assert sums(np.arange(100, dtype=np.int32)) == sum(i * i for i in range(100))


def test_the_code_targets_the_processor():
    qd.init(arch=qd.cpu, cpu_target="x86-64")
    assert "ymm" not in code()
    assert "vpmulld" not in code()
    try:
        qd.init(arch=qd.cpu, cpu_target="x86-64-v3")
    except ValueError as error:
        pytest.skip(str(error))
    assert "ymm" in code()
    qd.init(arch=qd.cpu, cpu_target="x86-64-v3,-avx2")
    assert "vpmulld\t%ymm" not in code()
    assert "xmm" in code()


@pytest.mark.parametrize("target", ["x86-64", "x86-64-v3", ""])
def test_cached_kernels_depend_on_the_processor(tmp_path, target):
    """Code for one processor is not used for another."""
    for now in ("x86-64", target):
        try:
            qd.init(arch=qd.cpu, cpu_target=now, offline_cache=True, offline_cache_file_path=str(tmp_path))
        except ValueError as error:
            pytest.skip(str(error))
        assert sums(np.arange(100, dtype=np.int32)) == sum(i * i for i in range(100))
        hits, stored = qd.cache.counts()["hits"], qd.cache.counts()["stored"]
    assert (hits, stored) == ((1, 0) if target == "x86-64" else (0, 1))


@pytest.mark.parametrize(
    "target, message",
    [
        ("pentium-17", "code generation does not support the processor pentium-17, only .*x86-64-v3"),
        ("x86-64,+avx512f", r"`\+avx512f` must be a minus sign and a processor feature"),
        ("x86-64,-warp", "`-warp` must be a minus sign and a processor feature"),
    ],
)
def test_unknown_processors_are_refused(target, message):
    with pytest.raises(ValueError, match=message):
        qd.init(arch=qd.cpu, cpu_target=target)


def test_the_environment_names_a_processor(monkeypatch):
    monkeypatch.setenv("OCTANTS_CPU_TARGET", "x86-64")
    qd.init(arch=qd.cpu)
    assert qd.cfg.cpu_target == "x86-64"
