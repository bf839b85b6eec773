"""Structs as Python values, `qd.Struct(a=1, b=2)`, and their types: `qd.types.struct(pos=vec3, mass=qd.f32)`.

A type is callable in Python scope and builds a `Struct`; members left out are zero.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from octants._arrays.array_factories import factories
from octants._arrays.split_options import take_split
from octants._language.python_scope import only_in_python
from octants.exceptions import OctantsSyntaxError, OctantsTypeError
from octants.layouts import Layout
from octants.types.primitive import DataType, value_dtype
from octants.types.tensor_types import MatrixType, UnpackedVectorType, VectorType
from octants.types.values import Matrix, Vector

if TYPE_CHECKING:
    from octants._fields.struct import StructField


class StructType:
    """A struct type: named members of scalar, vector, matrix or struct type, and methods with the struct as first
    argument.
    """

    _octants_entity = "struct_type"

    def __init__(self, members: dict[str, Any], methods: dict[str, Any] | None = None, name: str = "struct") -> None:
        if not isinstance(members, dict):
            # Python calls the type of a base for `class Derived(Base)`, with name, bases and body.
            raise TypeError(f"class {members}: a struct type cannot be a base class; make it a member instead")
        if not isinstance(methods, (dict, type(None))):
            raise TypeError(
                f"the methods of a struct must be a dict of names and functions, not {methods!r}; "
                "give the shape of a field of structs by keyword: shape="
            )
        self.name = name
        self._declared: dict[str, Any] = {}
        for key, value in members.items():
            if not isinstance(value, UnpackedVectorType):
                self._declare(key, _member_type(key, value))
                continue
            # By this attribute the compiler knows which members are the components of `key`.
            setattr(self, f"_unpacked_{key}", value.n)
            for number in range(value.n):
                part = f"_{key}{number}"
                if part in members or part in self._declared:
                    raise OctantsSyntaxError(
                        f"unpacked vector field {key!r} would expand to a synthetic field {part!r} that collides with "
                        f"another member of {self.name}: a member name {part!r} collides with a synthetic field. "
                        "Rename one of them"
                    )
                self._declare(part, float if value.dtype is None else value.dtype)
        self.methods = dict(methods or {})

    def _declare(self, key: str, type_: Any) -> None:
        if key in self._declared:
            raise OctantsSyntaxError(
                f"duplicate member {key} of {self.name}: an unpacked vector already has a component of that name"
            )
        self._declared[key] = type_

    @property
    def members(self) -> dict[str, Any]:
        """Member names and types in order."""
        return {
            key: value if isinstance(value, (MatrixType, StructType)) else value_dtype(value)
            for key, value in self._declared.items()
        }

    def __instancecheck__(self, value: object) -> bool:
        """`isinstance(value, T)`: a struct of this type, or one made from a dict with the same members."""
        if not isinstance(value, Struct):
            return False
        if value.struct_type is not None:
            return value.struct_type == self
        return list(value.entries) == list(self.members)

    def __call__(self, *args: Any, **kwargs: Any) -> Struct:
        """A value of this type. Positional arguments set the members in order; omitted members are zero."""
        given: dict[str, Any] = {}
        if len(args) == 1 and not kwargs and isinstance(args[0], (dict, Struct)) and self._describes(args[0]):
            source = args[0]
            given = dict(source.items() if isinstance(source, dict) else source.entries)
        else:
            if len(args) > len(self._declared):
                raise OctantsTypeError(
                    f"struct `{self.name}` has {len(self._declared)} members, but {len(args)} values are given"
                )
            for key in kwargs:
                if key not in self._declared:
                    raise OctantsTypeError(f"struct `{self.name}` has no member `{key}`")
            given = dict(zip(self._declared, args, strict=False))
            given.update(kwargs)
        return Struct._of_type(
            self, {key: convert_member(type_, given.get(key, 0)) for key, type_ in self.members.items()}
        )

    def _describes(self, value: Any) -> bool:
        keys = value.keys() if isinstance(value, dict) else value.entries.keys()
        return set(keys) <= set(self._declared)

    def cast(self, value: Any) -> Struct:
        """`value` (a struct or a dict) converted to this type."""
        return self(value)

    def filled_with_scalar(self, value: Any) -> Struct:
        """A struct in which every scalar is `value`."""

        def filled(type_: Any) -> Any:
            return type_.filled_with_scalar(value) if isinstance(type_, StructType) else convert_member(type_, value)

        return Struct._of_type(self, {key: filled(type_) for key, type_ in self.members.items()})

    def field(self, shape: Any = None, offset: Any = None, needs_grad: bool = False, **kwargs: Any) -> StructField:
        """A field of this struct type. Takes the arguments of `qd.Struct.field` after the members."""
        return Struct.field(
            self.members,
            methods=self.methods,
            shape=shape,
            offset=offset,
            needs_grad=needs_grad,
            struct_type=self,
            **kwargs,
        )

    def to_string(self) -> str:
        """A readable name."""
        return str(self)

    def __repr__(self) -> str:
        inside = ", ".join(f"{key}={type_}" for key, type_ in self.members.items())
        return f"<qd.StructType {inside}>"


def struct(**members: Any) -> StructType:
    """A struct type of the given members; `__struct_methods={name: function}` adds methods."""
    methods = members.pop("__struct_methods", None)
    return StructType(members, methods)


def convert_member(type_: Any, value: Any) -> Any:
    """`value` as a member of the given type: a Python scalar, `Matrix` or `Struct`."""
    if isinstance(type_, DataType):
        return type_.convert(value)
    if isinstance(type_, StructType):
        if isinstance(value, (dict, Struct)):
            return type_(value)
        return type_(*value) if isinstance(value, (list, tuple)) else type_(value)
    assert isinstance(type_, (MatrixType, VectorType))
    return type_(value)


def _member_type(key: str, type_: Any) -> Any:
    if isinstance(type_, (MatrixType, StructType)):
        return type_
    try:
        value_dtype(type_)
    except ValueError as error:
        raise ValueError(f"struct member {key}: {error}") from None
    return type_


class Struct:
    """A value of named members: scalars, vectors, matrices, structs."""

    _octants_entity = "struct"
    _octants_builtin = "Struct"

    entries: dict[str, Any]
    struct_type: StructType | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if (len(args), len(kwargs)) not in ((1, 0), (0, len(kwargs))) or (
            args and not isinstance(args[0], (dict, Struct))
        ):
            raise OctantsSyntaxError(
                "Custom structs need to be initialized using either dictionary or keyword arguments"
            )
        given = dict(args[0].items() if isinstance(args[0], dict) else args[0].entries) if args else kwargs
        methods = given.pop("__struct_methods", {})
        self._fill({key: _value(item) for key, item in given.items()}, None, methods, None)

    @classmethod
    def _of_type(cls, struct_type: StructType, entries: dict[str, Any]) -> Struct:
        made = object.__new__(cls)
        made._fill(entries, struct_type, struct_type.methods, None)
        return made

    @classmethod
    def _element(cls, field: StructField, index: Any) -> Struct:
        """An element of a field. Assignments to its members write to the field."""
        made = object.__new__(cls)
        entries = {key: member[index] for key, member in field.field_dict.items()}
        made._fill(entries, field.struct_type, field.methods, (field, index))
        return made

    def _fill(
        self, entries: dict[str, Any], struct_type: StructType | None, methods: dict[str, Any], source: Any
    ) -> None:
        set_ = object.__setattr__
        set_(self, "entries", entries)
        set_(self, "struct_type", struct_type)
        set_(self, "methods", methods)
        set_(self, "_source", source)

    @property
    def keys(self) -> list[str]:
        """Names of the members."""
        return list(self.entries)

    @property
    def items(self) -> Any:
        """Names and values of the members."""
        return self.entries.items()

    def __getattr__(self, name: str) -> Any:
        if name in ("entries", "methods"):
            raise AttributeError(name)
        if name in self.entries:
            return self.entries[name]
        if name in self.methods:
            method = self.methods[name]
            return types.MethodType(method, self) if isinstance(method, types.FunctionType) else method.__get__(self)
        raise AttributeError(f"this struct has no member {name!r}; members: {', '.join(self.entries)}")

    def __setattr__(self, name: str, value: Any) -> None:
        # Any other name is an ordinary attribute of this object: kernels and copies do not see it.
        if name in self.entries:
            self[name] = value
        else:
            object.__setattr__(self, name, value)

    def __getitem__(self, key: str) -> Any:
        return self.entries[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if self._source is not None:
            field, index = self._source
            member = field.field_dict[key]
            member[index] = value
            self.entries[key] = member[index]
        elif self.struct_type is not None:
            type_ = self.struct_type.members[key]
            if isinstance(type_, DataType) and not isinstance(value, (int, float, np.generic, np.ndarray)):
                raise TypeError(f"A number is expected when assigning struct members, got {value!r}")
            self.entries[key] = convert_member(type_, value)
        elif isinstance(self.entries[key], Matrix):
            self.entries[key] = type(self.entries[key])(value, self.entries[key]._declared)
        else:
            self.entries[key] = _value(value)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.entries.values())

    def to_dict(self, include_methods: bool = False) -> dict[str, Any]:
        """Members as a dict of scalars, nested lists and dicts."""
        plain: dict[str, Any] = {}
        for key, value in self.entries.items():
            if isinstance(value, Struct):
                plain[key] = value.to_dict(include_methods)
            else:
                plain[key] = value.to_list() if isinstance(value, Matrix) else value
        if include_methods:
            plain["__struct_methods"] = self.methods
        return plain

    def __repr__(self) -> str:
        return str(self.to_dict())

    def __copy__(self) -> Struct:
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: dict[int, Any]) -> Struct:
        made = object.__new__(type(self))
        entries = {
            key: value.__deepcopy__(memo) if isinstance(value, (Matrix, Struct)) else value for key, value in self.items
        }
        made._fill(entries, self.struct_type, self.methods, None)
        return made

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return _rebuild, (self.struct_type, dict(self.entries))

    @classmethod
    @only_in_python
    def field(
        cls,
        members: dict[str, Any],
        methods: dict[str, Any] | None = None,
        shape: Any = None,
        name: str = "<Struct>",
        offset: Any = None,
        needs_grad: bool = False,
        needs_dual: bool = False,
        layout: Layout = Layout.AOS,
        struct_type: StructType | None = None,
        device: Any = None,
        **kwargs: Any,
    ) -> StructField:
        """A field of structs of the given members; without `shape` it must be placed under `qd.root`.

        `split`, `halo` and `periodic` distribute each member's first axis over ranks: see `qd.field`.
        """
        split = take_split("qd.Struct.field", kwargs)
        return factories.struct_field(
            struct_type or StructType(members, methods),
            shape,
            name,
            offset,
            needs_grad,
            needs_dual,
            layout,
            device,
            split,
        )


def _value(item: Any) -> Any:
    if isinstance(item, dict):
        return Struct(item)
    if isinstance(item, np.ndarray) or (isinstance(item, (list, tuple)) and item):
        return Matrix(item) if np.ndim(item) == 2 else Vector(item)
    return item


def _rebuild(struct_type: StructType | None, entries: dict[str, Any]) -> Struct:
    return Struct(entries) if struct_type is None else Struct._of_type(struct_type, entries)
