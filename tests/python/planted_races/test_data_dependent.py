"""`check_races="full"` finds data-dependent races, with the correct lines, and reports none for race-free programs."""

import inspect

import block_shared
import concurrent_groups
import data_dependent
import pytest
import shared_locals
import synchronized_threads

import octants as qd

PROGRAMS = [
    *data_dependent.PROGRAMS,
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
