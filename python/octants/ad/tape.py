"""`Tape`: records launches while they run, then runs their gradients in reverse."""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import Any

from octants import _octants
from octants._arrays.ndarrays import Ndarray, forget_marks_of_arrays
from octants._arrays.shadow_buffers import fields_in_memory, shadow_buffer
from octants._fields.fields import TensorField
from octants._program.runtime import current_config
from octants.ad.clearing import clear_all_gradients
from octants.ad.gradient_check import GradientCheck
from octants.ad.scopes import Scope, unwrapped
from octants.exceptions import OctantsAssertionError, OctantsRuntimeError
from octants.types.enums import AutodiffMode


class Tape(Scope):
    """Records the kernels launched in the block. On exit, sets the gradient of `loss` to one and runs the gradients of
    the recorded launches in reverse order.

    `loss` is a 0-dimensional field, or an ndarray or torch tensor of one element; entry sets it to zero. With
    `clear_gradients`, entry also zeroes the gradients of all fields; those of ndarrays and tensors are up to the
    caller. With `validation` (and `qd.init(debug=True)`), kernels check that they do not overwrite values that were
    read in the block, in fields with a gradient. `grad_check` lists f64 fields whose gradients are compared with finite
    differences.

    Host writes to fields and ndarrays in the block (`x[i] = 0`, `fill`, `copy_from`, ...) are recorded too. Those
    before the first launch are the initial values of the tape. A value that the host stores has a gradient. The
    gradient of a launch runs on the launch's device and stream; two gradients run concurrently unless one accumulates
    into what the other uses. If the block raises, no gradient is computed.
    """

    def __init__(
        self,
        loss: Any = None,
        clear_gradients: bool = True,
        validation: bool = False,
        grad_check: list[TensorField] | None = None,
    ) -> None:
        self.loss = unwrapped(loss)
        self.clear_gradients = clear_gradients
        self.validation = validation
        self.gradient_evaluated = False
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []
        self.modes: list[AutodiffMode] = []
        # The device that was current at each call.
        self._serials: list[int] = []
        config = current_config()
        if validation and (config is None or not config.debug):
            warnings.warn(
                "Debug mode is disabled, autodiff valid check will not work. Please specify `qd.init(debug=True)` to "
                "enable the check.",
                stacklevel=2,
            )
            self.validation = False
        if grad_check is not None and not isinstance(grad_check, list):
            raise TypeError("grad_check must be a list of the fields whose gradients are checked")
        self._check = None if grad_check is None else GradientCheck(self.loss, [unwrapped(x) for x in grad_check])

    def __enter__(self) -> Tape:
        self._check_entry()
        _check_loss(self.loss)
        if self.clear_gradients:
            clear_all_gradients()
        _set(self.loss, 0.0)
        if self.validation:
            for marks in fields_in_memory("marks"):
                marks.fill(0)
        if self._check is not None:
            self._check.save()
        self._open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._close()
        self._set_modes(AutodiffMode.NONE)
        try:
            if kind is None:
                self.grad()
        finally:
            forget_marks_of_arrays()

    def _start(self) -> None:
        _octants.set_autodiff_scope("record", self.insert, self.validation)

    def insert(self, func: Any, args: tuple[Any, ...]) -> None:
        """Records a call. Its gradient is `func.grad(*args)`."""
        self._append(func, args)
        self.modes.append(AutodiffMode.NONE)
        if self.validation and isinstance(func, _octants.RecordedLaunch):
            func.kernel.autodiff_mode = AutodiffMode.VALIDATION

    def _append(self, func: Any, args: tuple[Any, ...]) -> None:
        self.calls.append((func, args))
        self._serials.append(_octants.program_serial())

    def _on_devices(self) -> list[tuple[int, Any, tuple[Any, ...]]]:
        """The calls, each with the serial of the program on which it was made."""
        return [(serial, func, args) for serial, (func, args) in zip(self._serials, self.calls, strict=True)]

    def _set_modes(self, mode: AutodiffMode) -> None:
        for func, _ in self.calls if self.validation else []:
            if isinstance(func, _octants.RecordedLaunch):
                func.kernel.autodiff_mode = mode

    def grad(self) -> None:
        """Runs the recorded gradients. Called when the block exits."""
        if not self._entered:
            raise OctantsAssertionError("this tape has recorded nothing: enter it first (`with qd.ad.Tape(loss): ...`)")
        if self.gradient_evaluated:
            raise OctantsAssertionError("the gradients of a tape can only be evaluated once")
        self.gradient_evaluated = True
        if self.loss is not None:
            _seed(self.loss)
        launches = [func for func, _ in self.calls if isinstance(func, _octants.RecordedLaunch)]
        if any(launch.is_on_stream for launch in launches):
            self._grad_on_streams(launches)
        else:
            for serial, func, args in reversed(self._on_devices()):
                with _octants.on_program(serial):
                    func.grad(*args)
        if self._check is not None:
            self._check.run(self._on_devices())
        for func, _ in self.calls:
            if isinstance(func, _HostWrite):
                func.restore_gradient()

    def _grad_on_streams(self, launches: list[_octants.RecordedLaunch]) -> None:
        """Runs the gradient of each launch on the launch's stream, after the gradients that use the same memory.
        Devices share no memory, so the gradient of a copy between devices waits for all gradients before it.
        """
        orders: dict[int, _octants.GradientOrder] = {}
        for launch in launches:
            if launch.serial not in orders:
                with _octants.on_program(launch.serial):
                    orders[launch.serial] = _octants.GradientOrder()
            launch.precede(orders[launch.serial])
        try:
            for serial, func, args in reversed(self._on_devices()):
                with _octants.on_program(serial):
                    if isinstance(func, _octants.RecordedLaunch):
                        func.grad(*args, order=orders[func.serial])
                    else:
                        # Its launches are unknown: order it after and before all others.
                        for order in orders.values():
                            order.join()
                        func.grad(*args)
        finally:
            for order in orders.values():
                order.join()

    def _host_wrote(self, whole: Any, key: Any, component: Any) -> None:
        if shadow_buffer(whole, "grad") is None:
            return
        if self.calls:
            self._append(_HostWrite(whole, key, component), ())
        elif self._check is not None:
            # Nothing has run yet, so the check starts with these values too.
            self._check.save()

    def _host_copied(self, to: Any, source: Any) -> None:
        if shadow_buffer(to, "grad") is not None:
            self._append(_HostCopy(to, source), ())


class _HostWrite:
    """A host write to all elements, one element, or one component. Earlier values do not influence later ones."""

    def __init__(self, whole: Any, key: Any, component: Any) -> None:
        self.whole, self.key, self.component = whole, key, component
        self.is_element = key is not None or not tuple(whole.shape)
        self.value = whole.to_numpy() if key is None else whole[key]

    def __call__(self) -> None:
        if self.key is None:
            self.whole.from_numpy(self.value)
        else:
            self.whole[self.key] = self.value

    def grad(self) -> None:
        gradient = self.whole.grad
        if not self.is_element:
            self.gradient = gradient.to_numpy()
        else:
            of_element = gradient[self.key]
            self.gradient = of_element * 1 if self.component is None else of_element[self.component]
        set_zero(gradient, self.key, self.component)

    def restore_gradient(self) -> None:
        """Adds back the gradient of the stored values. No earlier launch contributed to it."""
        gradient = self.whole.grad
        if not self.is_element:
            gradient.from_numpy(gradient.to_numpy() + self.gradient)
        elif self.component is not None:
            gradient[self.key][self.component] += self.gradient
        else:
            gradient[self.key] = gradient[self.key] + self.gradient


class _HostCopy:
    """A host copy of all elements from another array."""

    def __init__(self, to: Any, source: Any) -> None:
        self.to, self.source = to, source

    def __call__(self) -> None:
        self.to.copy_from(self.source)

    def grad(self) -> None:
        taken = self.to.grad.to_numpy()
        self.to.grad.fill(0)
        # Only now, because the source may be the same memory.
        gradient = shadow_buffer(self.source, "grad")
        if gradient is not None:
            gradient.from_numpy(gradient.to_numpy() + taken.astype(gradient.dtype.numpy))


def set_zero(whole: Any, key: Any, component: Any) -> None:
    """Zeroes all elements, one element, or one component of an element."""
    if key is None:
        whole.fill(0)
    elif component is not None:
        whole[key][component] = 0
    else:
        whole[key] = whole[key] * 0 if getattr(whole, "element_shape", ()) else 0


def _check_loss(loss: Any) -> None:
    if loss is None:
        return
    if isinstance(loss, TensorField):
        if loss.shape != ():
            raise OctantsRuntimeError("The loss of `Tape` must be a 0-D field, i.e. scalar")
        if not loss.has_grad():
            raise OctantsRuntimeError(
                "Gradients of loss are not allocated, please use qd.field(..., needs_grad=True) for all fields that "
                "are required by autodiff."
            )
    elif isinstance(loss, Ndarray):
        if loss._get_nelement() != 1 or tuple(loss.element_shape):
            raise OctantsRuntimeError("The loss of `Tape` must be an ndarray with only one element")
        if loss.grad is None:
            raise OctantsRuntimeError(
                "Gradients of loss are not allocated, please set needs_grad=True for all ndarrays that are required by "
                "autodiff."
            )
    elif hasattr(loss, "requires_grad"):
        if loss.numel() != 1:
            raise OctantsRuntimeError(
                "The loss of `Tape` must be a tensor only contains one element: reduce it to one, e.g. by sum()"
            )
        if not loss.requires_grad:
            raise OctantsRuntimeError(
                "Gradients of loss are not allocated, please set requires_grad=True for all tensors that are "
                "required by autodiff."
            )
    else:
        raise TypeError(f"the loss of a tape must be a field, an ndarray or a torch tensor, got {type(loss).__name__}")


def _set(loss: Any, value: float) -> None:
    if loss is None:
        return
    if isinstance(loss, (TensorField, Ndarray)):
        loss.fill(value)
    else:
        loss.detach().fill_(value)


def _seed(loss: Any) -> None:
    if isinstance(loss, (TensorField, Ndarray)):
        loss.grad.fill(1.0)
    elif loss.grad is None:
        loss.grad = loss.detach().new_ones(loss.shape)
    else:
        loss.grad.detach().fill_(1.0)
