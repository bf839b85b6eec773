"""The disk cache of compiled kernels: `python -m octants.cache info`, `clear` and `verify`.

The cache keeps kernels for later processes (`offline_cache`, see `docs/caching.md`). Everything in it can be rebuilt:
the folder may be removed at any time, even while programs run.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from octants import _octants
from octants._code.cache_observations import CacheObservations as CacheObservations
from octants._code.cache_observations import FastcacheObservations as FastcacheObservations


def counts() -> dict[str, Any] | None:
    """Cache statistics of the running program: `folder`, `hits`, `misses`, `stored`, `damaged`, `written_bytes`, the
    number of kernels `recalled` without parsing their source, and `lowered` from source. None if the cache is off or
    not yet used.
    """
    return _octants.cache_counts()


def info(folder: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Statistics of a cache folder, by default that of programs: `folder`; `entries` and `bytes` of this version of the
    compiler; `traces` and `trace_bytes`, by which entries are found without compiling; `other_entries` and
    `other_bytes` of other versions; and the paths of `damaged` files.
    """
    return _octants.cache_examine(folder)


def clear(folder: str | os.PathLike[str] | None = None) -> tuple[int, int]:
    """Removes all compiled kernels; returns their number and total bytes."""
    return _octants.cache_clear(folder)


def verify(folder: str | os.PathLike[str] | None = None) -> list[str]:
    """Checks all entries, removes the damaged ones and returns their paths. Programs also check what they read."""
    damaged = [str(path) for path in info(folder)["damaged"]]
    for path in damaged:
        Path(path).unlink(missing_ok=True)
    return damaged


def _size(count: int) -> str:
    return f"{count} bytes" if count < 1024 else f"{count / 1024:,.1f} KiB"


def _show_info(folder: str | None) -> int:
    found = info(folder)
    print(f"folder     {found['folder']}")
    print(f"kernels    {found['entries']} ({_size(found['bytes'])})")
    print(f"traces     {found['traces']} ({_size(found['trace_bytes'])}), by which they are found without compiling")
    print(
        f"of others  {found['other_entries']} ({_size(found['other_bytes'])}), made by other versions of the compiler"
    )
    print(f"damaged    {len(found['damaged'])}")
    return 0


def _show_clear(folder: str | None) -> int:
    count, size = clear(folder)
    print(f"removed {count} kernels ({_size(size)})")
    return 0


def _show_verify(folder: str | None) -> int:
    damaged = verify(folder)
    for path in damaged:
        print(f"removed a damaged file: {path}")
    if not damaged:
        print("no damaged kernels")
    return 1 if damaged else 0


_COMMANDS = {
    "info": (_show_info, "location and contents of the folder"),
    "clear": (_show_clear, "remove every kernel"),
    "verify": (_show_verify, "check every kernel, and remove the damaged ones; the exit status is then 1"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m octants.cache",
        description="Shows, clears or verifies the cache of compiled kernels on disk.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="{info,clear,verify}")
    for name, (_, text) in _COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        command.add_argument("--folder", help="the cache folder (default: the one that programs use)")
    given = parser.parse_args(arguments)
    try:
        return _COMMANDS[given.command][0](given.folder)
    except (OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
