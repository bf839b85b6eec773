"""Vulkan devices: opening them, endless loops, queued work, and validation layers."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import octants as qd
from octants.devices import list_devices

LAVAPIPE = sorted(Path("/usr/share/vulkan/icd.d").glob("lvp_icd*.json"))

# Some drivers cannot be loaded as often, and their libraries stay: no mapped file comes or goes after the first
# program.
MANY = """
import octants as qd

def libraries():
    return {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}

known = None
for number in range(40):
    qd.init(arch=qd.vulkan, enable_fallback=False, log_level="error", offline_cache=False)
    x = qd.field(qd.i32, 8)
    x.fill(number)
    assert x[3] == number
    qd.reset()
    known = known or libraries()
    assert libraries() == known, libraries() ^ known
"""


def run(program, file="-c", **variables):
    """Runs a program on lavapipe: a text, or a file."""
    if not LAVAPIPE:
        pytest.skip("Mesa's lavapipe is not installed")
    env = {**os.environ, "VK_ICD_FILENAMES": str(LAVAPIPE[0]), "VK_DRIVER_FILES": str(LAVAPIPE[0])}
    env.update(variables)
    env.pop("QD_ARCH", None)
    command = [sys.executable, "-c", program] if file == "-c" else [sys.executable, file]
    ran = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    if "there is no Vulkan library" in ran.stderr:
        pytest.skip("Vulkan's loader is not installed")
    assert ran.returncode == 0, ran.stderr
    return ran


@qd.kernel
def count(x: qd.types.ndarray(qd.i32, 1), rounds: qd.i32):
    for i in x:
        x[i] = 0
        for k in range(rounds):
            x[i] += 1 + (k & i)


@qd.kernel
def count_in_threads(x: qd.types.ndarray(qd.i32, 1), rounds: qd.i32, width: qd.i32, most: qd.i32):
    for i in x:
        k = 0
        while True:
            if k >= rounds + i % 3:
                break
            for j in range(width):
                if j == most:
                    break
                x[i] += 1
            k += 1


@pytest.fixture
def on_vulkan(request):
    init = getattr(qd.init, "original", qd.init)
    try:
        init(arch=qd.vulkan, enable_fallback=False)
    except RuntimeError as missing:
        pytest.skip(str(missing))
    if not next(d for d in list_devices()[0] if d.arch == "vulkan").name.startswith("llvmpipe"):
        pytest.skip("the first device of Vulkan is not Mesa's lavapipe")


def test_a_loop_that_lavapipe_leaves_too_early_is_an_error(on_vulkan):
    x = qd.ndarray(qd.i32, 1)
    count(x, 60_000)
    assert x[0] == 60_000
    count(x, 70_000)
    with pytest.raises(AssertionError, match=r"left this loop too early.*65535(.|\n)*test_vulkan.py:\d+"):
        qd.sync()
    count(x, 5)
    assert x[0] == 5


def test_concurrent_launches_report_a_loop_that_is_left_too_early(on_vulkan):
    x, y = qd.ndarray(qd.i32, 1), qd.ndarray(qd.i32, 1)
    qd.concurrency_report()
    with qd.concurrent():
        count(x, 70_000)
        count(y, 5)
    assert qd.concurrency_report().lanes == 2
    assert y[0] == 5
    with pytest.raises(AssertionError, match=r"left this loop too early.*65535(.|\n)*test_vulkan.py:\d+"):
        x.to_numpy()
    count(x, 5)
    assert x[0] == 5


def test_loops_that_end_by_themselves_are_no_errors(on_vulkan):
    x = qd.ndarray(qd.i32, 5000)
    count_in_threads(x, 4, 20, 7)
    assert (x.to_numpy() == [7 * (4 + i % 3) for i in range(5000)]).all()
    x.fill(0)
    count_in_threads(x, 4, 20, 30)
    assert (x.to_numpy() == [20 * (4 + i % 3) for i in range(5000)]).all()
    x.fill(0)
    count_in_threads(x, 10_000, 20, 7)
    with pytest.raises(AssertionError, match="left this loop too early"):
        qd.sync()


@qd.kernel
def spin(x: qd.types.ndarray(qd.i32, 1), rounds: qd.i32):
    for i in x:
        s = i
        for k in range(rounds):
            s = (s ^ (s >> 7)) * 1664525 + k
        x[i] = s


def test_queued_work_runs_while_the_host_is_busy(on_vulkan):
    x = qd.ndarray(qd.i32, 512)
    spin(x, 10)
    qd.sync()

    def run(pause):
        start = time.perf_counter()
        for _ in range(5):
            spin(x, 50_000)
        time.sleep(pause)
        waits = time.perf_counter()
        qd.sync()
        return time.perf_counter() - waits, time.perf_counter() - start

    whole = min(run(0)[1] for _ in range(2))
    # Several times the expected duration, because the machine may be busy.
    assert min(run(4 * whole)[0] for _ in range(3)) < whole / 2


def test_a_process_may_start_many_programs():
    run(MANY)


PROGRAMS = Path(__file__).parent / "vulkan_programs.py"


PORTABILITY = pytest.mark.parametrize("portability", ["0", "1"], ids=["all features", "features on Metal"])


def run_validated(program, file="-c", **variables):
    """Runs a program under the validation layers, which must report nothing."""
    if not any(Path("/usr/share/vulkan/explicit_layer.d").glob("VkLayer_khronos_validation.json")):
        pytest.skip("Khronos' validation layers (package vulkan-validationlayers) are not installed")
    layers = {
        "VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation",
        "VK_LAYER_ENABLES": "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT",
        "VK_LOADER_DEBUG": "layer",
    }
    ran = run(program, file, **layers, **variables)
    assert 'Inserted device layer "VK_LAYER_KHRONOS_validation"' in ran.stderr, "the layer was not loaded"
    told = [line for line in (ran.stdout + ran.stderr).splitlines() if "VUID" in line or "SYNC-" in line]
    assert not told, told
    return ran.stdout


@PORTABILITY
def test_validation_layers_report_nothing(portability):
    assert "ran all programs" in run_validated("", str(PROGRAMS), OCTANTS_VULKAN_PORTABILITY=portability)


# The validation layers take much of the time.
@PORTABILITY
def test_the_selftest_passes_and_validation_layers_report_nothing(portability):
    program = "import sys; from octants.selftest.run import main; sys.exit(main(['--arch', 'vulkan']))"
    printed = run_validated(program, OCTANTS_VULKAN_PORTABILITY=portability)
    assert ", 0 failed, " in printed
    assert ("left out     " in printed and "no 64-bit floats" in printed) == (portability == "1")
