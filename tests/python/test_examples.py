"""Every example describes its options, agrees with its reference, and detects a difference from it."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(p.stem for p in EXAMPLES.glob("*.py") if p.stem != "example_support")

WITHOUT_NUMPY = ("conjugate_gradient", "mpm_rigid", "newton")


def run(name, *options):
    """Runs an example and returns the finished process."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("name", NAMES)
def test_help_describes_the_example(name):
    done = run(name, "--help")
    assert done.returncode == 0, done.stderr
    for option in ("--arch", "--frames", "--out", "--check", "--module"):
        assert option in done.stdout
    title = (EXAMPLES / f"{name}.py").read_text().splitlines()[0].strip('"')
    assert title in done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_the_reference(name):
    if name == "torch_layer":
        pytest.importorskip("torch")
    done = run(name, "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    against = "the run without a graph" if name in WITHOUT_NUMPY else "numpy"
    assert f"agrees with {against}" in done.stdout


@pytest.mark.parametrize("name", ["heat", "histogram"])
def test_a_wrong_result_fails_the_check(name):
    done = run(name, "--check", "--spoil")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "off by more than" in done.stdout


@pytest.mark.parametrize(("name", "suffix"), [("julia", "gif"), ("histogram", "png")])
def test_writes_a_picture(name, suffix, tmp_path):
    from PIL import Image

    path = tmp_path / f"picture.{suffix}"
    done = run(name, "--frames", "3", "--size", "64", "--out", str(path))
    assert done.returncode == 0, done.stderr
    assert "/s:" in done.stdout
    with Image.open(path) as image:
        assert getattr(image, "n_frames", 1) == (3 if suffix == "gif" else 1)


def test_an_unknown_arch_is_refused():
    done = run("heat", "--check", "--arch", "abacus")
    assert done.returncode != 0
    assert "abacus" in done.stderr
