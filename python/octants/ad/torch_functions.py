"""Kernels as torch autograd functions. Tensors are passed to kernels without a copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from octants import _octants
from octants.exceptions import OctantsTypeError


def torch_function(
    kernel: Any, outputs: Mapping[str, Any] | Sequence[str], *, dtype: Any = None, device: Any = None
) -> Callable[..., Any]:
    """Makes a kernel a differentiable function of torch tensors.

    The kernel takes its inputs and outputs as arrays (`qd.types.ndarray()`), and scalars. `outputs` maps each output
    parameter to its shape, or to a function from the inputs to the shape; a list of names means outputs with the shape
    of the first tensor input. The function takes the other parameters, positionally or by name. It allocates zeroed
    outputs, launches the kernel and returns the outputs: a tensor, or a tuple of several. Their type and device are
    those of the first tensor input unless `dtype` and `device` are given.

        square = qd.ad.torch_function(square_kernel, outputs=["y"])
        square(x).sum().backward()
    """
    import torch

    plain = kernel.__func__ if isinstance(kernel, _octants.BoundKernel) else kernel
    if not isinstance(plain, _octants.Kernel):
        raise OctantsTypeError(f"torch_function() takes a kernel, got {kernel!r}")
    bound_to = (kernel.__self__,) if isinstance(kernel, _octants.BoundKernel) else ()
    names = list(plain.fn.__code__.co_varnames[len(bound_to) : plain.fn.__code__.co_argcount])
    shapes = dict(outputs) if isinstance(outputs, Mapping) else dict.fromkeys(outputs)
    unknown = [name for name in shapes if name not in names]
    if unknown:
        raise OctantsTypeError(
            f"kernel `{kernel.__name__}` has no parameter `{unknown[0]}` (it has {', '.join(names)})"
        )
    input_names = [name for name in names if name not in shapes]

    class Function(torch.autograd.Function):
        """Forward launches the kernel, backward its gradient."""

        @staticmethod
        def forward(ctx: Any, has_gradient: bool, *inputs: Any) -> Any:
            given = dict(zip(input_names, inputs, strict=True))
            first = next((value for value in inputs if isinstance(value, torch.Tensor)), None)
            if first is None:
                raise OctantsTypeError(f"at least one input of `{kernel.__name__}` must be a tensor")
            made = {}
            for name, shape in shapes.items():
                extents = tuple(first.shape) if shape is None else shape(*inputs) if callable(shape) else shape
                made[name] = torch.zeros(extents, dtype=dtype or first.dtype, device=device or first.device)
            given = {name: _plain(value) for name, value in given.items()}
            args = [made[name] if name in made else given[name] for name in names]
            if has_gradient:
                wanted = {
                    name for name, is_wanted in zip(input_names, ctx.needs_input_grad[1:], strict=True) if is_wanted
                }
                ctx.launch = plain._launch(
                    (*bound_to, *args), lambda: (*bound_to, *_with_gradients(names, args, wanted.union(made)))
                )
            else:
                kernel(*args)
            tensors = [value for value in given.values() if isinstance(value, torch.Tensor)]
            ctx.numbers = [None if isinstance(value, torch.Tensor) else value for value in given.values()]
            ctx.save_for_backward(*tensors, *made.values())
            return tuple(made.values()) if len(made) > 1 else next(iter(made.values()))

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            saved = list(ctx.saved_tensors)
            given: dict[str, Any] = {}
            results = []
            for name, number, wanted in zip(input_names, ctx.numbers, ctx.needs_input_grad[1:], strict=True):
                value = saved.pop(0) if number is None and saved else number
                given[name] = value
                if wanted:
                    given[name] = _with_gradient(value, torch.zeros_like(value, memory_format=torch.contiguous_format))
                results.append(given[name].grad if wanted else None)
            for name, value, gradient in zip(shapes, saved, gradients, strict=True):
                if gradient is None:
                    gradient = torch.zeros_like(value)
                # A copy: the kernel's gradient uses it up, and torch may hand the same one to others.
                given[name] = _with_gradient(value, gradient.clone(memory_format=torch.contiguous_format))
            args = [given[name] for name in names]
            if ctx.launch is None:
                kernel.grad(*args)
            else:
                ctx.launch.grad(*bound_to, *args, others=True)
            return None, *results

    def run(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(input_names, args, strict=False))
        given.update(kwargs)
        if len(args) + len(kwargs) != len(input_names) or set(given) != set(input_names):
            raise OctantsTypeError(f"`{kernel.__name__}` takes the inputs {', '.join(input_names)}")
        inputs = [given[name] for name in input_names]
        has_gradient = torch.is_grad_enabled() and any(getattr(value, "requires_grad", False) for value in inputs)
        return Function.apply(has_gradient, *inputs)

    return run


def _plain(value: Any) -> Any:
    return value.detach() if hasattr(value, "requires_grad") else value


def _with_gradients(names: list[str], args: list[Any], wanted: set[str]) -> list[Any]:
    """The arguments, with uninitialized gradients attached to the tensors named in `wanted`."""
    import torch

    return [
        _with_gradient(value, torch.empty_like(value, memory_format=torch.contiguous_format))
        if name in wanted
        else value
        for name, value in zip(names, args, strict=True)
    ]


def _with_gradient(tensor: Any, gradient: Any) -> Any:
    """Another tensor over the same memory, with this gradient."""
    alias = tensor.detach().requires_grad_()
    alias.grad = gradient
    return alias
