"""Levels of memory, and the places of fields in them: `qd.root.dense(qd.ij, (4, 8)).place(x)`.

A tree is described level by level, and each level is described to a `_octants.LevelTree` at once: that is the home of
all arithmetic on levels. When the memory is laid out (`snode_trees.py`), it gives each component its place
(`_octants.Placement`): a byte offset, and for each axis the mixed-radix digits by which an index moves through memory.

References lead upward: a field keeps its places, a place the levels above it, the root the tree and its memory. The
tree and the levels know what is below them by weak references, so that memory goes with the last field or level that
needs it, and waits for no garbage collector.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from octants import _octants
from octants._fields import placement_checks
from octants._fields.axes import axis_numbers
from octants._fields.packed_fields import BitpackedFields, place_in_array, word_of
from octants.exceptions import OctantsAssertionError, OctantsRuntimeError
from octants.types.enums import SNodeGradType
from octants.types.per_axis import per_axis
from octants.types.primitive import DataType

if TYPE_CHECKING:
    from octants._fields.packed_fields import PlacedBits
    from octants._fields.snode_trees import SNodeTree
    from octants._fields.sparse_levels import LevelOfField, SparseLevel
    from octants.types.quant import QuantType

NOT_PLACED = (
    "Field has no allocation. Give this field a shape=, place it with qd.root.dense(...).place(field), or for a "
    "gradient use needs_grad=True or qd.root.lazy_grad()"
)


@dataclass
class Component:
    """One scalar component of a field's elements, and its place."""

    dtype: DataType
    name: str = ""
    node: SNode | None = None
    offset: tuple[int, ...] = ()
    quant: QuantType | None = None
    """The quantized type in memory, if any; `dtype` is then its compute type."""
    bits: PlacedBits | None = field(default=None, repr=False)
    """For a quantized type, the position in its word, once known."""
    grad: Component | None = field(default=None, repr=False)
    dual: Component | None = field(default=None, repr=False)
    role: SNodeGradType = SNodeGradType.PRIMAL
    owner: Any = field(default=None, repr=False)
    """A weak reference to the field that it is of, once that has been asked for its place."""


class SNode:
    """One level of a tree: the root, a dense block of cells, or the place of a component."""

    _octants_entity = "snode"

    def __init__(self, tree: SNodeTree, parent: SNode | None, kind: str, number: int = 0) -> None:
        self._tree = tree
        self._parent = parent
        self._kind = kind
        self._number = number  # in the tree's `levels`
        self._below: list[weakref.ref[SNode]] = []
        self._placed: weakref.ref[Component] | None = None
        self._dtype: DataType | None = None
        self._name = ""
        self._role = SNodeGradType.PRIMAL
        self._sparse: SparseLevel | None = None
        self._levels: tuple[LevelOfField, ...] = ()
        self._axes: tuple[int, ...] = ()
        self._words: SNode | None = None  # of a quant_array: the place of its words
        self._within: tuple[tuple[int, int], ...] = ()  # and the elements in one: axes and extents, outermost first

    # Building

    def dense(self, axes: Any, dimensions: Any) -> SNode:
        """A dense block of cells below this level: extents along the given axes, the first axis outermost in memory."""
        return self._add_level("dense", axes, dimensions)

    def _add_level(self, kind: str, axes: Any, dimensions: Any) -> SNode:
        tree = self._tree
        tree.check_open()
        if self._kind == "quant_array":
            raise OctantsRuntimeError(
                "a quant_array cannot have levels below it: place a field of a quantized type in it"
            )
        tree.levels.check_parent(self._number, kind)
        numbers = axis_numbers(axes)
        number = tree.levels.add_level(self._number, kind, numbers, _sizes(dimensions, len(numbers)))
        child = SNode(tree, self, kind, number)
        child._axes = tuple(numbers)
        self._below.append(weakref.ref(child))
        return child

    def place(self, *args: Any, offset: Any = None) -> SNode:
        """Places fields (or lists of them, or `BitpackedFields`) in each cell of this level, side by side."""
        self._tree.check_open()
        self._tree.levels.check_parent(self._number, "place")
        for arg in args:
            if isinstance(arg, (list, tuple)):
                self.place(*arg, offset=offset)
                continue
            if isinstance(arg, BitpackedFields):
                arg._place_in(self, offset)
                continue
            components = getattr(arg, "_placeable", None)
            if components is None:
                raise ValueError(f"{arg!r} cannot be placed: place() takes fields")
            for component in components():
                self._place_component(component, offset)
        return self

    def _place_component(self, component: Component, offset: Any = None) -> None:
        if component.node is not None:
            made_at = placement_checks.place_made(component)
            where = "" if made_at is None else f", created at {made_at},"
            name, parent = component.name or "(unnamed)", component.node.parent()
            raise OctantsRuntimeError(f"the field {name}{where} has been placed already: in {parent!r}")
        offsets = () if offset is None else _offsets(offset)
        ndim = len(self.shape)
        if offsets and len(offsets) != ndim:
            raise OctantsRuntimeError(f"offset {offset} has {len(offsets)} entries, but the field has {ndim} axes")
        if component.role is SNodeGradType.PRIMAL and (self._kind == "quant_array" or component.quant is not None):
            self._check_packed(component)
        nbytes = component.dtype.nbytes if component.quant is None else 0
        node = SNode(self._tree, self, "place", self._tree.levels.add_place(self._number, nbytes))
        node._placed = weakref.ref(component)
        node._dtype, node._name, node._role = component.dtype, component.name, component.role
        component.node = node
        component.offset = offsets or (0,) * ndim
        self._below.append(weakref.ref(node))

    def _check_packed(self, component: Component) -> None:
        """Positions a component of a quantized type in its word; raises if there is none for it."""
        if self._kind == "quant_array":
            component.bits = place_in_array(component, self)
        elif component.bits is None:
            raise OctantsRuntimeError(
                f"the field {component.name or '(unnamed)'} has the quantized type {component.quant}: place it in "
                "qd.BitpackedFields(...), which is then placed in a level, or in a quant_array level"
            )

    def _place_words(self, word: DataType) -> SNode:
        """Places a word in each cell of this level."""
        self._tree.check_open()
        node = SNode(self._tree, self, "place", self._tree.levels.add_place(self._number, word.nbytes))
        node._dtype, node._name = word, "words"
        self._below.append(weakref.ref(node))
        return node

    def _axes_from_root(self) -> list[int]:
        """The axes of this level and those above it, in ascending order."""
        return sorted({axis for step in self._path_from_root() for axis in step._axes})

    @property
    def _component(self) -> Component | None:
        """The component placed here, while its field is alive."""
        return None if self._placed is None else self._placed()

    @property
    def _placed_field(self) -> Any:
        """The field that is placed here; None for other levels."""
        owner = None if self._component is None else self._component.owner
        return None if owner is None else owner()

    def lazy_grad(self) -> None:
        """Places the gradient of each floating-point field in this level and below, next to the field."""
        self._place_shadow_buffers("grad")

    def lazy_dual(self) -> None:
        """Places the dual of each floating-point field in this level and below, next to the field."""
        self._place_shadow_buffers("dual")

    def _place_shadow_buffers(self, which: str) -> None:
        self._tree.check_open()
        for child in self._get_children():
            component = child._component
            if component is None:
                child._place_shadow_buffers(which)
                continue
            shadow_buffer = getattr(component, which)
            if shadow_buffer is not None and shadow_buffer.node is None:
                self._place_component(shadow_buffer, component.offset or None)

    def pointer(self, axes: Any, dimensions: Any) -> SNode:
        """A sparse level, like `dense` but with cells that are active or not. A store to a field below activates the
        cell.
        """
        return self._add_level("pointer", axes, dimensions)

    def bitmasked(self, axes: Any, dimensions: Any) -> SNode:
        """A sparse level; the same as `pointer`."""
        return self._add_level("bitmasked", axes, dimensions)

    def dynamic(self, axis: Any, dimension: int, chunk_size: int | None = None) -> SNode:
        """A list of at most `dimension` elements along one axis, in each cell of this level. `qd.append` and stores
        extend the list. `chunk_size` has no effect: all elements of a list are allocated in advance.
        """
        if chunk_size is not None and (isinstance(chunk_size, bool) or int(chunk_size) < 1):
            raise OctantsRuntimeError(f"chunk_size must be a positive integer, got {chunk_size!r}")
        if len(axis_numbers(axis)) != 1:
            raise OctantsAssertionError("a dynamic level must have exactly one axis")
        for what, number in (("dimension of a dynamic level", dimension), ("chunk_size", chunk_size)):
            if number is not None and int(number) > 2**31 - 1:
                raise OctantsRuntimeError(f"the {what} cannot exceed 2**31-1, got {number}")
        return self._add_level("dynamic", axis, dimension)

    def quant_array(self, axes: Any, dimensions: Any, max_num_bits: int) -> SNode:
        """A block of elements of a quantized type, packed into one word of `max_num_bits` bits: 8, 16, 32 or 64.

        It takes one field, of quantized integers or fixed-point numbers, and no further levels. Raises
        `OctantsRuntimeError` for another word size.
        """
        word = word_of(max_num_bits)
        numbers = axis_numbers(axes)
        child = self._add_level("dense", axes, dimensions)
        child._kind = "quant_array"
        child._words = self._place_words(word)
        child._within = tuple(zip(numbers, _sizes(dimensions, len(numbers)), strict=True))
        return child

    def deactivate_all(self) -> None:
        """Deactivates all cells of this and all lower sparse levels, and clears their data."""
        self._tree.deactivate_below(self)

    # Looking

    def parent(self, n: int = 1) -> SNode | None:
        """The `n`-th level above this one; None above the root."""
        node: SNode | None = self
        for _ in range(n):
            if node is None:
                return None
            node = node._parent
        return node

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of cells along each used axis, including the levels above."""
        return self._tree.levels.shape(self._number)

    @property
    def _sparse_levels(self) -> tuple[LevelOfField, ...]:
        """The sparse levels above this one, outermost first, and the level itself if it is sparse."""
        self._tree.finalize()
        return self._levels

    @property
    def snode(self) -> SNode:
        """The level itself."""
        return self

    @property
    def _octants_ndrange(self) -> tuple[Any, Any]:
        """Bounds and order of the axes, for loops over the cells of this level."""
        shape = self.shape
        return tuple((0, extent) for extent in shape), tuple(range(len(shape)))

    @property
    def _cell_size_bytes(self) -> int:
        self._tree.finalize()
        return self._tree.levels.cell_bytes(self._number)

    @property
    def _offset_bytes_in_parent_cell(self) -> int:
        return self._tree.levels.offset_in_cell(self._number)

    @property
    def ptr(self) -> SNode:
        """The node itself. Exists because programs written for Quadrants call `snode.ptr.get_snode_grad_type()`."""
        return self

    def get_snode_grad_type(self) -> SNodeGradType:
        """Whether the place holds values, gradients or duals."""
        return self._role

    def has_adjoint_checkbit(self) -> bool:
        """Whether a tape with `validation=True` checks the field."""
        component = self._component
        grad = None if component is None else component.grad
        return grad is not None and grad.node is not None

    def _get_children(self) -> list[SNode]:
        return [child for child in (below() for below in self._below) if child is not None]

    def _descendants(self) -> list[SNode]:
        """All levels and places below this one, in preorder."""
        found: list[SNode] = []
        for child in self._get_children():
            found.append(child)
            found += child._descendants()
        return found

    def _path_from_root(self) -> list[SNode]:
        path: list[SNode] = []
        node: SNode | None = self
        while node is not None:
            path.append(node)
            node = node._parent
        return path[::-1]

    def __str__(self) -> str:
        if self._parent is None:
            return "qd.root"
        return f"{self._parent} => {self._kind} {list(self.shape)}"

    def __repr__(self) -> str:
        return "qd.root" if self._parent is None else f"<qd.SNode of type {self._kind}>"

    def placement(self) -> _octants.Placement:
        """The placement in memory. The tree must be laid out."""
        return self._tree.levels.placement(self._number)


def _sizes(dimensions: Any, count: int) -> tuple[int, ...]:
    given = per_axis(dimensions)
    if len(given) == 1:
        given *= count
    if len(given) != count:
        raise OctantsRuntimeError(f"{count} axes need {count} sizes, got {len(given)}")
    return checked_shape(given)


def checked_shape(shape: Any) -> tuple[int, ...]:
    """Extents as integers, each at least 1."""
    extents = per_axis(shape)
    for number, extent in enumerate(extents):
        if isinstance(extent, (bool, float, str)) or not hasattr(extent, "__index__"):
            raise TypeError(f"the extent of an axis must be an integer, got {extent!r}")
        if int(extent) < 1:
            raise OctantsRuntimeError(
                f"Every dimension of a Quadrants field should be positive: axis {number} has extent {extent}"
            )
    return tuple(int(extent) for extent in extents)


def _offsets(offset: Any) -> tuple[int, ...]:
    given = per_axis(offset)
    for item in given:
        if isinstance(item, (bool, float)) or not hasattr(item, "__index__"):
            raise TypeError(f"the offset of an axis must be an integer, got {item!r}")
    return tuple(int(item) for item in given)
