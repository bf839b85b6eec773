//! [`CellIndex`]: maps the indices of a field or level to a cell of a sparse level above it.

use crate::index_digit::IndexDigit;
use crate::level::{Activity, LevelId};
use crate::tree::LevelTree;

/// How indices name a cell of a sparse level.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CellIndex {
    /// They make the number of the cell's word of state, the first one outermost.
    pub digits: Vec<IndexDigit>,
    /// For a level of lists, the digit that counts the elements of a list.
    pub list: Option<IndexDigit>,
    /// For each axis, the digit of the position within the cell.
    pub inner: Vec<IndexDigit>,
}

impl CellIndex {
    /// The number of the word of state, for an index that counts from zero.
    pub fn number(&self, index: &[u64]) -> u64 {
        self.digits.iter().fold(0, |number, digit| number * digit.extent + digit.of(index))
    }

    /// The number of an element in its list.
    pub fn element(&self, index: &[u64]) -> Option<u64> {
        self.list.map(|digit| digit.of(index))
    }
}

/// The level whose cells have a word of state each: the level itself, or the one that holds its lists.
pub(crate) fn state_level(tree: &LevelTree, level: LevelId) -> LevelId {
    match tree.kind(level).activity() {
        Activity::PerList => tree.parent(level).unwrap_or(level),
        Activity::Always | Activity::PerCell => level,
    }
}

impl LevelTree {
    /// The sparse levels above a level or place, outermost first, and the level itself if it is sparse; with how the
    /// indices of the level or place name their cells.
    pub fn cell_indices(&self, level: LevelId) -> Vec<(LevelId, CellIndex)> {
        let extents = self.extents(level);
        let path = self.path_from_root(level);
        let sparse = path.into_iter().filter(|of| self.kind(*of).is_sparse());
        sparse.map(|of| (of, self.cell_index(of, &extents))).collect()
    }

    /// How indices along `extents` name a cell of a sparse level.
    fn cell_index(&self, level: LevelId, extents: &[(u8, u64)]) -> CellIndex {
        let digit = |axis: u8, extent: u64, cells: u64| {
            let at = extents.iter().position(|(of, _)| *of == axis).expect("compiler bug: an axis has no index");
            IndexDigit { axis: at, extent, weight: extents[at].1 / cells.max(1) }
        };
        let mut within = self.extents(state_level(self, level));
        let digits = within.iter().map(|&(axis, cells)| digit(axis, cells, cells)).collect();
        let list = (self.kind(level).activity() == Activity::PerList).then(|| {
            within = self.extents(level);
            let (axis, extent) = self.levels[level.index()].axes[0];
            let (_, cells) =
                within.iter().find(|(of, _)| *of == axis).expect("compiler bug: a dynamic level has no axis");
            digit(axis, extent, *cells)
        });
        let cells = |axis: u8| within.iter().find(|(of, _)| *of == axis).map_or(1, |(_, cells)| *cells);
        let inner =
            |(axis, (of, n)): (usize, &(u8, u64))| IndexDigit { axis, extent: n / cells(*of).max(1), weight: 1 };
        CellIndex { digits, list, inner: extents.iter().enumerate().map(inner).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::level::LevelKind;

    #[test]
    fn digits_name_cells_of_nested_levels() {
        let mut tree = LevelTree::new();
        let outer = tree.add_level(LevelId::ROOT, LevelKind::Pointer, vec![(0, 3), (1, 2)]).unwrap();
        let inner = tree.add_level(outer, LevelKind::Bitmasked, vec![(0, 4)]).unwrap();
        let block = tree.add_level(inner, LevelKind::Dense, vec![(1, 5)]).unwrap();
        let place = tree.add_place(block, 4).unwrap();
        let (levels, found): (Vec<_>, Vec<_>) = tree.cell_indices(place).into_iter().unzip();
        assert_eq!(levels, [outer, inner]);
        // Shape (12, 10). Element (7, 6): cell (1, 1) of 3 x 2, and cell (7, 1) of 12 x 2.
        assert_eq!(found[0].number(&[7, 6]), 3);
        assert_eq!(found[1].number(&[7, 6]), 15);
        assert_eq!(
            found[0].inner.iter().map(|d| (d.axis, d.extent, d.weight)).collect::<Vec<_>>(),
            [(0, 4, 1), (1, 5, 1)]
        );
        assert_eq!(found[1].inner.iter().map(|d| d.extent).collect::<Vec<_>>(), [1, 5]);
        assert_eq!(found[1].element(&[7, 6]), None);
        assert_eq!(tree.cell_indices(inner).len(), 2);
    }

    #[test]
    fn list_elements_have_their_own_digit() {
        let mut tree = LevelTree::new();
        let cells = tree.add_level(LevelId::ROOT, LevelKind::Dense, vec![(0, 3)]).unwrap();
        let list = tree.add_level(cells, LevelKind::Dynamic, vec![(0, 8)]).unwrap();
        let inner = tree.add_level(list, LevelKind::Dense, vec![(0, 2)]).unwrap();
        let place = tree.add_place(inner, 4).unwrap();
        let found = &tree.cell_indices(place)[0].1;
        // Index 37 of 48: list 2 of 16 each, element 2 of 2 each, 1 within.
        assert_eq!((found.number(&[37]), found.element(&[37])), (2, Some(2)));
        assert_eq!(found.inner, [IndexDigit { axis: 0, extent: 2, weight: 1 }]);
    }
}
