"""Checks that every relative link in the Markdown files of this repository leads to a file, and to a heading in it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def anchors(text: str) -> set[str]:
    """The anchors that a page's headings get."""
    headings = re.findall(r"^#+ +(.+?) *$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def problems(page: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    found = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        if not place.exists():
            found.append(f"{page.relative_to(ROOT)}: no file {target}")
        elif anchor and place.suffix == ".md" and anchor not in anchors(place.read_text()):
            found.append(f"{page.relative_to(ROOT)}: no heading {target}")
    return found


def main() -> int:
    """Prints broken links; returns 1 if there are any."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    pages = [ROOT / line for line in listed.stdout.splitlines()]
    found = [problem for page in pages for problem in problems(page)]
    print("\n".join(found) or f"{len(pages)} pages, all links lead somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
