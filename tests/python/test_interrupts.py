"""Ctrl-C ends a long launch between chunks and tasks, long loops within a chunk, and every wait. The program
continues."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import octants as qd

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")

PROGRAM = """
import os, signal, threading, time
import octants as qd

signal.signal(signal.SIGINT, signal.default_int_handler)
qd.init(arch=qd.cpu, offline_cache=False, **OPTIONS)

ROWS = qd.types.ndarray(dtype=qd.f32, ndim=1)

@qd.kernel
def chunks(x: ROWS, n: qd.i32):
    for i in x:
        for _ in range(n):
            x[i] = qd.sin(x[i]) + 1.0

@qd.kernel
def tasks(x: ROWS, n: qd.i32):
    for t in qd.static(range(100)):
        for i in range(1):
            for _ in range(n):
                x[t] = qd.sin(x[t]) + 1.0

@qd.kernel
def returns(x: ROWS, n: qd.i32) -> qd.f32:
    s = 0.0
    for i in x:
        for _ in range(n):
            x[i] = qd.sin(x[i]) + 1.0
        s += x[i]
    return s

@qd.kernel(graph=True)
def rounds(x: ROWS, n: qd.i32, left: qd.types.ndarray(dtype=qd.i32, ndim=0)):
    while qd.graph.do_while(left):
        for i in x:
            for _ in range(n):
                x[i] = qd.sin(x[i]) + 1.0

@qd.kernel
def endless(x: ROWS) -> qd.i32:
    i = 0
    while x[0] >= 0.0:
        i = (i * 5 + 1) & 1023
        x[1] += 1.0
    return i

@qd.kernel
def in_order(x: ROWS, n: qd.i64):
    qd.loop_config(serialize=True)
    for i in range(n):
        x[i % 8] = qd.sin(x[i % 8]) + 1.0

@qd.kernel
def vectors(x: ROWS, n: qd.i64):
    for i in range(1):
        for k in range(n):
            for j in range(1024):
                x[j] = x[j] * 0.5 + 1.0

@qd.kernel
def last_iteration(x: ROWS, n: qd.i64):
    for i in x:
        for k in range(n if i == x.shape[0] - 1 else qd.i64(3)):
            x[i] = qd.sin(x[i]) + 1.0

@qd.real_func
def first_below(n: qd.i64) -> qd.i32:
    steps = 0
    while n >= 0:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps = (steps + 1) & 1023
    return steps

@qd.kernel
def in_a_function(x: ROWS):
    for i in range(4):
        x[i] = first_below(i + 27)

@qd.kernel
def scatter(x: ROWS, n: qd.i64):
    for i in range(1000):
        for k in range(n):
            x[(i * k) % 8] += 1.0

def launches(x, n):
    while True:
        chunks(x, n // 100)

x = qd.ndarray(qd.f32, 100_000)
small = qd.ndarray(qd.f32, 100)
for kernel in (chunks, returns):
    kernel(x, 1)
tasks(small, 1)
left = qd.ndarray(qd.i32, ())
rounds(x, 1, left)
left[()] = 1
qd.sync()

sent = []

def interrupt():
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)

threading.Timer(0.5, interrupt).start()
try:
    WAIT
    raise SystemExit("not interrupted")
except KeyboardInterrupt:
    late = time.monotonic() - sent[0]
y = qd.ndarray(qd.f32, 1000)
with qd.stream_scope(qd.create_stream()):  # behind nothing
    chunks(y, 1)
    assert y[3] == y[999] == 1.0
print(late, flush=True)
os._exit(0)  # without waiting for what runs on
"""

IN_ORDER = [
    "chunks(x, 20_000)",
    "tasks(small, 5_000_000)",
    "returns(x, 20_000)",
    "launches(x, 20_000)",
    "rounds(x, 10, left)",
]
LONG = 1 << 50
IN_ONE_CHUNK = [
    "endless(small)",
    f"in_order(small, {LONG})",
    f"vectors(x, {LONG})",
    f"last_iteration(x, {LONG})",
    "in_a_function(small)",
    f"scatter(x, {LONG})",
]
QUEUED = ["chunks(x, 5_000); qd.sync()", "chunks(x, 5_000); x[0]", "returns(x, 5_000)", "rounds(x, 10, left)"]
CASES = [
    *((wait, {}) for wait in IN_ORDER),
    *((wait, {"cpu_max_num_threads": 1}) for wait in IN_ORDER[:1]),
    *((wait, {}) for wait in IN_ONE_CHUNK),
    *((wait, {"opt_level": 0, "cpu_max_num_threads": 1}) for wait in IN_ONE_CHUNK),
    *((wait, {"cpu_streams": True}) for wait in QUEUED),
]


@pytest.mark.parametrize(("wait", "options"), CASES, ids=str)
def test_a_long_launch_is_interrupted(tmp_path, wait, options):
    script = tmp_path / "interrupted.py"
    script.write_text(PROGRAM.replace("OPTIONS", f"dict({options!r})").replace("WAIT", wait))
    env = os.environ | {"PYTHONPATH": str(Path(qd.__file__).parents[1])}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stderr
    # On an idle machine half a second; chunks that have begun are ended.
    assert float(done.stdout) < 10.0


def test_interruptible_loops_are_vectorized():
    qd.init(arch=qd.cpu)
    rows = qd.types.ndarray(dtype=qd.f32, ndim=1)

    @qd.kernel
    def sums(x: rows, y: rows, n: qd.i32):
        for i in range(64):
            s = 0.0
            for j in range(n):
                s += x[j] * 0.5
            y[i] = s

    @qd.kernel
    def scale(x: rows):
        for i in x:
            x[i] *= 0.5

    x, y = qd.ndarray(qd.f32, 64), qd.ndarray(qd.f32, 64)
    code = qd.inspect(sums, x, y, 64, target="cpu", emit="llvm")
    assert "poll.call" in code
    assert " x float>" in code
    # Between its iterations a launch ends anyway.
    assert "poll.call" not in qd.inspect(scale, x, target="cpu", emit="llvm")


ENDING = PROGRAM.split("threading.Timer")[0]

# Each case queues endless work and then ends the process. Ctrl-C is sent after half a second.
ENDINGS = {
    "a wait": "in_order(small, LONG, qd_stream=stream); qd.sync()",
    "a wait whose interrupt is caught": """
in_order(small, LONG, qd_stream=stream)
try:
    qd.sync()
except KeyboardInterrupt:
    pass
""",
    "the end of the program": "in_order(small, LONG)",
    "no wait": "vectors(x, LONG); time.sleep(60)",
    "a stream that nobody names": """
def queue():
    in_order(small, LONG, qd_stream=qd.create_stream())
    in_order(x, LONG, qd_stream=qd.create_stream())

queue()
qd.create_stream()
""",
    "work behind it": """
other = qd.create_stream()
in_order(small, LONG, qd_stream=stream)
other.wait(stream)
chunks(x, 1, qd_stream=other)
other.synchronize()
""",
    "an array of the host": "in_order(numpy.zeros(8, numpy.float32), LONG)",
    "sections": "beside(small, x, LONG)",
    "sections with an array of the host": "beside(numpy.zeros(8, numpy.float32), x, LONG)",
    "reset": "in_order(small, LONG); qd.reset()",
    "another program": "in_order(small, LONG); qd.init(arch=qd.cpu)",
    "a stream's block": "with stream: in_order(small, LONG, qd_stream=stream)",
    "a result in a stream's block": "with stream: endless(small, qd_stream=stream)",
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("options", [{}, {"cpu_max_num_threads": 1}], ids=str)
def test_an_interrupted_program_ends_with_work_queued(tmp_path, ending, options):
    script = tmp_path / "endless.py"
    options = {"cpu_streams": True} | options
    text = ENDING.replace("OPTIONS", f"dict({options!r})")
    text += """
import numpy

LONG = 1 << 50

@qd.kernel
def beside(x: ROWS, y: ROWS, n: qd.i64):
    with qd.stream_parallel():
        for i in range(1):
            for k in range(n):
                x[k % 8] += 1.0
    with qd.stream_parallel():
        for i in y:
            y[i] += 1.0

stream = qd.create_stream()
timer = threading.Timer(0.5, interrupt)
timer.daemon = True  # The process does not wait for it.
timer.start()
import atexit
atexit.unregister(qd.runtime._end_program)  # The check comes last.
atexit.register(lambda: print(time.monotonic() - sent[0], flush=True))
atexit.register(qd.runtime._end_program)
"""
    script.write_text(text + ENDINGS[ending])
    env = os.environ | {"PYTHONPATH": str(Path(qd.__file__).parents[1])}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, env=env)
    assert done.stdout, done.stderr
    assert float(done.stdout) < 10.0


def test_queued_work_is_finished_before_a_program_ends(tmp_path):
    script = tmp_path / "finite.py"
    script.write_text(
        ENDING.replace("OPTIONS", "dict(cpu_streams=True)")
        + """
@qd.kernel
def say(x: ROWS):
    for i in range(1):
        print(x[5])

def queue():
    stream = qd.create_stream()
    in_order(small, 20_000_000, qd_stream=stream)
    chunks(small, 3, qd_stream=stream)
    say(small, qd_stream=stream)

small.fill(0.0)
queue()
"""
    )
    env = os.environ | {"PYTHONPATH": str(Path(qd.__file__).parents[1])}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 1.0


def test_handlers_that_do_not_raise_change_nothing(tmp_path):
    script = tmp_path / "handled.py"
    handled = PROGRAM.replace("signal.default_int_handler", "lambda *_: sent.append(0.0)")
    handled = handled.replace("OPTIONS", "{}").replace("WAIT", "chunks(x, 100); time.sleep(0.6)")
    script.write_text(handled.replace('raise SystemExit("not interrupted")', "assert len(sent) == 2; late = 0.0"))
    env = os.environ | {"PYTHONPATH": str(Path(qd.__file__).parents[1])}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, env=env)
    assert (done.returncode, done.stdout) == (0, "0.0\n"), done.stderr
