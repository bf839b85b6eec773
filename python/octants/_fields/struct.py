"""Fields of structs, and the decorator `@qd.dataclass`.

A field of structs is a bundle of fields, one per member; an element of it is a struct whose members, when assigned to,
are also written to the field.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from octants._arrays.array_factories import factories
from octants._arrays.split_options import SplitOptions, refuse_with_split
from octants._fields.field_class import Field
from octants._fields.fields import TensorField
from octants._fields.make_field import checked_extents, make_matrix_field, make_scalar_field, on_unless_unplaced
from octants._fields.snode import Component, SNode
from octants._fields.snode_trees import place_in_own_tree, require_program
from octants._language.python_scope import only_in_python
from octants.exceptions import OctantsSyntaxError
from octants.layouts import Layout
from octants.types.primitive import DataType
from octants.types.quant import QuantType
from octants.types.struct_type import Struct, StructType
from octants.types.tensor_types import MatrixType


class StructField(Field):
    """A field of structs: one field per member."""

    _octants_entity = "struct_field"

    def __init__(self, field_dict: dict[str, Any], struct_type: StructType, name: str = "") -> None:
        set_ = object.__setattr__
        set_(self, "field_dict", field_dict)
        set_(self, "struct_type", struct_type)
        set_(self, "methods", struct_type.methods)
        set_(self, "_name", name)
        set_(self, "_shadow_buffers", {})

    def get_member_field(self, key: str) -> Any:
        """The field of one member."""
        return self.field_dict[key]

    @property
    def keys(self) -> list[str]:
        """Names of the members."""
        return list(self.field_dict)

    @property
    def _members(self) -> list[Any]:
        return list(self.field_dict.values())

    def _leaves(self) -> list[TensorField]:
        leaves: list[TensorField] = []
        for member in self.field_dict.values():
            leaves.extend(member._leaves() if isinstance(member, StructField) else [member])
        return leaves

    def _placeable(self) -> list[Component]:
        return [part for leaf in self._leaves() for part in leaf._placeable()]

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis."""
        return self._leaves()[0].shape

    @property
    def dtype(self) -> DataType | QuantType:
        """The scalar type of the first member."""
        return self._leaves()[0].dtype

    @property
    def snode(self) -> SNode:
        """The place of the first member."""
        return self._leaves()[0].snode

    @property
    def layout(self) -> None:
        """None: fields of structs take no `order=`."""
        return

    def parent(self, n: int = 1) -> SNode | None:
        """The `n`-th level above the place of the first member."""
        return self._leaves()[0].parent(n)

    @property
    def grad(self) -> StructField | None:
        """The gradients of the floating-point members."""
        return self._shadow_buffer("grad")

    @property
    def dual(self) -> StructField | None:
        """The duals of the floating-point members."""
        return self._shadow_buffer("dual")

    def _shadow_buffer(self, which: str) -> StructField | None:
        if which in self._shadow_buffers:
            return self._shadow_buffers[which]
        found = {key: getattr(member, which) for key, member in self.field_dict.items()}
        found = {key: shadow_buffer for key, shadow_buffer in found.items() if shadow_buffer is not None}
        made = StructField(found, self.struct_type, f"{self._name}.{which}") if found else None
        self._shadow_buffers[which] = made
        return made

    def has_grad(self) -> bool:
        """Whether the gradients have memory."""
        return any(leaf.has_grad() for leaf in self._leaves())

    def has_dual(self) -> bool:
        """Whether the duals have memory."""
        return any(leaf.has_dual() for leaf in self._leaves())

    def __getattr__(self, name: str) -> Any:
        members = object.__getattribute__(self, "__dict__").get("field_dict", {})
        if name in members:
            return members[name]
        raise AttributeError(f"this struct field has no member {name!r}; it has {', '.join(members)}")

    @property
    def struct_methods(self) -> dict[str, Any]:
        """The methods of the elements, by name."""
        return self.methods

    @property
    def name(self) -> str:
        """The name given at creation, or `<Struct>`."""
        return str(self.field_dict.get("name", self._name))

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(
            f"members of a struct field cannot be assigned: use .{name}.fill(...) or .{name}[...] = ..."
        )

    def __getitem__(self, key: Any) -> Struct:
        return Struct._element(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(value, (dict, Struct)):
            raise TypeError(f"an element of a struct field can only be set to a Struct or a dict, got {value!r}")
        given = value if isinstance(value, dict) else value.entries
        self._check_members(given)
        for name, member in self.field_dict.items():
            member[key] = given[name]

    def _check_members(self, given: Mapping[str, Any]) -> None:
        """Raises a `KeyError` if there is no value for some member."""
        missing = [name for name in self.field_dict if name not in given]
        if missing:
            raise KeyError(f"no value for the members {missing} of the struct field")

    def __iter__(self) -> NoReturn:
        raise NotImplementedError("Struct for is only available in Quadrants scope: loop over a field in a kernel")

    def fill(self, val: Any, qd_stream: Any = None) -> None:
        """Sets all elements: each member to one scalar, or to its value in a dict or a Struct."""
        given = val.entries if isinstance(val, Struct) else val
        for name, member in self.field_dict.items():
            member.fill(given[name] if isinstance(given, dict) else given, qd_stream=qd_stream)

    @only_in_python
    def copy_from(self, other: StructField, qd_stream: Any = None) -> None:
        """Sets all elements from another field of structs with the same members and shape."""
        if not isinstance(other, StructField):
            raise TypeError("Cannot copy from a non-field object")
        if set(self.field_dict) != set(other.field_dict):
            raise ValueError(f"the members differ: {self.keys} and {other.keys}")
        for name, member in self.field_dict.items():
            member.copy_from(other.field_dict[name], qd_stream=qd_stream)

    @only_in_python
    def to_numpy(self, *, copy: bool | None = True) -> dict[str, Any]:
        """A dict of the members' arrays."""
        return {name: member.to_numpy(copy=copy) for name, member in self.field_dict.items()}

    @only_in_python
    def from_numpy(self, array_dict: dict[str, np.ndarray[Any, Any]], qd_stream: Any = None) -> None:
        """Sets all elements from a dict of the members' arrays."""
        self._check_members(array_dict)
        for name, member in self.field_dict.items():
            member.from_numpy(array_dict[name], qd_stream=qd_stream)

    @only_in_python
    def to_torch(self, device: Any = None, *, copy: bool | None = True) -> dict[str, Any]:
        """A dict of the members' tensors."""
        return {name: member.to_torch(device, copy=copy) for name, member in self.field_dict.items()}

    @only_in_python
    def from_torch(self, array_dict: dict[str, Any]) -> None:
        """Sets all elements from a dict of the members' tensors."""
        self._check_members(array_dict)
        for name, member in self.field_dict.items():
            member.from_torch(array_dict[name])

    def to_dlpack(self, versioned: bool = False) -> NoReturn:
        """Raises: a field of structs consists of several arrays. Use `to_dlpack` of its members."""
        raise NotImplementedError("a struct field cannot be exported as one DLPack capsule: use `.member.to_dlpack()`")

    def __str__(self) -> str:
        first = self._leaves()[0]
        return str(first) if first.parent() is None or not first._root.alive else str(self.to_numpy())

    def __repr__(self) -> str:
        return f"<qd.Struct.field {', '.join(self.field_dict)}>"


def dataclass(cls: type) -> StructType:
    """Turns a class into a struct type: annotations become members, functions become methods."""
    caller = sys._getframe(1)
    annotations = inspect.get_annotations(cls)
    namespace = {**vars(sys.modules.get(cls.__module__, types)), **caller.f_globals, **caller.f_locals}
    members = {
        key: eval(value, namespace) if isinstance(value, str) else value  # noqa: S307
        for key, value in annotations.items()
    }
    for key in members:
        # Slots represent members without a default.
        if key in vars(cls) and not isinstance(vars(cls)[key], types.MemberDescriptorType):
            raise OctantsSyntaxError(
                f"Default value in @dataclass is not supported: member {key} of {cls.__name__} has one"
            )
    methods = {
        key: value
        for key, value in vars(cls).items()
        if key not in members and (not key.startswith("__")) and (callable(value) or hasattr(value, "__get__"))
    }
    made = StructType(members, methods, cls.__name__)
    made.__doc__ = cls.__doc__
    return made


def make_struct_field(
    struct_type: StructType,
    shape: Any,
    name: str,
    offset: Any,
    needs_grad: bool,
    needs_dual: bool,
    layout: Layout,
    device: Any = None,
    split: SplitOptions | None = None,
) -> StructField:
    """A field of structs; without `shape` it must be placed."""
    if device is not None:
        with on_unless_unplaced(device, shape):
            return make_struct_field(struct_type, shape, name, offset, needs_grad, needs_dual, layout, None, split)
    if split is not None:
        refuse_with_split(shape, {"offset": offset, "needs_dual": needs_dual})
        made: StructField = factories.split_struct(struct_type, shape, split, name, needs_grad)
        return made
    made = _unplaced(struct_type, name, needs_grad, needs_dual)
    if shape is None:
        if offset is not None:
            raise OctantsSyntaxError("shape cannot be None when offset is set")
        require_program()
        return made
    extents, offsets = checked_extents(shape, offset)
    sequence = tuple(range(len(extents)))
    for wanted, which in ((True, None), (needs_grad, "grad"), (needs_dual, "dual")):
        leaves = [leaf if which is None else getattr(leaf, which) for leaf in made._leaves()]
        if wanted:
            groups = [leaf._placeable() for leaf in leaves]
            if layout == Layout.AOS:
                groups = [[part for group in groups for part in group]]
            place_in_own_tree(groups, extents, sequence, offsets)
    return made


factories.struct_field = make_struct_field


def _unplaced(struct_type: StructType, name: str, needs_grad: bool, needs_dual: bool) -> StructField:
    fields: dict[str, Any] = {}
    for key, type_ in struct_type._declared.items():
        path = f"{name}.{key}"
        if isinstance(type_, StructType):
            fields[key] = _unplaced(type_, path, needs_grad, needs_dual)
        elif isinstance(type_, MatrixType):
            fields[key] = make_matrix_field(
                type_.shape, type_._stored, name=path, needs_grad=needs_grad, needs_dual=needs_dual
            )
        else:
            fields[key] = make_scalar_field(type_, name=path, needs_grad=needs_grad, needs_dual=needs_dual)
    return StructField(fields, struct_type, name)
