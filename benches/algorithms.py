"""Compares `qd.algorithms` with libraries: numpy, Numba and std::sort on a CPU, torch and CuPy on a GPU.

    python benches/algorithms.py                       # the CPU
    python benches/algorithms.py --arch cuda -n 64_000_000
    python benches/algorithms.py --only sort scan

All systems get the same input and take turns; each figure is a median. The last column is the rate of Octants over that
of the fastest other system of the line. A library that is not installed is left out, and so is std::sort without g++.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measuring import burst

import octants as qd

Systems = dict[str, Callable[[], object]]
TYPES = {"i32": np.int32, "f32": np.float32, "i64": np.int64, "f64": np.float64, "u32": np.uint32}
K = 100
BINS = 256

STD_SORT = """
#include <algorithm>
#include <cstdint>
#include <parallel/algorithm>
template <class T> static void sort(T *to, const T *from, long n) {
    std::copy(from, from + n, to);
    __gnu_parallel::sort(to, to + n);
}
extern "C" void sort_i32(int32_t *to, const int32_t *from, long n) { sort(to, from, n); }
extern "C" void sort_f32(float *to, const float *from, long n) { sort(to, from, n); }
extern "C" void sort_i64(int64_t *to, const int64_t *from, long n) { sort(to, from, n); }
extern "C" void sort_f64(double *to, const double *from, long n) { sort(to, from, n); }
extern "C" void sort_u32(uint32_t *to, const uint32_t *from, long n) { sort(to, from, n); }
"""


class Processor:
    """The libraries for comparison on the CPU."""

    def __init__(self) -> None:
        self.sorts = self._compiled()
        self.numba = self._numba_kernels()

    @staticmethod
    def _compiled() -> ctypes.CDLL | None:
        folder = Path(tempfile.mkdtemp())
        (folder / "sort.cpp").write_text(STD_SORT)
        command = ["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "sort.cpp", "-o", "sort.so"]
        try:
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        return ctypes.CDLL(str(folder / "sort.so"))

    @staticmethod
    def _numba_kernels() -> dict[str, Any]:
        try:
            import numba
        except ImportError:
            return {}

        @numba.njit(parallel=True, fastmath=True)
        def total(x):
            result = x.dtype.type(0)
            for i in numba.prange(len(x)):
                result += x[i]
            return result

        @numba.njit(parallel=True)
        def scan(x, out):
            chunks = numba.get_num_threads()
            sums = np.zeros(chunks + 1, x.dtype)
            for c in numba.prange(chunks):
                part = x.dtype.type(0)
                for i in range(len(x) * c // chunks, len(x) * (c + 1) // chunks):
                    part += x[i]
                sums[c + 1] = part
            for c in range(chunks):
                sums[c + 1] += sums[c]
            for c in numba.prange(chunks):
                part = sums[c]
                for i in range(len(x) * c // chunks, len(x) * (c + 1) // chunks):
                    part += x[i]
                    out[i] = part

        return {"sum": total, "scan": scan}

    def systems(self, case: str, name: str, a: np.ndarray) -> Systems:
        """The calls of other systems that do a case's work."""
        out = np.zeros_like(a)
        keep = a > np.median(a)
        systems: Systems = {}
        if case == "sum":
            systems["numpy"] = lambda: np.sum(a)
        elif case == "scan":
            systems["numpy"] = lambda: np.cumsum(a, dtype=a.dtype, out=out)
        elif case == "sort":
            systems["numpy"] = lambda: np.sort(a)
            if self.sorts is not None:
                function = getattr(self.sorts, f"sort_{name}")
                pointer, n = ctypes.c_void_p, ctypes.c_long(len(a))
                systems["std::sort"] = lambda: function(pointer(out.ctypes.data), pointer(a.ctypes.data), n)
        elif case == "sort pairs":
            systems["numpy"] = lambda: np.argsort(a, kind="stable")
        elif case == "select":
            systems["numpy"] = lambda: a[keep]
        elif case == "unique":
            runs = np.sort(a) // 8
            systems["numpy"] = lambda: runs[np.flatnonzero(np.diff(runs, prepend=runs[0] - 1))]
        elif case == "histogram":
            systems["numpy"] = lambda: np.histogram(a, BINS, (a.min(), a.max()))
        elif case == "top k":
            systems["numpy"] = lambda: -np.sort(-a[np.argpartition(a, len(a) - K)[-K:]])
        if case in self.numba:
            kernel = self.numba[case]
            systems["numba"] = (lambda: kernel(a)) if case == "sum" else (lambda: kernel(a, out))
        return systems


class Gpu:
    """The libraries for comparison on an NVIDIA GPU."""

    def systems(self, case: str, name: str, a: np.ndarray) -> Systems:
        """The calls of other systems that do a case's work."""
        return self._of_torch(case, a) | self._of_cupy(case, a)

    @staticmethod
    def _of_torch(case: str, a: np.ndarray) -> Systems:
        try:
            import torch
        except ImportError:
            return {}
        if a.dtype == np.uint32:
            return {}
        x = torch.from_numpy(a).cuda()
        keep, runs = x > x.median(), (torch.sort(x).values // 8)
        out = torch.empty_like(x)
        low, high = float(x.min()), float(x.max())
        calls: Systems = {
            "sum": lambda: torch.sum(x, dtype=x.dtype),
            "scan": lambda: torch.cumsum(x, 0, dtype=x.dtype, out=out),
            "sort": lambda: torch.sort(x),
            "sort pairs": lambda: torch.sort(x, stable=True),
            "select": lambda: torch.masked_select(x, keep),
            "unique": lambda: torch.unique_consecutive(runs),
            "histogram": lambda: torch.histc(x, BINS, low, high),
            "top k": lambda: torch.topk(x, K),
        }
        return {"torch": calls[case]}

    @staticmethod
    def _of_cupy(case: str, a: np.ndarray) -> Systems:
        try:
            import cupy
        except ImportError:
            return {}
        x = cupy.asarray(a)
        keep, out = x > cupy.median(x), cupy.empty_like(x)
        calls: Systems = {
            "sum": lambda: cupy.sum(x, dtype=x.dtype),
            "scan": lambda: cupy.cumsum(x, dtype=x.dtype, out=out),
            "sort": lambda: cupy.sort(x),
            "sort pairs": lambda: cupy.argsort(x),
            "select": lambda: x[keep],
            "top k": lambda: cupy.partition(x, len(a) - K),
        }
        return {"cupy": calls[case]} if case in calls else {}


def array(values: np.ndarray, name: str) -> Any:
    """An ndarray with these values."""
    made = qd.ndarray(getattr(qd, name), len(values))
    made.from_numpy(values)
    return made


def of_octants(case: str, name: str, a: np.ndarray) -> Callable[[], object]:
    """The call that does a case's work here."""
    n, launch = len(a), qd.algorithms.launch
    dtype = getattr(qd, name)
    x, out, one = array(a, name), qd.ndarray(dtype, n), qd.ndarray(dtype, 1)
    count = qd.ndarray(qd.i32, 1)
    if case == "sum":
        return lambda: launch.reduce(x, one)
    if case == "scan":
        return lambda: launch.inclusive_scan(x, out)
    if case == "sort":
        return lambda: (out.copy_from(x), launch.sort(out))
    if case == "sort pairs":
        values = qd.ndarray(qd.u32, n)
        return lambda: (out.copy_from(x), launch.sort(out, values))
    if case == "select":
        keep = array((a > np.median(a)).astype(np.int32), "i32")
        return lambda: launch.select(x, keep, out, count)
    if case == "unique":
        x = array(np.sort(a) // 8, name)
        return lambda: launch.unique(x, out, count)
    if case == "histogram":
        counts = qd.ndarray(qd.i32, BINS)
        low, high = float(a.min()), float(a.max())
        return lambda: launch.histogram(x, counts, low, high)
    few = qd.ndarray(dtype, K)
    return lambda: launch.top_k(x, few)


CASES = ("sum", "scan", "sort", "sort pairs", "select", "unique", "histogram", "top k")


def seconds_in_turns(systems: Systems, wait: Callable[[], object], rounds: int) -> dict[str, float]:
    """The median time of a call of each system; they take turns, a burst of about 50 ms each."""
    counts = {}
    for name, call in systems.items():
        call()
        wait()
        counts[name] = max(1, int(0.05 / max(burst(call, wait, 1), 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(rounds):
        for name, call in systems.items():
            times[name].append(burst(call, wait, counts[name]) / counts[name])
    return {name: statistics.median(taken) for name, taken in times.items()}


def waiter(arch: str) -> Callable[[], object]:
    """A function that waits for all work, including that of other libraries."""
    if arch == "cpu":
        return qd.sync
    try:
        import torch
    except ImportError:
        return qd.sync

    def wait() -> None:
        qd.sync()
        torch.cuda.synchronize()

    return wait


def main() -> None:
    """Prints a line for each case and type."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="cpu")
    parser.add_argument("-n", type=int, default=0, help="elements; 4 million on the CPU, else 64 million")
    parser.add_argument("--types", nargs="*", default=["i32", "f32"], choices=TYPES)
    parser.add_argument("--only", nargs="*", default=CASES, choices=CASES)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    qd.init(arch=getattr(qd, options.arch), log_level=qd.ERROR, enable_fallback=False)
    n = options.n or (1 << 22 if options.arch == "cpu" else 1 << 26)
    others = Processor() if options.arch == "cpu" else Gpu()
    print(f"{n} elements; G elements/s")
    for case in options.only:
        for name in options.types:
            numbers = np.random.default_rng(42).integers(0, 1 << 30, n)
            a = numbers.astype(TYPES[name])
            systems = {"octants": of_octants(case, name, a)} | others.systems(case, name, a)
            taken = seconds_in_turns(systems, waiter(options.arch), options.rounds)
            rates = {system: n / seconds / 1e9 for system, seconds in taken.items()}
            best = max((rate for system, rate in rates.items() if system != "octants"), default=float("nan"))
            figures = "  ".join(f"{system} {rate:8.3f}" for system, rate in rates.items())
            print(f"{case:11} {name}  {figures}  ratio {rates['octants'] / best:6.2f}", flush=True)


if __name__ == "__main__":
    main()
