"""Workarounds for bugs of LLVM and NVIDIA's assembler: unwritten masks, crashes, and miscompiled instructions."""

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import octants as qd

WITH_MASKS = ["x86-64-v4", "skylake-avx512", "znver4", "znver5"]
MACHINES = [
    "x86-64",
    "x86-64-v3",
    "x86-64-v4",
    "znver5",
    "aarch64",
    "neoverse-v2",
    "sm_70",
    "sm_90",
    "gfx90a",
    "gfx1100",
]
INTEGERS = [qd.u8, qd.i8, qd.u16, qd.i16, qd.u32, qd.i32, qd.u64, qd.i64]
FLOATS = [qd.f16, qd.f32, qd.f64]


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


def masks_of(instruction):
    """Mask registers that an instruction reads, and those that it writes."""
    name, _, operands = instruction.partition("\t")
    plain = re.sub(r"\([^)]*\)", "", operands)
    read = set(re.findall(r"\{%(k\d)\}", plain))
    registers = re.findall(r"(?<!\{)%(k\d)", plain)
    writes = bool(re.search(r"%k\d(\s*\{%k\d\})?\s*$", plain)) and not name.startswith(("ktest", "kortest"))
    written = {registers.pop()} if writes and registers else set()
    if name.startswith(("kxor", "kxnor")) and len(set(registers)) == 1:
        registers = []
    return read | set(registers), written


def unwritten_masks(assembly):
    """Instructions that read a mask register which is not written on every way to them, by function."""
    found = []
    for body in re.split(r"(?m)^(?=[\w.$]+:)(?!\.L)", assembly):
        lines = [line.split("#")[0].strip() for line in body.splitlines()]
        code = [line for line in lines if re.match(r"(\.L\w+:|[a-z])", line)]
        places = {line[:-1]: i for i, line in enumerate(code) if line.endswith(":")}
        known, work = {0: set()}, [0] if code else []
        while work:
            i = work.pop()
            read, written = masks_of(code[i]) if not code[i].endswith(":") else (set(), set())
            after = set() if code[i].startswith("call") else known[i] | written
            name, _, target = code[i].partition("\t")
            following = [places[target]] if name.startswith("j") and target in places else []
            following += [i + 1] if i + 1 < len(code) and name not in ("jmp", "retq", "ud2") else []
            for j in following:
                merged = known[j] & after if j in known else after
                if merged != known.get(j):
                    known[j] = merged
                    work.append(j)
        found += [code[i] for i in known if code and not code[i].endswith(":") and masks_of(code[i])[0] - known[i]]
    return found


def test_unwritten_masks_are_found():
    fault = "f:\n\tvmovmskps\t%xmm0, %eax\n\tkshiftrb\t$1, %k0, %k0\n\tretq\n"
    assert unwritten_masks(fault) == ["kshiftrb\t$1, %k0, %k0"]
    assert not unwritten_masks(fault.replace("vmovmskps\t%xmm0, %eax", "vpmovd2m\t%xmm0, %k0"))
    one_way = "f:\n\tje\t.LBB0_1\n\tvpmovd2m\t%xmm0, %k1\n.LBB0_1:\n\tvpaddd\t%xmm0, %xmm1, %xmm1 {%k1}\n\tretq\n"
    assert unwritten_masks(one_way) == ["vpaddd\t%xmm0, %xmm1, %xmm1 {%k1}"]


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_masks_are_written_before_they_are_read(level):
    # Remainders that become a vector and are indices: one lane of the mask of their signs is exchanged, another one
    # read.
    qd.init(arch=qd.cpu, opt_level=level)
    x = qd.field(qd.u8, shape=128)
    matrix = qd.types.ndarray(dtype=qd.i32, ndim=2)

    @qd.kernel
    def work(n0: qd.i32, n1: qd.i32, x1: matrix, x3: matrix) -> qd.i32:
        z0 = 0
        for i in range(33):
            z0 |= i % -7
        qd.loop_config(serialize=True)
        for i in range(33):
            for c in range(1, 7):
                least = min(255 & x1[1, c % 5] + c, (x3[n0 % 4, 1] & x[8]) - (x3[c % 4, 0] & n1))
                x[(n1 - c) % 33] = n0 - (n1 ^ i) + least
        return z0

    values = np.arange(20, dtype=np.int32).reshape(4, 5)
    for target in WITH_MASKS:
        assert not unwritten_masks(qd.inspect(work, 0, 100, values, values, target=target, emit="asm")), target
    work(0, 100, values, values.copy())
    assert np.flatnonzero(x.to_numpy()).tolist() == [0, 28, 29, 30, 31, 32]


@pytest.mark.parametrize("fast_math", [True, False])
def test_minima_and_maxima_of_several_types_in_one_loop(fast_math):
    qd.init(arch=qd.cpu, fast_math=fast_math)
    pairs = list(itertools.permutations([qd.f16, qd.f32, qd.f64, qd.i32], 2))
    values = qd.field(qd.f32, shape=100)
    largest = [qd.field(pair[0], shape=()) for pair in pairs]
    smallest = [qd.field(pair[1], shape=()) for pair in pairs]
    sums = qd.field(qd.f64, shape=2)

    @qd.kernel
    def work():
        for k in qd.static(range(len(pairs))):
            for i in values:
                qd.atomic_max(largest[k][None], qd.cast(values[i], pairs[k][0]))
                qd.atomic_min(smallest[k][None], qd.cast(values[i], pairs[k][1]))
        for j in range(2):
            low, high = qd.f64(1e9), values[0]
            for i in range(100):
                low = min(low, qd.f64(values[i]) + j)
                high = max(high, values[i])
            sums[j] = low + high

    for target in ["x86-64", "x86-64-v4", "aarch64", "sm_90", "gfx90a"]:
        assert qd.inspect(work, target=target, emit="object"), target
    values.from_numpy(np.arange(100, dtype=np.float32))
    work()
    assert [int(field[None]) for field in largest] == [99] * len(pairs)
    assert [int(field[None]) for field in smallest] == [0] * len(pairs)
    assert sums.to_numpy().tolist() == [99, 100]


def test_minima_and_maxima_ignore_nan_in_vectors():
    values, low, high = qd.field(qd.f32, shape=1000), qd.field(qd.f64, shape=()), qd.field(qd.f32, shape=())

    @qd.kernel
    def work():
        for i in values:
            qd.atomic_min(low[None], values[i])
            qd.atomic_max(high[None], values[i])

    for places in ([0], [999], [500, 501], range(1, 1000), [3, 200, 998]):
        numbers = np.arange(1000, 2000, dtype=np.float32)
        numbers[list(places)] = np.nan
        values.from_numpy(numbers)
        low[None], high[None] = 1e9, 0
        work()
        assert (low[None], high[None]) == (np.nanmin(numbers), np.nanmax(numbers))


CHAIN = """
import numpy as np
import octants as qd

qd.init(arch=qd.cpu, offline_cache=False)

@qd.kernel
def turn(x: qd.types.ndarray(dtype=qd.i32, ndim=1), n: qd.i32):
    for i in x:
        x[i] = n
        for _ in range(18):
            if x[i] % 4 == 1:
                x[i] = n - x[i]

x = np.zeros(40, np.int32)
turn(x, 6)
assert (x == 6).all()
turn(x, 9)
assert (x == 0).all()
"""


def test_chains_of_values_that_no_iteration_changes_compile(tmp_path):
    # The loop vectorizer tests whether each value is uniform, whose time doubled with each link of the chain.
    script = tmp_path / "chain.py"
    script.write_text(CHAIN)
    env = os.environ | {"PYTHONPATH": str(Path(qd.__file__).parents[1])}
    subprocess.run([sys.executable, str(script)], check=True, timeout=60, env=env)


@pytest.mark.parametrize("dtype", [qd.u8, qd.i16], ids=str)
def test_atomics_on_narrow_types_do_not_mask_pointers(dtype):
    """GVN takes a masked pointer for the pointer, and finds other elements in the word there than there are."""
    x, y = qd.field(dtype), qd.field(dtype)
    qd.root.dense(qd.i, 8).place(x, y)

    @qd.kernel
    def add():
        qd.loop_config(serialize=True)
        for i in range(5):
            y[i] += x[i]

    text = qd.inspect(add, target="sm_90", emit="asm")
    assert "atom.relaxed.gpu.global.cas.b32" in text
    assert not re.search(r"and\.b64\s+%rd\d+, %rd\d+, -4;", text)


def test_negations_on_nvidia_gpus_are_complement_plus_one():
    """NVIDIA's assembler takes a signed negation for one that does not overflow, and loses it in three-way maxima."""

    @qd.kernel
    def negate(a: qd.i16, b: qd.i32) -> qd.i32:
        return qd.max(-b, b // 2, b) + abs(a) - (-a) % 17

    text = qd.inspect(negate, -32768, 8, target="sm_90", emit="asm")
    assert not re.search(r"\b(neg\.s\d+|abs\.s16)\b", text)
    assert not re.search(r"\bsub\.[us](16|32)\s+%rs?\d+, 0,", text)
    assert text.count("lop3.b32") >= 3


def test_complements_on_nvidia_gpus_are_written_as_xor():
    """NVIDIA's assembler drops the complement of a number that a branch has compared with a constant."""

    @qd.kernel
    def masked(a: qd.i32, b: qd.i64) -> qd.i64:
        return (~a & 5) + (~b | 3)

    text = qd.inspect(masked, 1, 2, target="sm_90", emit="asm")
    assert not re.search(r"\bnot\.b\d+\b", text)
    assert "lop3.b32" in text
    assert re.search(r"sub\.u64\s+%rd\d+, -1,", text)


def test_packed_16_bit_additions_on_nvidia_gpus_are_scalarized():
    """NVIDIA's assembler adds 0 instead of a constant to a pair of 16-bit numbers if one of the two is used."""
    x, y, z = (qd.field(qd.i8, 32) for _ in range(3))
    out = qd.field(qd.u16, 32)

    @qd.kernel
    def pairs():
        qd.loop_config(serialize=True)
        for i in range(31):
            out[i] = (x[i] >> (y[i] & 7)) * x[i] + (qd.cast(i, qd.i8) + (z[i] + z[i]))

    text = qd.inspect(pairs, target="sm_90", emit="asm")
    assert "add.s16x2" not in text
    assert "%low0" in text or "add.s16" in text
