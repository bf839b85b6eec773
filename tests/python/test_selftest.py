"""The self-test passes here, and reports failures."""

import os
import subprocess
import sys

import hip_standin
import numpy as np
import pytest

from octants import selftest
from octants.selftest import registry
from octants.selftest.run import all_checks, run_one


def test_all_checks_pass_on_the_cpu():
    command = [sys.executable, "-m", "octants.selftest", "--arch", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 failed" in done.stdout
    assert "on cpu: " in done.stdout
    for group in ("arithmetic", "memory", "sums", "order", "gradients", "messages", "interop"):
        assert f"{group}: " in done.stdout


def test_all_checks_pass_on_the_amd_standin():
    try:
        library = hip_standin.path()
    except hip_standin.Missing as missing:
        pytest.skip(str(missing))
    command = [sys.executable, "-m", "octants.selftest", "--arch", "amdgpu"]
    environment = os.environ | {"OCTANTS_DRIVER_LIBRARY": str(library)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 failed" in done.stdout
    assert "HIP driver" in done.stdout


def test_every_area_has_checks():
    assert len(all_checks()) >= 30


def wrong():
    registry.equal(np.array([1, 2, 3]), np.array([1, 2, 4]), "x")


def test_a_wrong_result_fails_with_its_location():
    outcome = run_one(selftest.Check("sums", "a wrong one", wrong), "cpu")
    assert outcome.state == "FAILED"
    assert outcome.remark == "AssertionError: 1 of 3 wrong, first x[2]: 3 instead of 4"
    assert "registry.equal" in outcome.details


def test_report_contents(capsys, monkeypatch):
    monkeypatch.setattr(
        sys.modules["octants.selftest.run"], "all_checks", lambda: [selftest.Check("sums", "a wrong one", wrong)]
    )
    assert selftest.main(["--arch", "cpu"]) == 1
    text = capsys.readouterr().out
    assert "0 passed, 1 failed" in text
    assert "Please report this" in text
    assert "3 instead of 4" in text


def test_a_missing_device_is_not_a_failed_check(capsys):
    import octants as qd

    try:
        qd.init(arch=qd.amdgpu, enable_fallback=False)
    except RuntimeError:
        assert selftest.main(["--arch", "amdgpu"]) == 2
        assert "cannot be checked here" in capsys.readouterr().err
    finally:
        qd.reset()


def test_comparisons_detect_differences():
    with pytest.raises(AssertionError, match="instead of"):
        registry.close([1.0, 2.0], [1.0, 2.1], 1e-3)
    with pytest.raises(AssertionError, match="instead of"):
        registry.close([np.nan], [1.0], 1e-3)
    assert registry.close([np.inf, 1.0], [np.inf, 1.0], 1e-3) == 0.0
