"""Messages between device memory through the NCCL communicator, with a stand-in for nccl4py."""

import numpy as np
import pytest
from run_ranks import HERE, MPIEXEC, run
from test_split_arrays import PROGRAMS

pytest.importorskip("mpi4py", reason="mpi4py is not installed")
pytestmark = pytest.mark.skipif(not MPIEXEC.exists(), reason="mpich is not installed")


def with_nccl(ranks, program, folder, script="split_programs.py", limit=120):
    folder.mkdir(exist_ok=True)
    return run(ranks, str(HERE / script), program, str(folder), script="nccl_programs.py", limit=limit)


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_compute_the_same(program, tmp_path):
    one = run(1, program, tmp_path)
    assert one.returncode == 0, one.stdout + one.stderr
    expected = dict(np.load(tmp_path / f"{program}.npz"))
    several = with_nccl(3, program, tmp_path / "3")
    assert several.returncode == 0, several.stdout + several.stderr
    found = np.load(tmp_path / "3" / f"{program}.npz")
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
    assert "init\n" in several.stdout
    assert "destroy\n" in several.stdout
    if program in ("heat", "periodic", "particles"):
        assert "group of " in several.stdout
    if program in ("heat", "sums"):
        assert "all_reduce\n" in several.stdout


def test_a_rank_that_does_not_answer_is_an_error(tmp_path):
    done = with_nccl(2, "lost_later", tmp_path, script="failing_programs.py", limit=50)
    text = done.stdout + done.stderr
    assert done.returncode != 0, text
    assert "OctantsDistributedError: rank 0 of 2: kernel `shift` at " in text, text
    assert "failing_programs.py" in text
    assert "no answer from other ranks after 3 s" in text
    assert "no error" not in text
