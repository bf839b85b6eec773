"""`qd.compile` and `qd.precompile`: code is compiled before the first call, once, and on several threads."""

import functools
import io
import subprocess
import sys
import threading

import numpy as np
import pytest

import octants as qd

Values = qd.types.ndarray(dtype=qd.f32, ndim=1)


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


def make_kernel(number):
    @qd.kernel
    def add(x: Values, n: qd.i32):
        for i in range(n):
            x[i] += number

    return add


def compiled():
    return len(qd.profiler.compile_report().compilations)


def test_compiling_does_not_launch_and_happens_once():
    add, x = make_kernel(2.0), qd.ndarray(qd.f32, 4)
    assert qd.compile(add, x, n=4) is None
    assert (compiled(), x.to_numpy().tolist()) == (1, [0.0] * 4)
    qd.compile(add, np.zeros(8, np.float32), 1)
    add(x, 4)
    assert (compiled(), x.to_numpy().tolist()) == (1, [2.0] * 4)


def test_methods_and_gradients_are_compiled():
    @qd.data_oriented
    class Scaled:
        def __init__(self, scale):
            self.scale = scale

        @qd.kernel
        def run(self, x: Values):
            for i in x:
                x[i] *= self.scale

    x = qd.ndarray(qd.f32, 4, needs_grad=True)
    x.fill(1.0)
    one = Scaled(3.0)
    qd.compile(one.run, x)
    qd.compile(one.run.grad, x)
    assert (compiled(), x[0]) == (2, 1.0)
    one.run(x)
    assert (compiled(), x[0]) == (2, 3.0)


def test_precompile_uses_several_threads_and_waits():
    kernels = [make_kernel(float(n)) for n in range(6)]
    x = qd.ndarray(qd.f32, 4)

    @qd.kernel
    def nothing():
        pass

    calls = [(kernel, x, 4) for kernel in kernels[:4]]
    calls += [[kernels[4], x, 4], functools.partial(kernels[5], x, n=4), nothing]
    made = qd.precompile(calls, threads=3)
    assert (made.total, made.completed, made.done, made.errors) == (7, 7, True, [])
    assert compiled() == 7
    for kernel in kernels:
        kernel(x, 4)
    assert (compiled(), x[0]) == (7, 15.0)


class Late:
    """A value that a kernel reads from Python during compilation, and that blocks until it is released."""

    def __init__(self):
        self.asked, self.may_come = threading.Event(), threading.Event()
        self.asked_by = []

    @property
    def value(self):
        self.asked_by.append(threading.get_ident())
        self.asked.set()
        assert self.may_come.wait(60)
        return 5.0

    def kernel(self):
        @qd.kernel
        def held(x: Values):
            for i in x:
                x[i] = self.value

        return held


def test_background_compilation_does_not_block_the_caller():
    late, x = Late(), qd.ndarray(qd.f32, 4)
    held = late.kernel()
    made = qd.precompile([(held, x)], background=True)
    assert not made.done
    assert not made.wait(timeout=0.01)
    assert "0 of 1" in repr(made)
    late.may_come.set()
    assert made.wait()
    assert made.done
    assert compiled() == 1
    held(x)
    assert (compiled(), x[0]) == (1, 5.0)


def test_a_call_waits_for_a_running_compilation_of_the_same_code():
    late, x = Late(), qd.ndarray(qd.f32, 4)
    held = late.kernel()
    made = qd.precompile([(held, x)], background=True)
    assert late.asked.wait(60)
    threading.Timer(0.2, late.may_come.set).start()
    held(x)
    made.wait()
    assert x[0] == 5.0
    assert compiled() == 1
    assert threading.get_ident() not in late.asked_by, "the call did not compile anything"


def test_errors_are_raised_in_call_order_after_all_compilations():
    @qd.kernel
    def wrong(x: Values):
        y = nowhere  # noqa: F821

    @qd.kernel
    def wrong_too(x: Values):
        for i in x:
            x[i] = "text"

    x, add = qd.ndarray(qd.f32, 4), make_kernel(1.0)
    calls = [(wrong, x), (add, x, 4), (wrong_too, x)]
    with pytest.raises(qd.QuadrantsNameError, match="nowhere"):
        qd.precompile(calls, threads=1)
    assert compiled() == 1
    made = qd.precompile(calls, background=True)
    with pytest.raises(qd.QuadrantsNameError, match="nowhere"):
        made.wait()
    assert [type(error).__name__ for error in made.errors] == ["OctantsNameError", type(made.errors[1]).__name__]
    assert len(made.errors) == 2


def test_uncompilable_calls_are_refused_immediately():
    x = qd.ndarray(qd.f32, 4)
    with pytest.raises(qd.QuadrantsTypeError, match="expected a function decorated with @qd.kernel"):
        qd.compile(len, x)
    with pytest.raises(qd.QuadrantsTypeError, match="expected a function decorated with @qd.kernel"):
        qd.precompile([(print, 3)])
    with pytest.raises(qd.QuadrantsTypeError, match="got an empty tuple"):
        qd.precompile([()])
    with pytest.raises(ValueError, match="threads must be at least 1"):
        qd.precompile([], threads=0)
    assert qd.precompile([]).wait()
    with pytest.raises(qd.QuadrantsSyntaxError, match="Missing argument 'n'"):
        qd.compile(make_kernel(1.0), x)
    qd.reset()
    with pytest.raises(RuntimeError, match=r"qd\.init"):
        qd.precompile([make_kernel(1.0)])


def test_a_program_that_ends_skips_remaining_compilations():
    entered, may_go_on = threading.Event(), threading.Event()

    class Late:
        @property
        def value(self):
            entered.set()
            assert may_go_on.wait(60)
            return 5.0

    late, x = Late(), qd.ndarray(qd.f32, 4)

    @qd.kernel
    def held(x: Values):
        for i in x:
            x[i] = late.value

    made = qd.precompile([(held, x), (make_kernel(1.0), x, 4)], background=True, threads=1)
    assert entered.wait(60)
    qd.init(arch=qd.cpu)
    may_go_on.set()
    with pytest.raises(RuntimeError):
        made.wait()
    assert "the program ended before this kernel was compiled" in str(made.errors[-1])
    assert compiled() == 0


def test_a_process_ends_during_compilations(tmp_path):
    script = tmp_path / "ends.py"
    script.write_text(
        "import octants as qd\n"
        "qd.init(arch=qd.cpu)\n"
        "@qd.kernel\n"
        "def fill(x: qd.types.ndarray(), value: qd.template()):\n"
        "    for i in x:\n"
        "        x[i] = value\n"
        "x = qd.ndarray(qd.f32, 4)\n"
        "qd.precompile([(fill, x, float(n)) for n in range(2000)], background=True)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_progress_is_shown_on_request(monkeypatch):
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    x = qd.ndarray(qd.f32, 4)
    qd.precompile([(make_kernel(1.0), x, 4)])
    assert shown.getvalue() == "", "not a terminal"
    qd.precompile([(make_kernel(float(n)), x, 4) for n in range(2)], progress=True, threads=1)
    steps = shown.getvalue().split("\r")[1:]
    assert steps[0] == f"compiling [{'.' * 30}] 0/2"
    assert steps[1] == f"compiling [{'#' * 15}{'.' * 15}] 1/2"
    assert steps[2] == f"compiling [{'#' * 30}] 2/2\n"
