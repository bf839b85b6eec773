"""The benchmark scripts start, and distinguish equal results from different ones."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHES = Path(__file__).resolve().parents[2] / "benches"


def script(name):
    """A script of `benches` as a module."""
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCHES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def compare():
    """The script `benches/compare.py` as a module."""
    return script("compare")


@pytest.fixture(scope="module")
def genesis_bench():
    """The script `benches/genesis.py` as a module. Restores the module search path afterwards."""
    before = list(sys.path)
    yield script("genesis")
    sys.path[:] = before


@pytest.fixture(scope="module")
def own_tests(genesis_bench):
    """The part of `benches/genesis.py` that runs Genesis' own tests."""
    return sys.modules[genesis_bench.run_tests.__module__]


def saved(values, atol, allowed=0.0):
    """The saved data of an example's `--measure`, for one result."""
    return {"result:x": np.array(values), "atol:x": np.array(atol), "allowed:x": np.array(allowed)}


@pytest.mark.parametrize(
    ("other", "agree"), [([1.0, 2.0], True), ([1.0, 2.15], True), ([1.0, 2.3], False), ([1.0, np.nan], False)]
)
def test_results_are_compared_to_twice_the_tolerance(compare, other, agree):
    problem = compare.difference(saved([1.0, 2.0], 0.1), saved(other, 0.1))
    assert (problem is None) == agree


def test_a_share_of_elements_may_differ(compare):
    one, other = np.zeros(100), np.zeros(100)
    other[:2] = 1.0
    assert compare.difference(saved(one, 0.0, 0.01), saved(other, 0.0, 0.01)) is None
    other[:3] = 1.0
    assert "3.00%" in compare.difference(saved(one, 0.0, 0.01), saved(other, 0.0, 0.01))


def test_shapes_are_compared(compare):
    assert "shapes" in compare.difference(saved([1.0], 0.1), saved([1.0, 1.0], 0.1))


def test_compares_a_package_with_itself():
    command = [sys.executable, str(BENCHES / "compare.py"), "heat", "--modules", "octants", "octants", "--no-speed"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "| heat | agree |" in done.stdout


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("run.py", "--threads"),
        ("compare.py", "--threads"),
        ("genesis.py", "--scene"),
        ("blocks.py", "--sizes"),
        ("sparse_levels.py", "--repeat"),
        ("quantized_types.py", "--repeat"),
        ("meshes.py", "--repeat"),
        ("python_scope.py", "--repeat"),
        ("vulkan.py", "--beside"),
    ],
)
def test_help(name, option):
    done = subprocess.run([sys.executable, str(BENCHES / name), "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert option in done.stdout


def test_genesis_command_line(genesis_bench):
    args = genesis_bench.parse([])
    assert (args.envs, args.mode, args.module) == ([0, 1, 128], ["ndarray", "field"], "both")
    assert args.scene == list(genesis_bench.SCENES) == list(genesis_bench.TOLERANCES)
    args = genesis_bench.parse(["--scene", "go2", "mpm", "--envs", "7", "--tests", "there", "--files", "test_a.py"])
    assert (args.scene, args.envs, str(args.tests), args.files) == (["go2", "mpm"], [7], "there", ["test_a.py"])
    with pytest.raises(SystemExit):
        genesis_bench.parse(["--scene", "teapot"])


def states(position, velocity, last=0.0):
    """The saved states of a case of `benches/genesis.py`: one element moves, another ends at `last`."""
    return {
        "early pos": np.array([position]),
        "early vel": np.array([velocity]),
        "late pos": np.array([position, last]),
        "late vel": np.array([velocity, 0.0]),
    }


@pytest.mark.parametrize(
    ("other", "agree"),
    [
        (states(1.0, 2.0), True),
        (states(1.000005, 2.0), True),  # rounding
        (states(1.001, 2.0), False),
        (states(1.0, 2.01), False),
        (states(1.0, 2.0, last=0.001), True),  # amplified by contacts, its mean is not
        (states(1.0, 2.0, last=1.0), False),
        (states(1.0, np.nan), False),
        ({}, None),
    ],
)
def test_genesis_states_are_compared(genesis_bench, other, agree):
    found = genesis_bench.compare_states("box", states(1.0, 2.0), other)
    assert found["agree"] is agree
    assert {True: "agree:", False: "differ:", None: "not compared"}[agree] in genesis_bench.verdict(found)


def test_genesis_states_of_other_shapes_differ(genesis_bench):
    other = states(1.0, 2.0) | {"early pos": np.zeros(2)}
    found = genesis_bench.compare_states("box", states(1.0, 2.0), other)
    assert found["agree"] is False
    assert "shapes" in genesis_bench.verdict(found)


def test_genesis_table(genesis_bench):
    fast = {"import": 1.0, "build": 2.0, "build cpu": 2.0, "first step": 0.5, "steps/s": 300.0, "steps/cpu s": 300.0}
    slow = {"import": 2.0, "build": 8.0, "build cpu": 6.0, "first step": 1.0, "steps/s": 100.0, "steps/cpu s": 200.0}
    case = {
        "scene": "box",
        "envs": 0,
        "mode": "field",
        "runs": {
            "octants": {"cold": fast, "warm": fast},
            "quadrants": {"cold": {"failed": "build: exit 1: a | b"}, "warm": slow},
        },
        "states": genesis_bench.compare_states("box", states(1.0, 2.0), states(1.0, 2.0)),
    }
    _, _, first, second, third = genesis_bench.table_lines([case], ["octants", "quadrants"])
    assert first == "| box | 0 | field | octants | 1 | 2 | 2 | 2 | 2 | 0.5 | 300 | 300 |  |"
    assert second == "| box | 0 | field | quadrants | 2 | - | - | 8 | 6 | 1 | 100 | 200 | cold: build: exit 1: a / b |"
    assert third.startswith("| box | 0 | field | **times better** | 2 | - | - | 4 | 3 | 2 | 3 | 1.5 | agree: ")


def test_records_of_genesis_tests_are_read(own_tests):
    lines = [
        '{"collected": ["a", "b"]}',
        '{"start": "a", "wall": 1.0, "processor": 0.5}',
        '{"end": "a", "outcome": "failed", "message": "m", "wall": 3.0, "processor": 1.0}',
        '{"start": "b", "wall": 4.0, "processor": 1.0}',
        '{"end": "b", "outc',
    ]
    outcomes, running = own_tests.finished(lines)
    assert outcomes == {"a": {"outcome": "failed", "message": "m", "seconds": 2.0, "processor": 0.5}}
    assert running == "b"


def test_differing_outcomes_of_genesis_tests(own_tests):
    one = {n: {"outcome": o} for n, o in {"a": "passed", "b": "failed", "c": "error", "d": "hang"}.items()}
    other = {n: {"outcome": o} for n, o in {"a": "passed", "b": "passed", "c": "failed", "e": "passed"}.items()}
    assert own_tests.differences(one, other) == [("b", "failed", "passed")]


CHECKOUT = """
import os, time
import pytest, quadrants

def test_passes(): assert quadrants.__name__ == "octants"
def test_fails(): assert False
def test_ends_the_process(): os._exit(3)
def test_hangs(): time.sleep(1000)
def test_skips(): pytest.skip("not here")
@quadrants.kernel(gpu_graph=True)
def double(x: quadrants.types.ndarray()):
    for i in x: x[i] *= 2
def test_older_option():
    quadrants.init(arch=quadrants.cpu)
    x = quadrants.ndarray(quadrants.f32, (3,))
    x.fill(1.5)
    double(x)
    assert x.to_numpy().tolist() == [3.0, 3.0, 3.0]
def test_passes_once_alone(tmp_path):
    os.stat("mark") if os.path.exists("mark") else (open("mark", "w").close(), pytest.fail("first"))
def test_children():
    import subprocess, sys
    name = subprocess.check_output([sys.executable, "-c", "import quadrants; print(quadrants.__name__)"], text=True)
    assert name.strip() == "octants"
"""


def test_runs_a_checkouts_tests(own_tests, genesis_bench, tmp_path, capsys):
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_one.py").write_text(CHECKOUT)
    (tmp_path / "conftest.py").write_text("def pytest_addoption(parser): parser.addoption('--backend')\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    benchmarks: x\n    examples: x\n")
    record = tmp_path / "record.jsonl"
    args = genesis_bench.parse(["--tests", str(tmp_path), "--out", str(record), "--limit", "5"])
    assert own_tests.run_tests(tmp_path, ["octants"], args) == 0
    found = own_tests.read_record(record)["octants"]
    outcomes = {name.split("::")[1]: o["outcome"] for name, o in found.items()}
    assert outcomes == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_ends_the_process": "crash",
        "test_hangs": "hang",
        "test_skips": "skipped",
        "test_older_option": "passed",
        "test_passes_once_alone": "passed",
        "test_children": "passed",
        "(all)": "",
    }
    # Recorded tests are not run again.
    capsys.readouterr()
    own_tests.run_tests(tmp_path, ["octants"], args)
    assert "test_one.py" not in capsys.readouterr().out


def test_a_scene_of_genesis(genesis_bench):
    if absent := genesis_bench.missing(["octants"]):
        pytest.skip(f"not installed: {', '.join(absent)}")
    command = [sys.executable, str(BENCHES / "genesis.py"), "--module", "octants", "--scene", "box", "--envs", "0"]
    command += ["--mode", "ndarray", "--steps", "10"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| box | 0 | ndarray | octants |" in done.stdout
