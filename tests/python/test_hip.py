"""AMD GPUs through HIP, as far as this can be tested without one: on a stand-in for HIP's library, on libraries that
lack functions, and on the real one without a GPU."""

import os
import shutil
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path

import hip_standin
import pytest

PROGRAM = """
import sys

import octants as qd

qd.init({options})


@qd.kernel
def double(x: qd.types.ndarray(dtype=qd.i32, ndim=1)):
    for i in x:
        x[i] = 2 * i


x = qd.ndarray(qd.i32, shape=1000)
double(x)
assert (x.to_numpy() == range(0, 2000, 2)).all() or not {compute}
print(qd.lang.impl.current_cfg().arch.name)
{then}
"""


@pytest.fixture
def standin():
    """The stand-in for HIP's library."""
    try:
        return hip_standin.path()
    except hip_standin.Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def run(tmp_path):
    """Runs a program with a driver library. Returns its standard output and standard error."""

    def run(library=None, options="", then="", compute=True, **environment):
        given = f", driver_library={str(library)!r}" if library else ""
        path = tmp_path / "program.py"
        path.write_text(PROGRAM.format(options=f"arch=qd.amdgpu{given}{options}", then=then, compute=compute))
        ran = subprocess.run(
            [sys.executable, str(path)],
            env=os.environ | {"OCTANTS_OFFLINE_CACHE": "0", "PYTHONPATH": os.pathsep.join(sys.path)} | environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout, ran.stderr

    return run


def says(text, *parts):
    """Whether the user sees one line, which has all of this."""
    lines = [line for line in text.splitlines() if line.strip()]
    return len(lines) == 1 and all(part in lines[0] for part in parts)


def test_kernels_run_on_every_device_that_is_visible(standin, run):
    for environment, device in [({}, 0), ({}, 1), ({"HIP_VISIBLE_DEVICES": "1"}, 0)]:
        out, err = run(standin, f", device={device}, enable_fallback=False", **environment)
        assert (out.strip(), err) == ("amdgpu", "")


@pytest.mark.parametrize("architecture", ["gfx906", "gfx90a:sramecc+:xnack-", "gfx1030", "gfx1201"])
def test_code_for_real_chips_is_loaded_and_launched(standin, run, architecture):
    # The stand-in parses such code but does not run it, so results are not checked.
    then = COUNT.format(library=str(standin))
    out, err = run(standin, ", enable_fallback=False", then, compute=False, HIP_STANDIN_ARCH=architecture)
    *_, launches = map(int, out.splitlines()[1].split())
    assert (launches > 0, err) == (True, "")


@pytest.mark.parametrize("architecture", ["hostgpu-wave32", "hostgpu-wave64:sramecc+:xnack-"])
def test_waves_of_either_width_combine_sums(standin, run, architecture):
    then = """
total = qd.field(qd.f32, shape=())
counts = qd.field(qd.i32, shape=8)


@qd.kernel
def add_up(x: qd.types.ndarray(dtype=qd.i32, ndim=1)) -> qd.f32:
    for i in x:
        total[None] += x[i]
    for i in x:
        counts[i % 8] += 1
    return total[None]


assert add_up(x) == 999 * 1000
assert (counts.to_numpy() == 125).all()
"""
    _, err = run(standin, ", enable_fallback=False", then, HIP_STANDIN_ARCH=architecture, HIP_STANDIN_SEED="3")
    assert err == ""


def test_without_a_device_programs_fall_back_to_the_cpu_with_one_line(standin, run):
    for hidden in ["", "-1"]:
        out, err = run(standin, HIP_VISIBLE_DEVICES=hidden)
        assert "cpu" in out or "x64" in out or "arm64" in out
        assert says(err, "amdgpu", "no AMD GPU was found", "falling back to the CPU"), err


def test_a_missing_device_is_reported_with_the_device_count(standin, run):
    _, err = run(standin, ", device=2")
    assert says(err, "there is no GPU 2: this process sees 2, counted from 0"), err


def test_the_real_library_without_a_gpu_falls_back_to_the_cpu(run):
    if find_library("amdhip64") is None:
        pytest.skip("HIP's library is not installed (package libamdhip64-dev)")
    if Path("/dev/kfd").exists():
        pytest.skip("there may be an AMD GPU")
    out, err = run()
    assert "amdgpu" not in out
    assert says(err, "no AMD GPU was found", "/dev/kfd", "falling back to the CPU"), err


def test_a_missing_or_wrong_library_is_named(run, tmp_path):
    _, err = run(tmp_path / "libamdhip64.so")
    assert says(err, str(tmp_path / "libamdhip64.so")), err
    _, err = run("libm.so.6")
    assert says(err, "HIP's library has no hipGetErrorName: ROCm 4.2 or newer is needed"), err


def test_an_unsupported_architecture_falls_back_to_the_cpu(standin, run):
    _, err = run(standin, HIP_STANDIN_ARCH="gfx803")
    assert says(err, "gfx803", "gfx90a", "falling back to the CPU"), err


@pytest.fixture
def altered(standin, tmp_path):
    """The stand-in for HIP's library without some functions, or with replacements (in C)."""
    if shutil.which("cc") is None or os.uname().machine != "x86_64":
        pytest.skip("no C compiler, or not for this machine: nothing to make a library with")
    exported = subprocess.run(["nm", "-D", "--defined-only", str(standin)], capture_output=True, text=True, check=True)
    names = [line.split()[-1] for line in exported.stdout.splitlines()]
    names = [name for name in names if name.startswith(("hip", "standin_"))]

    def altered(*missing, instead=""):
        assert set(missing) <= set(names)
        kept = [name for name in names if name not in missing]
        text = ["#include <dlfcn.h>", *(f"void *to_{name};" for name in kept)]
        # Each function jumps to that of the complete library, regardless of its parameters.
        for name in kept:
            jump = f"mov to_{name}@GOTPCREL(%rip), %r11; jmp *(%r11)"
            text.append(f'__asm__(".text; .globl {name}; .type {name}, @function; {name}: {jump}");')
        text.append("__attribute__((constructor)) static void find(void) {")
        text.append(f'    void *whole = dlopen("{standin}", RTLD_NOW);')
        text.extend(f'    to_{name} = dlsym(whole, "{name}");' for name in kept)
        text.extend(["}", instead])
        source, library = tmp_path / "altered.c", tmp_path / "libamdhip64.so"
        source.write_text("\n".join(text))
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        return library

    return altered


POOLS = [
    "hipMemPoolCreate",
    "hipMemPoolDestroy",
    "hipMemPoolSetAttribute",
    "hipMemPoolTrimTo",
    "hipMallocFromPoolAsync",
    "hipFreeAsync",
]
COUNT = """
import ctypes
numbers = (ctypes.c_uint64 * 8)()
ctypes.CDLL({library!r}).standin_count(numbers)
print(*numbers)
"""


def test_plain_memory_is_used_without_memory_pools(standin, altered, run):
    for library, environment in [(altered(*POOLS), {}), (standin, {"HIP_STANDIN_VERSION": "50221153"})]:
        out, err = run(library, ", enable_fallback=False", COUNT.format(library=str(standin)), **environment)
        *_, plain, pooled, _pinned, launches = map(int, out.splitlines()[1].split())
        assert (err, pooled) == ("", 0)
        assert min(plain, launches) > 0


def test_missing_functions_are_named_with_the_version_that_has_them(altered, run):
    for name, version in [("hipStreamIsCapturing", "4.3"), ("hipThreadExchangeStreamCaptureMode", "5.0")]:
        _, err = run(altered(name))
        assert says(err, f"HIP's library has no {name}: ROCm {version} or newer is needed"), err
    # Older ones have the older struct.
    out, err = run(altered("hipGetDevicePropertiesR0600"), ", enable_fallback=False")
    assert (out.strip(), err) == ("amdgpu", "")


def test_a_program_leaks_nothing(standin, run):
    then = """
qd.reset()
del x, double
import gc
gc.collect()
"""
    again = """
for _ in range(3):
    qd.init({options})
    s, e = qd.create_stream(), qd.create_event()
    x = qd.field(qd.i32, shape=1000)
    @qd.kernel
    def grow():
        for i in x:
            x[i] += i
    grow(qd_stream=s)
    e.record(s)
    assert x[3] == 3
    qd.reset()
    del x, grow, s, e
    gc.collect()
"""
    again = again.format(options=f"arch=qd.amdgpu, device=1, driver_library={str(standin)!r}")
    out, err = run(standin, ", device=1, enable_fallback=False", then + again + COUNT.format(library=str(standin)))
    assert err == ""
    streams, events, modules, pools, plain, pooled, pinned, _ = map(int, out.splitlines()[1].split())
    assert (streams, events, modules, pools, plain, pooled, pinned) == (0, 0, 0, 0, 0, 0, 0)


# The long kernel runs far longer than scheduling delays on a busy machine, and all code is compiled before it starts:
# if a wait is missing, the memory cannot contain its result yet. Its roots converge to one within thirty steps, and no
# compiler combines several steps.
TWO_STREAMS = """
import threading

STEPS = 150_000_000


@qd.kernel
def slow(x: qd.types.ndarray(dtype=qd.f32, ndim=1), value: qd.f32, steps: qd.i32):
    qd.loop_config(serialize=True)
    for _ in range(1):
        root = value
        for i in range(steps):
            root = qd.sqrt(root)
        x[0] = root + value


@qd.kernel
def add(x: qd.types.ndarray(dtype=qd.f32, ndim=1), y: qd.types.ndarray(dtype=qd.f32, ndim=1)):
    for i in y:
        y[i] = x[0] + 1.0


def work():
    z, y = qd.ndarray(qd.f32, shape=1), qd.ndarray(qd.f32, shape=100)
    slow(z, 1.0, 0)
    add(z, y)
    with qd.create_stream() as s, qd.create_stream() as t, qd.create_event() as e:
        slow(z, 7.0, STEPS)
        assert z[0] == 8.0, "wrong"
        slow(z, 8.0, STEPS, qd_stream=s)
        e.record(s)
        e.wait(t)
        add(z, y, qd_stream=t)
        assert (y.to_numpy() == 10.0).all(), "wrong"


thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
FORGOTTEN = {
    # The thread that began the program is the only one that works on the device that it was begun for.
    "hipSetDevice": (
        "#include <unistd.h>\nint hipSetDevice(int n) {"
        ' return gettid() == getpid() ? ((int (*)(int))dlsym(dlopen("STANDIN", RTLD_NOW), "hipSetDevice"))(n) : 0; }',
        "of device 1 while the thread's device is 0",
    ),
    "hipStreamWaitEvent": ("int hipStreamWaitEvent(void *s, void *e, unsigned f) { return 0; }", "wrong"),
    "hipEventRecord": ("int hipEventRecord(void *e, void *s) { return 0; }", "wrong"),
    # An interruptible host polls until the stream is done, and calls this only for the copy after it.
    "hipStreamSynchronize hipStreamQuery": (
        "int hipStreamSynchronize(void *s) { return 0; }\nint hipStreamQuery(void *s) { return 0; }",
        "wrong",
    ),
    "hipMemcpyDtoHAsync": (
        "int hipMemcpyDtoHAsync(void *to, void *from, unsigned long n, void *s) { return 0; }",
        "wrong",
    ),
}


@pytest.mark.parametrize("version", ["60300000", "50221153"])
def test_one_thread_uses_two_streams(standin, run, version):
    # The older one's memory is not in the order of streams by itself.
    _, err = run(standin, ", device=1, enable_fallback=False", TWO_STREAMS, HIP_STANDIN_VERSION=version)
    assert err == ""


@pytest.mark.parametrize("names", FORGOTTEN)
def test_the_standin_notices_a_missing_call(standin, altered, run, names):
    text, seen = FORGOTTEN[names]
    library = altered(*names.split(), instead=text.replace("STANDIN", str(standin)))
    _, err = run(library, ", device=1, enable_fallback=False", TWO_STREAMS, compute=False)
    assert seen in err


def test_exported_memory_is_described_as_hip_memory(standin, run):
    then = """
assert x.__dlpack_device__() == (10, 1)
assert "dltensor" in repr(x.__dlpack__(stream=0))
assert x.__cuda_array_interface__["stream"] is None
"""
    _, err = run(standin, ", device=1, enable_fallback=False", then)
    assert err == ""


def test_no_error_code_is_left_for_other_libraries(standin, run):
    # PyTorch queries HIP's last error of the thread after its own calls.
    then = f"""
import ctypes

last = ctypes.CDLL({str(standin)!r}).hipGetLastError
s, e = qd.create_stream(), qd.create_event()


@qd.kernel
def slow(x: qd.types.ndarray(dtype=qd.i32, ndim=1)):
    qd.loop_config(serialize=True)
    for _ in range(1):
        s = 1
        for step in range(30_000_000):
            s = (s ^ (s >> 7)) * 1664525 + step
        x[0] = s


slow(x, qd_stream=s)
e.record(s)
assert (s.query(), e.query(), last()) == (False, False, 0)
try:
    qd.ndarray(qd.f32, shape=1 << 40)
except MemoryError:
    assert last() == 0
else:
    raise AssertionError("so much memory")
"""
    _, err = run(standin, ", enable_fallback=False", then)
    assert err == ""


def test_a_lost_device_is_reported_with_the_kernel_and_the_remedy(standin, run):
    then = f"""
import ctypes
ctypes.CDLL({str(standin)!r}).standin_break(0, 719)
for _ in range(2):
    try:
        double(x)
        qd.sync()
    except RuntimeError as e:
        print(e)
"""
    out, _ = run(standin, ", enable_fallback=False", then)
    first, second = out.splitlines()[1:3]
    assert says(first, "hipErrorLaunchFailure", "code 719", "`double`", "restart"), first
    assert says(second, "lost to this process", "code 719"), second
    # In debug mode, the error also names the line of the kernel.
    out, _ = run(standin, ", enable_fallback=False, debug=True", then)
    assert says(out.splitlines()[1], "code 719", "`double` (defined at ", "program.py:9)"), out
