"""Style rules that no linter checks; the rules about crates are in `crates/octants-engine/tests/architecture.rs`."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_rust_file_has_a_header():
    silent = [p for p in (ROOT / "crates").rglob("*.rs") if "src" in p.parts and not p.read_text().startswith("//!")]
    assert silent == []


def test_every_python_file_has_a_docstring():
    files = [*(ROOT / "python").rglob("*.py"), *(ROOT / "examples").glob("*.py"), *(ROOT / "benches").glob("*.py")]
    assert [p for p in files if not p.read_text().startswith('"""')] == []


def test_no_file_is_named_utils():
    names = {"utils", "util", "common", "helpers", "helper", "base"}
    files = [*(ROOT / "crates").rglob("*.rs"), *(ROOT / "python").rglob("*.py")]
    assert [p for p in files if p.stem in names or p.parent.name in names] == []
