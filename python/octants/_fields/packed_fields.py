"""Fields of quantized types: their bit layout in words, and host access.

Words are placed in a tree like other components. A component of a quantized type additionally has a placement of zero
bytes, which gives it a shape, an offset and the sparse levels above it. Kernels convert between words and values
(`lower/packed_fields`); the host reads and writes elements through kernels.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from operator import add
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from octants import _octants
from octants._arrays import interchange
from octants._arrays.host_memory import MemoryLayout, component_number, wide_type
from octants._fields.packed_kernels import copy_elements, read_element, read_elements, write_element
from octants.exceptions import OctantsCompilationError, OctantsRuntimeError
from octants.types.primitive import BY_NAME, DataType
from octants.types.quant import QuantType

if TYPE_CHECKING:
    from octants._fields.fields import TensorField
    from octants._fields.snode import Component, SNode

Digits = tuple[int, int, bool]
"""A bit field of a word: lowest bit, number of bits, and whether it is signed."""

_WORDS = {bits: BY_NAME[f"u{bits}"] for bits in (8, 16, 32, 64)}


@dataclass(eq=False)
class PlacedBits:
    """The position of a component of a quantized type in a cell."""

    words: SNode
    """The place of the word."""
    digits: Digits
    exponent: tuple[int, int] | None = None
    """The bit field of the exponent of a float: lowest bit and number of bits."""
    shared: list[Digits] | None = None
    """The bit fields of all values with this exponent, if it is shared."""


@dataclass(frozen=True, eq=False)
class PackedPart:
    """A component of a quantized type, in the form that the compiler reads."""

    words: _octants.Placement
    word: str
    """Name of the type of a word."""
    axes: tuple[int, ...]
    """For each axis of the words, the field's axis."""
    within: tuple[tuple[int, int], ...]
    """The field's axes, outermost first, and the number of elements along each within a word."""
    digits: Digits
    scale: float | None
    exponent: tuple[int, int] | None
    shared: list[Digits] | None


def part_of(component: Component) -> PackedPart:
    """The `PackedPart` of a placed component."""
    node, bits, quant = component.node, component.bits, component.quant
    assert node is not None
    assert bits is not None
    assert quant is not None
    level = node._parent
    assert level is not None
    axes = node._axes_from_root()
    within = level._within if level._kind == "quant_array" else ()
    assert bits.words._dtype is not None
    return PackedPart(
        words=bits.words.placement(),
        word=bits.words._dtype.name,
        axes=tuple(axes.index(axis) for axis in bits.words._axes_from_root()),
        within=tuple((axes.index(axis), extent) for axis, extent in within),
        digits=bits.digits,
        scale=quant.scale,
        exponent=bits.exponent,
        shared=bits.shared,
    )


class BitpackedFields:
    """Fields of quantized types packed into one word. First `place` the fields in it, then place it in a level.

    `max_num_bits` is the size of the word: 8, 16, 32 or 64. Raises `OctantsRuntimeError` for another size.
    """

    def __init__(self, max_num_bits: int) -> None:
        self._word = word_of(max_num_bits)
        self._free = 0
        self._components: list[tuple[Component, Digits, tuple[int, int] | None, list[Digits] | None]] = []
        self._is_placed = False

    def place(self, *args: Any, shared_exponent: bool = False) -> None:
        """Packs fields of quantized types into the word, starting at the lowest free bit. `shared_exponent=True` gives
        the floats among these fields one common exponent.

        Raises `OctantsRuntimeError` for fields of other types, if the word is too small, and after the word is placed;
        `OctantsCompilationError` if fewer than two components would share an exponent.
        """
        if self._is_placed:
            raise OctantsRuntimeError("these BitpackedFields are already placed and cannot take more fields")
        components = [part for arg in args for part in _components_of(arg)]
        types = [_quant_type(part) for part in components]
        if not shared_exponent:
            for part, quant in zip(components, types, strict=True):
                exponent = self._take(quant.exponent_bits) if quant.exponent_bits else None
                digits = (*self._take(quant.bits), quant.signed)
                self._components.append((part, digits, exponent, None))
            return
        # Programs look for these words, so they are spelled as Quadrants spells them.
        if len(components) < 2:
            raise OctantsCompilationError("At least 2 fields need to be placed when shared_exponent=True")
        widths = {quant.exponent_bits for quant in types}
        if len(widths) > 1 or 0 in widths:
            raise OctantsRuntimeError(
                f"only floats with the same exponent bits can share an exponent, got {', '.join(map(str, types))}"
            )
        exponent = self._take(widths.pop())
        shared: list[Digits] = []
        for part, quant in zip(components, types, strict=True):
            digits = (*self._take(quant.bits), quant.signed)
            shared.append(digits)
            self._components.append((part, digits, exponent, shared))

    def _take(self, bits: int) -> tuple[int, int]:
        """Allocates the next bits of the word."""
        first, self._free = self._free, self._free + bits
        if self._free > self._word.bits:
            raise OctantsRuntimeError(f"the fields take {self._free} bits, but the word has only {self._word.bits}")
        return first, bits

    def _place_in(self, level: SNode, offset: Any) -> None:
        """Places the word and its fields in each cell of a level."""
        if self._is_placed:
            raise OctantsRuntimeError("these BitpackedFields have been placed already")
        if not self._components:
            raise OctantsRuntimeError("these BitpackedFields are empty: place fields in them first")
        for component, *_ in self._components:
            _quant_type(component)
        self._is_placed = True
        words = level._place_words(self._word)
        for component, digits, exponent, shared in self._components:
            component.bits = PlacedBits(words, digits, exponent, shared)
            level._place_component(component, offset)


def place_in_array(component: Component, level: SNode) -> PlacedBits:
    """The position of the elements of a field in the words of a `quant_array` level."""
    quant, words = _quant_type(component), level._words
    assert words is not None
    assert words._dtype is not None
    if not quant.digits_are_integers:
        raise OctantsRuntimeError(
            f"a quant_array supports only quantized integers and fixed-point numbers, not {quant}"
        )
    if level._get_children():
        raise OctantsRuntimeError("a quant_array holds only one component, and already has one")
    count = 1
    for _, extent in level._within:
        count *= extent
    if count * quant.bits > words._dtype.bits:
        raise OctantsRuntimeError(
            f"{count} elements of {quant} take {count * quant.bits} bits, but the word of the quant_array has "
            f"only {words._dtype.bits}"
        )
    return PlacedBits(words, (0, quant.bits, quant.signed))


def word_of(max_num_bits: Any) -> DataType:
    """The integer type of words of that many bits."""
    if isinstance(max_num_bits, bool) or max_num_bits not in _WORDS:
        raise OctantsRuntimeError(f"max_num_bits must be 8, 16, 32 or 64, got {max_num_bits!r}")
    return _WORDS[max_num_bits]


def _components_of(arg: Any) -> list[Component]:
    if isinstance(arg, (list, tuple)):
        return [part for each in arg for part in _components_of(each)]
    components = getattr(arg, "_placeable", None)
    if components is None:
        raise ValueError(f"{arg!r} cannot be placed: place() takes fields")
    found: list[Component] = components()
    return found


def _quant_type(component: Component) -> QuantType:
    name = component.name or "(unnamed)"
    if component.quant is None:
        raise OctantsRuntimeError(
            f"the field {name} has the type {component.dtype}: only fields of quantized types can be packed; place it "
            "in a level"
        )
    if component.node is not None or component.bits is not None:
        raise OctantsRuntimeError(f"the field {name} has been placed already")
    return component.quant


class PackedMemory:
    """Reads and writes elements of a quantized type with kernels. The same interface as `HostMemory`."""

    NO_VIEW = "copy=False: elements of a quantized type are stored as bits of a word; use copy=None or copy=True"

    at_once = False

    def __init__(self, field: TensorField) -> None:
        # The field owns this object. A strong reference would be a cycle that only the garbage collector frees.
        self._field = weakref.ref(field)
        self.shape = field._shape
        self.element_shape = field._element_shape
        self._dtype = field._dtype
        self.dtype = field._dtype.numpy
        self._first = field._offset
        self._shifted = any(self._first)
        self._serial = field._serial

    def _whole(self) -> TensorField:
        field = self._field()
        assert field is not None, "a caller that accesses elements refers to the field"
        return field

    def _parts(self) -> list[Any]:
        return self._whole()._scalar_components()

    def read(self) -> np.ndarray[Any, Any]:
        """All elements in a new array of shape `shape + element_shape`; zeros for inactive cells."""
        parts = self._parts()
        found = []
        with _octants.on_program(self._serial):
            for part in parts:
                values = np.zeros(self.shape, self.dtype)
                read_elements(part, values, self._first)
                found.append(values)
        return found[0] if not self.element_shape else np.stack(found, axis=-1).reshape(self.shape + self.element_shape)

    def write(self, values: np.ndarray[Any, Any]) -> None:
        """Stores all elements."""
        self._whole()._write(values.reshape(self.shape + self.element_shape), None)

    def fill(self, value: Any) -> None:
        """Stores one element (an array of `element_shape`, or a scalar) everywhere."""
        self._whole().fill(value)

    def copy(self, source: TensorField, qd_stream: Any) -> None:
        """Sets all elements from another field of the same shape."""
        shift = tuple(a - b for a, b in zip(source._offset, self._first, strict=True))
        copy = copy_elements(self._dtype)
        with _octants.on_program(self._serial):
            for to, part in zip(self._parts(), source._scalar_components(), strict=True):
                copy(to, part, shift, qd_stream=qd_stream)

    def get(self, index: tuple[int, ...]) -> Any:
        """One element: a Python scalar, or a new array of `element_shape`."""
        at, read = self._at(index), read_element(self._dtype, len(self.shape))
        if self._serial == _octants.program_serial():
            found = [read(part, *at) for part in self._parts()]
        else:
            with _octants.on_program(self._serial):
                found = [read(part, *at) for part in self._parts()]
        return np.array(found, self.dtype).reshape(self.element_shape) if self.element_shape else found[0]

    def element(self, index: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """The components of a vector or matrix, in the types of Python scalars."""
        return self.get(index).astype(wide_type(self.dtype), copy=False)

    def set(self, index: tuple[int, ...], value: Any) -> None:
        """Stores one element: a scalar, or an array of `element_shape`."""
        self._set(index, self._parts(), np.ravel(value).tolist())

    def set_component(self, index: tuple[int, ...], component: tuple[int, ...], value: Any) -> None:
        """Stores one component of an element."""
        number = component_number(component, self.element_shape)
        self._set(index, [self._parts()[number]], [value])

    def _set(self, index: tuple[int, ...], parts: list[Any], values: list[Any]) -> None:
        at, write = self._at(index), write_element(self._dtype, len(self.shape))
        with _octants.on_program(self._serial):
            for part, value in zip(parts, values, strict=True):
                write(part, *at, value)

    def _at(self, index: tuple[int, ...]) -> tuple[Any, ...]:
        """Zero-based indices as a kernel argument."""
        if not index:
            return ()
        return (tuple(map(add, index, self._first)) if self._shifted else index,)

    @property
    def device(self) -> NoReturn:
        """Raises: no strided array can describe packed memory."""
        raise OctantsRuntimeError(self.NO_VIEW)

    def dlpack(self, keywords: dict[str, Any]) -> NoReturn:
        """Raises: no strided array can describe packed memory."""
        raise OctantsRuntimeError("DLPack cannot describe elements of a quantized type: use to_numpy()")

    def torch(self, whole: Any, device: Any, copy: bool | None) -> Any:
        """A torch tensor of `whole`, the field in this memory, on `device` (the CPU by default)."""
        return interchange.to_torch(whole.to_numpy(copy=copy), device, copy)

    def layout_for(self, tensor: Any) -> MemoryLayout | None:
        """None: kernels copy the tensor's values."""
        return None

    def direct(self) -> np.ndarray[Any, Any] | None:
        """None: no strided array can describe packed memory."""
        return None
