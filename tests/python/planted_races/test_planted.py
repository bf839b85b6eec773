"""Each planted race is found in its mode, with the correct lines, and nothing is found in its race-free twin."""

import warnings
from dataclasses import replace

import pytest
from planted_races import (
    graphs,
    host_views,
    iterations,
    local_variables,
    memory_decides,
    sections,
    streams,
)
from planted_races.planted import Planted, launch_lines_of, lines_of, run

pytestmark = pytest.mark.on_cpu

PROGRAMS = [
    *iterations.PROGRAMS,
    *local_variables.PROGRAMS,
    *sections.PROGRAMS,
    *streams.PROGRAMS,
    *graphs.PROGRAMS,
    *host_views.PROGRAMS,
    *memory_decides.PROGRAMS,
]


def named(programs: list[Planted]):
    return pytest.mark.parametrize("program", programs, ids=lambda p: p.name)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@named([p for p in PROGRAMS if p.mode == "static"])
def test_static_mode_finds_the_race(program, tmp_path):
    races, here, launches = run(program, True, tmp_path, "static")
    assert len(races) == 1, races
    assert lines_of(races[0]) == here, str(races[0])
    if launches:
        assert launch_lines_of(races[0]) == launches, str(races[0])
    assert races[0].cure


@named(streams.PROGRAMS)
def test_missing_waits_are_found_on_a_cpu_whose_streams_are_not_real(program, tmp_path):
    races, here, launches = run(replace(program, options={}), True, tmp_path, "static")
    assert [lines_of(race) for race in races] == [here], races
    assert not launches or launch_lines_of(races[0]) == launches
    assert run(replace(program, options={}), False, tmp_path, "static")[0] == []


@named(host_views.PROGRAMS + memory_decides.PROGRAMS)
@pytest.mark.parametrize("options", [{}, {"cpu_streams": True}, {"cpu_streams": True, "cpu_stream_schedule": "seed:5"}])
def test_full_mode_finds_the_race(program, options, tmp_path):
    races, here, launches = run(replace(program, options=options), True, tmp_path, "full")
    assert [lines_of(race) for race in races] == [here], races
    assert launch_lines_of(races[0]) == launches
    assert run(replace(program, options=options), False, tmp_path, "full")[0] == []


@named([p for p in PROGRAMS if p.mode == "full"])
def test_static_mode_ignores_data_dependent_races(program, tmp_path):
    assert run(program, True, tmp_path, "static")[0] == []


@named(PROGRAMS)
def test_race_free_twins_report_no_races(program, tmp_path):
    assert run(program, False, tmp_path, "static")[0] == []


def test_program_names_are_unique():
    names = [p.name for p in PROGRAMS]
    assert len(names) == len(set(names))
