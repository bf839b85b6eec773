//! [`TreeLayout`]: a finished layout of a tree: the data, followed by the areas of sparse levels.

use crate::areas::{SparseArea, check_cells, make_areas};
use crate::error::LayoutError;
use crate::level::LevelId;
use crate::measure::Sizes;
use crate::placement::Placement;
use crate::tree::LevelTree;

/// The layout of a tree: the dense data, followed by the areas of sparse levels.
#[derive(Debug, Clone)]
pub struct TreeLayout {
    sizes: Sizes,
    areas: Vec<SparseArea>,
    bytes: u64,
}

impl TreeLayout {
    /// Bytes of the data and of the areas.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the data.
    pub fn data_bytes(&self) -> u64 {
        self.sizes.data_bytes()
    }

    /// Bytes of a cell of a level; zero for places.
    pub fn cell_bytes(&self, level: LevelId) -> u64 {
        self.sizes.cell_bytes(level)
    }

    /// The offset of a level in a cell of its parent.
    pub fn offset_in_cell(&self, level: LevelId) -> u64 {
        self.sizes.offset_in_cell(level)
    }

    /// The areas of sparse levels, in the order in which they lie in memory.
    pub fn areas(&self) -> &[SparseArea] {
        &self.areas
    }

    /// The area of a sparse level.
    pub fn area(&self, level: LevelId) -> Option<&SparseArea> {
        self.areas.iter().find(|area| area.level == level)
    }

    /// The placement of a component.
    pub fn placement(&self, tree: &LevelTree, place: LevelId) -> Placement {
        self.sizes.placement(tree, place)
    }
}

impl LevelTree {
    /// Fixes sizes and places of the levels for which `keeps` holds, and of those above them. The others take no room.
    pub fn lay_out(&self, keeps: impl Fn(LevelId) -> bool) -> Result<TreeLayout, LayoutError> {
        let levels = (0..self.levels.len() as u32).map(LevelId);
        levels.filter(|level| keeps(*level)).try_for_each(|level| check_cells(self, level))?;
        let sizes = Sizes::of(self, &keeps)?;
        let areas = make_areas(self, &sizes)?;
        let bytes = areas.last().map_or(sizes.data_bytes(), SparseArea::end);
        Ok(TreeLayout { sizes, areas, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::level::LevelKind;
    use crate::placement::Digit;

    fn all(_: LevelId) -> bool {
        true
    }

    fn dense(tree: &mut LevelTree, parent: LevelId, axes: &[(u8, u64)]) -> LevelId {
        tree.add_level(parent, LevelKind::Dense, axes.to_vec()).unwrap()
    }

    #[test]
    fn a_cell_aligns_its_members() {
        let mut tree = LevelTree::new();
        let block = dense(&mut tree, LevelId::ROOT, &[(0, 5)]);
        let byte = tree.add_place(block, 1).unwrap();
        let double = tree.add_place(block, 8).unwrap();
        let short = tree.add_place(block, 2).unwrap();
        let layout = tree.lay_out(all).unwrap();
        assert_eq!((layout.cell_bytes(block), layout.bytes()), (24, 120));
        for (place, base) in [(byte, 0), (double, 8), (short, 16)] {
            assert_eq!(layout.placement(&tree, place), Placement::row_major(base, &[5], 24));
        }
    }

    #[test]
    fn adjacent_levels_of_one_axis_are_one_digit() {
        let mut tree = LevelTree::new();
        let outer = dense(&mut tree, LevelId::ROOT, &[(0, 3)]);
        let inner = dense(&mut tree, outer, &[(0, 4)]);
        let whole = tree.add_place(inner, 4).unwrap();
        let layout = tree.lay_out(all).unwrap();
        assert_eq!(layout.placement(&tree, whole), Placement::row_major(0, &[12], 4));

        tree.add_place(outer, 4).unwrap();
        let layout = tree.lay_out(all).unwrap();
        let axes = vec![vec![Digit { extent: 3, stride: 20 }, Digit { extent: 4, stride: 4 }]];
        assert_eq!(layout.placement(&tree, whole), Placement { base: 0, axes });
    }

    #[test]
    fn the_order_of_axes_is_the_memory_order() {
        let mut tree = LevelTree::new();
        let block = dense(&mut tree, LevelId::ROOT, &[(1, 5), (0, 3)]);
        let place = tree.add_place(block, 4).unwrap();
        let layout = tree.lay_out(all).unwrap();
        assert_eq!(layout.placement(&tree, place), Placement::in_order(0, &[3, 5], &[1, 0], 4));
    }

    #[test]
    fn unused_members_take_no_space() {
        let mut tree = LevelTree::new();
        let block = dense(&mut tree, LevelId::ROOT, &[(0, 4)]);
        let gone = tree.add_place(block, 8).unwrap();
        let kept = tree.add_place(block, 4).unwrap();
        let empty = dense(&mut tree, LevelId::ROOT, &[(0, 4)]);
        let layout = tree.lay_out(|level| level == kept).unwrap();
        assert_eq!(layout.bytes(), 16);
        assert_eq!(layout.placement(&tree, kept).base, 0);
        assert_eq!(layout.sizes.below(block), [kept]);
        assert_eq!(layout.sizes.below(LevelId::ROOT), [block]);
        assert_eq!((layout.cell_bytes(gone), layout.cell_bytes(empty)), (0, 0));
    }

    #[test]
    fn sizes_of_more_than_63_bits_are_refused() {
        let mut tree = LevelTree::new();
        let block = dense(&mut tree, LevelId::ROOT, &[(0, 1 << 31), (1, 1 << 30)]);
        tree.add_place(block, 2).unwrap();
        assert_eq!(tree.lay_out(all).unwrap().bytes(), 1 << 62);
        tree.add_place(block, 1).unwrap();
        assert_eq!(tree.lay_out(all).unwrap_err(), LayoutError::TooLarge);
    }
}
