"""Arrays that are split over ranks: programs give the same results on 1, 2 and 4 processes."""

import numpy as np
import pytest
from run_ranks import MPIEXEC, run
from split_gradients import check_gradients_of_rows

PROGRAMS = [
    "heat",
    "several_loops",
    "sums",
    "vectors",
    "edges",
    "elements",
    "other_axes",
    "random_numbers",
    "collectives",
]
PROGRAMS += [
    "resets",
    "large",
    "structs",
    "scatters",
    "row_sums",
    "few_rows",
    "particles",
    "moving",
    "periodic",
    "periodic_few_rows",
]
# Programs whose results agree to rounding: they sum floats in an order that depends on the number of ranks.
ROUNDED = ["float_scatter", "gradients", "gradients_of_rows"]

pytest.importorskip("mpi4py", reason="mpi4py is not installed")
# One worker runs the programs.
pytestmark = [
    pytest.mark.skipif(not MPIEXEC.exists(), reason="mpich is not installed"),
    pytest.mark.xdist_group("split arrays on ranks"),
]


def results(ranks, program, folder, *options):
    folder.mkdir(exist_ok=True)
    done = run(ranks, program, folder, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return np.load(folder / f"{program}.npz")


@pytest.fixture(scope="module")
def results_of_all(tmp_path_factory):
    """The results of a program. All programs run in the same processes, once for each number of ranks and options."""
    folders = {}

    def of(program, ranks, options=()):
        if (ranks, options) not in folders:
            folder = tmp_path_factory.mktemp("ranks")
            folders[ranks, options] = folder, run(ranks, ",".join(PROGRAMS + ROUNDED), folder, *options, limit=300)
        folder, done = folders[ranks, options]
        path = folder / f"{program}.npz"
        assert path.exists(), done.stdout + done.stderr
        return np.load(path)

    return of


@pytest.mark.parametrize("options", [(), ("debug",), ("cpu_streams",)], ids=["plain", "debug", "streams"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_any_number_of_ranks_gives_the_same_results(program, options, results_of_all):
    one = results_of_all(program, 1, options)
    assert one.files
    for ranks in (4,) if options else (2, 3, 4):
        several = results_of_all(program, ranks, options)
        for name in one.files:
            np.testing.assert_array_equal(several[name], one[name], err_msg=f"{name} on {ranks} ranks")


def test_wrapped_rows_match_numpy(results_of_all):
    found = results_of_all("periodic_few_rows", 3)
    x = np.array([1, 2, 3])
    assert (found["z"] == np.roll(x, -1) + 10 * np.roll(x, 1)).all()
    assert (found["y"] == 2 * (np.roll(x, 1) + 100 * np.roll(x, -1))).all()


def test_sums_of_floats_agree_to_rounding(results_of_all):
    one = results_of_all("float_scatter", 1)
    for ranks in (2, 3, 4):
        several = results_of_all("float_scatter", ranks)
        np.testing.assert_allclose(several["y"], one["y"], rtol=1e-6, atol=1e-5)


def test_gradients_of_shared_parameters_are_sums_over_the_ranks(results_of_all):
    one = results_of_all("gradients", 1)
    x = np.random.default_rng(5).uniform(-1.0, 1.0, (37, 11))
    slope = x[:-2] - x[2:]
    error = np.linspace(0.5, 1.5, 11) * slope - 0.25
    np.testing.assert_allclose(one["gain"], (2 * error * slope).sum(axis=0), rtol=1e-10)
    np.testing.assert_allclose(one["offset"], [-2 * error.sum()], rtol=1e-10)
    np.testing.assert_allclose(one["twice"], 2 * np.concatenate([one["gain"], one["offset"]]), rtol=1e-10)
    for ranks in (2, 3):
        several = results_of_all("gradients", ranks)
        for name in one.files:
            np.testing.assert_allclose(several[name], one[name], rtol=1e-10, err_msg=f"{name} on {ranks} ranks")


def test_gradients_of_split_arrays(results_of_all):
    one = results_of_all("gradients_of_rows", 1)
    check_gradients_of_rows(one)
    for ranks in (2, 3, 4):
        several = results_of_all("gradients_of_rows", ranks)
        for name in one.files:
            np.testing.assert_allclose(several[name], one[name], rtol=1e-10, atol=1e-12, err_msg=f"{name} on {ranks}")


@pytest.mark.parametrize(("writers", "readers"), [(1, 4), (4, 1), (2, 3)])
def test_saved_arrays_are_read_by_any_number_of_ranks(writers, readers, tmp_path):
    results(writers, "save", tmp_path)
    loaded = results(readers, "load", tmp_path)
    np.testing.assert_array_equal(loaded["x"], np.arange(37 * 11, dtype=np.float32).reshape(37, 11))
    assert (loaded["s"] == 9).all()
    np.testing.assert_array_equal(loaded["y"], np.arange(37 * 11, dtype=np.float32).reshape(11, 37))
    assert len(list((tmp_path / "state").glob("rank-*.npz"))) == writers


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("lost", "no answer from rank 1 after 3 s"),
        ("other_kernel", "rank 1 runs kernel `shift_back`"),
        ("other_shape", "rank 1 runs all_reduce(sum) of 4 float64"),
    ],
)
def test_a_diverging_rank_is_an_error(program, said, tmp_path):
    done = run(2, program, tmp_path, script="failing_programs.py", limit=50)
    text = done.stdout + done.stderr
    assert done.returncode != 0, text
    assert said in text, text
    assert "OctantsDistributedError" in text or "OctantsRuntimeError" in text
    assert "failing_programs.py" in text
    assert "no error" not in text
