"""Struct types: `qd.types.struct(pos=vec3, mass=qd.f32)` and `@qd.dataclass`.

A type is callable in Python scope and builds a `Struct`; members left out are zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octants.exceptions import OctantsSyntaxError
from octants.types.primitive import DataType, resolve_dtype
from octants.types.tensor_types import MatrixType, UnpackedVectorType, VectorType

if TYPE_CHECKING:
    from octants.struct import Struct, StructField


class StructType:
    """Named members, each a scalar, vector, matrix or struct type, and methods that take the struct first."""

    _octants_entity = "struct_type"

    def __init__(self, members: dict[str, Any], methods: dict[str, Any] | None = None, name: str = "struct") -> None:
        if not isinstance(members, dict):
            # Python calls the type of a base for `class Derived(Base)`, with name, bases and body.
            raise TypeError(f"class {members}: a struct type cannot be a base class; a member may be of its type")
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
                        f"another member of {self.name}: a member name {part!r} collides with a synthetic field. Rename "
                        "one of them"
                    )
                self._declare(part, float if value.dtype is None else value.dtype)
        self.methods = dict(methods or {})

    def _declare(self, key: str, type_: Any) -> None:
        if key in self._declared:
            raise OctantsSyntaxError(
                f"member {key} of {self.name} is there twice: components of an unpacked vector are named so"
            )
        self._declared[key] = type_

    @property
    def members(self) -> dict[str, Any]:
        """Member names and types in order."""
        return {
            key: value if isinstance(value, (MatrixType, StructType)) else resolve_dtype(value)
            for key, value in self._declared.items()
        }

    def __instancecheck__(self, value: object) -> bool:
        """`isinstance(value, T)`: a struct of this type, or one made of a dict with the same members."""
        from octants.struct import Struct

        if not isinstance(value, Struct):
            return False
        if value.struct_type is not None:
            return value.struct_type == self
        return list(value.entries) == list(self.members)

    def __call__(self, *args: Any, **kwargs: Any) -> Struct:
        """A value of this type. Positional arguments fill the members in order; what is left out is zero."""
        from octants.struct import Struct

        given: dict[str, Any] = {}
        if len(args) == 1 and not kwargs and isinstance(args[0], (dict, Struct)) and self._describes(args[0]):
            source = args[0]
            given = dict(source.items() if isinstance(source, dict) else source.entries)
        else:
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
        """A struct of which every number is `value`."""
        from octants.struct import Struct

        def filled(type_: Any) -> Any:
            return type_.filled_with_scalar(value) if isinstance(type_, StructType) else convert_member(type_, value)

        return Struct._of_type(self, {key: filled(type_) for key, type_ in self.members.items()})

    def field(self, shape: Any = None, offset: Any = None, needs_grad: bool = False, **kwargs: Any) -> StructField:
        """A field of such structs: the arguments of `qd.Struct.field` after the members."""
        from octants.struct import Struct

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
        from octants.struct import Struct

        if isinstance(value, (dict, Struct)):
            return type_(value)
        return type_(*value) if isinstance(value, (list, tuple)) else type_(value)
    assert isinstance(type_, (MatrixType, VectorType))
    return type_(value)


def _member_type(key: str, type_: Any) -> Any:
    if isinstance(type_, (MatrixType, StructType)):
        return type_
    try:
        resolve_dtype(type_)
    except ValueError as error:
        raise ValueError(f"struct member {key}: {error}") from None
    return type_
