"""The disk cache of compiled kernels: hits in later processes, no stale entries, no failures.

Each process of a test runs a small program; `octants.cache.counts()` returns its hits and stores.
"""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import hip_standin
import pytest

from octants import cache

HEAD = """
import json
import octants as qd
"""
TAIL = """
from octants import cache
counts = cache.counts()
if counts:
    counts["folder"] = str(counts["folder"])
print(json.dumps({"result": result, "counts": counts}))
"""
PROGRAM = """
SCALE = 3

class Box:
    SIZE = 4

@qd.func
def shift(a):
    return a + 10

@qd.func
def outer(a):
    return shift(a) * 1

qd.init(arch=qd.cpu)
x = qd.field(qd.i32)
y = qd.field(qd.i32)
qd.root.dense(qd.i, 4).place(x, y)

@qd.kernel
def fill(n: qd.i32):
    for i in x:
        x[i] = outer(i * SCALE) + n
        y[i] = Box.SIZE

@qd.kernel
def total() -> qd.i32:
    s = 0
    for i in x:
        s += x[i] + y[i]
    return s

fill(100)
result = total()
"""
EXPECTED = sum(i * 3 + 10 + 100 + 4 for i in range(4))


@pytest.fixture
def start(tmp_path, request):
    """Starts a program with a separate cache folder, on the device under test."""
    arch = request.config.getoption("--arch")
    there = f"arch=qd.{arch}"
    if arch == "cpu-separate":
        there = "arch=qd.cpu, cpu_separate_memory=True"
    elif arch in hip_standin.ARCHS:
        there = f"arch=qd.amdgpu, device=1, driver_library={str(hip_standin.path())!r}"

    def start(text, **environment):
        path = tmp_path / "program.py"
        program = HEAD + text.replace("arch=qd.cpu", there) + TAIL
        # A process that was just started may be about to read it.
        if not path.exists() or path.read_text() != program:
            path.write_text(program)
        names = ("HOME", "XDG_CACHE_HOME", "OCTANTS_OFFLINE_CACHE", "OCTANTS_OFFLINE_CACHE_FILE_PATH")
        env = {name: value for name, value in os.environ.items() if name not in names}
        env |= {"HOME": str(tmp_path), "OCTANTS_OFFLINE_CACHE_FILE_PATH": str(tmp_path / "kept"), **environment}
        env = {name: value for name, value in env.items() if value is not None}
        return subprocess.Popen(
            [sys.executable, str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
            cwd=tmp_path,
        )

    return start


@pytest.fixture
def run(start):
    """Runs a program to its end. Returns its result, the counts, and its standard error."""

    def run(text, **environment):
        process = start(text, **environment)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        said = json.loads(out.splitlines()[-1])
        return said["result"], said["counts"], err

    return run


def entries(folder):
    """The files of kernels; those with traces of compilations are left out."""
    return [path for path in Path(folder).rglob("*") if path.is_file() and path.parent.suffix != ".traces"]


def test_a_second_process_compiles_nothing(run, tmp_path):
    result, counts, _ = run(PROGRAM)
    assert result == EXPECTED
    assert (counts["hits"], counts["misses"], counts["stored"]) == (0, 2, 2)
    assert len(entries(tmp_path / "kept")) == 2
    result, counts, _ = run(PROGRAM)
    assert result == EXPECTED
    assert (counts["hits"], counts["misses"], counts["stored"]) == (2, 0, 0)


CHANGES = {
    "global": ("SCALE = 3", "SCALE = 5", EXPECTED + 2 * 6),
    "class attribute": ("SIZE = 4", "SIZE = 6", EXPECTED + 8),
    "called function": ("return a + 10", "return a + 11", EXPECTED + 4),
    "function between": ("shift(a) * 1", "shift(a) * 2", EXPECTED + sum(i * 3 + 10 for i in range(4))),
    "constant": ("+ n\n", "+ n + 1\n", EXPECTED + 4),
    "type": ("x = qd.field(qd.i32)", "x = qd.field(qd.u8)", sum((i * 3 + 110) % 256 + 4 for i in range(4))),
    "shape": ("qd.i, 4)", "qd.i, 5)", EXPECTED + 4 * 3 + 10 + 100 + 4),
    "layout": (".place(x, y)", ".place(x)\nqd.root.dense(qd.i, 4).place(y)", EXPECTED),
    "order of members": (".place(x, y)", ".place(y, x)", EXPECTED),
    "option": ("init(arch=qd.cpu)", "init(arch=qd.cpu, default_ip=qd.i64)", EXPECTED),
    "type of an argument": ("n: qd.i32", "n: qd.f64", EXPECTED),
    "monkeypatch": ("qd.init(arch", "Box.SIZE = 5\nqd.init(arch", EXPECTED + 4),
}


def test_changes_of_any_dependency_give_the_new_result(run):
    assert run(PROGRAM)[0] == EXPECTED
    for what, (old, new, expected) in CHANGES.items():
        changed = PROGRAM.replace(old, new)
        assert changed != PROGRAM, what
        result, counts, _ = run(changed)
        assert result == expected, what
        if what != "option":
            assert counts["misses"] > 0, what
    result, counts, _ = run(PROGRAM)
    assert (result, counts["misses"]) == (EXPECTED, 0)


def test_messages_name_the_current_line(run):
    program = """
qd.init(arch=qd.cpu, debug=True)
@qd.kernel
def check(n: qd.i32):
    assert n > 0, "too small"
try:
    check(-1)
    qd.sync()
    result = "nothing raised"
except AssertionError as e:
    result = str(e)
"""
    first, counts, _ = run(program)
    assert counts["stored"] == 1
    moved, counts, _ = run("\n\n\n" + program)
    lines = [int(re.search(r"program\.py:(\d+)", text)[1]) for text in (first, moved)]
    assert lines[1] == lines[0] + 3
    assert counts["hits"] == 0
    # Without a message in the code, its place does not matter. (Code for a GPU has one in debug mode.)
    silent = program.replace("assert n > 0, ", "m = n  # ").replace(", debug=True", "")
    assert run(silent)[1]["stored"] == 1
    assert run("\n\n\n" + silent)[1]["hits"] == 1


def test_damaged_entries_are_recompiled(run, tmp_path):
    run(PROGRAM)
    kept = entries(tmp_path / "kept")
    kept[0].write_bytes(kept[0].read_bytes()[:-10])
    data = bytearray(kept[1].read_bytes())
    data[len(data) // 2] ^= 4
    kept[1].write_bytes(data)
    result, counts, _ = run(PROGRAM)
    assert result == EXPECTED
    assert (counts["damaged"], counts["misses"], counts["stored"]) == (2, 2, 2)
    assert run(PROGRAM)[1]["hits"] == 2


def test_processes_killed_while_they_compile_do_no_harm(start, run):
    for n in range(4):
        process = start(PROGRAM)
        time.sleep(0.35 + 0.1 * n)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert run(PROGRAM)[0] == EXPECTED
    assert run(PROGRAM)[1]["misses"] == 0


def test_processes_that_compile_the_same_kernel_concurrently(start, tmp_path):
    processes = [start(PROGRAM) for _ in range(4)]
    for process in processes:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert json.loads(out)["result"] == EXPECTED
    assert len(entries(tmp_path / "kept")) == 2
    assert cache.info(tmp_path / "kept")["damaged"] == []


def test_without_a_home_directory_a_notice_is_printed_once(run):
    result, counts, err = run(PROGRAM, HOME=None, OCTANTS_OFFLINE_CACHE_FILE_PATH=None)
    assert (result, counts) == (EXPECTED, None)
    assert err.count("compiled kernels are not cached") == 1
    assert "offline_cache_file_path" in err


def test_an_unwritable_folder_is_reported_once(run, tmp_path):
    (tmp_path / "kept").write_text("a file in the folder's place")
    result, counts, err = run(PROGRAM)
    assert (result, counts["stored"]) == (EXPECTED, 0)
    assert err.count("compiled kernels are not cached") == 1


def test_the_folder_is_in_the_user_s_cache_folder(run, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    run(PROGRAM, OCTANTS_OFFLINE_CACHE_FILE_PATH=None, XDG_CACHE_HOME=str(elsewhere))
    assert len(entries(elsewhere / "octants" / "kernels")) == 2
    run(PROGRAM, OCTANTS_OFFLINE_CACHE_FILE_PATH=None)
    assert len(entries(tmp_path / ".cache" / "octants" / "kernels")) == 2


def test_the_cache_can_be_disabled(run, tmp_path):
    assert run(PROGRAM, OCTANTS_OFFLINE_CACHE="0")[1] is None
    off = PROGRAM.replace("init(arch=qd.cpu)", "init(arch=qd.cpu, offline_cache=False)")
    assert run(off)[1] is None
    assert entries(tmp_path / "kept") == []


def test_the_folder_can_be_a_path(run, tmp_path):
    folder = tmp_path / "given" / "folder"
    given = f"init(arch=qd.cpu, offline_cache_file_path=__import__('pathlib').Path({str(folder)!r}))"
    assert run(PROGRAM.replace("init(arch=qd.cpu)", given))[1]["folder"] == str(folder)
    assert len(entries(folder)) == 2


def test_the_size_limit_is_enforced(run, tmp_path):
    program = """
qd.init(arch=qd.cpu, offline_cache_max_size_of_files=1, offline_cache_cleaning_policy=POLICY)
@qd.kernel
def k(n: qd.template()) -> qd.i32:
    return n
result = [k(n) for n in range(3)]
"""
    run(program.replace("POLICY", repr("lru")))
    assert entries(tmp_path / "kept") == []
    run(program.replace("POLICY", repr("version")))
    assert len(entries(tmp_path / "kept")) == 3


def command(*arguments, folder):
    env = {**os.environ, "OCTANTS_OFFLINE_CACHE_FILE_PATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "octants.cache", *arguments], capture_output=True, text=True, env=env, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_the_command_line(run, tmp_path):
    folder = tmp_path / "kept"
    run(PROGRAM)
    status, text = command("--help", folder=folder)
    assert status == 0
    assert all(word in text for word in ("info", "clear", "verify"))
    status, text = command("info", folder=folder)
    assert status == 0
    assert str(folder) in text
    assert re.search(r"kernels +2 \(", text)
    assert command("verify", folder=folder) == (0, "no damaged kernels\n")
    damaged = entries(folder)[0]
    damaged.write_bytes(damaged.read_bytes() + b"x")
    status, text = command("verify", folder=folder)
    assert (status, str(damaged) in text, damaged.exists()) == (1, True, False)
    status, text = command("clear", "--folder", str(folder), folder=tmp_path / "other")
    assert (status, text.startswith("removed 1 kernels")) == (0, True)
    assert entries(folder) == []
    assert command("info", folder=folder)[0] == 0
    status, text = command("frobnicate", folder=folder)
    assert status == 2
    assert "invalid choice" in text


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
@pytest.mark.parametrize("kind", ["pipe", "link", "device"])
def test_non_files_are_skipped(run, tmp_path, kind):
    if kind == "device" and os.geteuid() != 0:
        pytest.skip("only root makes devices")
    run(PROGRAM)
    for path in entries(tmp_path / "kept"):
        path.unlink()
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "link":
            path.symlink_to("/dev/zero")
        else:
            try:
                os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
            except OSError as error:
                pytest.skip(f"no devices here: {error}")
    result, counts, _ = run(PROGRAM)  # it would hang, or never end to read
    assert (result, counts["hits"]) == (EXPECTED, 0)
    for command in ("verify", "info", "clear"):
        line = [sys.executable, "-m", "octants.cache", command, "--folder", str(tmp_path / "kept")]
        assert subprocess.run(line, capture_output=True, timeout=60).returncode == 0


only_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root makes other users' files"
)
OTHER = 12345


@only_root
def test_code_of_another_user_is_not_loaded(run, tmp_path):
    run(PROGRAM)
    for path in entries(tmp_path / "kept"):
        os.chown(path, OTHER, -1)
    result, counts, err = run(PROGRAM)
    assert (result, counts["hits"]) == (EXPECTED, 0)
    assert err.count("cached kernels are not loaded, because other users can write them") == 1


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_a_folder_that_everybody_may_write_to_is_not_used(run, tmp_path):
    run(PROGRAM)
    (tmp_path / "kept").chmod(0o1777)
    result, counts, err = run(PROGRAM)
    assert (result, counts) == (EXPECTED, None)
    assert err.count("everyone can write to it") == 1


@only_root
def test_the_user_s_own_folder_must_be_the_user_s(run, tmp_path):
    home = tmp_path / "home"
    environment = {"OCTANTS_OFFLINE_CACHE_FILE_PATH": None, "XDG_CACHE_HOME": str(home)}
    run(PROGRAM, **environment)
    os.chown(home / "octants" / "kernels", OTHER, -1)
    result, counts, err = run(PROGRAM, **environment)
    assert (result, counts) == (EXPECTED, None)
    assert err.count("it belongs to another user") == 1


@only_root
@pytest.mark.parametrize("mode", [0o755, 0o2770], ids=oct)
def test_a_shared_folder_works_for_all_users(run, tmp_path, mode):
    folder = tmp_path / "kept"
    folder.mkdir()
    folder.chmod(mode)
    run(PROGRAM)
    for path in [folder, *folder.rglob("*")]:
        about = path.stat()
        if mode == 0o2770:
            assert about.st_mode & 0o070 == (0o070 if path.is_dir() else 0o060), f"{path}: {about.st_mode:o}"
            owner = OTHER + 1  # of the group, as any other
        else:
            assert about.st_mode & 0o022 == 0
            owner = OTHER  # who owns the folder
        os.chown(path, owner if path != folder else OTHER, -1)
    result, counts, err = run(PROGRAM)
    assert (result, counts["misses"], err) == (EXPECTED, 0, "")
