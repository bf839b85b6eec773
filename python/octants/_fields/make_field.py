"""Field constructors: create fields, their gradients and duals, and a tree for each field with a shape."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from octants._arrays import shadow_buffers
from octants._arrays.array_factories import factories
from octants._arrays.shadow_buffers import remember
from octants._arrays.split_options import SplitOptions, refuse_with_split, take_split
from octants._fields import placement_checks
from octants._fields.axes import order_axes
from octants._fields.fields import MatrixField, ScalarField, TensorField
from octants._fields.snode import Component, checked_shape
from octants._fields.snode_trees import place_in_own_tree, require_program
from octants._language.python_scope import only_in_python
from octants._program.current_device import on
from octants.exceptions import OctantsRuntimeError, OctantsSyntaxError
from octants.layouts import Layout
from octants.types.enums import SNodeGradType
from octants.types.per_axis import per_axis
from octants.types.primitive import DataType, resolve_dtype
from octants.types.quant import QuantType
from octants.types.tensor_types import MatrixType, matrix, vector

_KEYWORDS = {"order", "name", "offset", "needs_grad", "needs_dual", "layout"}
"""Those of `make_scalar_field` and `make_matrix_field`."""

_SPLIT = {"split", "halo", "periodic"}


@only_in_python
def field(dtype: Any, shape: Any = None, *args: Any, device: Any = None, **kwargs: Any) -> Any:
    """A field of scalars, or of vectors or matrices if `dtype` is such a type.

    Without `shape` the field must be placed: `qd.root.dense(...).place(x)`. Keywords: `order` ("ji": the axes,
    outermost first in memory), `offset` (first index of each axis), `name`, `needs_grad`, `needs_dual`, and `device`
    (the result of `qd.device()` or a device name) for a field with a shape.

    `split=0` distributes the first axis over the ranks of `qd.distributed`, `split=1` the second one, with `halo=2`
    ghost rows on each side. With `periodic=True`, kernels index the axis modulo its number of rows. Such a field is a
    `SplitNdarray`; of the keywords above it takes `name`, `needs_grad` and `device`.
    """
    split = None
    if not _SPLIT.isdisjoint(kwargs):
        split = take_split("qd.field", {name: kwargs.pop(name) for name in _SPLIT & kwargs.keys()})
    if unknown := sorted(set(kwargs) - _KEYWORDS):
        raise TypeError(f"qd.field() has no keyword {', '.join(f'`{name}`' for name in unknown)}")
    with on_unless_unplaced(device, shape):
        if split is not None:
            given = dict(zip(("order", "name", "offset"), args, strict=False))
            return split_field(dtype, shape, split, {**given, **kwargs})
        if isinstance(dtype, MatrixType):
            return make_matrix_field(dtype.shape, dtype._stored, shape, *args, **kwargs)
        return make_scalar_field(dtype, shape, *args, **kwargs)


def split_field(dtype: Any, shape: Any, split: SplitOptions, keywords: dict[str, Any]) -> Any:
    """A field that is distributed over ranks."""
    others = {name: value for name, value in keywords.items() if name not in ("name", "needs_grad")}
    refuse_with_split(shape, others)
    made = factories.split_ndarray(dtype, shape, split, bool(keywords.get("needs_grad")))
    if made.grad is not None:
        remember("split_grad", made.grad)
    return made


def make_scalar_field(
    dtype: Any,
    shape: Any = None,
    order: str | None = None,
    name: str = "",
    offset: Any = None,
    needs_grad: bool = False,
    needs_dual: bool = False,
) -> ScalarField:
    """A field of scalars."""
    scalar, quant = _field_type(dtype)
    made = _with_shadow_buffers(
        lambda parts: ScalarField(scalar, (), parts, name), scalar, [quant], name, needs_grad or needs_dual
    )
    _finish(made, shape, order, offset, needs_grad, needs_dual, Layout.AOS)
    assert isinstance(made, ScalarField)
    return made


def make_matrix_field(
    element_shape: tuple[int, ...],
    dtype: Any,
    shape: Any = None,
    order: str | None = None,
    name: str = "",
    offset: Any = None,
    needs_grad: bool = False,
    needs_dual: bool = False,
    layout: Layout = Layout.AOS,
    device: Any = None,
    split: SplitOptions | None = None,
) -> Any:
    """A field of vectors (`element_shape` of one axis) or matrices."""
    if not all(hasattr(extent, "__index__") for extent in element_shape):
        shown = ", ".join(map(str, element_shape))
        raise TypeError(
            f"the number of components must be an integer, got {shown}: write qd.Vector.field(n, dtype, shape=...) or "
            "qd.Matrix.field(n, m, dtype, shape=...)"
        )
    element_shape = tuple(operator.index(extent) for extent in element_shape)
    if isinstance(dtype, (list, tuple)) and np.shape(dtype) != element_shape:
        kind = "Vector" if len(element_shape) == 1 else "Matrix"
        raise AssertionError(
            f"Please set correct dtype list for {kind}. The shape of dtype list should be {element_shape} instead of "
            f"{np.shape(dtype)}"
        )
    count = int(np.prod(element_shape))
    if count < 1:
        raise ValueError(f"an element must have at least one component, got the shape {element_shape}")
    if split is not None:
        rows, columns = (*element_shape, 1)[:2]
        element = vector(rows, dtype) if len(element_shape) == 1 else matrix(rows, columns, dtype)
        given = {"order": order, "offset": offset, "needs_grad": needs_grad, "needs_dual": needs_dual}
        with on(device):
            return split_field(element, shape, split, given)
    scalar, quants = _component_types(dtype, count)
    made = _with_shadow_buffers(
        lambda parts: MatrixField(scalar, element_shape, parts, name), scalar, quants, name, needs_grad or needs_dual
    )
    with on_unless_unplaced(device, shape):
        _finish(made, shape, order, offset, needs_grad, needs_dual, layout)
    assert isinstance(made, MatrixField)
    return made


factories.matrix_field = make_matrix_field


def _field_type(dtype: Any) -> tuple[DataType, QuantType | None]:
    """The type in which a component is computed, and its quantized type in memory, if any."""
    return (dtype.compute, dtype) if isinstance(dtype, QuantType) else (resolve_dtype(dtype), None)


def _component_types(dtype: Any, count: int) -> tuple[DataType, list[QuantType | None]]:
    """The common type in which all components are computed, and the quantized type of each, from a type or a (nested)
    list of types.
    """
    each = list(_flattened(dtype)) if isinstance(dtype, (list, tuple)) else [dtype] * count
    found = [_field_type(one) for one in each]
    if len({scalar for scalar, _ in found}) != 1 or len(found) != count:
        raise OctantsRuntimeError("Member fields of a matrix field must have the same compute type")
    return found[0][0], [quant for _, quant in found]


def _flattened(types: Any) -> Iterator[Any]:
    for item in types:
        if isinstance(item, (list, tuple)):
            yield from _flattened(item)
        else:
            yield item


def _with_shadow_buffers(
    make: Any, dtype: DataType, quants: list[QuantType | None], name: str, wants: bool
) -> TensorField:
    """A field and, for floating-point types, its unplaced gradient and dual."""
    if wants and not dtype.is_float:
        raise OctantsRuntimeError(f"{dtype} is not supported for field with `needs_grad=True` or `needs_dual=True`.")
    primal = [Component(dtype, name, quant=quant) for quant in quants]
    count = len(quants)
    made: TensorField = make(primal)
    shadow_buffers.remember("field", made)
    if dtype.is_float:
        for which in ("grad", "dual"):
            role = SNodeGradType.ADJOINT if which == "grad" else SNodeGradType.DUAL
            shadow_buffer = [Component(dtype, f"{name}.{which}" if name else which, role=role) for _ in range(count)]
            for part, other in zip(primal, shadow_buffer, strict=True):
                setattr(part, which, other)
            other_field: TensorField = make(shadow_buffer)
            other_field._name = shadow_buffer[0].name if name else ""
            shadow_buffers.remember(which, other_field)
            setattr(made, which, other_field)
    return made


def _finish(
    made: TensorField, shape: Any, order: str | None, offset: Any, needs_grad: bool, needs_dual: bool, layout: Layout
) -> None:
    """Places a field with a shape in a separate tree, with its gradient and dual if requested."""
    if shape is None:
        if offset is not None:
            raise OctantsSyntaxError("shape cannot be None when offset is set")
        if order is not None:
            raise OctantsSyntaxError("shape cannot be None when order is set")
        require_program()
        placement_checks.expect_placement(made, needs_grad, needs_dual)
        return
    extents, offsets = checked_extents(shape, offset)
    sequence = tuple(range(len(extents))) if order is None else order_axes(order, len(extents))
    for wanted, each in ((True, made), (needs_grad, made.grad), (needs_dual, made.dual)):
        if wanted:
            parts = each._placeable()
            groups = [[part] for part in parts] if layout == Layout.SOA else [parts]
            place_in_own_tree(groups, extents, sequence, offsets)
    if order is not None:
        for each in (made, made.grad, made.dual):
            if each is not None:
                each._qd_layout = sequence


def on_unless_unplaced(device: Any, shape: Any) -> contextlib.AbstractContextManager[Any]:
    """A scope in which `device` is current. A field without a shape takes no device: it belongs to the device of the
    tree in which it is placed.
    """
    if device is not None and shape is None:
        raise OctantsSyntaxError(
            "shape cannot be None when device is set: place the field in the tree of a qd.FieldsBuilder(device=...)"
        )
    return on(device)


def checked_extents(shape: Any, offset: Any) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Shape and offset of a new field as tuples of equal length."""
    extents = checked_shape(shape)
    offsets = None if offset is None else per_axis(offset)
    if offsets is not None and len(offsets) != len(extents):
        raise OctantsSyntaxError(
            f"The dimensionality of shape and offset must be the same ({len(extents)} != {len(offsets)})"
        )
    return extents, offsets
