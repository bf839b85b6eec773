"""A later process skips the front end, and never uses stale code. Each dependence of a kernel is changed between two
processes, each in a separate module.

The modules are in the tables `changes_of_...`, each with its expected results before and after the change. `{{a|b}}`
in a module is `a` in its first version and `b` in its second; its function `result` gives the result. One process runs
all modules of a table.
"""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import changes_of_data
import changes_of_indirections
import changes_of_names
import changes_of_objects
import changes_of_types
import pytest

HEAD = """
import dataclasses
import enum
import math
import os

import numpy as np
import octants as qd
"""

TABLES = {
    table.__name__: table.CHANGES
    for table in (changes_of_names, changes_of_types, changes_of_objects, changes_of_indirections, changes_of_data)
}

# Changes for which no code is compiled: fields are found again by name.
SAME_CODE = {"the place of a field", "which field a name is"}

OTHER = """
import octants as qd

SIZE = 0
LIMIT = 0

@qd.func
def limit():
    return LIMIT

@qd.func
def patched():
    return 1
"""

DRIVER = """
import importlib
import json
import sys

import octants as qd
from octants import cache

qd.init(arch=qd.cpu)
results = []
counts = []
for name in sys.argv[1:]:
    results.append(importlib.import_module(name).result())
    counts.append(cache.counts())
    del counts[-1]["folder"]
print(json.dumps([results, counts]))
"""


def version(text, which):
    head = HEAD
    if "__future__" in text:
        # That must come first.
        head, text = "", text.replace("annotations\n", "annotations\n" + HEAD, 1)
    return head + re.sub(r"\{\{(.*?)\|(.*?)\}\}", lambda m: m[1 + which], text)


@pytest.fixture
def run(tmp_path):
    """Writes modules and runs them in a separate process. Returns the results, `cache.counts()` after each, and
    standard output and standard error."""
    (tmp_path / "other.py").write_text(OTHER)
    (tmp_path / "driver.py").write_text(DRIVER)

    def run(texts, **environment):
        for i, text in enumerate(texts):
            path = tmp_path / f"m{i}.py"
            if not path.exists() or path.read_text() != text:
                path.write_text(text)
        env = {
            **os.environ,
            "OCTANTS_OFFLINE_CACHE": "1",
            "OCTANTS_OFFLINE_CACHE_FILE_PATH": str(tmp_path / "kept"),
            # Python's own cache looks at times of files, which may be equal here.
            "PYTHONDONTWRITEBYTECODE": "1",
            **environment,
        }
        command = [sys.executable, str(tmp_path / "driver.py"), *(f"m{i}" for i in range(len(texts)))]
        done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path, check=False, timeout=600)
        assert done.returncode == 0, done.stderr
        *printed, said = done.stdout.splitlines()
        results, counts = json.loads(said)
        return results, counts, printed, done.stderr

    return run


@pytest.fixture(params=TABLES)
def changes(request):
    return TABLES[request.param]


def texts(changes, which):
    return [version(text, which) for text, *_ in changes.values()]


def differing(changes, results, which):
    """The results that differ from those of this version, with the expected ones."""
    expected = {name: case[1 + which] for name, case in changes.items()}
    return {n: (r, expected[n]) for n, r in zip(changes, results, strict=True) if r != expected[n]}


def lowered(changes, counts):
    """The modules for which something was parsed and lowered."""
    totals = [0, *(c["lowered"] for c in counts)]
    return {name for name, before, after in zip(changes, totals, totals[1:], strict=False) if after > before}


def test_any_change_gives_the_new_result(run, changes):
    versions = [texts(changes, which) for which in (0, 1)]
    results, cold, _, _ = run(versions[0])
    assert differing(changes, results, 0) == {}
    assert cold[-1]["recalled"] == 0

    results, warm, _, _ = run(versions[0])
    assert differing(changes, results, 0) == {}
    assert lowered(changes, warm) == set()
    assert (warm[-1]["recalled"], warm[-1]["misses"]) == (cold[-1]["lowered"], 0)

    results, changed, _, _ = run(versions[1])
    assert differing(changes, results, 1) == {}
    assert changes.keys() - lowered(changes, changed) == SAME_CODE & changes.keys()

    # Code that was compiled after a difference was found is recalled like any other.
    results, warm, _, _ = run(versions[1])
    assert differing(changes, results, 1) == {}
    assert lowered(changes, warm) == set()

    # Neither of the two versions, which are both cached if sources are equal, is used for the other.
    for which in (0, 1):
        results, _, _, _ = run(versions[which])
        assert differing(changes, results, which) == {}


def test_bytecode_modules_behave_the_same(run, changes, tmp_path):
    modules = texts(changes, 0)
    run(modules, PYTHONDONTWRITEBYTECODE="")
    assert len(list(tmp_path.rglob("m*.pyc"))) == len(modules)
    results, counts, _, _ = run(modules, PYTHONDONTWRITEBYTECODE="")
    assert differing(changes, results, 0) == {}
    assert lowered(changes, counts) == set()


def test_sources_of_equal_size_and_time_are_distinguished(run, tmp_path):
    text = HEAD + "@qd.kernel\ndef result() -> qd.i32:\n    return {{1|2}}\n"
    first, second = version(text, 0), version(text, 1)
    assert run([first])[0] == [1]
    path = tmp_path / "m0.py"
    about = path.stat()
    path.write_text(second)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (about.st_size, about.st_mtime_ns)
    results, counts, _, _ = run([second])
    assert (results, counts[-1]["lowered"]) == ([2], 1)


def test_processes_that_compile_at_once_lose_nothing(run):
    text = (
        HEAD
        + """
N = int(os.environ["OCTANTS_TEST_N"])

@qd.kernel
def result() -> qd.i32:
    return N
"""
    )
    numbers = range(5)
    with ThreadPoolExecutor(len(numbers)) as pool:
        done = pool.map(lambda n: run([text], OCTANTS_TEST_N=str(n)), numbers)
    assert [results for results, *_ in done] == [[n] for n in numbers]
    for n in numbers:
        results, counts, _, _ = run([text], OCTANTS_TEST_N=str(n))
        assert (results, counts[-1]["lowered"]) == ([n], 0)


DECLARED_AND_OTHER = (
    HEAD
    + """
@qd.kernel(fastcache=True)
def declared() -> qd.i32:
    return 1

@qd.kernel
def other() -> qd.i32:
    return 1
"""
)


def test_fastcache_kernels_report_front_end_hits(run):
    text = (
        DECLARED_AND_OTHER
        + """
def result():
    seen = [dataclasses.astuple(k._primal.src_ll_cache_observations) for k in (declared, other) if k() == 1]
    return [*seen, dataclasses.astuple(declared.src_ll_cache_observations)]
"""
    )
    nothing = [False] * 4
    cold, warm = [True, False, False, True], [True, True, True, False]
    assert run([text])[0] == [[cold, nothing, cold]]
    assert run([text])[0] == [[warm, nothing, warm]]


def test_other_kernels_report_machine_code_hits(run):
    text = (
        DECLARED_AND_OTHER
        + """
def result():
    before = other._primal.fe_ll_cache_observations.cache_hit
    kernels = (declared, other)
    return [before, *(k._primal.fe_ll_cache_observations.cache_hit for k in kernels if k() == 1)]
"""
    )
    assert run([text])[0] == [[False, False, False]]
    assert run([text])[0] == [[False, False, True]]


def test_compile_time_messages_are_repeated(run):
    text = (
        HEAD
        + """
@qd.kernel
def result() -> qd.i32:
    n = 0
    qd.static_print("a line")
    for i in qd.static(range(40)):
        n += i
    return n
"""
    )
    for lowered in (1, 0):
        results, counts, printed, err = run([text])
        assert (results, counts[-1]["lowered"]) == ([780], lowered)
        assert printed == ["a line"]
        assert err.count("m0.py:14: SyntaxWarning") == 1


def test_relevant_options_are_compared(run):
    text = (
        HEAD
        + """
@qd.kernel
def result() -> qd.f64:
    return 1.0 / 3
"""
    )
    single, double = float(1 / (3 * (1 + 2**-25))), 1 / 3
    assert run([text])[0][0] == pytest.approx(single, rel=1e-7)
    results, counts, _, _ = run([text], OCTANTS_DEFAULT_FP="f64")
    assert (results, counts[-1]["lowered"]) == ([double], 1)
    assert run([text], OCTANTS_RANDOM_SEED="7")[1][-1]["lowered"] == 0
    assert run([text], OCTANTS_DEBUG="1")[1][-1]["lowered"] == 1


def test_many_values_of_a_compile_time_argument(run):
    text = (
        HEAD
        + """
@qd.kernel
def get(n: qd.template()) -> qd.i32:
    return n

def make(n):
    @qd.kernel
    def k() -> qd.i32:
        return n

    return k

def result():
    return sum(get(n) + make(n)() for n in range(40))
"""
    )
    for lowered in (80, 0):
        results, counts, _, _ = run([text])
        assert (results, counts[-1]["lowered"]) == ([2 * sum(range(40))], lowered)


def test_damaged_and_dangling_traces_are_rebuilt(run, tmp_path):
    text = HEAD + changes_of_names.CHANGES["a function's text, two calls deep"][0].replace("{{1|2}}", "1")
    run([text])
    (trace,) = tmp_path.rglob("*.traces/*")
    whole = trace.read_bytes()
    for damage in (whole[:-3], whole[:200] + bytes([whole[200] ^ 1]) + whole[201:], b""):
        trace.write_bytes(damage)
        results, counts, _, _ = run([text])
        assert (results, counts[-1]["lowered"], counts[-1]["damaged"], counts[-1]["hits"]) == ([20], 1, 1, 1)
    assert run([text])[1][-1]["lowered"] == 0
    for kernel in (tmp_path / "kept").rglob("*"):
        if kernel.is_file() and kernel != trace:
            kernel.unlink()
    results, counts, _, _ = run([text])
    assert (results, counts[-1]["lowered"], counts[-1]["stored"]) == ([20], 1, 1)
    assert run([text])[1][-1]["lowered"] == 0


def test_the_reason_for_compiling_is_reported_on_request(run):
    ask = {"OCTANTS_LOG_LEVEL": "debug"}
    wanted = {
        "a global": "value of type int changed",
        "a function's text, two calls deep": "the text or the signature of `inner` changed",
        "a function's meaning": "text or the signature of",
        "a class attribute": "a value of type int changed",
        "one object or two": "`b` in `result` is a different object",
    }
    all_changes = {name: case for table in TABLES.values() for name, case in table.items()}
    changes = {name: all_changes[name] for name in wanted}
    _, _, _, err = run(texts(changes, 0), **ask)
    assert err.count("is compiled: it was not compiled before") == len(wanted)
    _, _, _, err = run(texts(changes, 0), **ask)
    assert "is compiled" not in err
    _, _, _, err = run(texts(changes, 1), **ask)
    reasons = [line.split("is compiled: ", 1)[1] for line in err.splitlines() if "is compiled: " in line]
    for (name, part), reason in zip(wanted.items(), reasons, strict=True):
        assert part in reason, name
