//! [`SparseArea`]: the activation state of a sparse level, in memory after the data of the tree.
//!
//! An area consists of 4-byte words, in this order:
//!
//! - the state: for each cell, zero if it is inactive; for a list, its length;
//! - the list of active cells that a loop over the level visits: space for all cells, or for none if cell numbers
//!   exceed 31 bits;
//! - the state of parallel listing: for each chunk of candidates, the number of active cells and their start in the
//!   list; then the total number.
//!
//! The candidates for a list are the cells of the next sparse level above, because only its active cells contain active
//! cells. Without such a level, they are the words of state.

use crate::cells::{CellIndex, state_level};
use crate::error::LayoutError;
use crate::index_digit::IndexDigit;
use crate::level::{Activity, LevelId, LevelKind};
use crate::measure::{Sizes, checked, round_up};
use crate::placement::{Digit, Placement};
use crate::tree::LevelTree;

/// Bytes of a word of state, of the number of a cell, and of a count.
const WORD: u64 = 4;
const MOST_CELLS: u64 = i32::MAX as u64;
const SHORTEST_CHUNK: u64 = 16;
const LONGEST_CHUNK: u64 = 1024;

/// The layout of a sparse level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SparseArea {
    /// The level.
    pub level: LevelId,
    /// Which cells are active.
    pub activity: Activity,
    /// How many indices name a cell; of a level of lists those of an element.
    pub axes: usize,
    /// Cells of the level; of a level of lists the elements of one list.
    pub capacity: u64,
    /// There is room for a list of active cells.
    pub can_be_listed: bool,
    /// How many candidates for the list there are.
    pub candidates: u64,
    /// Number of candidates that one thread inspects.
    pub chunk: u64,
    /// The sparse level whose cells are the candidates; without one, the words of state are.
    pub around: Option<LevelId>,
    /// Extents of the words of state within a cell of `around`.
    pub inside: Vec<u64>,
    /// How the number of a cell in `around`, followed by indices along `inside`, names a word of state.
    pub word_inside: CellIndex,
    /// The words of state, by the indices of a cell or list.
    pub state: Placement,
    /// The words of state by the number of the cell: the digits of its indices, the first one outermost.
    pub flat_state: Placement,
    /// Numbers of active cells.
    pub cells: Placement,
    /// For each chunk, its active cells.
    pub counts: Placement,
    /// For each chunk, the place in the list of its first active cell.
    pub starts: Placement,
    /// How many cells are listed.
    pub count: Placement,
    /// The components with memory in a cell that lie below no further sparse level.
    pub views: Vec<CellView>,
    /// The next sparse levels within a cell.
    pub nested: Vec<NestedLevel>,
}

impl SparseArea {
    /// The byte after the area.
    pub fn end(&self) -> u64 {
        self.count.end(WORD)
    }
}

/// A component addressed by the indices of its cell, and further axes within the cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellView {
    /// The component.
    pub place: LevelId,
    /// Its first axes are those of the cell, or of the list that the cell is in; then come the `inner` ones.
    pub placement: Placement,
    /// Extents of the contents of a cell or list.
    pub inner: Vec<u64>,
}

/// A sparse level within the cells of another one, with no third between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NestedLevel {
    /// The level.
    pub level: LevelId,
    /// For each axis of its state: the axis of the outer cell's index, if it has this one, and the number of words of
    /// state along it in one outer cell.
    pub axes: Vec<(Option<usize>, u64)>,
}

/// Refuses a level whose cells have numbers of more than 31 bits. Of lists, only the elements may be that many.
pub(crate) fn check_cells(tree: &LevelTree, level: LevelId) -> Result<(), LayoutError> {
    let (kind, cells) = (tree.kind(level), tree.wide_cells(level));
    if kind.activity() == Activity::PerCell && cells > MOST_CELLS.into() {
        return Err(LayoutError::TooManyCells(kind, cells));
    }
    Ok(())
}

/// The areas of all sparse levels of a tree, consecutive, after the data.
pub(crate) fn make_areas(tree: &LevelTree, sizes: &Sizes) -> Result<Vec<SparseArea>, LayoutError> {
    let levels = sizes.descendants(LevelId::ROOT);
    let mut areas = Vec::new();
    let mut at = sizes.data_bytes();
    for &level in levels.iter().filter(|level| tree.kind(**level).is_sparse()) {
        let area = make_area(tree, sizes, level, round_up(at, WORD)?)?;
        at = checked(Some(area.end()))?;
        areas.push(area);
    }
    Ok(areas)
}

fn make_area(tree: &LevelTree, sizes: &Sizes, level: LevelId, base: u64) -> Result<SparseArea, LayoutError> {
    let (activity, cells) = (tree.kind(level).activity(), tree.cells(level));
    let held = state_level(tree, level);
    let around = tree.sparse_level_above(level);
    let listed = if cells <= MOST_CELLS { cells } else { 0 };
    let (words, candidates) = (tree.cells(held), tree.cells(around.unwrap_or(held)));
    let (chunk, chunks) = chunks(candidates);
    let mut at = base;
    let mut words_of = |extents: &[u64]| -> Result<Placement, LayoutError> {
        let made = Placement::row_major(at, extents, WORD);
        at = extents.iter().try_fold(WORD, |n, extent| checked(n.checked_mul(*extent)))?;
        at = checked(made.base.checked_add(at))?;
        Ok(made)
    };
    let (inside, word_inside) = words_within(tree, around, held);
    Ok(SparseArea {
        level,
        activity,
        axes: tree.extents(level).len(),
        capacity: if activity == Activity::PerList { tree.levels[level.index()].axes[0].1 } else { listed },
        can_be_listed: listed > 0,
        candidates,
        chunk,
        around,
        inside,
        word_inside,
        state: Placement::row_major(base, &tree.shape(held), WORD),
        flat_state: words_of(&[words])?,
        cells: words_of(&[listed])?,
        counts: words_of(&[chunks])?,
        starts: words_of(&[chunks])?,
        count: words_of(&[])?,
        views: views(tree, sizes, level),
        nested: nested(tree, sizes, level),
    })
}

/// Candidates in a chunk, and chunks: a power of two near the root, so that counting and adding up take about as long.
fn chunks(candidates: u64) -> (u64, u64) {
    let bits = u64::BITS - candidates.leading_zeros();
    let chunk = (1u64 << bits.div_ceil(2)).clamp(SHORTEST_CHUNK, LONGEST_CHUNK);
    (chunk, candidates.div_ceil(chunk))
}

/// The words of state of `held` within a cell of `around`: [`SparseArea::inside`] and [`SparseArea::word_inside`].
fn words_within(tree: &LevelTree, around: Option<LevelId>, held: LevelId) -> (Vec<u64>, CellIndex) {
    let mut inside = Vec::new();
    let mut digits = Vec::new();
    if let Some(around) = around {
        let outer = tree.extents(around);
        let cells = |axis: u8| outer.iter().find(|(of, _)| *of == axis).map(|(_, cells)| *cells);
        let mut weight: u64 = outer.iter().fold(1, |n: u64, (_, cells)| n.saturating_mul(*cells));
        for (axis, extent) in tree.extents(held) {
            if let Some(cells) = cells(axis) {
                weight /= cells.max(1);
                digits.push(IndexDigit { axis: 0, extent: cells, weight });
            }
            let each = extent / cells(axis).unwrap_or(1).max(1);
            if each > 1 {
                inside.push(each);
                digits.push(IndexDigit { axis: inside.len(), extent: each, weight: 1 });
            }
        }
    }
    (inside, CellIndex { digits, list: None, inner: Vec::new() })
}

fn views(tree: &LevelTree, sizes: &Sizes, level: LevelId) -> Vec<CellView> {
    let held = state_level(tree, level);
    let places = sizes
        .descendants(level)
        .into_iter()
        .filter(|below| tree.kind(*below) == LevelKind::Place && tree.levels[below.index()].scalar_bytes > 0)
        .filter(|below| tree.sparse_level_above(*below) == Some(level));
    places.map(|place| cell_view(tree, sizes, held, place)).collect()
}

/// A component by the indices of the cell of `held` that holds it, and the digits below.
fn cell_view(tree: &LevelTree, sizes: &Sizes, held: LevelId, place: LevelId) -> CellView {
    let mut outer: Vec<(u8, Vec<Digit>)> = tree.extents(held).iter().map(|(axis, _)| (*axis, Vec::new())).collect();
    let mut inner = Vec::new();
    let is_above: Vec<LevelId> = tree.path(held).collect();
    for (of, axis, digit) in sizes.digits(tree, place) {
        match outer.iter_mut().find(|(outer, _)| *outer == axis) {
            Some((_, digits)) if is_above.contains(&of) => digits.push(digit),
            _ => inner.push(digit),
        }
    }
    let extents = inner.iter().map(|digit| digit.extent).collect();
    let axes = outer.into_iter().map(|(_, digits)| digits).chain(inner.into_iter().map(|digit| vec![digit]));
    let placement = Placement { base: sizes.base(tree, place), axes: axes.collect() };
    CellView { place, placement, inner: extents }
}

fn nested(tree: &LevelTree, sizes: &Sizes, level: LevelId) -> Vec<NestedLevel> {
    let outer = tree.extents(state_level(tree, level));
    let words = |(axis, words): (u8, u64)| match outer.iter().position(|(of, _)| *of == axis) {
        Some(at) => (Some(at), words / outer[at].1.max(1)),
        None => (None, words),
    };
    let is_next = |below: &LevelId| tree.kind(*below).is_sparse() && tree.sparse_level_above(*below) == Some(level);
    let of = |below| NestedLevel {
        level: below,
        axes: tree.extents(state_level(tree, below)).into_iter().map(words).collect(),
    };
    sizes.descendants(level).into_iter().filter(is_next).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chunk_size_is_near_the_square_root_of_the_cell_count() {
        assert_eq!(chunks(0), (16, 0));
        assert_eq!(chunks(1), (16, 1));
        assert_eq!(chunks(16 * 16 - 1), (16, 16));
        assert_eq!(chunks(1 << 12), (128, 32));
        assert_eq!(chunks((1 << 31) - 1), (1024, 1 << 21));
    }

    #[test]
    fn the_words_of_an_area_are_contiguous() {
        let mut tree = LevelTree::new();
        let level = tree.add_level(LevelId::ROOT, LevelKind::Pointer, vec![(0, 6), (1, 10)]).unwrap();
        tree.add_place(level, 1).unwrap();
        let layout = tree.lay_out(|_| true).unwrap();
        let area = layout.area(level).unwrap();
        assert_eq!(area.state, Placement::row_major(60, &[6, 10], 4));
        assert_eq!(area.flat_state, Placement::row_major(60, &[60], 4));
        assert_eq!(area.cells.base, 60 + 240);
        assert_eq!((area.chunk, area.counts.shape()), (16, vec![4]));
        assert_eq!((area.counts.base, area.starts.base, area.count.base), (540, 556, 572));
        assert_eq!(layout.bytes(), 576);
    }

    #[test]
    fn words_of_state_within_an_enclosing_cell() {
        let mut tree = LevelTree::new();
        let outer = tree.add_level(LevelId::ROOT, LevelKind::Pointer, vec![(0, 3), (1, 4)]).unwrap();
        let inner = tree.add_level(outer, LevelKind::Bitmasked, vec![(0, 2), (2, 5)]).unwrap();
        tree.add_place(inner, 4).unwrap();
        let layout = tree.lay_out(|_| true).unwrap();
        let area = layout.area(inner).unwrap();
        assert_eq!(area.inside, [2, 5]);
        // The cell (2, 1) of 3 x 4, and the place (1, 3) in it: the cell (5, 1, 3) of 6 x 4 x 5.
        assert_eq!(area.word_inside.number(&[2 * 4 + 1, 1, 3]), (5 * 4 + 1) * 5 + 3);
    }

    #[test]
    fn a_level_of_many_lists_has_no_list_of_active_cells() {
        let mut tree = LevelTree::new();
        let cells = tree.add_level(LevelId::ROOT, LevelKind::Dense, vec![(0, 1 << 20)]).unwrap();
        let lists = tree.add_level(cells, LevelKind::Dynamic, vec![(1, 1 << 12)]).unwrap();
        let layout = tree.lay_out(|_| true).unwrap();
        let area = layout.area(lists).unwrap();
        assert_eq!((area.can_be_listed, area.capacity, area.cells.shape()), (false, 1 << 12, vec![0]));
        assert_eq!(area.candidates, 1 << 20);
    }

    #[test]
    fn levels_with_too_many_cells_are_refused() {
        let mut tree = LevelTree::new();
        let level = tree.add_level(LevelId::ROOT, LevelKind::Bitmasked, vec![(0, 1 << 40), (1, 1 << 40)]).unwrap();
        tree.add_place(level, 4).unwrap();
        let error = tree.lay_out(|_| true).unwrap_err();
        assert_eq!(error, LayoutError::TooManyCells(LevelKind::Bitmasked, 1 << 80));
        let text = "a bitmasked level can have at most 2^31 - 1 cells, but this one has 1208925819614629174706176";
        assert_eq!(error.to_string(), text);
    }
}
