"""Kernel coverage: executed lines of kernels as coverage.py data. Each program runs in a separate process."""

import os
import subprocess
import sys
import textwrap

import pytest

coverage = pytest.importorskip("coverage")

PROGRAM = """
    import octants as qd


    @qd.func
    def clip(x):
        result = x
        if x > 5.0:
            result = 5.0
        elif x < -5.0:
            result = -5.0
        return result


    @qd.kernel
    def step(a: qd.types.ndarray(), n: qd.i32) -> qd.i32:
        '''Documentation.'''
        count = 0
        for i in range(n):
            if a[i] > 0:
                a[i] = clip(a[i] + 4)
                for j in range(2):
                    a[i] += j
            else:
                a[i] = 1.0
            if i == 100:
                a[i] = 7.0
        return count


    @qd.kernel
    def side_by_side(a: qd.types.ndarray(), b: qd.types.ndarray()):
        with qd.stream_parallel():
            for i in a:
                a[i] = clip(a[i])
        with qd.stream_parallel():
            for i in b:
                b[i] = clip(b[i])


    def main():
        qd.init(arch=qd.cpu, log_level="error")
        a = qd.ndarray(qd.f32, 10)
        a[3] = 2.0
        step(a, 10)
        assert a[3] == 6.0 and a[4] == 1.0
        qd.init(arch=qd.cpu, log_level="error")
        a, b = qd.ndarray(qd.f32, 10), qd.ndarray(qd.f32, 10)
        side_by_side(a, b)
"""
# Lines of the program, whose first one is empty.
REACHED = {7, 8, 9, 10, 12, 18, 19, 20, 21, 22, 23, 25, 26, 28, 33, 34, 35, 36, 37, 38}


def run(folder, *command, **variables):
    (folder / "program.py").write_text(textwrap.dedent(PROGRAM))
    environment = {k: v for k, v in os.environ.items() if "COVERAGE" not in k and not k.startswith("COV_")} | variables
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def measured(folder):
    files = list(folder.glob("_qd_kcov.*"))
    assert len(files) == 1
    data = coverage.CoverageData(basename=str(files[0]))
    data.read()
    return data


@pytest.mark.parametrize("variable", ["QD_KERNEL_COVERAGE", "OCTANTS_KERNEL_COVERAGE"])
def test_executed_lines_are_reported(tmp_path, variable):
    run(tmp_path, "-c", "import program; program.main()", **{variable: "1"})
    data = measured(tmp_path)
    assert not data.has_arcs()
    assert set(data.lines(str(tmp_path / "program.py"))) == REACHED


def test_nothing_is_measured_without_the_variable(tmp_path):
    script = "import program, sys; program.main(); assert 'octants._code.kernel_coverage' not in sys.modules"
    run(tmp_path, "-c", script)
    run(tmp_path, "-c", script, QD_KERNEL_COVERAGE="0")
    assert not list(tmp_path.glob("_qd_kcov.*"))


def test_too_many_probes_are_reported(tmp_path):
    told = run(tmp_path, "-c", "import program; program.main()", QD_KERNEL_COVERAGE="1", QD_COVERAGE_MAX_PROBES="3")
    assert told.count("Kernel coverage probe capacity (3) exceeded") == 1
    assert len(measured(tmp_path).lines(str(tmp_path / "program.py"))) == 3


def test_gradients_are_not_measured(tmp_path):
    script = """
        import octants as qd
        from pathlib import Path

        @qd.kernel
        def square(x: qd.types.ndarray(), y: qd.types.ndarray()):
            for i in x:
                y[i] = x[i] * x[i]

        qd.init(arch=qd.cpu, log_level="error")
        x, y = qd.ndarray(qd.f32, 3, needs_grad=True), qd.ndarray(qd.f32, 3, needs_grad=True)
        x.fill(3)
        y.grad.fill(1)
        square(x, y)
        square.grad(x, y)
        assert x.grad[1] == 6
    """
    (tmp_path / "gradient.py").write_text(textwrap.dedent(script))
    run(tmp_path, "gradient.py", QD_KERNEL_COVERAGE="1")
    assert set(measured(tmp_path).lines(str(tmp_path / "gradient.py"))) == {7, 8}


def test_the_line_of_a_loop_without_iterations_counts(tmp_path):
    script = """
        import octants as qd

        @qd.kernel
        def halve(n: qd.i32) -> qd.i32:
            m = n
            while m > 1000:
                m //= 2
            return m

        qd.init(arch=qd.cpu, log_level="error")
        assert halve(5) == 5
    """
    (tmp_path / "halving.py").write_text(textwrap.dedent(script))
    run(tmp_path, "halving.py", QD_KERNEL_COVERAGE="1")
    assert set(measured(tmp_path).lines(str(tmp_path / "halving.py"))) == {6, 7, 9}


@pytest.mark.parametrize("branches", [False, True])
def test_pytest_cov_enables_kernel_coverage(tmp_path, branches):
    pytest.importorskip("pytest_cov")
    (tmp_path / "test_program.py").write_text("import program\n\n\ndef test_it():\n    program.main()\n")
    # The plugin is found by the installed package; in a checkout it is named.
    options = ["-q", "-p", "octants.pytest_plugin", "--cov=.", "test_program.py"] + ["--cov-branch"] * branches
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    options += ["-p", "pytest_cov.plugin"]
    run(tmp_path, "-m", "pytest", *options, **environment)
    data = measured(tmp_path)
    assert data.has_arcs() == branches
    program = str(tmp_path / "program.py")
    assert set(data.lines(program)) >= REACHED
    if branches:
        arcs = set(data.arcs(program))
        assert {(8, 9), (8, 10), (10, 12), (20, 21), (20, 25), (26, 19)} <= arcs
        assert not {(10, 11), (26, 27)} & arcs
    run(tmp_path, "-m", "coverage", "combine", "-q", "--append", *[str(f) for f in tmp_path.glob("_qd_kcov.*")])
    report = run(tmp_path, "-m", "coverage", "report", "--show-missing")
    assert "11, 27" in report
    run(tmp_path, "-m", "pytest", *options, **environment, QD_KERNEL_COVERAGE="0")
    assert not list(tmp_path.glob("_qd_kcov.*"))
