"""`check_races="full"` finds data-dependent races, with the correct lines, and reports none for race-free programs."""

import importlib.util
import inspect
import warnings

import block_shared
import concurrent_groups
import data_dependent
import numpy as np
import pytest
import quantized_words
import shared_locals
import synchronized_threads

import octants as qd

PROGRAMS = [
    *data_dependent.PROGRAMS,
    *quantized_words.PROGRAMS,
    *block_shared.PROGRAMS,
    *shared_locals.PROGRAMS,
    *concurrent_groups.PROGRAMS,
    *synchronized_threads.PROGRAMS,
]
NAMES = [p.__name__ for p in PROGRAMS]


def lines_that_meet(program):
    """The lines of the program that end in `# meets`."""
    lines, first = inspect.getsourcelines(program)
    return {first + i for i, line in enumerate(lines) if line.rstrip().endswith("# meets")}


def races_of(program, races):
    """The races that a run of the program reports."""
    qd.init(arch=qd.cpu, check_races="full")
    try:
        program(races)
        qd.sync()
    except qd.RaceError as error:
        return error.races
    return ()


def test_there_are_many_programs():
    assert len(PROGRAMS) == len(set(NAMES)) >= 50
    assert all(lines_that_meet(p) for p in PROGRAMS)


@pytest.mark.parametrize("program", PROGRAMS, ids=NAMES)
def test_races_are_found(program):
    found = races_of(program, races=True)
    assert len(found) == 1
    (race,) = found
    assert {race.first.at.rpartition(":")[0], race.second.at.rpartition(":")[0]} == {inspect.getsourcefile(program)}
    meets = lines_that_meet(program)
    assert {race.first.line, race.second.line} <= meets
    assert {race.first.touch, race.second.touch} not in ({"read"}, {"update"})
    assert race.index is not None
    assert race.cure


@pytest.mark.parametrize("program", PROGRAMS, ids=NAMES)
def test_race_free_twins_report_nothing(program):
    assert races_of(program, races=False) == ()


def many_blocks(folder, blocks, branches):
    """A kernel of many blocks, each of which has many accesses to one array."""
    lines = ["import octants as qd", "A = qd.types.ndarray(qd.i32, ndim=1)", "", "@qd.kernel", "def move(x: A, at: A):"]
    for block in range(blocks):
        here = f"x[at[4 * {block} + i]]"
        lines += [
            "    with qd.stream_parallel():",
            "        for i in range(4):",
            f"            {here} = {here} + {block + 1}",
        ]
        for n in range(branches):
            lines += [f"            if {here} == {-n - 1}:", f"                {here} = {n}"]
    path = folder / f"blocks_{blocks}_{branches}.py"
    path.write_text("\n".join(lines) + "\n")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.move, lines


def finish(kernel, *args):
    """Launches a kernel, and waits for it, because a device reports races at a wait."""
    kernel(*args)
    qd.sync()


@pytest.mark.parametrize(("blocks", "branches"), [(2, 6), (9, 0), (9, 4), (13, 2)])
def test_blocks_with_any_number_of_accesses_are_compared(tmp_path, blocks, branches):
    qd.init(arch=qd.cpu, check_races="full")
    move, lines = many_blocks(tmp_path, blocks, branches)
    starts = [n + 1 for n, line in enumerate(lines) if "stream_parallel" in line]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(two|one) qd")
        at = np.arange(4 * blocks)
        x = data_dependent.array(np.zeros(4 * blocks))
        move(x, data_dependent.array(at))
        assert x.to_numpy().tolist() == [n // 4 + 1 for n in at]
        for first, second in ((0, blocks - 1), (0, 1), (blocks - 2, blocks - 1)):
            meeting = at.copy()
            meeting[4 * second + 2] = 4 * first + 1
            arrays = data_dependent.array(np.zeros(4 * blocks)), data_dependent.array(meeting)
            with pytest.raises(qd.RaceError) as raised:
                finish(move, *arrays)
            (race,) = raised.value.races
            assert race.index == (4 * first + 1,)
            assert {starts[first] + 2, starts[second] + 2} == {race.first.line, race.second.line}
