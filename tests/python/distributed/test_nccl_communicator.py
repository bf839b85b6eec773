"""Messages between device memory through the NCCL communicator, with a stand-in for nccl4py."""

import numpy as np
import pytest
from captured_programs import PROGRAMS as WITH_GRAPHS
from run_ranks import HERE, MPIEXEC, run
from test_split_arrays import PROGRAMS

pytest.importorskip("mpi4py", reason="mpi4py is not installed")
# One worker runs the programs.
pytestmark = [
    pytest.mark.skipif(not MPIEXEC.exists(), reason="mpich is not installed"),
    pytest.mark.xdist_group("split arrays with NCCL"),
]

CAPTURED = [program.__name__ for program in WITH_GRAPHS if program.__name__ != "collectives"]


def with_nccl(ranks, program, folder, script="split_programs.py", limit=120):
    folder.mkdir(exist_ok=True)
    return run(ranks, str(HERE / script), program, str(folder), script="nccl_programs.py", limit=limit)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The results on one rank, and those of three with NCCL, with the output of these ranks."""
    one, three = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("three")
    alone = run(1, ",".join(PROGRAMS), one, limit=300)
    assert alone.returncode == 0, alone.stdout + alone.stderr
    return one, three, with_nccl(3, ",".join(PROGRAMS), three, limit=300)


# Random numbers depend on the number of launches, which includes those that sum ghost rows in device memory.
@pytest.mark.parametrize("program", [program for program in PROGRAMS if program != "random_numbers"])
def test_programs_give_the_same_results(program, runs):
    one, three, done = runs
    assert (three / f"{program}.npz").exists(), done.stdout + done.stderr
    expected, found = np.load(one / f"{program}.npz"), np.load(three / f"{program}.npz")
    for name in expected.files:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def test_the_ranks_join_exchange_reduce_and_leave(runs):
    done = runs[2]
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("calls: ")]
    calls = [set(line.removeprefix("calls: ").split(", ")) for line in lines]
    assert {"init", "all_reduce", "destroy", "group of 2", "group of 4"} <= set.union(*calls), done.stdout
    assert [("init" in of_rank) for of_rank in calls] == [True] * 3


def test_graphs_exchange_through_nccl(tmp_path):
    names = ",".join(CAPTURED)
    alone = run(1, names, tmp_path, script="captured_programs.py", limit=120)
    assert alone.returncode == 0, alone.stdout + alone.stderr
    expected = {name: dict(np.load(tmp_path / f"{name}.npz")) for name in CAPTURED}
    program = (str(HERE / "captured_programs.py"), f"{names},collectives", str(tmp_path), "captured=1")
    done = run(3, *program, script="nccl_programs.py", limit=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "group of 2" in done.stdout
    assert "all_reduce" in done.stdout
    for name in CAPTURED:
        found = np.load(tmp_path / f"{name}.npz")
        for key, value in expected[name].items():
            np.testing.assert_array_equal(found[key], value, err_msg=f"{name}: {key}")


def test_a_rank_that_does_not_answer_is_an_error(tmp_path):
    done = with_nccl(2, "lost_later", tmp_path, script="failing_programs.py", limit=50)
    text = done.stdout + done.stderr
    assert done.returncode != 0, text
    assert "OctantsDistributedError: rank 0 of 2: kernel `shift` at " in text, text
    assert "failing_programs.py" in text
    assert "no answer from other ranks after 3 s" in text
    assert "no error" not in text
