"""The code in the guide runs. All Python blocks of a page are one program, in order, at their own line numbers.

A block whose fence says `raises=Name` must raise `qd.Name`, or the built-in exception `Name`.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from octants import _octants

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Loaded by the page's process at its start; `_raises` wraps the blocks that must fail.
SUPPORT = """
import builtins


class _raises:
    def __init__(self, name):
        self.name = name

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        import octants

        assert kind is not None, f"{self.name} was not raised"
        expected = getattr(octants, self.name, None) or getattr(builtins, self.name)
        return issubclass(kind, expected)


builtins._raises = _raises
"""


def program(text):
    """The Python blocks of a page as one program; every line stays at its own line number."""
    lines, inside, indent = [], False, ""
    for line in text.splitlines():
        if inside and line.strip() == "```":
            inside, indent = False, ""
            lines.append("")
        elif inside:
            lines.append(indent + line if line else "")
        elif re.match(r"```python\b", line):
            inside = True
            expected = re.search(r"raises=(\w+)", line)
            indent = "    " if expected else ""
            lines.append(f"with _raises({expected[1]!r}):" if expected else "")
        else:
            lines.append("")
    assert not inside, "a code block is not closed"
    return "\n".join(lines) + "\n"


def has_code(path):
    return "```python" in path.read_text()


@pytest.mark.parametrize("page", [p for p in PAGES if has_code(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_code_blocks_run(page, tmp_path):
    script = tmp_path / f"page_{page.stem.replace('-', '_')}.py"
    script.write_text(program(page.read_text()))
    (tmp_path / "sitecustomize.py").write_text(SUPPORT)
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{page.name}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


def environment(folder):
    """This process's environment, with `folder` first on the module path and no options of ours."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("OCTANTS_")}
    paths = [str(folder), *filter(None, [clean.get("PYTHONPATH")])]
    return clean | {"PYTHONPATH": os.pathsep.join(paths)}


def test_every_option_is_documented():
    names = [name for name, _ in _octants.options()]
    assert len(names) > 10
    page = (ROOT / "docs/options.md").read_text()
    assert [n for n in names if f"`{n}`" not in page] == []


def test_code_blocks_keep_their_line_numbers():
    assert program("# T\n```python\nx = 1\n```\n") == "\n\nx = 1\n\n"
    assert program("```python raises=ValueError\nf()\n```\n") == "with _raises('ValueError'):\n    f()\n\n"
