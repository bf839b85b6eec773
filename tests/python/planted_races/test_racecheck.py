"""`python -m octants.racecheck`: a program continues after its races, and each race is reported once."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.on_cpu

PROGRAM = """import sys
import numpy as np, octants as qd

qd.init(arch=qd.cpu)
bins = qd.ndarray(qd.i32, 8)


@qd.kernel
def count(values: qd.types.ndarray(qd.i32, ndim=1)):
    for i in range(values.shape[0]):
        bins[values[i]] = bins[values[i]] + 1


@qd.kernel
def shift(x: qd.types.ndarray(qd.i32, ndim=1)):
    for i in range(63):
        x[i] = x[i + 1]


if "count" in sys.argv:
    for _ in range(3):
        count(np.arange(64, dtype=np.int32) % 8)
if "shift" in sys.argv:
    shift(np.arange(64, dtype=np.int32))
print("the end of", sys.argv[1:])
sys.exit(5 if "fails" in sys.argv else 0)
"""


@pytest.fixture
def check(tmp_path):
    (tmp_path / "racing.py").write_text(PROGRAM)

    def run(*arguments):
        command = [sys.executable, "-m", "octants.racecheck", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


def test_each_race_of_a_program_is_reported_once(check):
    done = check("racing.py", "count", "shift")
    assert done.returncode == 3, done.stderr
    assert done.stdout == "the end of ['count', 'shift']\n"
    assert done.stderr.count("iterations race on") == 2
    assert "racing.py:11: " in done.stderr
    assert "racing.py:17: " in done.stderr
    assert done.stderr.endswith("octants.racecheck: 2 races\n")


def test_static_mode_does_not_check_data_dependent_races(check):
    done = check("--static", "racing.py", "count", "shift")
    assert done.returncode == 3, done.stderr
    assert "racing.py:17: " in done.stderr
    assert "racing.py:11: " not in done.stderr


def test_a_program_without_races_exits_normally(check):
    done = check("-m", "racing", "nothing")
    assert (done.returncode, done.stdout) == (0, "the end of ['nothing']\n"), done.stderr
    assert done.stderr.endswith("octants.racecheck: 0 races\n")
    assert check("racing.py", "count", "fails").returncode == 5


def test_wrong_command_lines_show_the_usage(check):
    for arguments in ([], ["--unknown"], ["-m"]):
        done = check(*arguments)
        assert done.returncode == 2
        assert done.stderr.startswith("usage: python -m octants.racecheck")
