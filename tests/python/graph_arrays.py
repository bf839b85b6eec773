"""Arrays, and schedules of streams, for tests of kernels with `graph=True`."""

import numpy as np

import octants as qd

A = qd.types.ndarray(dtype=qd.i32, ndim=1)
C = qd.types.ndarray(dtype=qd.i32, ndim=0)

SCHEDULES = ["in order", "streams", 1, 2, 3]
"""Without streams, with them, and with them in the orders that seeds give."""


def begin(schedule):
    """Begins a program with a schedule, in which a loop that does not end is an error."""
    options = {"in order": {}, "streams": {"cpu_streams": True}}
    seeded = {"cpu_streams": True, "cpu_stream_schedule": f"seed:{schedule}"}
    qd.init(arch=qd.cpu, graph_max_iterations=10000, **options.get(schedule, seeded))


def scalar(value):
    made = qd.ndarray(qd.i32, ())
    made.fill(value)
    return made


def scalars(*values):
    return [scalar(value) for value in values]


def array(values, dtype=np.int32):
    made = qd.ndarray(qd.i32 if dtype == np.int32 else qd.f64, len(values))
    made.from_numpy(np.asarray(values, dtype))
    return made


def zeros(n=100):
    return array(np.zeros(n))


def graph_of(kernel, *args):
    """The order of a kernel's tasks, as text."""
    text = qd.inspect(kernel, *args, emit="ir")
    return text[text.index("  graph {") :]
