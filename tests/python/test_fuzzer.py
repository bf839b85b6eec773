"""The fuzzer itself: its interpreter's results, and the detection of all kinds of failures."""

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "fuzz"

pytestmark = pytest.mark.on_cpu


@pytest.fixture(scope="module", autouse=True)
def modules():
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))


HEAD = """import octants as qd

X = qd.types.ndarray(dtype=qd.i32, ndim=1)
Y = qd.types.ndarray(dtype=qd.f32, ndim=1)


@qd.kernel
def k(x: X, y: Y, n: qd.u8) -> qd.i64:
    r = 0
"""


def program(body, x=(5, -7, 0, 2**31 - 1), y=(0.5, 2.0), n=200, behind=""):
    from programs import Argument, Memory, Program

    source = HEAD + "".join(f"    {line}\n" for line in body.splitlines()) + "    return r\n" + behind
    arguments = [
        Argument("x", "i32", None, 0, 0, [len(x)], [1]),
        Argument("y", "f32", None, 1, 0, [len(y)], [1]),
        Argument("n", "u8", n),
    ]
    return Program(1, source, [Memory("i32", list(x)), Memory("f32", list(y))], arguments, [])


def result(body, **data):
    from programs import interpret

    outcome, state = interpret(program(body, **data), "i32", "f32")
    return outcome.memories[0], outcome.memories[1], outcome.returned[0], state


@pytest.mark.parametrize(
    "body, expected",
    [
        ("r = x[1] % 3", 2),
        ("a = 1\nx[qd.atomic_add(a, 1)] *= qd.cast(3, qd.i64)\nr = x[1] * 10 + a", -208),
        ("r = x[1] // 2", -4),
        ("r = qd.raw_div(x[1], 2)", -3),
        ("r = x[3] + 1", -(2**31)),
        ("r = n + qd.u8(100)", 44),
        ("r = x[1] < qd.cast(1, qd.u32)", 0),
        ("r = qd.cast(n, qd.i8)", -56),
        ("r = x[0] << 30", 1 << 30),
        ("r = qd.math.clz(qd.cast(1, qd.u16))", 15),
        ("r = qd.atomic_max(x[0], 9) * 100 + x[0]", 509),
        ("r = 7 if x[2] and x[5] else 3", 3),
        ("a = qd.cast(0, qd.i16)\na = 70000\nr = a", 4464),
        ("a = 0\nwhile True:\n    a += 1\n    if a > 4:\n        break\nr = a", 5),
        ("v = qd.Vector([x[0], n, 3], qd.i16)\nv[x[2]] += v[1]\nr = v[0] + v.max()", 410),
        ("for i in range(4):\n    r += i * i", 14),
        ("qd.loop_config(serialize=True)\nfor i in range(3):\n    x[i] = x[i + 1] + i\nr = x[1]", 1),
        ("v = qd.Vector([1, 2, 3, 4], qd.i32)\nw = v.zxx\nr = w[0] * 100 + w[1] * 10 + w[2]", 311),
        ("v = qd.Vector([1, 2, 3], qd.i32)\nv.zx = v.xy\nr = v.x * 100 + v.y * 10 + v.z", 221),
        ("v = qd.Vector([1, 2, 3], qd.i8)\nv.yx += qd.Vector([200, 1], qd.i32)\nr = v[0] * 1000 + v[1]", 2000 - 54),
        ("v = qd.Vector([1, 2, 3, 4], qd.i32)\nw = v[1:3]\nr = w[0] * 10 + w[1]", 23),
        ("m = qd.Matrix([[1, 2, 3], [4, 5, 6]], qd.i32)\nr = m[1, :].sum() * 100 + m[:, 2].sum()", 1509),
        ("for i in range(2):\n    ticket1 = qd.atomic_add(x[2], 1)\n    x[ticket1] = 7\nr = x[0] + x[1]", 14),
    ],
)
def test_values(body, expected):
    assert result(body)[2] == expected


def test_floats_round_to_their_type():
    _, y, _, state = result("y[0] = y[0] + 0.1\ny[1] = qd.cast(x[3], qd.f32)")
    assert y == [float(np.float32(0.5) + np.float32(0.1)), 2.0**31]
    assert state.inexact
    assert not result("y[0] += y[1] * 0.5")[3].inexact


@pytest.mark.parametrize(
    "body, why",
    [
        ("for i in range(3):\n    x[i] = x[i + 1]", "race"),
        ("for i in range(3):\n    x[0] = i", "race"),
        ("for i in range(3):\n    x[0] += i\n    x[i + 1] = x[0]", "race"),
        ("for i in range(3):\n    x[i] = qd.atomic_add(x[3], 1)", "race"),
        ("for i in range(3):\n    ticket1 = qd.atomic_add(x[2], 1)\n    x[ticket1] = 7", "race"),
        ("for i in range(3):\n    r = i", "race"),
        ("for i in range(3):\n    x[0] += i\n    qd.atomic_max(x[0], i)", "race"),
        ("for i in range(3):\n    y[0] += 0.1", "order"),
        ("r = x[4]", "index"),
        ("r = x[0] % x[2]", "division"),
        ("r = qd.cast(y[0] * 1e30, qd.i32)", "as i32"),
        ("while x[0] > 0:\n    x[0] = 1", "steps"),
        ("a = 1\nx[a] += qd.atomic_add(a, 1)", "a part of it changes"),
        ("a = 1\nx[qd.atomic_add(a, 1)] *= a", "a part of it changes"),
    ],
)
def test_ambiguous_results_are_reported(body, why):
    from scalars import UnspecifiedError

    with pytest.raises(UnspecifiedError, match=why):
        result(body)


def test_iterations_may_share_sums_and_equal_stores():
    x, _, r, _ = result("for i in range(4):\n    x[0] += i\n    x[1] = 3\n    r += x[2 + i % 2] & 1")
    assert (x[:2], r) == ([11, 3], 2)


# The package, but not the interpreter, runs these functions, which corrupt the kernel of the module.
SPOILED = """

def spoil(kernel):
    def spoiled(x, y, n):
        found = kernel(x, y, n)
        {}
        return found

    return spoiled


k = spoil(k)
"""


@pytest.mark.parametrize(
    "harm, kind",
    [
        ("pass", "ok"),
        ("x[2] += 1", "wrong result"),
        ("found += 1", "wrong result"),
        ("import os; os.abort()", "SIGABRT"),
        ("import ctypes; ctypes.memset(x.ctypes.data + x.nbytes, 0, 1)", "SIGSEGV"),
        ("import ctypes; ctypes.memset(x.ctypes.data - 1, 0, 1)", "written beside an array"),
        ("import time; time.sleep(99)", "hang"),
        ("raise ValueError('no')", "ValueError"),
    ],
)
def test_failures_are_noticed(harm, kind):
    from run import Checker

    checker = Checker(3.0)
    spoiled = program("for i in range(4):\n    x[i] += 1", behind=SPOILED.format(harm))
    assert checker.kind(spoiled, {}) == kind
    # The next program runs in a new process if necessary.
    assert checker.kind(program("r = 1"), {"opt_level": 1}) == "ok"
    checker.end()


def test_failing_programs_become_small_and_run_by_themselves(tmp_path):
    from execute import Expected
    from reproducer import read, text_of
    from run import Checker
    from shrink import shrink

    body = "a = x[0] * 3\nif a > 2:\n    x[1] = a + n\nfor i in range(4):\n    x[i] -= 2\n    y[0] += 1.0\nx[2] = 5"
    large = program(body, behind=SPOILED.format("x[2] += 1"))
    checker = Checker(20.0)
    small = shrink(large, lambda p: "x[2] += 1" in p.source and checker.kind(p, {}) == "wrong result", 60)
    checker.end()
    assert "for" not in small.source
    assert len(small.source.splitlines()) < len(large.source.splitlines()) - 5
    path = tmp_path / "small.py"
    path.write_text(text_of(small, {"opt_level": 1}, Expected(small).of({})[0], "wrong result", "more"))
    assert read(path.read_text()) == (small, {"opt_level": 1})
    ran = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True)
    assert re.match(r"m0 2 is (\d+) and should be (\d+)\n", ran.stdout), ran.stdout


@pytest.mark.parametrize("at_end", [False, True])
def test_guarded_memory(at_end):
    from guarded_memory import GuardedMemory

    memory = GuardedMemory(np.dtype(np.int16), [1, 2, 3], at_end)
    memory.array[:] = 7
    assert memory.check() is None
    other_side = memory.array.ctypes.data + (-1 if at_end else memory.array.nbytes)
    ctypes.memset(other_side, 0, 1)
    assert memory.check() == f"1 bytes {'before' if at_end else 'behind'} the array were written"
    memory.release()


def test_programs_are_the_same_for_a_seed():
    from generator import generate

    assert generate(12).to_json() == generate(12).to_json() != generate(15).to_json()


# A compare that LLVM 22's AVX-512 code both inserts into and extracts from lost a write of its mask, and an index its
# sign.
REMAINDERS = """import octants as qd

A = qd.types.ndarray(dtype=qd.i32, ndim=2)


@qd.kernel
def k(n0: qd.i32, n1: qd.i32, x1: A, x3: A) -> qd.i32:
    z0 = 0
    for i6 in range(33):
        z0 |= i6 % -7
    qd.loop_config(serialize=True)
    for i9 in range(33):
        for c in range(1, 7):
            x[(n1 - c) % 33] = n0 - (n1 ^ i9) + min(
                255 & x1[1, c % 5] + c, (x3[n0 % 4, 1] & x[8]) - (x3[c % 4, 0] & n1)
            )
    return z0
"""


def test_remainder_indices_stay_in_bounds():
    from configurations import host_processors
    from programs import Argument, Field, Memory, Program, interpret
    from run import Checker

    numbers = [Argument("n0", "i32", 0), Argument("n1", "i32", 100)]
    arrays = [Argument(name, "i32", None, m, 0, [4, 5], [5, 1]) for m, name in enumerate(["x1", "x3"])]
    memories = [Memory("i32", list(range(20))), Memory("i32", list(range(20)))]
    # Only the first 33 of `x` may be written.
    program = Program(1, REMAINDERS, memories, numbers + arrays, [Field("x", "u8", [128], [0] * 128)])
    outcome = interpret(program, "i32", "f32")[0]
    assert [i for i, v in enumerate(outcome.fields[0]) if v] == [0, 28, 29, 30, 31, 32]
    checker = Checker(60.0)
    for processor in ["", *host_processors()]:
        for level in (0, 1, 2, 3):
            assert checker.kind(program, {"cpu_target": processor, "opt_level": level}) == "ok", (processor, level)
    checker.end()
