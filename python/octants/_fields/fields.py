"""Fields: arrays in memory that the program lays out, known to kernels by name.

A field's element is a scalar (`ScalarField`) or a vector or matrix (`MatrixField`); fields of structs are in
`struct.py`. Where the components lie is the business of `snode.py`; this file is the host's side of it: element access,
whole-array copies. They are made by `make_field.py`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from octants import _octants
from octants._arrays import interchange, shadow_buffers
from octants._arrays.host_memory import CopiedMemory, HostMemory, host_access
from octants._arrays.host_views import report_accesses
from octants._arrays.queued_access import Elements
from octants._arrays.whole_arrays import WholeArray, component_key, flat_index, items_in_python
from octants._fields.field_class import Field
from octants._fields.packed_fields import PackedMemory, PackedPart, part_of
from octants._fields.placement_checks import refuse_unplaced_fields
from octants._fields.snode import NOT_PLACED, Component, SNode
from octants._fields.snode_trees import SNodeTree, place_in_own_tree
from octants._language.python_scope import only_in_python, runs_as_python
from octants.exceptions import OctantsOutOfBoundsError, OctantsRuntimeError
from octants.types.enums import SNodeGradType
from octants.types.primitive import PLAIN_NUMBERS, DataType, i32, is_plain_number, numpy_dtype
from octants.types.tensor_types import components_array
from octants.types.values import Matrix

if TYPE_CHECKING:
    from octants._fields.sparse_levels import LevelOfField
    from octants.types.quant import QuantType


class TensorField(Field, WholeArray):
    """Base class of fields of scalars, vectors and matrices."""

    _octants_entity = "field"
    _tree: SNodeTree
    _positions: ScalarField | None = None
    """For each index, the position of its element in memory, if reordered."""

    def __init__(
        self, dtype: DataType, element_shape: tuple[int, ...], components: Sequence[Component], name: str = ""
    ) -> None:
        self._dtype = dtype
        self._element_shape = element_shape
        self._parts = list(components)
        self._name = name
        self._qd_layout: tuple[int, ...] | None = None
        self._host: HostMemory | CopiedMemory | PackedMemory | None = None
        self._extents: tuple[int, ...] | None = None
        self._is_sparse = False
        self._is_metadata = False
        self._is_packed = any(part.quant is not None for part in self._parts)
        self._placements: list[_octants.Placement] | None = None
        self._marks: TensorField | None = None
        self.grad: Any = None
        self.dual: Any = None

    # Read by the compiler

    @property
    def _dtype_name(self) -> str:
        return self._dtype.name

    @property
    def _shape(self) -> tuple[int, ...]:
        return self._place().shape

    @property
    def _offset(self) -> tuple[int, ...]:
        self._place()
        return self._parts[0].offset

    @property
    def _root(self) -> SNodeTree:
        return self._place()._tree

    @property
    def _serial(self) -> int:
        return self._root._serial

    @property
    def _packed(self) -> list[PackedPart] | None:
        """For a quantized type: the position of each component in its word."""
        if not self._is_packed:
            return None
        self._placed()
        return [part_of(part) for part in self._parts]

    def _place(self) -> SNode:
        """The placement of the first component. Raises if the field has not been placed."""
        node = self._parts[0].node
        if node is None:
            if self._parts[0].role is SNodeGradType.ADJOINT:
                name = self._name or "of a field"
                raise OctantsRuntimeError(
                    f"Field has no allocation. Gradient {name} has not been placed, check whether `needs_grad=True`"
                )
            raise OctantsRuntimeError(self._named(NOT_PLACED))
        self._parts[0].owner = weakref.ref(self)
        return node

    def _placed(self) -> list[_octants.Placement]:
        """The placement of each component. Lays out the tree on first use."""
        if self._placements is None:
            tree = self._root
            nodes = [part.node for part in self._parts]
            if any(node is None or node._tree is not tree for node in nodes):
                raise OctantsRuntimeError(self._named("all components of a field must be placed in the same tree"))
            tree.finalize()
            self._placements = [node.placement() for node in nodes if node is not None]
        return self._placements

    @property
    def _sparse_levels(self) -> tuple[LevelOfField, ...]:
        """The sparse levels above the field's place, outermost first."""
        self._placed()
        return self._place()._levels

    def _elements(self) -> Elements:
        self._memory()  # raises when the program has ended
        if self._is_packed:
            raise OctantsRuntimeError(self._named(PackedMemory.NO_VIEW))
        return Elements(self._root.buffer, self._dtype.numpy, self._element_shape, self._placed())

    def _memory(self) -> HostMemory | CopiedMemory | PackedMemory:
        """Host access to the elements; raises when the program that made the field has ended."""
        host = self._host
        if host is None:
            return self._open_memory()
        self._tree.check_alive()
        return host

    def _open_memory(self) -> HostMemory | CopiedMemory | PackedMemory:
        tree = self._tree = self._root
        tree.check_alive()
        refuse_unplaced_fields()
        self._shifted = any(self._parts[0].offset)
        self._is_sparse = bool(self._sparse_levels)
        if self._is_packed:
            self._host = PackedMemory(self)
        else:
            self._host = host_access(tree.buffer, self._dtype.numpy, self._element_shape, self._placed())
        tree.note_access(self)
        return self._host

    def _scalar_components(self) -> list[Any]:
        """A scalar field for each component of an element, in row-major order; a scalar field itself."""
        return [self]

    def _placeable(self) -> list[Component]:
        return self._parts

    def _named(self, message: str) -> str:
        return f"field {self._name}: {message}" if self._name else message

    # Description

    @property
    def dtype(self) -> DataType | QuantType:
        """The scalar type, which may be a quantized one."""
        return self._parts[0].quant or self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis."""
        if self._extents is None:
            self._extents = self._shape
        return self._extents

    @property
    def snode(self) -> SNode:
        """The place of the field (of its first component)."""
        return self._place()

    @property
    def _snode(self) -> SNode:
        return self._place()

    @property
    def layout(self) -> tuple[int, ...] | None:
        """The axes, outermost first in memory, if `order=` changed the natural order; else None."""
        return self._qd_layout

    @property
    def element_shape(self) -> tuple[int, ...]:
        """Shape of an element."""
        return self._element_shape

    def parent(self, n: int = 1) -> SNode | None:
        """The level `n` above the field's place; None above the root or before the field is placed."""
        node = self._parts[0].node
        return None if node is None else node.parent(n)

    @property
    def _read_marks(self) -> TensorField | None:
        """An i32 field in which validation marks the elements that kernels have read; None if the field has no
        gradient.
        """
        if self._marks is None and self.has_grad():
            name, shape = f"{self._name}.marks", self.shape
            offset = self._offset if any(self._offset) else None
            marks = ScalarField(i32, (), [Component(i32, name)], name)
            with _octants.on_program(self._serial):
                place_in_own_tree([marks._parts], shape, tuple(range(len(shape))), offset)
            for kind in ("field", "marks"):
                shadow_buffers.remember(kind, marks)
            self._marks = marks
        return self._marks

    def has_grad(self) -> bool:
        """Whether the gradient has memory."""
        return _is_placed(self.grad)

    def has_dual(self) -> bool:
        """Whether the dual has memory."""
        return _is_placed(self.dual)

    def __str__(self) -> str:
        if self._parts[0].node is None:
            return "<a field without memory>"
        if self._root.destroyed:
            return "<a field of a destroyed SNode tree>"
        return str(self.to_numpy()) if self._root.alive else "<a field of a program that has ended>"

    # Elements

    def _checked_index(self, shape: tuple[int, ...], key: Any) -> tuple[int, ...]:
        offset = self._parts[0].offset

        def illegal(item: Any) -> str:
            kind = f"Detected illegal element of type: {type(item)}."
            return self._named(f"{kind} Please be aware that slicing a qd.field is not supported so far.")

        flat = flat_index(key, illegal)
        if not shape and flat == [0] and runs_as_python():
            return ()
        if len(flat) != len(shape):
            raise AssertionError(
                self._named(
                    f"Slicing is not supported on qd.field: {len(shape)} axes need {len(shape)} indices, got "
                    f"{len(flat)}"
                )
            )
        for value, extent, start in zip(flat, shape, offset, strict=True):
            if not start <= value < start + extent:
                span = "" if not any(offset) else f" and offset {offset}"
                raise OctantsOutOfBoundsError(
                    self._named(f"Accessing field of size {shape}{span} with indices {tuple(flat)}: out of bounds")
                )
        return tuple(value - start for value, start in zip(flat, offset, strict=True)) if any(offset) else tuple(flat)

    def __iter__(self) -> Iterator[Any]:
        if runs_as_python():
            return items_in_python(self)
        raise NotImplementedError("Struct for is only available in Quadrants scope: loop over a field in a kernel")

    # Whole arrays

    @only_in_python
    def to_numpy(self, dtype: Any = None, *, copy: bool | None = True) -> np.ndarray[Any, Any]:
        """All elements as an array of shape `shape + element_shape`. `copy=False` returns a view of the field's memory
        or raises; `copy=None` returns a view if possible.
        """
        return self._export(dtype, copy, self._element_shape)

    def _export(self, dtype: Any, copy: bool | None, element_shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        memory = self._memory()
        wanted = None if dtype is None else numpy_dtype(dtype)
        if copy is not True:
            direct = memory.direct()
            if direct is not None and (wanted is None or wanted == direct.dtype):
                return report_accesses(direct.reshape(direct.shape[: len(memory.shape)] + element_shape))
            if copy is False:
                raise ValueError(self._named(memory.NO_VIEW))
        values = memory.read().reshape(memory.shape + element_shape)
        return values if wanted is None else values.astype(wanted, copy=False)

    def _import(self, arr: np.ndarray[Any, Any], qd_stream: Any = None) -> None:
        memory = self._memory()
        if arr.shape != memory.shape + memory.element_shape:
            raise ValueError(
                self._named(
                    f"qd.field shape {memory.shape + memory.element_shape} does not match the numpy array shape "
                    f"{arr.shape}"
                )
            )
        self._write(arr, qd_stream)

    @only_in_python
    def copy_from(self, other: TensorField, qd_stream: Any = None) -> None:
        """Sets all elements from another field of the same shape."""
        if not isinstance(other, TensorField):
            raise TypeError("Cannot copy from a non-field object")
        if self.shape != other.shape:
            raise ValueError(f"qd.field shape {self.shape} does not match the source field shape {other.shape}")
        if self._element_shape != other._element_shape:
            raise ValueError(
                f"elements of shape {other._element_shape} cannot be copied to elements of shape {self._element_shape}"
            )
        self._memory()
        if self._positions is not other._positions:
            self.from_numpy(other.to_numpy(), qd_stream)
            return
        if self._is_sparse:
            SNodeTree.sparse.activate_all(self._sparse_levels, qd_stream)
        if self._is_packed or other._is_packed:
            PackedMemory(self).copy(other, qd_stream)
        else:
            self._copy(other, qd_stream)

    def fill(self, val: Any, qd_stream: Any = None) -> None:
        """Sets all elements to a scalar, or to one vector or matrix. Below sparse levels, only those in active
        cells.
        """
        self._memory()
        if not (self._is_sparse or self._is_packed):
            super().fill(val, qd_stream)
            return
        with _octants.on_program(self._serial):
            SNodeTree.sparse.fill(self, self._element(val), qd_stream)
        if shadow_buffers.open_scopes:
            shadow_buffers.host_wrote(self)

    @only_in_python
    def from_torch(self, arr: Any) -> None:
        """Sets all elements from a torch tensor. Below sparse levels, only those in active cells."""
        self._memory()
        if self._is_sparse or self._is_packed:
            self.from_numpy(interchange.from_torch(arr))
        else:
            super().from_torch(arr)

    def _write(self, arr: np.ndarray[Any, Any], qd_stream: Any) -> None:
        if self._is_sparse or self._is_packed:
            values = interchange.converted(arr, self._memory().dtype)
            with _octants.on_program(self._serial):
                SNodeTree.sparse.write(self, values, qd_stream)
        else:
            super()._write(arr, qd_stream)

    @staticmethod
    def _values(value: Any) -> np.ndarray[Any, Any]:
        return np.asarray(value.to_numpy() if isinstance(value, Matrix) else value)

    def _element(self, value: Any) -> Any:
        """A value as one element of the field's type (a scalar stays one)."""
        if is_plain_number(value):
            return self._dtype.convert(value)
        values = self._values(value)
        if values.dtype == object or values.dtype.kind not in "biuf":
            raise TypeError(self._named(f"expected numbers, got {value!r}"))
        if values.ndim == 0:
            return self._dtype.convert(values.item())
        shape = self._element_shape
        if values.shape != shape and values.size == int(np.prod(shape)) and values.ndim <= 2:
            values = values.reshape(shape)
        if values.shape != shape:
            raise ValueError(self._named(f"an element must have shape {shape}, got {value!r}"))
        return components_array(values.ravel().tolist(), self._dtype).reshape(shape)

    def __copy__(self) -> TensorField:
        """The field itself: a shallow copy shares the memory."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._host = None
        return other

    def __reduce__(self) -> NoReturn:
        raise TypeError("a field cannot be pickled; pickle to_numpy(), or use qd.tensor(...)")


class ScalarField(TensorField):
    """A field of scalars."""

    def __getitem__(self, key: Any) -> Any:
        memory = self._memory()
        return memory.get(self._index(memory, key))

    def __setitem__(self, key: Any, value: Any) -> None:
        memory = self._memory()
        index = self._index(memory, key)
        if type(value) not in PLAIN_NUMBERS and isinstance(value, (str, bytes, list, tuple, dict, Matrix)):
            raise TypeError(self._named(f"an element must be a number, got {value!r}"))
        self._dtype.check_element(value)
        memory.set(index, self._dtype.convert(value))
        if self._is_sparse:
            SNodeTree.sparse.activate(self._sparse_levels, index)
        if shadow_buffers.open_scopes:
            shadow_buffers.host_wrote(self, key)

    def __repr__(self) -> str:
        return "<qd.field>"


class MatrixField(TensorField):
    """A field of vectors or matrices."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._scalar_fields: dict[int, ScalarField] = {}

    def _scalar_components(self) -> list[Any]:
        return [self.get_scalar_field(*index) for index in np.ndindex(self._element_shape)]

    @property
    def n(self) -> int:
        """Rows of an element, or components of a vector."""
        return self._element_shape[0]

    @property
    def m(self) -> int:
        """Columns of an element; 1 for vectors."""
        return self._element_shape[1] if len(self._element_shape) == 2 else 1

    @property
    def ndim(self) -> int:
        """2, or 1 for vectors."""
        return len(self._element_shape)

    def get_scalar_field(self, *indices: int) -> ScalarField:
        """A scalar field of one component, in the memory of this field."""
        if len(indices) not in (1, 2) or (len(indices) == 2 and len(self._element_shape) == 1 and indices[1] != 0):
            raise IndexError(f"indices {indices} do not fit the element shape {self._element_shape}")
        place = indices[0] * self.m + (indices[1] if len(indices) == 2 else 0)
        # One object per component: a kernel is compiled for each object it is given.
        if place in self._scalar_fields:
            return self._scalar_fields[place]
        component = self._scalar_fields[place] = ScalarField(self._dtype, (), [self._parts[place]], self._name)
        component._qd_layout = self._qd_layout
        if self.grad is not None:
            component.grad = self.grad.get_scalar_field(*indices)
        if self.dual is not None:
            component.dual = self.dual.get_scalar_field(*indices)
        return component

    def __getitem__(self, key: Any) -> Any:
        memory = self._memory()
        if (apart := component_key(key, len(memory.shape))) is not None:
            return self._typed(self[apart[0]][apart[1]])
        index = self._index(memory, key)

        def write_back(component: Any, value: Any) -> None:
            self._store_component(index, component, value)
            if shadow_buffers.open_scopes:
                shadow_buffers.host_wrote(self, key, component)

        return Matrix._around(memory.element(index), self._dtype, write_back)

    def _store_component(self, index: tuple[int, ...], component: Any, value: Any) -> None:
        store_component(self._memory(), self._dtype, index, component, value)
        if self._is_sparse:
            SNodeTree.sparse.activate(self._sparse_levels, index)

    def __setitem__(self, key: Any, value: Any) -> None:
        memory = self._memory()
        if (apart := component_key(key, len(memory.shape))) is not None:
            self[apart[0]][apart[1]] = value
            return
        index = self._index(memory, key)
        element = self._element(value)
        if not isinstance(element, np.ndarray):
            raise TypeError(self._named(f"an element must have shape {self._element_shape}, got {value!r}"))
        if not self._dtype.is_float:
            self._dtype.check_components(self._values(value))
        memory.set(index, element)
        if self._is_sparse:
            SNodeTree.sparse.activate(self._sparse_levels, index)
        if shadow_buffers.open_scopes:
            shadow_buffers.host_wrote(self, key)

    @only_in_python
    def to_numpy(  # type: ignore[override]
        self, keep_dims: bool = False, dtype: Any = None, *, copy: bool | None = True
    ) -> np.ndarray[Any, Any]:
        """All elements as an array of shape `shape + (n, m)`, or `shape + (n,)` if m is 1 and `keep_dims` is not
        set.
        """
        return self._export(dtype, copy, self._element_axes(keep_dims))

    def _element_axes(self, keep_dims: bool) -> tuple[int, ...]:
        return (self.n, self.m) if keep_dims or self.m > 1 else (self.n,)

    def _import(self, arr: np.ndarray[Any, Any], qd_stream: Any = None) -> None:
        accepted = {self.shape + (self.n, self.m), self.shape + self._element_shape}
        if self.m == 1:
            accepted |= {(*self.shape, self.n), (*self.shape, 1, self.n)}
        if arr.shape not in accepted:
            raise ValueError(
                self._named(
                    f"qd.field shape {self.shape + self._element_shape} does not match the numpy array shape "
                    f"{arr.shape}"
                )
            )
        super()._import(arr.reshape(self.shape + self._element_shape), qd_stream)

    @only_in_python
    def to_torch(self, device: Any = None, keep_dims: bool = False, *, copy: bool | None = True) -> Any:
        """All elements as a torch tensor on `device` (the CPU by default)."""
        return self._memory().torch(self, device, copy).reshape(self.shape + self._element_axes(keep_dims))

    def __repr__(self) -> str:
        return f"<{self.n}x{self.m} qd.Matrix.field>"


def store_component(
    memory: HostMemory | CopiedMemory | PackedMemory,
    dtype: DataType,
    index: tuple[int, ...],
    component: Any,
    value: Any,
) -> None:
    """Stores a value into a component, or into a slice of the components, of an element."""
    place = component if type(component) is tuple else (component,)
    if isinstance(value, np.ndarray):
        element = memory.get(index)
        element[place] = value
        memory.set(index, element)
        return
    memory.set_component(index, place, dtype.convert(value))


def _is_placed(shadow_buffer: Any) -> bool:
    return shadow_buffer is not None and shadow_buffer._parts[0].node is not None
