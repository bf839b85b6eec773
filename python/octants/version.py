"""The version of the package, and the version of Quadrants with which it is compatible."""

from __future__ import annotations

import re

__all__ = ["COMPATIBLE_WITH", "VERSION", "VERSION_TEXT", "require_version"]

VERSION = (0, 1, 0)
VERSION_TEXT = ".".join(map(str, VERSION))

COMPATIBLE_WITH = (1, 3, 3)
"""The version of Quadrants whose API this package implements, checked by `qd.init(require_version=...)`."""


def require_version(required: str | None) -> None:
    """Checks `qd.init(require_version="major.minor.patch")` against `COMPATIBLE_WITH`: the same major version, and at
    most its minor and patch version. The patch version may be left out. Raises `Exception` if not met, `ValueError` for
    another form; None requires nothing.
    """
    if required is None:
        return
    parts = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", required) if isinstance(required, str) else None
    if parts is None:
        raise ValueError(f"require_version must be a string of the form major.minor.patch, got {required!r}")
    major, minor, patch = map(int, parts.groups(default="0"))
    if major != COMPATIBLE_WITH[0] or (minor, patch) > COMPATIBLE_WITH[1:]:
        has = ".".join(map(str, COMPATIBLE_WITH))
        raise Exception(
            f"version mismatch: require_version={required} was requested, "
            f"but Octants {VERSION_TEXT} has the interface of "
            f"Quadrants {has}"
        )
