//! Random trees: compares the crate's results with a walk over every cell in memory.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use octants_layout::{Activity, IndexDigit, LevelId, LevelKind, LevelTree, Placement, TreeLayout};

/// A level or place as the test writes it down.
struct Node {
    id: LevelId,
    kind: LevelKind,
    axes: Vec<(u8, u64)>,
    scalar_bytes: u64,
    is_kept: bool,
    children: Vec<Node>,
}

/// A cell: axis, extent and index, for each axis of its level.
type Cell = Vec<(u8, u64, u64)>;

/// An element of a place: its offset, and the cell of each level on the path to it.
struct Element {
    place: LevelId,
    address: u64,
    /// The levels on the way from the root, with the cell of each.
    cells: Vec<(LevelId, Cell)>,
}

impl Element {
    /// The index along each axis that the levels down to `last` use, in the order of the axes.
    fn index_at(&self, last: LevelId) -> Vec<u64> {
        let mut index = BTreeMap::new();
        for (level, cell) in &self.cells {
            for (axis, extent, value) in cell {
                let of_axis = index.entry(*axis).or_insert(0);
                *of_axis = *of_axis * extent + value;
            }
            if *level == last {
                break;
            }
        }
        index.into_values().collect()
    }

    fn index(&self) -> Vec<u64> {
        self.index_at(self.place)
    }

    fn position(&self, level: LevelId) -> usize {
        self.cells.iter().position(|(of, _)| *of == level).unwrap()
    }

    /// The level whose cells have words of state.
    fn state_level(&self, tree: &LevelTree, level: LevelId) -> LevelId {
        match tree.kind(level).activity() {
            Activity::PerList => self.cells[self.position(level) - 1].0,
            _ => level,
        }
    }

    /// The values that choose the element within a cell of a level, outermost first.
    fn inside(&self, level: LevelId) -> Vec<u64> {
        self.cells[self.position(level) + 1..].iter().flat_map(|(_, cell)| cell.iter().map(|(.., v)| *v)).collect()
    }
}

/// A generator of numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

fn random_node(random: &mut Random, tree: &mut LevelTree, id: LevelId, depth: u32, below_list: bool) -> Vec<Node> {
    (0..=random.below(3))
        .map(|_| {
            if depth == 0 || random.below(3) == 0 {
                let scalar_bytes = 1 << random.below(4);
                let (id, is_kept) = (tree.add_place(id, scalar_bytes).unwrap(), random.below(5) > 0);
                let (kind, axes, children) = (LevelKind::Place, Vec::new(), Vec::new());
                return Node { id, kind, axes, scalar_bytes, is_kept, children };
            }
            let kinds = if below_list { &LevelKind::ALL[1..2] } else { &LevelKind::ALL[1..5] };
            let kind = kinds[random.below(kinds.len() as u64) as usize];
            let count = if kind == LevelKind::Dynamic { 1 } else { 1 + random.below(2) };
            let first = random.below(4) as u8;
            let axes: Vec<(u8, u64)> = (0..count).map(|n| ((first + n as u8) % 4, 1 + random.below(3))).collect();
            let id = tree.add_level(id, kind, axes.clone()).unwrap();
            let children = random_node(random, tree, id, depth - 1, below_list || kind == LevelKind::Dynamic);
            Node { id, kind, axes, scalar_bytes: 0, is_kept: random.below(5) > 0, children }
        })
        .collect()
}

fn up(value: u64, alignment: u64) -> u64 {
    (value..).find(|v| v % alignment == 0).unwrap()
}

/// Whether a level is part of the layout, itself or by its descendants.
fn counts(node: &Node) -> bool {
    node.is_kept || node.children.iter().any(counts)
}

/// Size and alignment of all cells of a level, or of a place.
fn extent(node: &Node) -> (u64, u64) {
    if node.kind == LevelKind::Place {
        return (node.scalar_bytes, node.scalar_bytes);
    }
    let (size, alignment) = cell(&node.children);
    (node.axes.iter().fold(size, |n, (_, extent)| n * extent), alignment)
}

fn cell(children: &[Node]) -> (u64, u64) {
    let (mut size, mut alignment) = (0, 1);
    for child in children.iter().filter(|child| counts(child)) {
        let (bytes, align) = extent(child);
        size = up(size, align) + bytes;
        alignment = alignment.max(align);
    }
    (up(size, alignment), alignment)
}

/// All cells of a level, in memory order: one value for each of its axes.
fn cells(axes: &[(u8, u64)]) -> Vec<Vec<u64>> {
    axes.iter().fold(vec![Vec::new()], |cells, (_, extent)| {
        cells.iter().flat_map(|cell| (0..*extent).map(|v| cell.iter().copied().chain([v]).collect())).collect()
    })
}

type Way = Vec<(LevelId, Vec<(u8, u64, u64)>)>;

fn walk(children: &[Node], base: u64, way: &Way, found: &mut Vec<Element>) {
    let mut offset = 0;
    for child in children.iter().filter(|child| counts(child)) {
        let (bytes, alignment) = extent(child);
        offset = up(offset, alignment);
        let (cell_bytes, _) = if child.kind == LevelKind::Place { (0, 1) } else { cell(&child.children) };
        for (number, values) in cells(&child.axes).into_iter().enumerate() {
            let address = base + offset + number as u64 * cell_bytes;
            let chosen = child.axes.iter().zip(values).map(|((axis, extent), v)| (*axis, *extent, v)).collect();
            let way: Way = way.iter().cloned().chain([(child.id, chosen)]).collect();
            if child.kind == LevelKind::Place {
                found.push(Element { place: child.id, address, cells: way });
            } else {
                walk(&child.children, address, &way, found);
            }
        }
        offset += bytes;
    }
}

fn kept(children: &[Node], found: &mut BTreeSet<LevelId>) {
    for child in children {
        if child.is_kept {
            found.insert(child.id);
        }
        kept(&child.children, found);
    }
}

/// A tree, its layout, and every element of it.
struct Case {
    tree: LevelTree,
    layout: TreeLayout,
    elements: Vec<Element>,
    sizes: BTreeMap<LevelId, u64>,
}

fn case(seed: u64) -> Case {
    let (mut random, mut tree) = (Random(seed), LevelTree::new());
    let children = random_node(&mut random, &mut tree, LevelId::ROOT, 3, false);
    let (mut keeps, mut elements, mut sizes) = (BTreeSet::new(), Vec::new(), BTreeMap::new());
    kept(&children, &mut keeps);
    walk(&children, 0, &vec![(LevelId::ROOT, Vec::new())], &mut elements);
    let layout = tree.lay_out(|level| keeps.contains(&level)).unwrap();
    assert_eq!(layout.data_bytes(), cell(&children).0);
    fn note(children: &[Node], sizes: &mut BTreeMap<LevelId, u64>) {
        for child in children {
            sizes.insert(child.id, child.scalar_bytes);
            note(&child.children, sizes);
        }
    }
    note(&children, &mut sizes);
    Case { tree, layout, elements, sizes }
}

const SEEDS: u64 = 400;

#[test]
fn placements_match_element_addresses() {
    for seed in 0..SEEDS {
        let Case { tree, layout, elements, sizes } = case(seed);
        let mut taken = BTreeSet::new();
        let mut counted: BTreeMap<LevelId, u64> = BTreeMap::new();
        for element in &elements {
            let (index, scalar_bytes) = (element.index(), sizes[&element.place]);
            let placement = layout.placement(&tree, element.place);
            assert_eq!(placement.offset_of(&index), element.address, "seed {seed}");
            assert_eq!(placement.shape(), tree.shape(element.place));
            assert!(placement.end(scalar_bytes) >= element.address + scalar_bytes);
            assert_eq!(element.address % scalar_bytes, 0);
            for byte in element.address..element.address + scalar_bytes {
                assert!(byte < layout.data_bytes() && taken.insert(byte), "seed {seed}: elements overlap");
            }
            let digits = (0..index.len()).flat_map(|axis| placement.index_digits(axis));
            assert_eq!(digits.map(|(d, _)| d.of(&index)).collect::<Vec<_>>(), placement.digits_of(&index));
            *counted.entry(element.place).or_default() += 1;
        }
        for (place, count) in counted {
            assert_eq!(tree.cells(place), count);
        }
    }
}

#[test]
fn digits_of_an_index_name_the_cell_that_holds_the_element() {
    for seed in 0..SEEDS {
        let Case { tree, elements, .. } = case(seed);
        for element in &elements {
            let index = element.index();
            for (level, found) in tree.cell_indices(element.place) {
                let held = element.state_level(&tree, level);
                let words = tree.shape(held);
                let number = element.index_at(held).iter().zip(&words).fold(0, |n, (i, extent)| n * extent + i);
                assert_eq!(found.number(&index), number, "seed {seed}");
                let is_list = tree.kind(level) == LevelKind::Dynamic;
                let of_list = &element.cells[element.position(level)].1;
                assert_eq!(found.element(&index), is_list.then(|| of_list[0].2), "seed {seed}");
                let extents: Vec<u64> = found.inner.iter().map(|digit| digit.extent).collect();
                assert_eq!(extents.iter().product::<u64>(), tree.cells(element.place) / tree.cells(level));
            }
        }
    }
}

#[test]
fn areas_follow_the_data_without_overlap() {
    for seed in 0..SEEDS {
        let Case { layout, tree, .. } = case(seed);
        let mut at = layout.data_bytes();
        for area in layout.areas() {
            assert!(area.flat_state.base >= at && area.flat_state.base < at + 4 && area.flat_state.base % 4 == 0);
            at = area.flat_state.base;
            for part in [&area.flat_state, &area.cells, &area.counts, &area.starts, &area.count] {
                assert_eq!(part.base, at, "seed {seed}");
                at += 4 * part.shape().iter().product::<u64>();
            }
            assert_eq!(area.end(), at);
            assert!(area.counts.shape()[0] * area.chunk >= area.candidates);
            assert_eq!(area.cells.shape(), [tree.cells(area.level)]);
        }
        assert_eq!(layout.bytes(), at);
    }
}

#[test]
fn views_reach_the_contents_of_a_cell() {
    for seed in 0..SEEDS {
        let Case { tree, layout, elements, .. } = case(seed);
        let mut reached = 0;
        for area in layout.areas() {
            for element in &elements {
                let Some(view) = area.views.iter().find(|view| view.place == element.place) else { continue };
                let held = element.state_level(&tree, area.level);
                let inside = element.inside(held);
                let index: Vec<u64> = element.index_at(held).into_iter().chain(inside).collect();
                assert_eq!(view.placement.offset_of(&index), element.address, "seed {seed}");
                assert_eq!(view.placement.shape()[index.len() - view.inner.len()..], view.inner);
                reached += 1;
            }
        }
        // Each element below sparse levels lies in the view of the innermost.
        let below = elements.iter().filter(|e| !tree.cell_indices(e.place).is_empty()).count();
        assert_eq!(reached, below, "seed {seed}");
    }
}

/// The numbers of the words of state within each cell of `around`, which has a number too.
fn words_within(around: &Placement, state: &Placement, axes: &[(Option<usize>, u64)]) -> BTreeMap<u64, BTreeSet<u64>> {
    let shape = state.shape();
    let all = cells(&shape.iter().map(|extent| (0, *extent)).collect::<Vec<_>>());
    let mut found: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for index in all {
        let mut outer = vec![0; around.axes.len()];
        for (i, (axis, words)) in index.iter().zip(axes) {
            if let Some(axis) = axis {
                outer[*axis] = i / words;
            }
        }
        let number = |place: &Placement, index: &[u64]| (place.offset_of(index) - place.base) / 4;
        found.entry(number(around, &outer)).or_default().insert(number(state, &index));
    }
    found
}

#[test]
fn a_cell_contains_the_words_of_nested_levels() {
    let mut nested = 0;
    for seed in 0..SEEDS {
        let Case { tree, layout, elements, .. } = case(seed);
        for outer in layout.areas() {
            for inner in &outer.nested {
                let area = layout.area(inner.level).unwrap();
                for element in elements.iter().filter(|e| e.cells.iter().any(|(of, _)| *of == inner.level)) {
                    let [around, held] = [outer.level, inner.level].map(|of| element.state_level(&tree, of));
                    let (cell, word) = (element.index_at(around), element.index_at(held));
                    for (i, (axis, words)) in word.iter().zip(&inner.axes) {
                        assert_eq!(i / words, axis.map_or(0, |axis| cell[axis]), "seed {seed}");
                    }
                }
                assert_eq!(area.around, Some(outer.level), "seed {seed}");
                assert_eq!(area.candidates, outer.flat_state.shape()[0]);
                for (number, words) in words_within(&outer.state, &area.state, &inner.axes) {
                    let extents: Vec<(u8, u64)> = area.inside.iter().map(|extent| (0, *extent)).collect();
                    let word = |place: Vec<u64>| area.word_inside.number(&[vec![number], place].concat());
                    let found: BTreeSet<u64> = cells(&extents).into_iter().map(word).collect();
                    assert_eq!(found, words, "seed {seed}");
                    nested += 1;
                }
            }
        }
    }
    assert!(nested > SEEDS as usize);
}

#[test]
fn a_digit_is_a_quotient_and_a_remainder() {
    let digit = IndexDigit { axis: 1, extent: 5, weight: 7 };
    for i in 0..100 {
        assert_eq!(digit.of(&[0, i]), i / 7 % 5);
    }
}
