"""Builds wheels with LLVM inside, and tries each in a fresh virtual environment.

    python tools/build_wheels.py                      # for every CPython 3.10 to 3.13 that is found
    python tools/build_wheels.py python3.11 ...       # for these
    python tools/build_wheels.py --no-try ...         # without trying them

A wheel is for one version of Python, and for systems with glibc 2.34 and newer. Trying one means: it is installed with
nothing but numpy, the self-test passes on the CPU, and the examples that need no more run.

The functions that programs run stand together in a wheel's extension (`function_order.py`). Their names are recorded in
a wheel that is built before the others; `--no-order` leaves this out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import deflate
from function_order import write_order

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
LLVM = Path(os.environ.get("LLVM_SYS_221_PREFIX", "/usr/lib/llvm-22"))
TAG = "manylinux_2_34"
LARGEST = 30_000_000
EXAMPLES = ("heat.py", "histogram.py", "nbody.py", "spring_fit.py")


def interpreters() -> list[str]:
    """An interpreter of each version, from the search path or from pyenv."""
    found = []
    for version in VERSIONS:
        kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
        path = shutil.which(f"python{version}")
        works = path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0
        if works or kept:
            found.append(str(path if works else kept[-1]))
    return found


def llvm_without_unwind_tables() -> Path:
    """A copy of LLVM's static libraries without the tables for exceptions, which LLVM does not throw.

    The tables would take 1.1 MB of a wheel. `llvm-config` in the copy's `bin` folder names the copied libraries.
    """
    copy = ROOT / "target" / "llvm-without-unwind-tables"
    (copy / "bin").mkdir(parents=True, exist_ok=True)
    (copy / "lib").mkdir(exist_ok=True)
    for library in (LLVM / "lib").glob("*.a"):
        stripped = copy / "lib" / library.name
        if not stripped.exists() or stripped.stat().st_mtime < library.stat().st_mtime:
            sections = ["--remove-section=.eh_frame", "--remove-section=.rela.eh_frame"]
            subprocess.run([LLVM / "bin" / "llvm-objcopy", *sections, library, stripped], check=True)
    config = copy / "bin" / "llvm-config"
    config.write_text(f'#!/bin/sh\n"{LLVM}/bin/llvm-config" "$@" | sed "s#{LLVM}/lib#{copy}/lib#g"\n')
    config.chmod(0o755)
    return copy


def build(pythons: list[str], out: Path, profile: str, order: Path | None, strip: bool = True) -> None:
    """Runs maturin once for all interpreters. LLVM's linker merges equal functions, which GNU's does not, and puts the
    functions that `order` names first."""
    linker = ["-fuse-ld=lld", f"-B{LLVM / 'bin'}", "-Wl,--icf=all,-O2"]
    if order:
        linker.append(f"-Wl,--symbol-ordering-file={order},--no-warn-symbol-ordering")
    options = ["--profile", profile, "--no-default-features", "--features", "static-llvm"]
    command = [sys.executable, "-m", "maturin", "build", *options, *["--strip"] * strip, "--out", str(out)]
    environment = {
        **os.environ,
        "LLVM_SYS_221_PREFIX": str(llvm_without_unwind_tables()),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    flags = [flag for argument in linker for flag in ("-C", f"link-arg={argument}")]
    subprocess.run([*command, "-i", *pythons, "--", *flags], cwd=ROOT, env=environment, check=True)


def find_order(python: str, profile: str) -> Path:
    """The file with the order of the functions, as a wheel for one interpreter shows it."""
    folder = ROOT / "target" / "function-order"
    shutil.rmtree(folder, ignore_errors=True)
    build([python], folder, profile, order=None, strip=False)
    order = folder / "functions.txt"
    write_order(python, next(folder.glob("*.whl")), LLVM / "bin" / "llvm-nm", order)
    return order


class _Whole:
    """Compresses a whole file with libdeflate's slowest level: 4 % smaller than zlib's."""

    def __init__(self, *_: object) -> None:
        self._parts: list[bytes] = []

    def compress(self, data: bytes) -> bytes:
        self._parts.append(bytes(data))
        return b""

    def flush(self) -> bytes:
        return bytes(deflate.deflate_compress(b"".join(self._parts), 12))


def repack(wheel: Path) -> None:
    """Compresses a wheel's files again."""
    packed = wheel.with_suffix(".repacked")
    zipfile._get_compressor = _Whole  # type: ignore[attr-defined]
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for item in old.infolist():
            new.writestr(item, old.read(item))
    packed.replace(wheel)


def check(wheel: Path) -> None:
    """Checks the platform tag and the size limit of the wheel."""
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size / 1e6:.1f} MB")
    if TAG not in wheel.name:
        sys.exit(
            f"error: {wheel.name} is not tagged {TAG}: the linker has taken a newer symbol of the C or C++ library"
        )
    if size > LARGEST:
        sys.exit(f"error: {wheel.name} has {size} bytes, more than {LARGEST}")


def try_out(python: str, wheel: Path) -> None:
    """Installs the wheel in a separate environment and uses it."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "venv", folder], check=True)
        own = str(Path(folder) / "bin" / "python")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

        def run(*arguments: str) -> None:
            subprocess.run([own, *arguments], cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)

        run("-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
        run("-m", "octants.selftest", "--arch", "cpu")
        for example in EXAMPLES:
            run(str(ROOT / "examples" / example), "--check")
    print(f"{wheel.name}: self-test and {len(EXAMPLES)} examples passed")


def main() -> None:
    """Builds, checks and tries."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", help="interpreters to build for; those that are found by default")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the wheels")
    parser.add_argument("--profile", default="wheel", help="cargo's; release takes a third of the time")
    parser.add_argument("--no-try", action="store_true", help="only build")
    parser.add_argument("--no-order", action="store_true", help="leave the order of the functions to the linker")
    options = parser.parse_args()
    pythons = options.pythons or interpreters()
    order = None if options.no_order else find_order(pythons[0], options.profile)
    build(pythons, options.out, options.profile, order)
    for python in pythons:
        name = subprocess.run(
            [python, "-c", "import sys; print('cp%d%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        wheel = max(options.out.glob(f"octants-*-{name}-{name}-*.whl"), key=lambda path: path.stat().st_mtime)
        repack(wheel)
        check(wheel)
        if not options.no_try:
            try_out(python, wheel)


if __name__ == "__main__":
    main()
