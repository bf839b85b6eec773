"""Times sparse fields on this package and on others of the same interface: filling, loops over active cells, emptying.

    python benches/sparse_levels.py --python octants=PYTHON --python quadrants=PYTHON

A grid of 4,096 x 4,096 elements has a disc of active cells, of one part in 500 or in 5; lists get 500 elements each.
"""

# mypy: ignore-errors
# Annotations of kernels are values.

import importlib
import statistics
import time
from collections.abc import Callable
from typing import Any

from package_rounds import compare

SIDE = 4096
RADII = {"few": 100.0, "many": 1000.0}
LISTS, ELEMENTS = 1000, 500


def levels(qd: Any) -> dict[str, tuple[Any, Any]]:
    """Fields of several kinds of levels, with the outermost one."""
    made = {}
    for name in ("dense blocks", "three levels", "single cells"):
        field = qd.field(qd.f32)
        if name == "dense blocks":
            top = qd.root.pointer(qd.ij, SIDE // 16)
            top.dense(qd.ij, 16).place(field)
        elif name == "three levels":
            top = qd.root.pointer(qd.ij, SIDE // 64)
            top.pointer(qd.ij, 4).pointer(qd.ij, 4).dense(qd.ij, 4).place(field)
        else:
            top = qd.root.pointer(qd.ij, SIDE // 16)
            top.bitmasked(qd.ij, 16).place(field)
        made[name] = (field, top)
    return made


def measure(package: str, repeat: int) -> dict[str, float]:
    """Milliseconds of each case."""
    qd = importlib.import_module(package)
    qd.init(arch=qd.cpu, log_level=qd.ERROR)
    numbers = qd.field(qd.i32)
    lists = qd.root.dense(qd.i, LISTS).dynamic(qd.j, 1024, 32)

    @qd.kernel
    def fill(x: qd.template(), radius: qd.f32):
        for i, j in qd.ndrange(SIDE, SIDE):
            if (i - SIDE / 2) ** 2 + (j - SIDE / 2) ** 2 < radius * radius:
                x[i, j] = 1.0

    @qd.kernel
    def update(x: qd.template()):
        for i, j in x:
            x[i, j] = x[i, j] * 0.5 + 1.0

    @qd.kernel
    def append():
        for i in range(LISTS):
            qd.deactivate(lists, i)
            for k in range(ELEMENTS):
                qd.append(lists, i, k)

    @qd.kernel
    def count_up():
        for i, j in numbers:
            numbers[i, j] += 1

    def median(work: Callable[[], Any], before: Callable[[], Any] = lambda: None) -> float:
        times = []
        for _ in range(repeat + 1):
            before()
            qd.sync()
            start = time.perf_counter()
            work()
            qd.sync()
            times.append(1e3 * (time.perf_counter() - start))
        return statistics.median(times[1:])

    found = {}
    grids = levels(qd)
    lists.place(numbers)
    for name, (field, top) in grids.items():
        for size, radius in RADII.items():
            top.deactivate_all()
            filling = lambda x=field, r=radius: fill(x, r)  # noqa: E731
            found[f"{name}, {size} active: fill"] = median(filling)
            found[f"{name}, {size} active: loop"] = median(lambda x=field: update(x))
            found[f"{name}, {size} active: deactivate all"] = median(top.deactivate_all, filling)
    found["lists: empty and append"] = median(append)
    found["lists: loop"] = median(count_up)
    return found


if __name__ == "__main__":
    compare(__doc__, __file__, measure)
