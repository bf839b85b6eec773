"""The common part of the examples on several ranks: arguments, the timed loop, and the check against numpy.

python heat_3d.py --check
mpiexec -n 4 python heat_3d.py --check
torchrun --nproc-per-node 2 heat_3d.py --arch cuda --size 512 --steps 200
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import octants as qd


def start(title: str, size: int, steps: int) -> argparse.Namespace:
    """Reads the arguments, joins the ranks and opens the device."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--arch", default="cpu", help="cpu, cuda, amdgpu (default: cpu)")
    parser.add_argument("--backend", choices=["mpi", "nccl", "torch"], help="(default: by the launcher)")
    parser.add_argument("--size", type=int, default=size, help=f"extent of each axis (default: {size})")
    parser.add_argument("--steps", type=int, default=steps, help=f"(default: {steps})")
    parser.add_argument("--weak", action="store_true", help="SIZE is that of one rank's part of the first axis")
    parser.add_argument("--check", action="store_true", help="a small run, compared with numpy")
    args = parser.parse_args()
    if args.check:
        args.size, args.steps = 20, 6
    qd.distributed.init(args.backend)
    qd.init(arch=getattr(qd, args.arch))
    args.rows = args.size * (qd.distributed.size() if args.weak else 1)
    return args


def run(args: argparse.Namespace, step: Callable[[], None], updates: float, unit: str) -> None:
    """Runs the steps and prints how fast they were. `updates` is the number of them in a step, over all ranks."""
    warm = 0 if args.check else min(10, args.steps)
    for _ in range(warm):
        step()
    qd.sync()
    qd.distributed.barrier()
    began = time.perf_counter()
    for _ in range(args.steps):
        step()
    qd.sync()
    qd.distributed.barrier()
    seconds = time.perf_counter() - began
    if qd.distributed.rank() == 0 and not args.check:
        ranks = qd.distributed.size()
        speed, each = args.steps * updates / seconds / 1e9, 1e3 * seconds / args.steps
        print(f"{ranks} ranks: {speed:.3f} G {unit}/s, {each:.3f} ms per step")


def check(args: argparse.Namespace, found: np.ndarray, expected: Callable[[], np.ndarray], tolerance: float) -> None:
    """Compares a whole array with the result of numpy."""
    if not args.check or qd.distributed.rank() != 0:
        return
    error = float(np.abs(found - expected()).max())
    if not error <= tolerance:
        raise SystemExit(f"differs from numpy by {error:g}, more than {tolerance:g}")
    print(f"agrees with numpy: {qd.distributed.size()} ranks, largest difference {error:.2g}")
