"""Runs the examples of Taichi, and of DiffTaichi, on this package and on Quadrants, and compares what they draw.

    python tools/run_taichi_examples.py CHECKOUT/python/taichi/examples --python octants=PYTHON --python
    quadrants=PYTHON

Each example runs in a separate process, in which `import taichi` finds the package and windows are emulated: drawings
are recorded, and the program ends after some frames. Programs of DiffTaichi (`difftaichi_programs.py`) are shortened;
kept are their losses too, and a frame is a tape. All run on the CPU. Printed is a table in Markdown.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import seed
from typing import Any

import difftaichi_programs
import numpy as np

MOST_KEPT = 40
TOLERANCE = 0.02


class Drawn:
    """The drawings of a program in its windows: arrays, in order, and frames."""

    def __init__(self, frames: int, path: Path) -> None:
        self.frames, self.path, self.count = frames, path, 0
        self.windows_are_frames = True
        self.arrays: list[np.ndarray[Any, Any]] = []
        self.losses: list[np.ndarray[Any, Any]] = []

    def take(self, values: Any) -> None:
        """Keeps an array, a field or an ndarray."""
        if hasattr(values, "to_numpy"):
            values = values.to_numpy()
        if isinstance(values, np.ndarray) and values.dtype.kind in "fiub" and values.size:
            self.arrays = [*self.arrays[-MOST_KEPT:], np.array(values, np.float64)]

    def keep(self, loss: Any) -> None:
        """Records a loss, independent of later drawings."""
        self.losses.append(np.array(loss.to_numpy() if hasattr(loss, "to_numpy") else loss, np.float64))

    def frame(self) -> None:
        """Ends the program after its last frame."""
        self.count += 1
        if self.count >= self.frames:
            raise SystemExit(0)

    def save(self) -> None:
        """Writes the recorded data."""
        np.savez(self.path, *self.arrays, *self.losses)


class _Names(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return name.lower()


class Widget:
    """A window, a canvas, a scene, a camera or a control: every method draws, or does nothing."""

    drawn: Drawn

    def __init__(self, *args: Any, res: Any = (512, 512), **_: Any) -> None:
        self.res = (res, res) if isinstance(res, int) else tuple(res)
        self.running, self.event, self.value, self.fps_limit, self.frame = True, None, 0.0, 60, 0
        self.curr_position = self.curr_lookat = self.curr_up = np.zeros(3)
        self.min, self.max = 0.0, 1.0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def method(*args: Any, **kwargs: Any) -> Any:
            for value in (*args, *kwargs.values()):
                self.drawn.take(value)
            if name == "show" and self.drawn.windows_are_frames:
                self.drawn.frame()
            if name.startswith("slider_") or name in ("checkbox", "color_edit_3"):
                return args[1] if len(args) > 1 else kwargs.get("old_value", kwargs.get("old_color"))
            if name in ("get_event", "get_events", "is_pressed", "button", "get_key_event", "has_key_event"):
                return () if name == "get_events" else False
            if name in ("get_cursor_pos",):
                return (0.5, 0.5)
            if name == "get_window_shape":
                return self.res
            return Widget(res=self.res)

        return method

    def __enter__(self) -> Widget:
        return self

    def __exit__(self, *_: Any) -> None:
        pass


class Window(Widget, metaclass=_Names):
    """`ti.GUI` and `ti.ui.Window`, with the names of keys and events."""


class _Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `taichi` and `taichi.x` in the package."""

    def __init__(self, package: str, examples: Path) -> None:
        self._package, self._examples = package, examples

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname.split(".")[0] != "taichi":
            return None
        if fullname.startswith("taichi.examples"):
            if fullname != "taichi.examples":
                return None
            found = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
            found.submodule_search_locations = [str(self._examples)]
            return found
        return importlib.machinery.ModuleSpec(fullname, self)

    def create_module(self, spec: Any) -> Any:
        module = importlib.import_module(self._package + spec.name[len("taichi") :])
        self._spec = module.__spec__
        return module

    def exec_module(self, module: Any) -> None:
        module.__spec__ = self._spec


def folder_of_examples(example: Path) -> Path:
    """The folder `examples` of the checkout that an example is in, or its own."""
    return next((folder for folder in example.parents if folder.name == "examples"), example.parent)


def use_same_random_numbers(qd: Any) -> None:
    """Functions in the places of `qd.random` and `qd.randn` whose numbers do not depend on the package."""
    counter = qd.field(qd.u32, shape=())

    def random(dtype=float):  # type: ignore
        bits = qd.cast(qd.atomic_add(counter[None], 1), qd.u32) * qd.u32(2654435769) + qd.u32(374761393)
        bits = (bits ^ (bits >> 15)) * qd.u32(2246822519)
        bits = (bits ^ (bits >> 13)) * qd.u32(3266489917)
        bits = bits ^ (bits >> 16)
        if qd.static(dtype in (int, qd.i32)):
            return qd.cast(bits, qd.i32)
        else:
            return qd.cast(bits >> 8, float) / 16777216.0

    random.__annotations__["dtype"] = qd.template()
    draw = qd.func(random)

    def randn(dtype=float):  # type: ignore
        radius = qd.sqrt(-2.0 * qd.log(1.0 - draw()))
        return radius * qd.cos(6.2831853 * draw())

    randn.__annotations__["dtype"] = qd.template()
    qd.random, qd.randn = draw, qd.func(randn)


def run_one(package: str, example: Path, frames: int, result: Path) -> None:
    """Runs an example in this process."""
    qd = importlib.import_module(package)
    drawn = Widget.drawn = Drawn(frames, result)
    sys.meta_path.insert(0, _Alias(package, folder_of_examples(example)))
    original = qd.init

    def init(*_: Any, **options: Any) -> None:
        kept = {name: options[name] for name in ("default_fp", "default_ip", "debug", "fast_math") if name in options}
        # One thread draws random numbers in the same order everywhere.
        original(arch=qd.cpu, cpu_max_num_threads=1, **kept)
        use_same_random_numbers(qd)

    qd.init = init
    ui = type("ui", (), {"Window": Window, "Camera": Widget, "Scene": Widget, "make_camera": Widget})
    for key in (
        "SPACE",
        "ESCAPE",
        "PRESS",
        "RELEASE",
        "LMB",
        "MMB",
        "RMB",
        "UP",
        "DOWN",
        "LEFT",
        "RIGHT",
        "SHIFT",
        "CTRL",
    ):
        setattr(ui, key, key.lower())
    color = {"rgb_to_hex": lambda rgb: 0, "hex_to_rgb": lambda number: (0.0, 0.0, 0.0)}
    for name, value in {"GUI": Window, "ui": ui, **color}.items():
        setattr(qd, name, value)
    tools = importlib.import_module(f"{package}.tools")
    images: dict[str, Any] = {}

    def write(image: Any, path: str = "", *_: Any, **__: Any) -> None:
        drawn.take(image)
        images[str(path)] = image.to_numpy() if hasattr(image, "to_numpy") else image
        if path:
            Path(path).touch()

    tools.imwrite = tools.imshow = write  # type: ignore[attr-defined]
    tools.imread = lambda path, *_, **__: images.get(str(path), np.full((64, 64, 3), 100, np.uint8))  # type: ignore
    tools.imresize = lambda image, width, height=None: np.zeros((width, height or width, *np.shape(image)[2:]))  # type: ignore
    tools.VideoManager = Widget  # type: ignore[attr-defined]
    np.random.seed(1)
    seed(1)
    time.sleep = lambda _: None
    time.time_ns = lambda: drawn.count * 10**7  # type: ignore[assignment]
    with contextlib.suppress(ImportError):
        import matplotlib

        matplotlib.cm.get_cmap = matplotlib.colormaps.get_cmap  # type: ignore[attr-defined]
    with contextlib.suppress(AttributeError):
        importlib.import_module(f"{package}._lib").core.GGUI_AVAILABLE = True
    sys.argv = [str(example)]
    # In a copy of its folder, because it may write files, and read those next to it.
    folder = Path(tempfile.mkdtemp()) / "examples"
    shutil.copytree(example.parent, folder)
    if example.parent.name == "misc":
        shutil.copytree(example.parent.parent, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("misc"))
    program = folder / example.name
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    if example.name in difftaichi_programs.PROGRAMS:
        difftaichi_programs.shorten(program)
        difftaichi_programs.show_nothing(drawn.take)
        difftaichi_programs.keep_losses(qd, drawn.keep, drawn.frame, program.read_text())
        drawn.windows_are_frames = not any(word in program.read_text() for word in ("Tape", "clear_all_gradients"))
    try:
        runpy.run_path(str(program), run_name="__main__")
    finally:
        with contextlib.suppress(Exception):
            drawn.save()
        shutil.rmtree(folder.parent, ignore_errors=True)


def ran(package: str, python: str, example: Path, frames: int, seconds: int, result: Path) -> str:
    """Runs an example in a separate process. Returns "" or a description of the failure."""
    command = [python, __file__, "--run", package, str(example), "--frames", str(frames), "--result", str(result)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"not over after {seconds} s"
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    kinds = ("Error", "Exception")
    told = [line for line in lines if any(kind in line.split(":")[0] for kind in kinds)]
    return (told or lines or [f"exit status {done.returncode}"])[-1][:110]


def difference(first: Path, second: Path) -> str:
    """How two programs' drawings differ."""
    if not (first.exists() and second.exists()):
        return "nothing drawn"
    a, b = (list(np.load(path).values()) for path in (first, second))
    if not a and not b:
        return "nothing drawn"
    if len(a) != len(b) or any(x.shape != y.shape for x, y in zip(a, b, strict=False)):
        return f"{len(a)} and {len(b)} drawings"
    if _worst(a, b) < TOLERANCE:
        return "the same"
    return f"mean difference {_worst(a, b):.2f}"


def _worst(first: list[np.ndarray[Any, Any]], second: list[np.ndarray[Any, Any]]) -> float:
    """The largest mean difference of two drawings, as a part of their largest value."""
    scale = [max(float(np.nanmax(np.abs(x))), 1e-9) for x in first]
    return max(float(np.nanmean(np.abs(x - y))) / s for x, y, s in zip(first, second, scale, strict=True))


def main() -> None:
    """Runs all, or one in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples", nargs="*", type=Path, help="folders or files")
    parser.add_argument("--python", action="append", default=[], metavar="PACKAGE=PYTHON", help="what to run it with")
    parser.add_argument("--frames", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=100, help="for one example")
    parser.add_argument("--run", metavar="PACKAGE", help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run_one(options.run, options.examples[0].resolve(), options.frames, options.result)
        return
    pythons = dict(pair.split("=", 1) for pair in options.python)
    files = [f for e in options.examples for f in ([e] if e.is_file() else sorted(e.rglob("*.py"))) if f.name[0] != "_"]
    print(f"| example | {' | '.join(pythons)} | pictures |\n|---|{'---|' * len(pythons)}---|")
    with tempfile.TemporaryDirectory() as folder:
        for example in files:
            results = {package: Path(folder) / f"{package}.npz" for package in pythons}
            for path in results.values():
                path.unlink(missing_ok=True)
            told = [
                ran(p, python, example, options.frames, options.seconds, results[p]) for p, python in pythons.items()
            ]
            pictures = difference(*results.values()) if len(results) == 2 and not any(told) else ""
            print(f"| {example.name} | {' | '.join(each or 'runs' for each in told)} | {pictures} |", flush=True)


if __name__ == "__main__":
    main()
