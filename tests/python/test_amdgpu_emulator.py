"""Machine code of AMD GPUs, run by an instruction emulator through the stand-in for HIP's library."""

import os
import subprocess
import sys
from pathlib import Path

import hip_standin
import pytest

ROOT = Path(__file__).parents[2]
SHARED = ["tests/python/test_shared_memory.py", "tests/python/simt/test_blocks.py"]


@pytest.fixture(params=hip_standin.CHIPS)
def environment(request):
    """The environment of programs that run on the emulated chip."""
    if not any(any(Path(root).glob(at)) for root, at in hip_standin.DEVICE_LIBRARIES):
        pytest.skip("AMD's library of math functions is not installed (rocm-device-libs)")
    try:
        library = str(hip_standin.path())
    except hip_standin.Missing as missing:
        pytest.skip(str(missing))
    given = {"HIP_STANDIN_ARCH": request.param, "OCTANTS_DRIVER_LIBRARY": library, "OCTANTS_HIP_STANDIN": library}
    return os.environ | given | {"OCTANTS_OFFLINE_CACHE": "0"}


def run(command, environment):
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_all_checks_pass(environment):
    done = run([sys.executable, "-m", "octants.selftest", "--arch", "amdgpu"], environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 failed" in done.stdout
    assert environment["HIP_STANDIN_ARCH"] in done.stdout


def test_without_barriers_tests_of_shared_memory_fail(environment):
    command = [sys.executable, "-m", "pytest", "--arch", hip_standin.EMULATOR, "-p", "no:cacheprovider", "-n", "0"]
    options = ["--maxfail", "3", "-k", "reverses_blocks or several_waves or turn or reductions_and_scans", *SHARED]
    done = run([*command, *options], environment | {"HIP_STANDIN_SABOTAGE": "no-barriers"})
    assert done.returncode == 1, done.stdout + done.stderr
    assert "3 failed" in done.stdout, done.stdout


BESIDE = """
import octants as qd

qd.init(arch=qd.amdgpu, enable_fallback=False)


@qd.kernel
def write(x: qd.types.ndarray(dtype=qd.i32, ndim=1), n: qd.i32):
    for i in range(n):
        x[i] = i


x = qd.ndarray(qd.i32, shape=100)
write(x, 100)
assert (x.to_numpy() == range(100)).all()
write(x, 1 << 20)
x.to_numpy()
"""


def test_an_access_outside_an_array_names_the_instruction(environment, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(BESIDE)
    done = run([sys.executable, str(program)], environment)
    assert done.returncode == 1
    assert "hipErrorIllegalAddress" in done.stderr
    assert "past the end of" in done.stderr or "where there is no memory" in done.stderr
    assert "`global_store" in done.stderr or "`flat_store" in done.stderr
