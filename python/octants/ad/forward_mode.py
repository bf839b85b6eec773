"""`FwdMode`: launches that compute tangents in addition to values."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np

from octants import _octants
from octants._arrays.shadow_buffers import shadow_buffer
from octants._fields.field_class import Field
from octants._fields.fields import TensorField
from octants.ad.clearing import clear_all_gradients
from octants.ad.scopes import Scope, unwrapped
from octants.ad.tape import set_zero
from octants.exceptions import OctantsRuntimeError
from octants.types.enums import SNodeGradType


class FwdMode(Scope):
    """A forward-mode scope: kernels launched in the block compute a directional derivative for all fields with a dual.

    `param` is the field to differentiate with respect to. `seed` is the direction: one value per element, row-major,
    with the components of a vector or matrix innermost; optional for a single value. `loss` is the field, or a list of
    the fields, whose `dual` is wanted. All of these need a dual (`needs_dual=True` or `lazy_dual()`).

    Entering zeroes the duals of all fields (unless `clear_gradients=False`); leaving zeroes that of `param`. Host
    writes in the block count as constants, except that `param` keeps its direction.
    """

    def __init__(
        self, loss: Any, param: Any, seed: Sequence[float] | None = None, clear_gradients: bool = True
    ) -> None:
        self.loss = [unwrapped(each) for each in loss] if isinstance(loss, (list, tuple)) else [unwrapped(loss)]
        self.param = unwrapped(param)
        self.seed = seed
        self.clear_gradients = clear_gradients

    def __enter__(self) -> FwdMode:
        self._check_entry()
        for role, whole in [("loss", each) for each in self.loss] + [("param", self.param)]:
            if not isinstance(whole, Field if role == "loss" else TensorField):
                needs = "a field or a list of fields" if role == "loss" else "one field of numbers, vectors or matrices"
                raise TypeError(f"the {role} of a qd.ad.FwdMode must be {needs}, got {type(whole).__name__}")
            if shadow_buffer(whole, "dual") is None:
                raise OctantsRuntimeError(
                    f"the {role} of a qd.ad.FwdMode has no dual: create the field with needs_dual=True, or call "
                    "qd.root.lazy_dual() before its memory is used"
                )
        seed = self._seed()
        if self.clear_gradients:
            clear_all_gradients(SNodeGradType.DUAL)
        self.param.dual.from_numpy(seed)
        self._open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._close()
        self.param.dual.fill(0)

    def _start(self) -> None:
        _octants.set_autodiff_scope("forward")

    def _seed(self) -> np.ndarray[Any, Any]:
        param = self.param
        shape = tuple(param.shape) + tuple(param.element_shape)
        count = int(np.prod(shape))
        if self.seed is None or len(self.seed) == 0:
            if count != 1:
                raise OctantsRuntimeError(
                    f"`seed` is not set for a param of {count} elements: pass one number for each, for example [1, 0, "
                    "...] for the derivative with respect to the first"
                )
            return np.ones(shape, param.dtype.numpy)
        if len(self.seed) != count:
            raise ValueError(f"seed has {len(self.seed)} numbers, but param has {count} elements")
        return np.asarray(self.seed, param.dtype.numpy).reshape(shape)

    def _host_wrote(self, whole: Any, key: Any, component: Any) -> None:
        if whole is not self.param and shadow_buffer(whole, "dual") is not None:
            set_zero(whole.dual, key, component)

    def _host_copied(self, to: Any, source: Any) -> None:
        if shadow_buffer(to, "dual") is None:
            return
        dual = shadow_buffer(source, "dual")
        if dual is None:
            to.dual.fill(0)
        else:
            to.dual.copy_from(dual)
