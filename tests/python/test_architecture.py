"""The rules of ARCHITECTURE.md that can be read off the sources and the crates' dependencies."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CRATES = ROOT / "crates"
VENDOR_WORDS = re.compile(r"\b(cuda|hip|nvptx|ptx|cubin|hsaco|rocm|amdgpu|nvidia|vulkan|metal|spirv)\b", re.IGNORECASE)


@pytest.fixture(scope="module")
def uses():
    """For each crate of ours, all that it depends on (for building, not for its tests): names."""
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not installed")
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--offline"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    packages = json.loads(done.stdout)["packages"]
    return {p["name"]: {d["name"] for d in p["dependencies"] if d["kind"] is None} for p in packages}


def reach(uses, crate):
    """All crates that `crate` depends on, directly or not."""
    found, todo = set(), [crate]
    while todo:
        for name in uses.get(todo.pop(), ()):
            if name not in found:
                found.add(name)
                todo.append(name)
    return found


def sources(crate):
    """The Rust sources of a crate, without its tests."""
    return [p for p in (CRATES / crate / "src").rglob("*.rs") if p.name != "tests.rs"]


def crates(prefix=""):
    return sorted(p.name for p in CRATES.iterdir() if p.name.startswith("octants-" + prefix))


def test_folders_are_crates(uses):
    assert set(crates()) == set(uses)


def test_runtime_and_drivers_never_see_the_ir(uses):
    for crate in ["octants-runtime", *crates("driver-")]:
        assert not reach(uses, crate) & {"octants-ir", "octants-frontend", "octants-passes", *crates("codegen-")}, crate


def test_code_generators_never_see_a_device(uses):
    for crate in crates("codegen-"):
        assert not reach(uses, crate) & {"octants-runtime", *crates("driver-")}, crate


def test_front_end_passes_and_code_generators_are_strangers(uses):
    strangers = {"octants-frontend", "octants-passes", *crates("codegen-")}
    for crate in strangers:
        assert not reach(uses, crate) & (strangers - {crate}), crate


def test_only_the_binding_knows_python(uses):
    for crate in crates():
        if crate != "octants-python":
            assert not reach(uses, crate) & {"pyo3", "numpy"}, crate
    assert "pyo3" in uses["octants-python"]


def test_vendors_are_named_in_drivers_and_targets_alone():
    arches = CRATES / "octants-engine/src/config.rs"  # the table of names that users give
    named = []
    for crate in crates():
        if crate.startswith("octants-driver-") or crate == "octants-python":
            continue
        for path in sources(crate):
            if "target" in path.parts[len(CRATES.parts) :] or path == arches:
                continue
            for line in path.read_text().splitlines():
                if not line.lstrip().startswith("//") and VENDOR_WORDS.search(line):
                    named.append(f"{path.relative_to(ROOT)}: {line.strip()}")
    assert named == []


def test_no_global_mutable_state_below_the_binding():
    found = []
    for crate in crates():
        if crate == "octants-python":
            continue
        for path in sources(crate):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if re.search(r"\bstatic\s+mut\b|\bstatic\s+\w+\s*:\s*(\w+::)*(Mutex|RwLock|Atomic\w+)\b", line):
                    found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert found == []


def test_environment_variables_are_read_in_one_file():
    readers = {
        str(path.relative_to(CRATES)) for crate in crates() for path in sources(crate) if "env::var" in path.read_text()
    }
    assert readers == {"octants-engine/src/environment.rs"}


def test_every_rust_file_says_what_it_does():
    silent = [p for p in CRATES.rglob("*.rs") if "src" in p.parts and not p.read_text().startswith("//!")]
    assert silent == []


def test_nothing_is_called_utils():
    names = {"utils", "util", "common", "helpers", "helper", "base", "misc"}
    files = [*CRATES.rglob("*.rs"), *(ROOT / "python").rglob("*.py")]
    assert [p for p in files if p.stem in names or p.parent.name in names] == []
