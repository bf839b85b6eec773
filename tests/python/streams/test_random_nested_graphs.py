"""Random kernels of nested loops, branches, sections and checkpoints match sequential Python, on any schedule, captured
or not."""

import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import octants as qd

sys.path.insert(0, str(Path(__file__).parents[2] / "fuzz"))
from graph_programs import ARRAYS, SIZE, graph_program

PROGRAMS = int(os.environ.get("OCTANTS_TEST_SEEDS", "50"))
OPTIONS = [
    {},
    {"cpu_streams": True},
    *({"cpu_streams": True, "cpu_stream_schedule": f"seed:{seed}"} for seed in (3, 8)),
]


def kernel_of(program, path):
    path.write_text(program.kernel)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.run


def in_order(program, times):
    """The contents of the arrays after some launches, computed by plain Python."""
    names = {}
    exec(program.model, names)
    arrays = [np.arange(SIZE, dtype=np.int32) * (n + 1) for n in range(ARRAYS)]
    counters = [np.zeros((), np.int32) for _ in range(program.counters)]
    for _ in range(times):
        names["run"](*arrays, *counters)
    return arrays + counters


def on_device(program, kernel, captured):
    arrays = [qd.ndarray(qd.i32, SIZE) for _ in range(ARRAYS)]
    counters = [qd.ndarray(qd.i32, ()) for _ in range(program.counters)]
    for n, array in enumerate(arrays):
        array.from_numpy(np.arange(SIZE, dtype=np.int32) * (n + 1))
    if captured:
        with qd.graph.capture() as graph:
            kernel(*arrays, *counters)
        graph.launch()
        graph.launch()
    else:
        for _ in range(2):
            status = kernel(*arrays, *counters)
            while program.flags and status.yielded:
                for flag in program.flags:
                    counters[flag].fill(0)
                status = kernel.resume(*arrays, *counters, from_checkpoint=status.checkpoint)
    return [array.to_numpy() for array in arrays + counters]


@pytest.mark.parametrize("first", range(0, PROGRAMS, 10))
def test_nested_programs_match_python(tmp_path, first):
    for seed in range(first, min(first + 10, PROGRAMS)):
        program = graph_program(seed)
        expected = in_order(program, times=2)
        options = OPTIONS[seed % len(OPTIONS)]
        qd.init(arch=qd.cpu, graph_max_iterations=10, **options)
        kernel = kernel_of(program, tmp_path / f"program_{seed}.py")
        # The host has a part in launches that end at checkpoints.
        for captured in (False,) if program.flags else (False, True):
            found = on_device(program, kernel, captured)
            for number, (is_, wanted) in enumerate(zip(found, expected, strict=True)):
                assert (is_ == wanted).all(), (
                    f"program {seed}, array {number}, captured {captured}, {options}\n{program.kernel}"
                )
    qd.reset()
