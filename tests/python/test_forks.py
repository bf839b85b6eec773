"""Forks while other threads launch, compile and copy: the child works, and nothing hangs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import octants as qd

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")

BEGIN = """
import os, signal, sys, threading, time
import numpy as np
import octants as qd

qd.init(arch=qd.cpu, offline_cache=False, **OPTIONS)
BEGUN_ANEW = bool(OPTIONS.get("cpu_streams"))
N = 20_000

def kernel(step):
    @qd.kernel
    def add(x: qd.types.ndarray(dtype=qd.f32, ndim=1), value: qd.f32):
        for i in x:
            x[i] += value + qd.static(step)

    return add

known = kernel(1.0)
x = qd.ndarray(qd.f32, N)
known(x, 1.0)

def child(n):
    y = x
    if BEGUN_ANEW:
        qd.init(arch=qd.cpu, offline_cache=False, **OPTIONS)
        y = qd.ndarray(qd.f32, N)
        y.fill(2.0)
    known(y, 1.0)
    kernel(float(n))(y, 1.0)
    qd.sync()
    assert y[7] == y[N - 1] == 2.0 + 2.0 + 1.0 + n, y[7]

def fork(n):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)  # a child that hangs is killed
            child(n)
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    assert status == 0, f"fork {n}: {status:#x}"
"""

BUSY = (
    BEGIN
    + """
stop = False

def launch():
    y = qd.ndarray(qd.f32, N)
    while not stop:
        known(y, 1.0)
        y[0]

def compile():
    y, step = qd.ndarray(qd.f32, N), 1000.0
    while not stop:
        kernel(step)(y, 1.0)
        step += 1.0

def copy():
    while not stop:
        y = qd.ndarray(qd.f32, N)
        y.fill(1.0)
        assert y.to_numpy()[3] == 1.0
        qd.sync()

threads = [threading.Thread(target=work) for work in (launch, compile, copy)]
for thread in threads:
    thread.start()
try:
    for n in range(25):
        fork(n)
finally:
    stop = True
for thread in threads:
    thread.join()
known(x, 1.0)
assert x[5] == 4.0
print("done")
"""
)

LONG = (
    BEGIN
    + """
@qd.kernel
def wait(y: qd.types.ndarray(dtype=qd.i32, ndim=1)):
    for _ in range(1):
        print("waiting")
        n = qd.i64(0)
        while qd.volatile_load(y[0]) == 0 and n < qd.i64(60_000_000_000):
            n += 1

y = np.zeros(4, np.int32)
thread = threading.Thread(target=wait, args=(y,))
thread.start()
time.sleep(0.3)
for n in range(3):
    fork(n)  # the kernel runs on
assert thread.is_alive()
y[0] = 1
thread.join()
known(x, 1.0)
assert x[5] == 4.0
print("done")
"""
)


def run(tmp_path, text, options):
    script = tmp_path / "forking.py"
    script.write_text(text.replace("OPTIONS", f"dict({options!r})"))
    env = os.environ | {"PYTHONPATH": str(Path(qd.__file__).parents[1])}
    command = [sys.executable, "-W", "ignore", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert (done.returncode, done.stdout.replace("waiting\n", "")) == (0, "done\n"), done.stderr


@pytest.mark.parametrize(
    "options", [{}, {"cpu_max_num_threads": 4}, {"kernel_profiler": True}, {"cpu_streams": True}], ids=str
)
def test_children_launch_and_compile_regardless_of_other_threads(tmp_path, options):
    run(tmp_path, BUSY, options)


def test_children_continue_while_a_kernel_of_another_thread_runs(tmp_path):
    run(tmp_path, LONG, {"cpu_max_num_threads": 4})
