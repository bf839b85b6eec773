"""Reads the metadata of MeshTaichi: elements in patches, and relations between the local numbers of a patch.

For each kind of elements, and each patch, the file lists the patch's elements: first those that the patch owns, then
those of other patches that its relations refer to. `total_offsets` contains the start of each patch's list in
`l2g_mapping`, which contains the elements' numbers; `owned_offsets` determines how many elements each patch owns. A
relation from a kind to one of a lower order has a row of fixed length for each listed element. Any other relation has a
range for each owned element: `patch_offset` has the place in `value` that the offsets of a patch count from, and
`offset` has one entry for each owned element of the patch, and one for the end.

Everything is checked, and becomes relations between the elements' own numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from octants._mesh.metadata import KINDS, WIDTHS, Array, MeshMetadata, Numbering, Relation, letters, offsets_of
from octants.exceptions import OctantsRuntimeError

__all__ = ["read_patches"]


class _Patches:
    """The elements of one kind, by patch."""

    def __init__(self, data: Any, num_patches: int) -> None:
        self.order = _order(data, "order", "an element kind")
        self.what = KINDS[self.order]
        self.count = _count(data, "num", self.what)
        self.owned = self._offsets(data, "owned_offsets", num_patches, self.count)
        self.local_to_global = _integers(data, "l2g_mapping", self.what, self.count)
        listed = len(self.local_to_global)
        self.total = self._offsets(data, "total_offsets", num_patches, listed)
        owned = np.diff(self.owned)
        if np.any(owned > np.diff(self.total)):
            _wrong(self.what, "a patch owns more elements than it lists")
        self.owner = np.repeat(np.arange(num_patches), owned)
        """The patch of each owned element, in file order."""
        self.slots = np.arange(self.count) + np.repeat(self.total[:-1] - self.owned[:-1], owned)
        """The index of each owned element in `l2g_mapping`."""
        self.ids = self.local_to_global[self.slots]
        if not _is_permutation(self.ids, self.count):
            _wrong(self.what, "each element must be owned by one patch")
        self.positions = _integers(data, "g2r_mapping", self.what, self.count)
        if not _is_permutation(self.positions, self.count):
            _wrong(self.what, f"`g2r_mapping` must contain each number below {self.count} exactly once")
        if "l2r_mapping" in data:
            reordered = _integers(data, "l2r_mapping", self.what, self.count)
            if not np.array_equal(reordered, self.positions[self.local_to_global]):
                _wrong(self.what, "`l2r_mapping` must be `g2r_mapping` applied to `l2g_mapping`")

    def _offsets(self, data: Any, key: str, num_patches: int, end: int) -> Array:
        offsets = _integers(data, key, self.what, end + 1)
        if len(offsets) != num_patches + 1 or offsets[0] != 0 or offsets[-1] != end or np.any(np.diff(offsets) < 0):
            _wrong(self.what, f"`{key}` must have {num_patches + 1} entries that increase from 0 to {end}")
        return offsets

    def numbering(self) -> Numbering:
        patches = np.empty(self.count, np.int64)
        patches[self.ids] = self.owner
        return Numbering(self.count, self.positions, patches)

    def numbers(self, local: Array, patches: Array, what: str) -> Array:
        """Global element numbers from local numbers in patches."""
        if np.any(local >= np.diff(self.total)[patches]):
            _wrong(what, f"a local index exceeds the number of {self.what} in its patch")
        return np.asarray(self.local_to_global[self.total[patches] + local])


def read_patches(data: Any) -> MeshMetadata:
    """Reads metadata from a dict in the form that `docs/meshes.md` describes.

    Raises `OctantsRuntimeError`, which names what is missing or inconsistent.
    """
    num_patches = _count(data, "num_patches", "the metadata")
    if num_patches < 1:
        _wrong("the metadata", "`num_patches` must be at least 1")
    kinds: dict[int, _Patches] = {}
    for element in _get(data, "elements", "the metadata"):
        patches = _Patches(element, num_patches)
        if patches.order in kinds:
            _wrong(patches.what, "the elements are listed twice")
        kinds[patches.order] = patches
    relations: dict[tuple[int, int], Callable[[], Relation]] = {}
    for relation in _get(data, "relations", "the metadata"):
        source, target = (_order(relation, key, "a relation") for key in ("from_order", "to_order"))
        what = f"relation {letters(source, target)}"
        if source not in kinds or target not in kinds:
            _wrong(what, f"the metadata has no {KINDS[source if source not in kinds else target]}")
        if (source, target) in relations:
            _wrong(what, "it is listed twice")
        read = _read_fixed if source > target else _read_ranges
        relations[source, target] = _known(read(relation, kinds[source], kinds[target], what))
    attrs = {"x": _vertex_positions(data["attrs"]["x"], kinds)} if "x" in data.get("attrs", {}) else {}
    numberings = {order: patches.numbering() for order, patches in kinds.items()}
    return MeshMetadata(num_patches, numberings, relations, attrs, data.get("patcher"))


def _read_fixed(data: Any, source: _Patches, target: _Patches, what: str) -> Relation:
    width = WIDTHS[source.order, target.order]
    values = _integers(data, "value", what, 1 << 31)
    listed = len(source.local_to_global)
    if len(values) != listed * width:
        _wrong(
            what, f"`value` must have {width} entries for each of the {listed} elements, but has {len(values)} in total"
        )
    rows = values.reshape(-1, width)[source.slots]
    indices = np.empty_like(rows)
    indices[source.ids] = target.numbers(rows, source.owner[:, None], what)
    return Relation(indices)


def _read_ranges(data: Any, source: _Patches, target: _Patches, what: str) -> Relation:
    values = _integers(data, "value", what, 1 << 31)
    num_patches = len(source.owned) - 1
    patch_offset = _integers(data, "patch_offset", what, len(values) + 1)
    offset = _integers(data, "offset", what, len(values) + 1)
    if len(patch_offset) < num_patches:
        _wrong(what, f"`patch_offset` must have an entry for each of {num_patches} patches")
    if len(offset) != source.count + num_patches:
        _wrong(what, f"`offset` must have an entry for each of {source.count} elements, and one more for each patch")
    entries = np.arange(source.count) + source.owner
    begin = patch_offset[source.owner] + offset[entries]
    counts = offset[entries + 1] - offset[entries]
    if np.any(counts < 0) or np.any(begin + counts > len(values)):
        _wrong(what, "`offset` must increase within each patch, and must not exceed the length of `value`")
    # The owned elements in the order of their numbers.
    order = np.argsort(source.ids)
    begin, counts, owner = begin[order], counts[order], source.owner[order]
    offsets = offsets_of(counts)
    local = values[np.arange(offsets[-1]) + np.repeat(begin - offsets[:-1], counts)]
    return Relation(target.numbers(local, np.repeat(owner, counts), what), offsets)


def _known(relation: Relation) -> Callable[[], Relation]:
    return lambda: relation


def _vertex_positions(values: Any, kinds: Mapping[int, _Patches]) -> Array:
    found = np.asarray(values, dtype=np.float64)
    count = kinds[0].count if 0 in kinds else found.size // 3
    if found.size != count * 3:
        _wrong("attribute x", f"it must have 3 numbers for each of the {count} verts, but has {found.size} in total")
    return found.reshape(-1, 3)


def _get(data: Any, key: str, what: str) -> Any:
    if not isinstance(data, Mapping):
        _wrong(what, f"expected a dict, got {type(data).__name__}")
    if key not in data:
        _wrong(what, f"`{key}` is missing")
    return data[key]


def _count(data: Any, key: str, what: str) -> int:
    found = _get(data, key, what)
    if isinstance(found, bool) or not hasattr(found, "__index__") or not 0 <= found.__index__() < 1 << 31:
        _wrong(what, f"`{key}` must be a number of elements below 2**31, not {found!r}")
    return int(found.__index__())


def _order(data: Any, key: str, what: str) -> int:
    found = _count(data, key, what)
    if found >= len(KINDS):
        _wrong(what, f"`{key}` must be 0 for verts, 1 for edges, 2 for faces or 3 for cells, not {found}")
    return found


def _integers(data: Any, key: str, what: str, limit: int) -> Array:
    """Integers in [0, `limit`) as a 1-dimensional array."""
    found = np.asarray(_get(data, key, what))
    if found.ndim != 1 or (found.dtype.kind not in "iu" and found.size):
        _wrong(what, f"`{key}` must be a list of integers")
    found = found.astype(np.int64)
    if np.any((found < 0) | (found >= limit)):
        _wrong(what, f"`{key}` must contain integers from 0 to {limit - 1}")
    return found


def _is_permutation(values: Array, count: int) -> bool:
    return len(values) == count and np.array_equal(np.sort(values), np.arange(count))


def _wrong(what: str, why: str) -> NoReturn:
    raise OctantsRuntimeError(f"mesh metadata: {what}: {why}")
