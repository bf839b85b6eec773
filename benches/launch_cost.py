"""Host time of a launch: in order, with inferred concurrency, and as part of a repeated sequence.

    python benches/launch_cost.py
    python benches/launch_cost.py --kernel "three arrays" --form inferred --bursts 400     for a profiler

On the CPU with streams. `in order` launches on the default stream. `inferred` launches under `qd.concurrent()` with
arguments that never repeat; launches either all depend on each other or, in `independent`, use different arrays in
turn. `replayed` repeats the same launches until they are deferred and launched as one graph; `replayed 4` does so with
four launches that are repeated within a burst, and `same` with a single one. Kernels have one or three array arguments,
or a field, of 16 elements. A burst of launches is measured, followed by a wait that is not. Forms
alternate in one process. Prints nanoseconds of the launching thread's processor time for a launch, medians of all
bursts, and the difference from `in order`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import octants as qd

A = qd.types.ndarray(dtype=qd.f32, ndim=1)
N = 16
FORMS = ["in order", "inferred", "independent", "replayed", "replayed 4", "same"]
REPEATED = {"replayed": 256, "replayed 4": 4, "same": 1}


@qd.kernel
def one_array(x: A, k: qd.i32):
    for i in x:
        x[i] += k


@qd.kernel
def three_arrays(x: A, y: A, z: A, k: qd.i32):
    for i in x:
        z[i] = x[i] + y[i] + k


class OfField:
    """A kernel that uses fields."""

    def __init__(self) -> None:
        self.fields = [qd.field(qd.f32, shape=N) for _ in range(8)]

        def with_field(x: Any) -> Callable[[int], None]:
            @qd.kernel
            def kernel(k: qd.i32):
                for i in x:
                    x[i] += k

            return kernel

        self.kernels = [with_field(x) for x in self.fields]


def launches(name: str) -> list[Callable[[int], None]]:
    """For each of eight places in memory, a launch with a number."""
    if name == "field":
        return OfField().kernels
    arrays = [[qd.ndarray(qd.f32, shape=N) for _ in range(3)] for _ in range(8)]

    def launch(given: list[Any]) -> Callable[[int], None]:
        if name == "one array":
            return lambda k: one_array(given[0], k)
        return lambda k: three_arrays(*given, k)

    return [launch(given) for given in arrays]


KERNELS = ["one array", "three arrays", "field"]


def burst(form: str, made: list[Callable[[int], None]], count: int, numbers: Iterator[int]) -> float:
    """Nanoseconds for a launch."""
    if form in REPEATED:
        given = [(made[0], n % REPEATED[form]) for n in range(count)]
    else:
        places = made if form == "independent" else made[:1]
        given = [(launch, next(numbers)) for launch, _ in zip(itertools.cycle(places), range(count))]
    begin = time.thread_time_ns()
    for launch, number in given:
        launch(number)
    taken = time.thread_time_ns() - begin
    qd.sync()
    return taken / count


def block(
    form: str, made: list[Callable[[int], None]], args: argparse.Namespace, numbers: Iterator[int]
) -> list[float]:
    """Some bursts of one form. The first ones are not counted: a sequence is recognised in them."""
    replays = qd.concurrency_report().replays
    if form == "in order":
        taken = [burst(form, made, args.launches, numbers) for _ in range(args.bursts)]
    else:
        with qd.concurrent():
            taken = [burst(form, made, args.launches, numbers) for _ in range(args.bursts)]
    replayed = qd.concurrency_report().replays - replays
    rounds = args.bursts * max(1, args.launches // REPEATED.get(form, 1))
    if replayed < 0.8 * rounds if form in REPEATED else replayed > 0:
        raise RuntimeError(f"{form}: {replayed} of {rounds} rounds were replayed")
    return taken[4:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--launches", type=int, default=64, help="launches of a burst, at most 255")
    parser.add_argument("--bursts", type=int, default=40, help="bursts of a form before the next one")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--kernel", action="append", choices=KERNELS, help="only this one; may be repeated")
    parser.add_argument("--form", action="append", choices=FORMS, help="only this one; may be repeated")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each kernel")
    args = parser.parse_args()
    qd.init(arch=qd.cpu, cpu_streams=True, log_level="error")
    forms = args.form or FORMS
    numbers = itertools.count(1000)
    for kernel in args.kernel or KERNELS:
        made = launches(kernel)
        taken: dict[str, list[float]] = {form: [] for form in forms}
        for _ in range(args.repeats):
            for form in forms:
                taken[form] += block(form, made, args, numbers)
        medians = {form: statistics.median(all_taken) for form, all_taken in taken.items()}
        if args.json:
            print(json.dumps({"kernel": kernel, **{form: round(ns, 1) for form, ns in medians.items()}}))
            continue
        more = {form: f" (+{ns - medians['in order']:.0f})" for form, ns in medians.items() if "in order" in medians}
        print(f"{kernel:14}", ", ".join(f"{form} {ns:.0f}{more.get(form, '')}" for form, ns in medians.items()))


if __name__ == "__main__":
    main()
