"""Automatic differentiation of kernels and of sequences of kernels.

    with qd.ad.Tape(loss):
        step()
        measure()
    x.grad  # d loss / d x

`kernel.grad(...)` runs the gradient of one kernel. The guide is docs/autodiff.md.
"""

from octants.ad.clearing import clear_all_gradients
from octants.ad.custom_gradients import grad_for, grad_replaced, no_grad
from octants.ad.forward_mode import FwdMode
from octants.ad.tape import Tape
from octants.ad.torch_functions import torch_function

__all__ = ["FwdMode", "Tape", "clear_all_gradients", "grad_for", "grad_replaced", "no_grad", "torch_function"]
