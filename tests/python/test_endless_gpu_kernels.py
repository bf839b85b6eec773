"""An endless kernel on a device that cannot cancel it: Ctrl-C interrupts every wait, and the process ends.

The device is the stand-in for HIP's library. Its streams are threads, which run a kernel until it ends.
"""

import os
import subprocess
import sys
from pathlib import Path

import hip_standin
import pytest

import octants as qd

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")

PROGRAM = """
import atexit, os, signal, threading, time
import numpy
import octants as qd

signal.signal(signal.SIGINT, signal.default_int_handler)
OPTIONS = dict(arch=qd.amdgpu, device=1, driver_library=LIBRARY, enable_fallback=False, offline_cache=False)
qd.init(**OPTIONS)

ROWS = qd.types.ndarray(dtype=qd.f32, ndim=1)

@qd.kernel
def endless(x: ROWS):
    for i in range(1):
        while x[0] >= 0.0:
            x[1] += 1.0

@qd.kernel
def returns(x: ROWS) -> qd.f32:
    for i in range(1):
        while x[0] >= 0.0:
            x[1] += 1.0
    return x[1]

@qd.kernel
def beside(x: ROWS, y: ROWS):
    with qd.stream_parallel():
        for i in range(1):
            while x[0] >= 0.0:
                x[1] += 1.0
    with qd.stream_parallel():
        for i in y:
            y[i] += 1.0

@qd.kernel
def add(x: ROWS):
    for i in x:
        x[i] += 1.0

small, y = qd.ndarray(qd.f32, 8), qd.ndarray(qd.f32, 1000)
small.fill(0.0)
add(y)
add(numpy.zeros(8, numpy.float32))
qd.sync()

sent = []

def interrupt():
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)

def wait_and_catch():
    try:
        qd.sync()
    except KeyboardInterrupt:
        return
    raise SystemExit("not interrupted")

stream = qd.create_stream()
timer = threading.Timer(0.5, interrupt)
timer.daemon = True  # The process does not wait for it.
timer.start()
"""

# Each case queues endless work and then ends the process. Ctrl-C is sent after half a second.
ENDINGS = {
    "a wait": "endless(small, qd_stream=stream); qd.sync()",
    "a wait whose interrupt is caught": "endless(small, qd_stream=stream); wait_and_catch()",
    "a stream's wait": "endless(small, qd_stream=stream); stream.synchronize()",
    "an element": "endless(small); small[1]",
    "a result": "returns(small)",
    "the end of the program": "endless(small)",
    "no wait": "endless(small); time.sleep(60)",
    "a stream that nobody names": """
def queue():
    endless(small, qd_stream=qd.create_stream())

queue()
qd.create_stream()
""",
    "work behind it": """
other = qd.create_stream()
endless(small, qd_stream=stream)
other.wait(stream)
add(y, qd_stream=other)
other.synchronize()
""",
    "a small array of the host": "endless(numpy.zeros(8, numpy.float32))",
    "a large array of the host": "endless(numpy.zeros(1_000_000, numpy.float32))",
    "an array with gaps": "endless(numpy.zeros(1_000_000, numpy.float32)[::2])",
    "a large array of the host behind it": "endless(small); add(numpy.zeros(1_000_000, numpy.float32))",
    "memory given back behind it": "endless(small); z = small; del small, z; qd.sync()",
    "sections": "beside(small, y); qd.sync()",
    "reset": "endless(small); qd.reset()",
    "a stream's block": "with stream: endless(small, qd_stream=stream); stream.synchronize()",
    "a thread that waits": """
thread = threading.Thread(target=lambda: returns(small), daemon=True)
thread.start()
time.sleep(60)
""",
    "another program": """
endless(small)
try:
    qd.init(**OPTIONS)
except KeyboardInterrupt:
    pass
try:
    small[0]
    raise SystemExit("the program goes on")
except RuntimeError as error:
    assert "ended" in str(error)
qd.init(**OPTIONS)
z = qd.ndarray(qd.f32, 1000)
add(z)
assert z[999] == 1.0
""",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_process_ends_despite_an_endless_kernel(tmp_path, ending):
    try:
        library = hip_standin.path()
    except hip_standin.Missing as missing:
        pytest.skip(str(missing))
    script = tmp_path / "endless.py"
    script.write_text(PROGRAM.replace("LIBRARY", repr(str(library))) + ENDINGS[ending] + "\n")
    script.write_text(script.read_text() + "print('end', flush=True)\n")
    env = os.environ | {"PYTHONPATH": str(Path(qd.__file__).parents[1]), "HIP_STANDIN_ARCH": "hostgpu-wave64"}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, env=env)
    assert "is ended" not in done.stderr, done.stderr
    assert done.returncode == 0 if done.stdout else "KeyboardInterrupt" in done.stderr, done.stderr
