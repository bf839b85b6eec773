"""The common part of all examples: arguments, choice of the package, the frame loop, pictures, and the numpy check.

An example builds an `Example` before it defines kernels, because `--module` decides which package decorates them, and
ends with `Example.run`, which gets the example's own functions. It assumes nothing about the physics or the picture.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Tolerance:
    """How far a result may be from the reference: `allowed` is the share of elements off by more than `atol`.

    A share above zero is for results that jump (iteration counts, edges in a picture): there a rounding difference in
    the last bit may flip a few elements.
    """

    atol: float
    allowed: float = 0.0

    def excess(self, got: np.ndarray, want: np.ndarray) -> str | None:
        """Why `got` is not acceptable, or `None` when it is."""
        if got.shape != want.shape:
            return f"shape {got.shape}, expected {want.shape}"
        if not np.all(np.isfinite(got)):
            return f"{int(np.sum(~np.isfinite(got)))} elements are not finite"
        error = np.abs(got.astype(np.float64) - want.astype(np.float64))
        share = float(np.mean(error > self.atol))
        if share <= self.allowed:
            return None
        return f"{share:.2%} of the elements off by more than {self.atol:g} (largest error {error.max():.3g})"

    def spoil(self, values: np.ndarray) -> np.ndarray:
        """A copy of `values` with every tenth element, and at least one, clearly wrong."""
        spoiled = values.astype(np.float64)
        spoiled.reshape(-1)[::10] += 10.0 * self.atol + (1.0 if self.atol == 0.0 else 0.0)
        return spoiled


@dataclass(frozen=True)
class Timing:
    """The measurements of the frame loop."""

    first_call: float
    """Seconds of the first frame, compilation included."""
    seconds: float
    """Seconds of all frames but the first."""
    frames: int
    """Number of frames in `seconds`."""

    @property
    def per_frame(self) -> float:
        """Seconds of one frame once everything is compiled."""
        return self.seconds / max(1, self.frames)

    @property
    def compile(self) -> float:
        """Seconds that the first frame took beyond an ordinary one."""
        return max(0.0, self.first_call - self.per_frame)


def progress(total: int, label: str) -> Iterator[int]:
    """Counts from 0 to `total`, showing a bar on standard error: live on a terminal, ten lines elsewhere."""
    live = sys.stderr.isatty()
    started = time.perf_counter()
    shown = -1
    for done in range(total + 1):
        tenth = done * (40 if live else 10) // max(1, total)
        if tenth != shown or (live and done == total):
            shown = tenth
            spent = time.perf_counter() - started
            rest = spent / done * (total - done) if done else 0.0
            width = 40 if live else 10
            bar = "#" * tenth + "." * (width - tenth)
            line = f"{label} [{bar}] {done}/{total}  {spent:.1f} s, {rest:.1f} s to go"
            print(line, end="\r" if live and done < total else "\n", file=sys.stderr, flush=True)
        if done < total:
            yield done


def dots(positions: np.ndarray, colors: np.ndarray, size: int, background: int = 0x112F41) -> np.ndarray:
    """A picture of points: `positions` in the unit square (y upwards), `colors` an (n, 3) array or one color."""
    image = np.empty((size, size, 3), np.uint8)
    image[:] = [background >> 16, background >> 8 & 0xFF, background & 0xFF]
    column = np.clip((positions[:, 0] * size).astype(int), 0, size - 1)
    row = np.clip(((1.0 - positions[:, 1]) * size).astype(int), 0, size - 1)
    image[row, column] = colors
    return image


def heat_map(values: np.ndarray) -> np.ndarray:
    """Values from 0 to 1 as colors from black through red and yellow to white."""
    level = np.clip(values, 0.0, 1.0)[..., None] * 3.0 - np.array([0.0, 1.0, 2.0])
    return (np.clip(level, 0.0, 1.0) * 255.0).astype(np.uint8)


def curve(values: list[float], size: int = 480) -> np.ndarray:
    """A picture of positive values over their number, on a logarithmic scale, with a line at each power of ten."""
    image = np.full((size * 2 // 3, size, 3), 20, np.uint8)
    height, margin = image.shape[0], 12
    level = np.log10(np.maximum(np.array(values), 1e-30))
    low, high = np.floor(level.min()), np.ceil(level.max() + 1e-9)

    def row(value: np.ndarray) -> np.ndarray:
        return (margin + (high - value) / (high - low) * (height - 1 - 2 * margin)).astype(int)

    for power in np.arange(low, high + 1):
        image[row(power), :] = 60
    at = np.linspace(0, len(level) - 1, size - 2 * margin)
    rows = row(np.interp(at, np.arange(len(level)), level))
    for column, (a, b) in enumerate(zip(rows, np.append(rows[1:], rows[-1]), strict=True), margin):
        image[min(a, b) : max(a, b) + 2, column] = [255, 190, 60]
    return image


def write_pictures(path: Path, pictures: list[np.ndarray]) -> None:
    """Writes an animation (`.gif`) or the last picture (any other suffix that Pillow knows)."""
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gif":
        frames = [Image.fromarray(p).quantize(128, dither=Image.Dither.NONE) for p in pictures]
        frames[0].save(path, save_all=True, append_images=frames[1:], duration=33, loop=0)
    else:
        Image.fromarray(pictures[-1]).save(path)


class Example:
    """The arguments of one run, and the package it runs on (`qd`), initialized."""

    def __init__(self, doc: str, *, frames: int, size: int, out: str, check_frames: int, check_size: int) -> None:
        """Parses the command line and initializes the package.

        `frames` and `size` are the defaults of a normal run, `check_frames` and `check_size` those of `--check`.
        """
        parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--arch", default="cpu", help="cpu, gpu, cuda, amdgpu, vulkan, metal (default: cpu)")
        parser.add_argument("--frames", "--steps", type=int, help=f"number of frames (default: {frames})")
        parser.add_argument("--size", type=int, help=f"problem size (default: {size})")
        parser.add_argument("--threads", type=int, help="most threads on the CPU (default: all)")
        parser.add_argument("--out", type=Path, default=Path(out), help=f"picture to write (default: {out})")
        parser.add_argument("--check", action="store_true", help="compare a small run against numpy; exit 1 when off")
        parser.add_argument("--spoil", action="store_true", help="with --check: falsify the result, so it must fail")
        parser.add_argument("--measure", type=Path, metavar="NPZ", help="save results and timing there, no pictures")
        parser.add_argument("--module", default="octants", help="package to run on: octants or quadrants")
        self.args = parser.parse_args()
        small = self.args.check
        self.frames: int = self.args.frames or (check_frames if small else frames)
        self.size: int = self.args.size or (check_size if small else size)
        self.name = Path(sys.argv[0]).stem
        self.qd: Any = self._start(importlib.import_module(self.args.module))

    def _start(self, qd: ModuleType) -> ModuleType:
        arch = getattr(qd, self.args.arch, None)
        if arch is None:
            sys.exit(f"{self.name}: {self.args.module} has no arch {self.args.arch!r}")
        options = {} if self.args.threads is None else {"cpu_max_num_threads": self.args.threads}
        qd.init(arch=arch, **options)
        return qd

    def run(
        self,
        *,
        advance: Callable[[int], None],
        picture: Callable[[], np.ndarray],
        state: Callable[[], Arrays],
        reference: Callable[[int], Arrays],
        tolerance: dict[str, Tolerance],
        work: tuple[float, str],
        report: Callable[[Timing], None] | None = None,
        against: str = "numpy",
    ) -> None:
        """Runs the example according to the command line.

        `advance(frame)` computes one frame, `picture()` draws it, and `state()` returns the arrays to compare with
        `reference(frames)`, within `tolerance`. `against` names the method of the reference. `work` is the amount of
        work in a frame and its unit. `report` may print more at the end of a normal run.
        """
        if self.args.measure:
            timing = self._loop(advance, lambda: None, range(self.frames))
            saved: dict[str, Any] = {"first_call": timing.first_call, "per_frame": timing.per_frame}
            saved |= {f"atol:{name}": limit.atol for name, limit in tolerance.items()}
            saved |= {f"allowed:{name}": limit.allowed for name, limit in tolerance.items()}
            saved |= {f"result:{name}": values for name, values in state().items()}
            np.savez(self.args.measure, **saved)
            return
        if self.args.check:
            sys.exit(self._check(advance, state, (reference(self.frames), against), tolerance))
        pictures: list[np.ndarray] = []
        timing = self._loop(advance, lambda: pictures.append(picture()), progress(self.frames, self.name))
        write_pictures(self.args.out, pictures)
        amount, unit = work
        print(f"{unit + '/s:':<22}{amount / timing.per_frame:,.0f}" if timing.frames else "one frame: nothing to time")
        print(f"{'compile time:':<22}{timing.compile * 1e3:.1f} ms (first call {timing.first_call * 1e3:.1f} ms)")
        if report is not None:
            report(timing)
        print(f"{'written:':<22}{self.args.out} ({self.args.out.stat().st_size / 1e6:.1f} MB)")

    def _loop(self, advance: Callable[[int], None], after: Callable[[], None], frames: Any) -> Timing:
        first, rest, count = 0.0, 0.0, 0
        for frame in frames:
            started = time.perf_counter()
            advance(frame)
            self.qd.sync()
            spent = time.perf_counter() - started
            if frame == 0:
                first = spent
            else:
                rest, count = rest + spent, count + 1
            after()
        return Timing(first, rest, count)

    def _check(
        self,
        advance: Callable[[int], None],
        state: Callable[[], Arrays],
        reference: tuple[Arrays, str],
        tolerance: dict[str, Tolerance],
    ) -> int:
        for frame in range(self.frames):
            advance(frame)
        (want, against), got = reference, state()
        bad = 0
        for name, limit in tolerance.items():
            values = limit.spoil(got[name]) if self.args.spoil else got[name]
            problem = limit.excess(values, want[name])
            print(f"{self.name}: {name}: {problem or f'agrees with {against}'}")
            bad += problem is not None
            # A comparison that accepts anything would pass too: make sure that this one can fail.
            if problem is None and limit.excess(limit.spoil(got[name]), want[name]) is None:
                print(f"{self.name}: {name}: the check does not notice a falsified result")
                bad += 1
        return 1 if bad else 0


def launch_microseconds(qd: ModuleType, kernel: Callable[[], Any]) -> float:
    """Host time of one launch of a kernel that does next to nothing: median over bursts, in microseconds."""
    for _ in range(50):
        kernel()
    times = []
    for _ in range(15):
        qd.sync()
        started = time.perf_counter()
        for _ in range(200):
            kernel()
        times.append((time.perf_counter() - started) / 200)
    qd.sync()
    return float(np.median(times)) * 1e6
