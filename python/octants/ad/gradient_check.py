"""Compares gradients of a tape with finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np

from octants import _octants
from octants._arrays.shadow_buffers import fields_in_memory
from octants.exceptions import OctantsAssertionError
from octants.types.primitive import f64

_STEPS = 2.0 ** -np.arange(3, 30, 2)
_TOLERANCE = 1e-4


class GradientCheck:
    """Replays the recorded calls of a tape from its initial state, with one field perturbed along a random
    direction.
    """

    def __init__(self, loss: Any, fields: list[Any]) -> None:
        self.loss = loss
        self.fields = fields
        self.saved: list[tuple[Any, np.ndarray[Any, Any]]] = []

    def save(self) -> None:
        """Saves the values of all fields."""
        if getattr(self.loss, "dtype", None) is not f64:
            raise OctantsAssertionError(
                "gradients can only be checked in f64: use f64 for the loss and all fields that it depends on"
            )
        self.saved = [(field, field.to_numpy()) for field in fields_in_memory("field")]

    def run(self, calls: list[tuple[int, Any, tuple[Any, ...]]]) -> None:
        """Raises if a gradient differs from finite differences. `calls`: each call with the serial of its program."""
        # Fields without memory at that time started with zeros.
        known = {id(field) for field, _ in self.saved}
        now = [(field, field.to_numpy()) for field in fields_in_memory("field")]
        self.saved += [(field, np.zeros_like(values)) for field, values in now if id(field) not in known]
        random = np.random.default_rng(0)
        wrong = []
        for field in self.fields:
            if field is self.loss:
                continue
            gradient = field.grad.to_numpy()
            direction = random.random(gradient.shape)
            expected = float((gradient * direction).sum())
            slopes = [
                (self._at(field, direction, h, calls) - self._at(field, direction, -h, calls)) / (2 * h) for h in _STEPS
            ]
            scale = max(abs(expected), 1e-8)
            if min(abs(slope - expected) / scale for slope in slopes) > _TOLERANCE:
                nearest = min(slopes, key=lambda slope: abs(slope - expected))
                name = field._name or f"number {self.fields.index(field)} of grad_check"
                wrong.append(
                    f"field {name}: the directional derivative is {expected}, but finite differences give {nearest}"
                )
        for field, values in now:
            field.from_numpy(values)
        if wrong:
            raise OctantsAssertionError("Grad check failed: " + "; ".join(wrong))

    def _at(self, field: Any, direction: Any, h: float, calls: list[tuple[int, Any, tuple[Any, ...]]]) -> float:
        for each, values in self.saved:
            each.from_numpy(values + h * direction if each is field else values)
        for serial, func, args in calls:
            with _octants.on_program(serial):
                func(*args)
        return float(self.loss[None])
