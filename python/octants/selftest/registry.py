"""The common part of the self-test's checks: registration, comparison of results, skipping."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import octants as qd

Run = Callable[[], str | None]


class LeftOut(Exception):
    """A check that is skipped here; the text gives the reason."""


@dataclass(frozen=True)
class Check:
    """One requirement on a device."""

    group: str
    """The name of the module."""
    name: str
    run: Run
    options: dict[str, Any] = field(default_factory=dict)
    """Options of `qd.init` besides the arch."""


CHECKS: list[Check] = []
"""All checks, in execution order."""


def check(**options: Any) -> Callable[[Run], Run]:
    """Registers a function as a check, which runs in a separate program with these options. It raises `AssertionError`
    if the device is faulty, and may return a remark for the table.
    """

    def add(run: Run) -> Run:
        group = run.__module__.rsplit(".", 1)[-1]
        CHECKS.append(Check(group, run.__name__.replace("_", " "), run, options))
        return run

    return add


def equal(got: Any, want: Any, what: str = "") -> None:
    """Fails unless all elements are equal."""
    got, want = np.asarray(got), np.asarray(want)
    wrong = np.argwhere(got != want)
    if len(wrong):
        at = tuple(int(i) for i in wrong[0])
        shown = f"{what}[{', '.join(map(str, at))}]" if at else what
        raise AssertionError(f"{len(wrong)} of {got.size} wrong, first {shown}: {got[at]} instead of {want[at]}")


def close(got: Any, want: npt.ArrayLike, relative: float, absolute: float = 0.0, what: str = "") -> float:
    """Fails unless all elements are within a tolerance; returns the largest error relative to the tolerance."""
    got, want = np.asarray(got, dtype=np.float64), np.asarray(want, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        error = np.abs(got - want) / (absolute + relative * np.abs(want))
    error = np.where(np.isfinite(got) & np.isfinite(want), error, np.where(got == want, 0.0, np.inf)).ravel()
    worst = int(np.argmax(error))
    if not error[worst] <= 1.0:
        got, want = got.ravel()[worst], want.ravel()[worst]
        raise AssertionError(f"{what}: {got!r} instead of {want!r}, {error[worst]:.3g} times the tolerance")
    return float(error[worst])


def require(condition: object, otherwise: str) -> None:
    """Fails with a text unless a condition holds."""
    if not condition:
        raise AssertionError(otherwise)


def raises(run: Callable[[], object], text: str) -> None:
    """Fails unless a kernel's assertion with this text in its message fails by the time the device is idle."""
    try:
        run()
        qd.sync()
    except qd.OctantsAssertionError as e:
        require(text in str(e), f"the message is {e}")
    else:
        raise AssertionError(f"nothing was raised, instead of an error with `{text}`")


def on_gpu() -> bool:
    """Whether the program runs on a GPU."""
    return qd.cfg.arch in (qd.cuda, qd.amdgpu, qd.vulkan)
