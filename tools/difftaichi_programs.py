"""Adaptations that let the programs of DiffTaichi run for a short time: arguments, smaller constants, and replacements
for downloads, windows and waits. See `run_taichi_examples.py`.
"""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Take = Callable[[Any], None]


@dataclass(frozen=True)
class Shortened:
    """How one program is run: its arguments, and values of constants of its source."""

    arguments: tuple[str, ...] = ()
    constants: dict[str, str] = field(default_factory=dict)


PROGRAMS = {
    "billiards.py": Shortened(constants={"steps": "256"}),
    "diffmpm.py": Shortened(("--iters", "3"), {"steps": "64"}),
    "diffmpm3d.py": Shortened(("--iters", "3"), {"steps": "32"}),
    "diffmpm_benchmark.py": Shortened(constants={"steps": "64", "    iters": "20"}),
    "diffmpm_checkpointing.py": Shortened(("--iters", "3"), {"steps": "64"}),
    "diffmpm_simple.py": Shortened(constants={"steps": "64"}),
    "electric.py": Shortened(constants={"steps": "128"}),
    "gradient_explosion.py": Shortened(),
    "liquid.py": Shortened(constants={"steps": "32"}),
    "mass_spring.py": Shortened(("0", "train", "--iters", "3"), {"steps": "256"}),
    "mass_spring_interactive.py": Shortened(("0", "--iters", "3"), {"steps": "256"}),
    "mass_spring_simple.py": Shortened(constants={"steps": "512"}),
    "rigid_body.py": Shortened(("0", "train"), {"steps": "256"}),
    "rigid_body_discountinuity.py": Shortened(constants={"steps": "512"}),
    "rigid_body_toi.py": Shortened(),
    "rigid_body_toi_visualize.py": Shortened(("1", "50")),
    "smoke_taichi.py": Shortened(("--iters", "3"), {"steps": "20"}),
    "smoke_taichi_cpu.py": Shortened(("--iters", "3"), {"steps": "20"}),
    "smoke_taichi_gpu.py": Shortened(("--iters", "3"), {"steps": "20"}),
    "volume_renderer.py": Shortened(("--iters", "3"), {"n_views": "3"}),
    "water_renderer.py": Shortened(constants={"steps": "64"}),
    "wave.py": Shortened(("--iters", "3"), {"steps": "64"}),
}

# Its first argument is the time of impact's switch; the check of their number refuses the two that it then reads.
_MENDED = {"rigid_body_toi_visualize.py": ("len(sys.argv) != 2", "len(sys.argv) != 3")}


def shorten(program: Path) -> None:
    """Writes the shortened source in the place of the program, which is a copy, and sets its arguments."""
    shortened = PROGRAMS[program.name]
    text = program.read_text()
    for name, value in shortened.constants.items():
        text, count = re.subn(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
        if not count:
            raise ValueError(f"{program.name} has no constant {name.strip()}")
    program.write_text(text.replace(*_MENDED.get(program.name, ("", ""))) if program.name in _MENDED else text)
    sys.argv = [str(program), *shortened.arguments]


def show_nothing(take: Take) -> None:
    """Windows and files of matplotlib, OpenCV and imageio become drawings; downloads are replaced by generated data."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        pass
    else:
        plt.switch_backend("Agg")
        plt.show = lambda *_, **__: None
    try:
        import cv2
    except ImportError:
        pass
    else:
        cv2.imshow = lambda _, image: take(image)
        cv2.imwrite = lambda _, image, *__: take(image)
        cv2.waitKey = lambda *_: -1
    try:
        import imageio
    except ImportError:
        pass
    else:
        imageio.imwrite = lambda _, image, *__: take(image)
    import urllib.request

    urllib.request.urlretrieve = _write_ball  # type: ignore[assignment]
    sys.modules["adversarial"] = _network()


def _write_ball(_url: str, path: str, reporthook: Any = None) -> None:
    """A density of 128 cells along each axis, in the place of a scanned one."""
    x, y, z = np.meshgrid(*[np.linspace(-1, 1, 128)] * 3, indexing="ij")
    np.maximum(0.6 - x**2 - 2 * y**2 - z**2, 0).astype(np.float32).tofile(path)


def _network() -> types.ModuleType:
    """Something differentiable in the place of a trained network."""
    module = types.ModuleType("adversarial")
    module.predict = lambda image: float(np.sum(image))  # type: ignore[attr-defined]
    module.vgg_grad = lambda image: (image - 0.5).astype(np.float32)  # type: ignore[attr-defined]
    return module


class Losses:
    """Standard output: records the numbers in lines about a loss. On request, each of these lines ends a frame."""

    def __init__(self, take: Take, frame: Callable[[], None], ends_frames: bool) -> None:
        self._take, self._frame, self._ends_frames, self._out = take, frame, ends_frames, sys.stdout
        self._line = ""

    def write(self, text: str) -> int:
        """Writes on, and reads whole lines."""
        self._out.write(text)
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            told = re.search(r"loss\s*=?(.*)", line, flags=re.IGNORECASE)
            numbers = (
                [] if told is None else re.findall(r"-?\d+\.\d+(?:e[-+]?\d+)?", told.group(1).split("per iter")[0])
            )
            if numbers:
                self._take(np.array(numbers, np.float64))
                if self._ends_frames:
                    self._frame()
        return len(text)

    def flush(self) -> None:
        """Like that of the stream."""
        self._out.flush()


def keep_losses(qd: Any, take: Take, frame: Callable[[], None], source: str) -> None:
    """Records the loss of each tape, and each tape is a frame. Without tapes, each printed loss is a frame."""
    tape = qd.ad.Tape

    class Tape:
        """A tape that reports its loss at the end."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._loss = args[0] if args else kwargs["loss"]
            self._tape = tape(*args, **kwargs)

        def __enter__(self) -> Any:
            return self._tape.__enter__()

        def __exit__(self, *exception: Any) -> Any:
            result = self._tape.__exit__(*exception)
            if exception[0] is None:
                take(self._loss)
                frame()
            return result

    qd.ad.Tape = Tape
    # The name that it had in Taichi when the program was written.
    qd.clear_all_gradients = qd.ad.clear_all_gradients
    sys.stdout = Losses(take, frame, "ad.Tape" not in source)  # type: ignore[assignment]
