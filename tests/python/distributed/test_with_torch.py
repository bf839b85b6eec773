"""Split arrays in programs that train with torch's DDP."""

import numpy as np
import pytest
from run_ranks import torchrun

pytest.importorskip("torch", reason="torch is not installed")


def test_training_with_ddp_is_the_same_on_two_ranks(tmp_path):
    found = []
    for ranks in (1, 2):
        done = torchrun(ranks, "ddp_program.py", str(tmp_path / f"{ranks}.npz"))
        assert done.returncode == 0, done.stdout + done.stderr
        found.append(np.load(tmp_path / f"{ranks}.npz"))
    for name in found[0].files:
        np.testing.assert_allclose(found[1][name], found[0][name], rtol=1e-5, err_msg=name)
    assert not np.allclose(found[0]["gain"], 0.5)
