"""Code of kernels for machines that need not be present: `qd.inspect` and `python -m octants.inspect`."""

import os
import subprocess
import sys

import numpy as np
import pytest

import octants as qd

AMD_CHIPS = "gfx906 gfx908 gfx90a gfx942 gfx1030 gfx1100 gfx1101 gfx1102 gfx1103 gfx1151 gfx1200 gfx1201".split()

SCRIPT = """
import sys
import numpy as np
import octants as qd

qd.init(arch=qd.cpu)

@qd.kernel
def first(x: qd.types.ndarray(dtype=qd.f32, ndim=1)):
    for i in x:
        x[i] += 1.0

@qd.kernel
def second(x: qd.types.ndarray(dtype=qd.f32, ndim=1)) -> qd.f32:
    total = 0.0
    for i in x:
        total += x[i]
    return total

x = np.zeros(8, dtype=np.float32)
first(x)
assert second(x) == 8.0
print("reached the end", *sys.argv[1:])
"""


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


@pytest.fixture
def saxpy():
    @qd.kernel
    def saxpy(a: qd.f32, x: qd.types.ndarray(dtype=qd.f32, ndim=1), y: qd.types.ndarray(dtype=qd.f32, ndim=1)):
        for i in x:
            y[i] += a * x[i]

    return saxpy


def arrays():
    return np.ones(16, dtype=np.float32), np.zeros(16, dtype=np.float32)


@pytest.mark.parametrize("chip", AMD_CHIPS)
def test_every_amd_chip_has_assembly_and_a_linked_code_object(saxpy, chip):
    x, y = arrays()
    code = qd.inspect(saxpy, 2.0, x, y, target=chip, emit=("asm", "object"))
    assert f'.amdgcn_target "amdgcn-amd-amdhsa--{chip}"' in code["asm"]
    assert "global_load_" in code["asm"]
    # An ELF shared object for the machine 224.
    assert code["object"][:4] == b"\x7fELF"
    assert int.from_bytes(code["object"][16:18], "little") == 3
    assert int.from_bytes(code["object"][18:20], "little") == 224
    assert not y.any(), "nothing ran"


def test_the_code_stages_of_a_kernel_for_this_machine(saxpy):
    code = qd.inspect(saxpy, 2.0, *arrays(), target="cpu", emit=("ir", "llvm", "asm", "object"))
    assert "task saxpy" in code["ir"]
    assert "define " in code["llvm"]
    assert ".text" in code["asm"]
    assert code["object"][:4] == b"\x7fELF"


ELF_MACHINES = {"x86": 62, "arm": 183}


@pytest.mark.parametrize(
    ("target", "machine", "vectors", "others"),
    [
        ("x86-64", "x86", "%xmm", "%ymm"),
        ("x86-64-v2", "x86", "%xmm", "%ymm"),
        ("x86-64-v3", "x86", "%ymm", "%zmm"),
        ("x86-64-v4", "x86", "%zmm", "x0"),
        ("znver4", "x86", "%zmm", "x0"),
        ("aarch64", "arm", ".4s", "%xmm"),
        ("neoverse-n1", "arm", ".4s", "%xmm"),
        ("apple-m1", "arm", ".4s", "%xmm"),
    ],
)
def test_code_uses_the_vector_width_of_the_processor(saxpy, target, machine, vectors, others):
    code = qd.inspect(saxpy, 2.0, *arrays(), target=target, emit=("asm", "object"))
    assert code["object"][:4] == b"\x7fELF"
    assert int.from_bytes(code["object"][18:20], "little") == ELF_MACHINES[machine]
    assert vectors in code["asm"]
    assert others not in code["asm"]


LONG_LOOP = """
import numpy as np
import octants as qd

qd.init(arch=qd.cpu)

@qd.kernel
def first_above(x: qd.types.ndarray(dtype=qd.f32, ndim=1)) -> qd.i32:
    found = -1
    qd.loop_config(serialize=True)
    for i in range(x.shape[0]):
        if x[i] > 3.0:
            found = i
            break
    return found

code = qd.inspect(first_above, np.zeros(4, np.float32), target="x86-64-v2", emit=("asm", "object"))
assert "call" in code["asm"] and code["object"][:4] == b"\\x7fELF"
"""


def test_loops_that_the_host_can_stop_are_compiled_before_any_kernel_of_the_host(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(LONG_LOOP)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("target, gathers", [("sapphirerapids", True), ("znver4", False), ("znver5", False)])
def test_zen_has_no_gathers(target, gathers):
    indices, floats = qd.types.ndarray(dtype=qd.i32, ndim=1), qd.types.ndarray(dtype=qd.f32, ndim=1)

    @qd.kernel
    def pick(at: indices, x: floats, y: floats):
        for i in y:
            y[i] = x[at[i]]

    @qd.kernel
    def put(at: indices, x: floats, y: floats):
        for i in x:
            y[at[i]] = x[i]

    at, x, y = np.zeros(8, np.int32), np.zeros(8, np.float32), np.zeros(8, np.float32)
    assert ("gather" in qd.inspect(pick, at, x, y, target=target)) == gathers
    assert ("scatter" in qd.inspect(put, at, x, y, target=target)) == gathers


def test_code_for_a_processor_is_the_same_on_every_machine(saxpy):
    x, y = arrays()
    cores = {name: qd.inspect(saxpy, 2.0, x, y, target=name) for name in ("aarch64", "apple-m1", "apple-a14")}
    assert cores["apple-m1"] == cores["apple-a14"] != cores["aarch64"]
    text = qd.inspect(saxpy, 2.0, x, y, arch="cpu", target="x86-64-v3", emit="llvm")
    assert 'target triple = "x86_64-unknown-linux-gnu"' in text
    other = qd.x64 if qd.cpu == qd.arm64 else qd.arm64
    usual = "x86-64" if other == qd.x64 else "aarch64"
    assert qd.inspect(saxpy, 2.0, x, y, arch=other) == qd.inspect(saxpy, 2.0, x, y, target=usual)
    assert qd.inspect(saxpy, 2.0, x, y, arch=qd.cpu) == qd.inspect(saxpy, 2.0, x, y, target="cpu")


def test_nvidia_chips_have_ptx(saxpy):
    text = qd.inspect(saxpy, 2.0, *arrays(), target="sm_90")
    assert ".target sm_90" in text
    assert ".entry saxpy_0_range" in text
    assert qd.inspect(saxpy, 2.0, *arrays(), arch=qd.cuda, emit="object").startswith(b"//")


def test_an_arch_without_a_chip_uses_the_programs_or_a_default_chip(saxpy):
    x, y = arrays()
    for arch, chip in ((qd.amdgpu, "gfx90a"), (qd.cuda, "sm_80")):
        chosen = {} if arch == qd.cfg.arch else {"target": chip}
        expected = qd.inspect(saxpy, 2.0, x, y, **chosen)
        assert qd.inspect(saxpy, 2.0, x, y, arch=arch) == expected
        assert qd.inspect(saxpy, 2.0, x, y, arch=arch.name) == expected


def test_keywords_fields_and_methods_work_as_in_a_call():
    field = qd.field(qd.i32, shape=4)

    @qd.data_oriented
    class Counter:
        def __init__(self):
            self.values = field

        @qd.kernel
        def add(self, n: qd.i32):
            for i in self.values:
                self.values[i % 2] += n

    counter = Counter()
    assert "global_atomic_add" in qd.inspect(counter.add, n=3, target="gfx1100")
    assert field.to_numpy().tolist() == [0, 0, 0, 0]


def test_unknown_machines_kernels_and_stages_are_refused(saxpy):
    x, y = arrays()
    with pytest.raises(
        ValueError, match=r"`gfx9` is not a supported target[^~]*\n  amdgpu: gfx906, gfx908, .*, gfx1201$"
    ):
        qd.inspect(saxpy, 2.0, x, y, target="gfx9")
    all_kinds = (
        r"`abacus`[^~]*inspect --list[^~]*\n  cpu: cpu, x86-64,.*aarch64, and \d+ by name\n  cuda: sm_70.*\n  amdgpu: "
    )
    with pytest.raises(ValueError, match=all_kinds):
        qd.inspect(saxpy, 2.0, x, y, target="abacus")
    with pytest.raises(ValueError, match=r"did you mean `znver\d`[^~]*znver4,.* neoverse-n1,"):
        qd.inspect(saxpy, 2.0, x, y, arch="cpu", target="znver9")
    with pytest.raises(ValueError, match="`znver4` is not a chip of arch `arm64`"):
        qd.inspect(saxpy, 2.0, x, y, arch=qd.arm64, target="znver4")
    with pytest.raises(ValueError, match="not a chip of arch `cuda`"):
        qd.inspect(saxpy, 2.0, x, y, arch="cuda", target="gfx90a")
    with pytest.raises(ValueError, match="sm_13"):
        qd.inspect(saxpy, 2.0, x, y, target="sm_13")
    with pytest.raises(ValueError, match="did you mean `object`"):
        qd.inspect(saxpy, 2.0, x, y, emit="objects")
    with pytest.raises(TypeError, match="expected a function decorated with @qd.kernel"):
        qd.inspect(print, target="gfx90a")


def run(tmp_path, *options):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"OCTANTS_OFFLINE_CACHE": "1", "OCTANTS_OFFLINE_CACHE_FILE_PATH": str(tmp_path / "kept")}
    command = [sys.executable, "-m", "octants.inspect", str(script), "--out", str(tmp_path / "code"), *options]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path, env=environment
    )


def test_the_kernels_of_a_script_are_written_to_files(tmp_path):
    done = run(tmp_path, "--target", "gfx1100,sm_80", "--emit", "ir,asm,object", "--", "again")
    assert done.returncode == 0, done.stderr
    assert "reached the end again" in done.stdout
    written = {p.name for p in (tmp_path / "code").iterdir()}
    chips = {"gfx1100": ("oir", "s", "hsaco"), "sm_80": ("oir", "ptx")}
    assert written == {f"{k}.{c}.{e}" for k in ("first", "second") for c, ends in chips.items() for e in ends}


def test_cached_kernels_are_written_too(tmp_path):
    for _ in range(2):
        done = run(tmp_path, "--target", "gfx90a")
        assert done.returncode == 0, done.stderr
        assert len(list((tmp_path / "code").iterdir())) == 2
        for path in (tmp_path / "code").iterdir():
            path.unlink()


def test_scripts_are_written_for_processors_and_all_targets_are_listed(tmp_path):
    done = run(tmp_path, "--kernel", "first", "--target", "x86-64-v3,aarch64", "--emit", "asm,object")
    assert done.returncode == 0, done.stderr
    written = {p.name for p in (tmp_path / "code").iterdir()}
    assert written == {f"first.{target}.{ending}" for target in ("x86-64-v3", "aarch64") for ending in ("s", "o")}
    listed = run(tmp_path, "--list").stdout.split()
    assert {"cpu:", "znver4", "neoverse-n1", "sm_121", "gfx1201"} <= set(listed)


def test_a_script_ends_after_the_requested_kernel(tmp_path):
    done = run(tmp_path, "--kernel", "first", "--target", "gfx90a")
    assert done.returncode == 0, done.stderr
    assert "reached the end" not in done.stdout
    assert [p.name for p in (tmp_path / "code").iterdir()] == ["first.gfx90a.s"]


def test_a_kernel_that_a_script_does_not_call_is_named(tmp_path):
    done = run(tmp_path, "--kernel", "third", "--target", "gfx90a")
    assert done.returncode == 1
    assert "third" in done.stderr
    assert run(tmp_path, "--emit", "assembly").returncode == 2


@qd.kernel
def shifted(a: qd.types.ndarray(dtype=qd.f32, ndim=2), n: qd.i32, at: qd.types.ndarray(dtype=qd.i32, ndim=1)):
    for i, j in qd.ndrange((2, n), a.shape[1] - 1):
        a[i - 1, j + 1] = 2.0
    for i in range(n):
        for k in range(i, 2 * i + 1):
            a[3 * i, k] += 1.0
    for i in range(n // 2):
        a[at[i], 4] = 3.0
    for i in range(1, 4):
        a[n + 4 - i, 0] = 4.0


def test_write_ranges_cover_all_changed_elements():
    for n in (0, 1, 2, 3, 5):
        a, at = np.zeros((20, 12), np.float32), np.array([2, 2, 7], np.int32)
        access = qd.inspect(shifted, a, n, at, emit="access")
        assert "write a[1:n - 1, 1:a.shape[1]]" in access, access
        assert "read at[:]" in access, access
        shifted(a, n, at)
        # The text has Python's slice notation.
        inside = np.zeros(a.shape, bool)
        for line in access.splitlines():
            if line.strip().startswith(("write a", "atomic add a")):
                indices = line[line.index("a[") + 1 :]
                inside[eval(f"np.s_{indices}", {"np": np, "n": n, "a": a})] = True
        assert not a[~inside].any(), access
        assert inside.sum() < 20 * 12, access
