"""Trees of levels and their memory: `qd.root`, `FieldsBuilder`.

A tree is finalized once: by `FieldsBuilder.finalize`, or the first time that anything needs the memory of a field in
it. Finalizing fixes the place of every component and allocates one buffer for the tree.

A field created with a shape has a separate tree, so that its memory is freed with the field. For users, such trees are
under `qd.root` like all others.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, ClassVar

from octants import _octants
from octants._fields import placement_checks
from octants._fields.axes import axes
from octants._fields.snode import Component, SNode
from octants._program import program_events
from octants._program.current_device import on
from octants._program.on_first_use import OnFirstUse
from octants.exceptions import OctantsRuntimeError

_with_memory: weakref.WeakSet[SNodeTree] = weakref.WeakSet()


class SNodeTree:
    """The state of a tree and, once finalized, its memory. Levels refer to the tree; the tree does not refer to
    them.
    """

    sparse: ClassVar[OnFirstUse] = OnFirstUse("octants._fields.sparse_levels", "SparseSupport")
    """Areas and state of sparse levels. Its module builds on fields, and they on this one."""

    def __init__(self) -> None:
        require_program()
        self._root: weakref.ref[SNode] | None = None
        self.destroyed = False
        self.made_at: str | None = None
        """File and line that created its `FieldsBuilder`."""
        self._end = ""
        self.levels = _octants.LevelTree()
        self._generation = _octants.generation()
        self._serial = _octants.program_serial()
        self._buffer: _octants.Buffer | None = None
        self._opened: list[weakref.ref[Any]] = []

    @classmethod
    def new_root(cls) -> SNode:
        """The root of a new tree."""
        tree = cls()
        root = SNode(tree, None, "root")
        tree._root = weakref.ref(root)
        return root

    @property
    def finalized(self) -> bool:
        """Whether the memory has been laid out."""
        return self._buffer is not None or self.destroyed

    def check_open(self) -> None:
        """Raises if levels can no longer be added."""
        self.check_alive()
        if self.finalized:
            raise OctantsRuntimeError(
                "FieldsBuilder finalized: this tree is in use and cannot take more levels or fields; use "
                "qd.root or a new FieldsBuilder"
            )

    @property
    def alive(self) -> bool:
        """Whether the memory exists or can still be allocated."""
        return not self.destroyed and self._generation == _octants.generation()

    def check_alive(self) -> None:
        """Raises if the memory has been freed."""
        if self._generation == _octants.generation() and not self.destroyed:
            return
        if self.destroyed:
            raise OctantsRuntimeError(self._end)
        raise OctantsRuntimeError(
            "this field belongs to a program that qd.init() or qd.reset() has ended; create it again after qd.init()"
        )

    def finalize(self) -> None:
        """Lays out and allocates the memory, on the first call."""
        if self._buffer is not None:
            return
        self.check_alive()
        if self._serial != _octants.program_serial():
            with _octants.on_program(self._serial):
                self.finalize()
            return
        top = None if self._root is None else self._root()
        assert top is not None, "a level whose memory is accessed keeps the root alive"
        below = top._descendants()
        nbytes, is_sparse = self.levels.lay_out([node._number for node in below])
        if is_sparse:
            nbytes = self.sparse.make_levels(self, below, nbytes)
        try:
            self._buffer = _octants.Buffer(max(nbytes, 1), sparse=is_sparse)
        except MemoryError as error:
            raise (_explained(error, below) if is_sparse else error) from None
        _with_memory.add(self)
        root._close(top)
        program_events.tell(program_events.allocated)

    @property
    def buffer(self) -> _octants.Buffer:
        """The memory, allocated on first use."""
        self.check_alive()
        self.finalize()
        assert self._buffer is not None
        return self._buffer

    def note_access(self, field: Any) -> None:
        """Notes a field that keeps a view of the memory as `_host`."""
        self._opened.append(weakref.ref(field))

    def deactivate_below(self, node: SNode) -> None:
        """Deactivates all cells of the sparse levels from `node` downward."""
        self.check_alive()
        self.finalize()
        with _octants.on_program(self._serial):
            self.sparse.deactivate_below(node)

    def destroy(self) -> None:
        """Frees the memory, after the work that uses it. The fields in it can no longer be used. If views of the memory
        are alive (`to_numpy(copy=False)`, DLPack), it is freed with the last one.
        """
        self.check_alive()
        top = None if self._root is None else self._root()
        below = [] if top is None else top._descendants()
        fields = sorted({node._name for node in below if node._kind == "place" and node._name})
        named = f" (with {', '.join(f'`{name}`' for name in fields)})" if fields else ""
        where = f"created at {self.made_at}{named}"
        self._end = f"the SNode tree of this field has been destroyed: that of the FieldsBuilder {where}"
        self.destroyed = True
        for known in self._opened:
            if (field := known()) is not None:
                field._host = None
        self._opened.clear()
        if self._buffer is not None:
            self._buffer.retire(self._end)
        self._buffer = None


class FieldsBuilder:
    """Builds a tree, which `finalize()` lays out on `device`, by default the current device."""

    def __init__(self, device: Any = None) -> None:
        with on(device):
            self._root = SNodeTree.new_root()
        self._root._tree.made_at = placement_checks.expect_finalize(self)

    def _open_root(self) -> SNode:
        self._root._tree.check_open()
        return self._root

    @property
    def root(self) -> SNode:
        """The root of the tree."""
        return self._root

    @property
    def finalized(self) -> bool:
        """Whether `finalize()` was called."""
        return self._root._tree.finalized

    @property
    def empty(self) -> bool:
        """Whether the tree has no levels and no places yet."""
        return not self._root._below

    def dense(self, indices: Any, dimensions: Any) -> SNode:
        """Like `qd.root.dense`."""
        return self._open_root().dense(indices, dimensions)

    def pointer(self, indices: Any, dimensions: Any) -> SNode:
        """Like `qd.root.pointer`."""
        return self._open_root().pointer(indices, dimensions)

    def bitmasked(self, indices: Any, dimensions: Any) -> SNode:
        """Like `qd.root.bitmasked`."""
        return self._open_root().bitmasked(indices, dimensions)

    def dynamic(self, index: Any, dimension: int, chunk_size: int | None = None) -> SNode:
        """Like `qd.root.dynamic`."""
        return self._open_root().dynamic(index, dimension, chunk_size)

    def quant_array(self, indices: Any, dimensions: Any, max_num_bits: int) -> SNode:
        """Like `qd.root.quant_array`."""
        return self._open_root().quant_array(indices, dimensions, max_num_bits)

    def place(self, *args: Any, offset: Any = None) -> None:
        """Like `qd.root.place`."""
        self._open_root().place(*args, offset=offset)

    def lazy_grad(self) -> None:
        """Like `qd.root.lazy_grad`."""
        self._open_root().lazy_grad()

    def lazy_dual(self) -> None:
        """Like `qd.root.lazy_dual`."""
        self._open_root().lazy_dual()

    def deactivate_all(self) -> None:
        """Deactivates all cells of all sparse levels of the tree, and clears their data."""
        self._root.deactivate_all()

    def finalize(self, raise_warning: bool = True) -> SNodeTree:
        """Lays out and allocates the memory. The returned tree has `destroy()`."""
        tree = self._open_root()._tree
        tree.finalize()
        return tree


class RootProxy:
    """`qd.root`: the current device's tree under construction. Once that tree is in use, a new one takes its place."""

    _octants_entity = "snode"

    def __init__(self) -> None:
        # By program serial.
        self._open: dict[int, SNode] = {}
        self._closed: set[int] = set()
        self._shaped: weakref.WeakSet[SNode] = weakref.WeakSet()

    def _current(self) -> SNode:
        serial = _octants.program_serial()
        top = self._open.get(serial)
        if top is None or not top._tree.alive:
            top = self._open[serial] = SNodeTree.new_root()
        return top

    def _close(self, top: SNode) -> None:
        """Drops a tree that takes no more levels."""
        serial = top._tree._serial
        if self._open.get(serial) is top:
            del self._open[serial]
            self._closed.add(serial)

    def forget(self) -> None:
        """Drops the tree under construction and the memory of all trees. Called when the program ends."""
        self._open.clear()
        self._closed.clear()
        for tree in list(_with_memory):
            tree._buffer = None
        _with_memory.clear()

    def own_tree(self) -> SNode:
        """The root of a new tree for a field that has a shape."""
        top = SNodeTree.new_root()
        self._shaped.add(top)
        return top

    def dense(self, axes: Any, dimensions: Any) -> SNode:
        """A dense block of cells: extents along the given axes, the first axis outermost in memory."""
        return self._current().dense(axes, dimensions)

    def place(self, *args: Any, offset: Any = None) -> None:
        """Places fields without axes."""
        self._current().place(*args, offset=offset)

    def pointer(self, axes: Any, dimensions: Any) -> SNode:
        """Like `SNode.pointer`."""
        return self._current().pointer(axes, dimensions)

    def bitmasked(self, axes: Any, dimensions: Any) -> SNode:
        """Like `SNode.bitmasked`."""
        return self._current().bitmasked(axes, dimensions)

    def dynamic(self, axis: Any, dimension: int, chunk_size: int | None = None) -> SNode:
        """Like `SNode.dynamic`."""
        return self._current().dynamic(axis, dimension, chunk_size)

    def quant_array(self, axes: Any, dimensions: Any, max_num_bits: int) -> SNode:
        """Like `SNode.quant_array`."""
        return self._current().quant_array(axes, dimensions, max_num_bits)

    def lazy_grad(self) -> None:
        """Places the gradient of each floating-point field whose tree is not in use yet, next to the field."""
        self._place_shadow_buffers("grad")

    def lazy_dual(self) -> None:
        """Places the dual of each floating-point field whose tree is not in use yet, next to the field."""
        self._place_shadow_buffers("dual")

    def _place_shadow_buffers(self, which: str) -> None:
        self._current()._place_shadow_buffers(which)
        for top in list(self._shaped):
            if top._tree.alive and not top._tree.finalized:
                top._place_shadow_buffers(which)

    def deactivate_all(self) -> None:
        """Deactivates all cells of the sparse levels of all trees, and clears their data."""
        for tree in list(_with_memory):
            if tree.alive and tree._root is not None and (top := tree._root()) is not None:
                top.deactivate_all()

    def parent(self, n: int = 1) -> None:
        """None: there is no level above the root."""
        return

    @property
    def shape(self) -> tuple[int, ...]:
        """(): the root has one cell."""
        return ()

    @property
    def finalized(self) -> bool:
        """Whether the tree under construction is in use."""
        serial = _octants.program_serial()
        return serial not in self._open and serial in self._closed

    def _get_children(self) -> list[SNode]:
        return self._current()._get_children()

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("qd.root cannot be iterated over")

    def __eq__(self, other: object) -> bool:
        return other is self or (isinstance(other, SNode) and other._kind == "root")

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return "qd.root"


root = RootProxy()


def _explained(error: MemoryError, levels: list[SNode]) -> MemoryError:
    """The error that a tree with sparse levels does not fit, with the level of the most cells."""
    largest = max((node for node in levels if node._kind != "place"), key=lambda node: prod(node.shape))
    return MemoryError(
        f"{error}. A tree takes the address space of its full extent, whether its cells are active or not; its largest "
        f"level is {largest}, with {prod(largest.shape)} cells"
    )


def require_program() -> None:
    """Raises before `qd.init()`."""
    if not _octants.is_initialized():
        raise OctantsRuntimeError("no program is running. Maybe you forgot to call `qd.init()` first?")


def place_in_own_tree(
    groups: Sequence[Sequence[Component]],
    extents: tuple[int, ...],
    sequence: tuple[int, ...],
    offsets: tuple[int, ...] | None,
) -> None:
    """Places components of one shape in a new tree: one block per group, whose members share its cells."""
    top = root.own_tree()
    for group in groups:
        block = top.dense(axes(*sequence), tuple(extents[axis] for axis in sequence)) if extents else top
        for part in group:
            block._place_component(part, offsets)
