"""Profiling: device time of kernels and their tasks, timelines of streams, compile time.

    qd.init(arch=qd.gpu, kernel_profiler=True)
    step(); step()
    qd.profiler.print_kernel_profiler_info()

Times are measured by events before and after each task, on its stream (or by the host's clock on a CPU without real
streams). They are read on request: these functions first wait for all work. Tasks are the parallel loops of a kernel,
and the serial code between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from octants import _logging, _octants
from octants._profiling import compile_reports
from octants._profiling.compile_reports import Compilation, CompileReport, CompileStep
from octants._profiling.timelines import Task, Timeline

__all__ = [
    "Compilation",
    "CompileReport",
    "CompileStep",
    "CuptiMetric",
    "KernelInfo",
    "Task",
    "Timeline",
    "clear_kernel_profiler_info",
    "clear_scoped_profiler_info",
    "collect_kernel_profiler_metrics",
    "compile_report",
    "get_kernel_profiler_total_time",
    "get_predefined_cupti_metrics",
    "print_kernel_profiler_info",
    "print_memory_profiler_info",
    "print_scoped_profiler_info",
    "query_kernel_profiler_info",
    "set_kernel_profiler_metrics",
    "set_kernel_profiler_toolkit",
    "timeline",
]

_Sums = tuple[int, float, float, float]

_cleared: dict[int, int] = {}
"""By program serial, the first span after the last clearing."""


@dataclass(frozen=True)
class KernelInfo:
    """Measurements of a kernel or one of its tasks. Times are in milliseconds; the time of a launch is the sum over its
    tasks.
    """

    name: str
    """`kernel` or `kernel:task`."""
    counter: int
    """Number of runs."""
    total: float
    min: float
    max: float

    @property
    def avg(self) -> float:
        """The mean; 0 if it never ran."""
        return self.total / self.counter if self.counter else 0.0


def timeline(streams: Mapping[str, Any] | None = None) -> Timeline:
    """A timeline of the launches in a `with` block. Needs no option of `qd.init`.

        with qd.profiler.timeline({"copy": a, "compute": b}) as t:
            run()
        t.save("run.json")  # opens in Perfetto
        t.save("run.svg")

    `streams` names streams; others are named by number.
    """
    return Timeline(streams)


def _is_on() -> bool:
    if _octants.config()["kernel_profiler"]:
        return True
    _logging.warn("kernels are not measured: call qd.init(kernel_profiler=True) at the start of the program")
    return False


def _info(name: str, sums: _Sums) -> KernelInfo:
    return KernelInfo(name, *sums)


def _kernels() -> list[tuple[KernelInfo, list[KernelInfo]]]:
    """Kernels with their tasks, in descending order of total time."""
    rows = [
        (_info(kernel, sums), [_info(f"{kernel}:{task}", s) for task, s in tasks])
        for kernel, sums, tasks in _octants.profiler_totals()
    ]
    return sorted(rows, key=lambda row: -row[0].total)


def print_kernel_profiler_info(mode: Literal["count", "trace"] = "count") -> None:
    """Prints the measurements since the start or the last clearing.

    `"count"`: a line for each kernel with its share, total, count, and minimum, mean and maximum time, and a line for
    each task of a kernel with several. `"trace"`: a line for each run of a task, ordered by start.
    """
    if mode not in ("count", "trace"):
        raise ValueError(f"mode must be 'count' or 'trace', not {mode!r}")
    if _is_on():
        (_print_sums if mode == "count" else _print_tasks)()


def _print_sums() -> None:
    kernels = _kernels()
    total = sum(kernel.total for kernel, _ in kernels)
    print(f"Kernels on {_octants.memory_info()['device']}: {total:.3f} ms in all")
    print(f"{'share':>7} {'total ms':>11} {'count':>8} {'min ms':>10} {'avg ms':>10} {'max ms':>10}  kernel")

    def show(info: KernelInfo, indent: str) -> None:
        share = 100.0 * info.total / total if total else 0.0
        times = f"{info.min:>10.4f} {info.avg:>10.4f} {info.max:>10.4f}"
        print(f"{share:>6.2f}% {info.total:>11.4f} {info.counter:>8} {times}  {indent}{info.name}")

    for kernel, tasks in kernels:
        show(kernel, "")
        if len(tasks) > 1:
            for task in tasks:
                show(task, "  ")


def _print_tasks() -> None:
    first = _cleared.get(_octants.program_serial(), 0)
    rows, lanes, dropped = _octants.profiler_spans(first, 2**63)
    zero = min((row[5] for row in rows), default=0.0)
    if dropped:
        print(f"{dropped} older tasks are not kept")
    print(f"{'begin ms':>12} {'took ms':>10}  {'stream':<10} task")
    for _, _, kernel, task, lane, begin, end, _ in rows:
        number = lanes[lane]
        stream = f"worker {-number}" if number < 0 else str(number)
        print(f"{begin - zero:>12.4f} {end - begin:>10.4f}  {stream:<10} {kernel}:{task}")


def query_kernel_profiler_info(name: str) -> KernelInfo:
    """Measurements of a kernel by name, or of one of its tasks (`kernel:task`). `counter` is 0 if there are none of
    that name.
    """
    nothing = KernelInfo(name, 0, 0.0, 0.0, 0.0)
    if not _is_on():
        return nothing
    known = {info.name: info for kernel, tasks in _kernels() for info in (kernel, *tasks)}
    if name not in known:
        _logging.warn(f"no kernel or task named {name!r} was measured; measured: {', '.join(known) or 'none'}")
    return known.get(name, nothing)


def get_kernel_profiler_total_time() -> float:
    """Total kernel time in seconds since the start or the last clearing. Concurrent kernels on several streams count
    separately.
    """
    return sum(kernel.total for kernel, _ in _kernels()) / 1e3 if _is_on() else 0.0


def clear_kernel_profiler_info() -> None:
    """Waits for all work and clears the measurements."""
    _cleared[_octants.program_serial()] = _octants.profiler_clear()


def compile_report() -> CompileReport:
    """The compile time of each kernel, by phase and step. Needs no option of `qd.init`.

    report = qd.profiler.compile_report() print(report) report.save("compile.svg")
    """
    return compile_reports.read()


def print_scoped_profiler_info() -> None:
    """Prints `compile_report()`."""
    print(compile_report())


def clear_scoped_profiler_info() -> None:
    """Clears the data of `compile_report`."""
    _octants.clear_compilations()


def print_memory_profiler_info() -> None:
    """Prints the device memory that fields and ndarrays hold, and the total."""
    info = _octants.memory_info()
    capacity = "" if info["capacity"] is None else f" of {info['capacity'] / 2**20:.1f} MiB"
    print(f"Memory of {info['device']}: {info['in_use'] / 2**20:.3f} MiB in use{capacity}")


def _no_counters() -> None:
    _logging.warn("the profiler only measures time: use the vendor's tools for hardware counters")


@dataclass(frozen=True)
class CuptiMetric:
    """A hardware counter, as described by programs for Quadrants. Octants reads no hardware counters."""

    name: str = ""
    header: str = "unnamed_header"
    val_format: str = "     {:8.0f} "
    scale: float = 1.0


def get_predefined_cupti_metrics(name: str = "") -> list[CuptiMetric]:  # noqa: ARG001
    """Always empty, with a warning: hardware counters are not supported."""
    _no_counters()
    return []


def set_kernel_profiler_toolkit(toolkit_name: str = "default") -> bool:
    """Whether the profiler supports a toolkit. The only one is `"default"`, which measures time."""
    if toolkit_name != "default":
        _no_counters()
    return toolkit_name == "default"


def set_kernel_profiler_metrics(metric_list: Sequence[CuptiMetric] = ()) -> None:
    """Hardware counters are not supported: logs a warning if any are requested."""
    if metric_list:
        _no_counters()


@contextmanager
def collect_kernel_profiler_metrics(metric_list: Sequence[CuptiMetric] = ()) -> Iterator[None]:
    """Like `set_kernel_profiler_metrics`, for a `with` block."""
    set_kernel_profiler_metrics(metric_list)
    yield
