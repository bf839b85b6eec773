"""Kernels of the self-test and of the examples as linked code objects for AMD's chips, examined with LLVM's tools."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHIPS = "gfx906 gfx908 gfx90a gfx942 gfx1030 gfx1100 gfx1101 gfx1102 gfx1103 gfx1151 gfx1200 gfx1201".split()
# One chip for each instruction set. The self-test compiles for all of them.
ONE_OF_EACH = "gfx906 gfx90a gfx942 gfx1030 gfx1100 gfx1200".split()
EXAMPLES = sorted(p for p in (ROOT / "examples").glob("*.py") if p.stem != "example_support")

# Runs a program, and compiles its kernels for the chips too.
OBSERVER = """
import runpy, sys
from pathlib import Path
from octants import _octants

out, chips, program, *arguments = sys.argv[1:]
number = 0

def write(kernel):
    global number
    number += 1
    for chip in chips.split(","):
        code, _ = kernel.emit("object", None, chip)
        Path(out, f"{kernel.kernel}.{number}.{chip}.hsaco").write_bytes(code)

_octants.observe_compilations(write)
sys.argv = [program, *arguments]
sys.path.insert(0, str(Path(program).parent))
try:
    if program.endswith(".py"):
        runpy.run_path(program, run_name="__main__")
    else:
        runpy.run_module(program, run_name="__main__")
except SystemExit as e:
    sys.exit(e.code)
"""


def tool(name):
    """One of LLVM's tools."""
    found = shutil.which(f"/usr/lib/llvm-22/bin/{name}") or shutil.which(f"{name}-22") or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def library_is_missing():
    return not any(Path("/usr/lib").glob("*/amdgcn/bitcode/ocml.bc")) and not any(Path("/opt").glob("rocm*"))


def compile_kernels(out, chips, program, *arguments):
    """The code objects of a program's kernels."""
    if library_is_missing():
        pytest.skip("AMD's library of math functions is not installed (rocm-device-libs)")
    command = [sys.executable, "-c", OBSERVER, str(out), ",".join(chips), program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode and "is not installed" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    objects = sorted(out.glob("*.hsaco"))
    assert objects
    return objects


def describe(objects):
    """By code object: the entry points with their metadata."""
    command = [tool("llvm-readelf"), "--notes", "--file-header", *map(str, objects)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    parts = re.split(r"^File: (.*)$", text, flags=re.M) if len(objects) > 1 else ["", str(objects[0]), text]
    return {Path(name): body for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def entry_points(text):
    """Name and numbers of each entry point."""
    for part in re.split(r"^  - (?=\.agpr_count|\.args)", text, flags=re.M)[1:]:
        found = dict(re.findall(r"^ {4}(\.\w+): +(\S+)$", part, flags=re.M))
        argument = re.search(r"\.offset: +0\n +\.size: +(\d+)\n +\.value_kind: +by_value", part)
        hidden = set(re.findall(r"\.value_kind: +(hidden_\w+)", part))
        yield found, int(argument[1]) if argument else None, hidden


def check_object(path, text):
    chip = path.stem.rsplit(".", 1)[1]
    assert f", {chip}" in re.search(r"Flags: +(.*)", text)[1]
    points = list(entry_points(text))
    assert points, f"{path.name} has no entry points"
    for found, argument, hidden in points:
        name = f"{path.name} {found['.name']}"
        assert re.fullmatch(r"\w+_\d+_\w+", found[".name"]), name
        assert found[".symbol"] == f"{found['.name']}.kd"
        assert int(found[".wavefront_size"]) == (64 if chip.startswith("gfx9") else 32), name
        # The context and at least one slot, in whole words.
        assert argument is not None, name
        assert argument >= 64, name
        assert argument % 8 == 0, name
        assert int(found[".group_segment_fixed_size"]) <= 64 << 10, name
        assert found[".uses_dynamic_stack"] == "false", name
        # The runtime need not serve the code while it runs, nor give it a heap.
        assert not hidden & {"hidden_hostcall_buffer", "hidden_heap_v1", "hidden_queue_ptr"}, name
    return points


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_the_examples_compile_for_every_instruction_set(example, tmp_path):
    # Its kernels are for subgroups of 32 threads, as here: their parts of a matrix are the components of vectors.
    chips = [c for c in ONE_OF_EACH if c.startswith("gfx1") or example.stem != "tensor_matmul"]
    objects = compile_kernels(tmp_path, chips, str(example), "--check")
    for path, text in describe(objects).items():
        check_object(path, text)


def test_the_self_test_compiles_for_every_chip(tmp_path):
    objects = compile_kernels(tmp_path, CHIPS, "octants.selftest", "--arch", "cpu")
    described = describe(objects)
    assert len({p.stem.rsplit(".", 1)[0] for p in objects}) >= 40
    assert {p.stem.rsplit(".", 1)[1] for p in objects} == set(CHIPS)
    for path, text in described.items():
        points = check_object(path, text)
        # Code that prints passes values in private memory; other code uses none.
        if path.stem.split(".")[0] != "say":
            for found, _, _ in points:
                assert found[".private_segment_fixed_size"] == "0", path.name
                assert found[".vgpr_spill_count"] == "0", path.name


def test_float_atomics_use_one_instruction_when_available(tmp_path):
    objects = compile_kernels(tmp_path, CHIPS, "octants.selftest", "--arch", "cpu", "--only", "scattered floats")
    assert len(objects) == len(CHIPS)
    for path in objects:
        code = subprocess.run(
            [tool("llvm-objdump"), "-d", str(path)], capture_output=True, text=True, check=True
        ).stdout
        chip = path.stem.rsplit(".", 1)[1]
        assert ("global_atomic_add_f32" in code) == (chip not in ("gfx906", "gfx1030")), path.name
        assert ("global_atomic_add_f64" in code) == (chip in ("gfx90a", "gfx942")), path.name
