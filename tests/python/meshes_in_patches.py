"""Small meshes for tests: their relations by brute force, and their metadata in patches as files have it.

Independent of the package: elements are sets of vertices, and relations follow from the sets' intersections.
"""

import itertools

import numpy as np

WIDTHS = {(1, 0): 2, (2, 0): 3, (2, 1): 3, (3, 0): 4, (3, 1): 6, (3, 2): 4}
KINDS = ("verts", "edges", "faces", "cells")


def grid_of_triangles(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and triangles of a grid of n x n squares, each cut in two."""
    side = np.arange(n + 1)
    vertices = np.stack(np.meshgrid(side, side, [0.0], indexing="ij"), -1).reshape(-1, 3) / n
    corner = (side[:-1, None] * (n + 1) + side[:-1]).reshape(-1)
    a, b, c, d = corner, corner + 1, corner + n + 1, corner + n + 2
    return vertices, np.concatenate([np.stack([a, c, b], 1), np.stack([b, c, d], 1)])


def grid_of_tetrahedra(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and tetrahedra of n x n x n cubes, each cut into six along its diagonal."""
    side = np.arange(n + 1)
    vertices = np.stack(np.meshgrid(side, side, side, indexing="ij"), -1).reshape(-1, 3) / n
    number = {tuple(corner): i for i, corner in enumerate(np.round(vertices * n).astype(int).tolist())}
    cells = []
    for cube in itertools.product(range(n), repeat=3):
        for axes in itertools.permutations(range(3)):
            corner = list(cube)
            corners = [number[tuple(corner)]]
            for axis in axes:
                corner[axis] += 1
                corners.append(number[tuple(corner)])
            cells.append(corners)
    return vertices, np.array(cells)


class Elements:
    """All elements of a mesh as sets of vertices, and the relations among them."""

    def __init__(self, num_verts: int, top: np.ndarray, seed: int = 0) -> None:
        """`seed` shuffles the numbers of edges, and of faces of tetrahedra."""
        rng = np.random.default_rng(seed)
        self.orders = range(top.shape[1])
        self.sets: dict[int, list[frozenset[int]]] = {top.shape[1] - 1: [frozenset(row) for row in top.tolist()]}
        self.sets[0] = [frozenset([v]) for v in range(num_verts)]
        for order in self.orders[1:-1]:
            parts = {frozenset(p) for row in top.tolist() for p in itertools.combinations(row, order + 1)}
            listed = sorted(parts, key=sorted)
            self.sets[order] = [listed[i] for i in rng.permutation(len(listed))]

    def count(self, order: int) -> int:
        return len(self.sets[order])

    def relation(self, source: int, target: int) -> list[list[int]]:
        """For each element the numbers of those next to it, in order."""
        if source > target:
            return [[i for i, t in enumerate(self.sets[target]) if t < s] for s in self.sets[source]]
        if source < target:
            return [[i for i, t in enumerate(self.sets[target]) if s < t] for s in self.sets[source]]
        if source == 0:
            near = [frozenset().union(*(e for e in self.sets[1] if v <= e)) - v for v in self.sets[0]]
            return [sorted(each) for each in near]
        sets = self.sets[source]
        return [[i for i, t in enumerate(sets) if len(s & t) == source] for s in sets]

    def pairs(self) -> list[tuple[int, int]]:
        """All pairs of kinds, by their orders."""
        return list(itertools.product(self.orders, repeat=2))


def in_patches(elements: Elements, vertices: np.ndarray, num_patches: int, seed: int = 0) -> dict:
    """The metadata as a file has it, with elements in random patches."""
    rng = np.random.default_rng(seed)
    near = {pair: elements.relation(*pair) for pair in elements.pairs()}
    owner = {order: rng.integers(0, num_patches, elements.count(order)) for order in elements.orders}
    listed: dict[int, list[list[int]]] = {}
    reached: list[dict[int, set[int]]] = [{order: set() for order in elements.orders} for _ in range(num_patches)]
    for source, target in elements.pairs():
        for number, row in enumerate(near[source, target]):
            reached[owner[source][number]][target].update(row)
    for patch in range(num_patches):
        for source in reversed(elements.orders):  # each listed element has a row for those of lower orders
            reached[patch][source].update(np.flatnonzero(owner[source] == patch).tolist())
            for target in range(source):
                for number in reached[patch][source]:
                    reached[patch][target].update(near[source, target][number])
    for order in elements.orders:
        owned = [rng.permutation(np.flatnonzero(owner[order] == p)).tolist() for p in range(num_patches)]
        others = [sorted(reached[p][order] - set(owned[p])) for p in range(num_patches)]
        listed[order] = [a + b for a, b in zip(owned, others, strict=True)]
    data: dict = {
        "num_patches": num_patches,
        "elements": [],
        "relations": [],
        "attrs": {"x": vertices.ravel().tolist()},
    }
    for order in elements.orders:
        sizes = np.bincount(owner[order], minlength=num_patches)
        owned = [number for p in range(num_patches) for number in listed[order][p][: sizes[p]]]
        positions = np.empty(len(owned), int)
        positions[owned] = np.arange(len(owned))
        flat = [number for patch in listed[order] for number in patch]
        data["elements"].append({
            "order": order,
            "num": len(owned),
            "max_num_per_patch": max(map(len, listed[order])),
            "owned_offsets": np.concatenate([[0], np.cumsum(sizes)]).tolist(),
            "total_offsets": np.concatenate([[0], np.cumsum([len(p) for p in listed[order]])]).tolist(),
            "l2g_mapping": flat,
            "l2r_mapping": positions[flat].tolist(),
            "g2r_mapping": positions.tolist(),
        })  # fmt: skip
    for source, target in elements.pairs():
        relation: dict = {"from_order": source, "to_order": target, "value": []}
        if source <= target:
            relation |= {"patch_offset": [], "offset": []}
        for patch in range(num_patches):
            local = {number: i for i, number in enumerate(listed[target][patch])}
            if source <= target:
                relation["patch_offset"].append(len(relation["value"]))
                relation["offset"].append(0)
            for number in listed[source][patch]:
                if source <= target and owner[source][number] != patch:
                    continue
                relation["value"] += [local[other] for other in near[source, target][number]]
                if source <= target:
                    relation["offset"].append(len(relation["value"]) - relation["patch_offset"][-1])
        data["relations"].append(relation)
    return data
