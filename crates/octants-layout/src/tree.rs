//! [`LevelTree`]: the description of a tree, level by level.

use crate::error::LayoutError;
use crate::level::{Activity, LevelId, LevelKind};

/// A level or place as it was described.
#[derive(Debug, Clone)]
pub(crate) struct Level {
    pub kind: LevelKind,
    /// None for the root.
    pub parent: Option<LevelId>,
    /// Axis and extent, outermost in memory first. An axis may occur more than once.
    pub axes: Vec<(u8, u64)>,
    /// Size of the scalar of a place; zero for a bit field of another place.
    pub scalar_bytes: u64,
}

/// The levels below a root and the components in them. Each level comes after its parent.
#[derive(Debug, Clone)]
pub struct LevelTree {
    pub(crate) levels: Vec<Level>,
}

impl Default for LevelTree {
    fn default() -> LevelTree {
        LevelTree::new()
    }
}

impl LevelTree {
    /// A root.
    pub fn new() -> LevelTree {
        LevelTree { levels: vec![Level { kind: LevelKind::Root, parent: None, axes: Vec::new(), scalar_bytes: 0 }] }
    }

    /// Adds a block of cells to each cell of `parent`: axes and extents, the outermost in memory first.
    pub fn add_level(
        &mut self,
        parent: LevelId,
        kind: LevelKind,
        axes: Vec<(u8, u64)>,
    ) -> Result<LevelId, LayoutError> {
        if kind.activity() == Activity::PerList && axes.len() != 1 {
            return Err(LayoutError::DynamicAxes);
        }
        self.add(parent, Level { kind, parent: Some(parent), axes, scalar_bytes: 0 })
    }

    /// Adds a scalar to each cell of `parent`. A bit field of another place has size zero.
    pub fn add_place(&mut self, parent: LevelId, scalar_bytes: u64) -> Result<LevelId, LayoutError> {
        self.add(parent, Level { kind: LevelKind::Place, parent: Some(parent), axes: Vec::new(), scalar_bytes })
    }

    /// Whether a level or place of a kind can be below `parent`.
    pub fn check_parent(&self, parent: LevelId, kind: LevelKind) -> Result<(), LayoutError> {
        if kind.is_sparse() && self.path(parent).any(|of| self.kind(of).activity() == Activity::PerList) {
            return Err(LayoutError::BelowDynamic(kind));
        }
        if self.kind(parent) == LevelKind::Place {
            return Err(LayoutError::BelowPlace);
        }
        Ok(())
    }

    fn add(&mut self, parent: LevelId, level: Level) -> Result<LevelId, LayoutError> {
        self.check_parent(parent, level.kind)?;
        self.levels.push(level);
        Ok(LevelId((self.levels.len() - 1) as u32))
    }

    /// The kind of a level.
    pub fn kind(&self, level: LevelId) -> LevelKind {
        self.levels[level.index()].kind
    }

    /// The level above.
    pub fn parent(&self, level: LevelId) -> Option<LevelId> {
        self.levels[level.index()].parent
    }

    /// A level and those above it, innermost first.
    pub fn path(&self, level: LevelId) -> impl Iterator<Item = LevelId> {
        std::iter::successors(Some(level), |of| self.parent(*of))
    }

    /// A level and those above it, the root first.
    pub(crate) fn path_from_root(&self, level: LevelId) -> Vec<LevelId> {
        let mut path: Vec<LevelId> = self.path(level).collect();
        path.reverse();
        path
    }

    /// The axes of a level and those above it, in ascending order, with the cells along each. Saturates.
    pub fn extents(&self, level: LevelId) -> Vec<(u8, u64)> {
        let mut found: Vec<(u8, u64)> = Vec::new();
        for of in self.path(level) {
            for &(axis, extent) in &self.levels[of.index()].axes {
                match found.binary_search_by_key(&axis, |(axis, _)| *axis) {
                    Ok(at) => found[at].1 = found[at].1.saturating_mul(extent),
                    Err(at) => found.insert(at, (axis, extent)),
                }
            }
        }
        found
    }

    /// Number of cells along each axis of a level and those above it.
    pub fn shape(&self, level: LevelId) -> Vec<u64> {
        self.extents(level).into_iter().map(|(_, extent)| extent).collect()
    }

    /// Number of cells of a level, in all cells above it. Saturates.
    pub fn cells(&self, level: LevelId) -> u64 {
        u64::try_from(self.wide_cells(level)).unwrap_or(u64::MAX)
    }

    /// As [`LevelTree::cells`], for messages.
    pub(crate) fn wide_cells(&self, level: LevelId) -> u128 {
        let extents = self.path(level).flat_map(|of| &self.levels[of.index()].axes);
        extents.fold(1, |cells: u128, (_, extent)| cells.saturating_mul((*extent).into()))
    }

    /// The next sparse level above a level or place.
    pub(crate) fn sparse_level_above(&self, level: LevelId) -> Option<LevelId> {
        self.path(level).skip(1).find(|of| self.kind(*of).is_sparse())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_multiply_along_axes() {
        let mut tree = LevelTree::new();
        let block = tree.add_level(LevelId::ROOT, LevelKind::Dense, vec![(2, 3)]).unwrap();
        let inner = tree.add_level(block, LevelKind::Pointer, vec![(1, 5), (0, 4)]).unwrap();
        let leaf = tree.add_level(inner, LevelKind::Dense, vec![(0, 2)]).unwrap();
        let place = tree.add_place(leaf, 4).unwrap();
        assert_eq!(tree.shape(LevelId::ROOT), []);
        assert_eq!(tree.extents(place), [(0, 8), (1, 5), (2, 3)]);
        assert_eq!(tree.cells(place), 120);
        assert_eq!(tree.sparse_level_above(place), Some(inner));
        assert_eq!(tree.sparse_level_above(inner), None);
    }

    #[test]
    fn invalid_trees_are_refused() {
        let mut tree = LevelTree::new();
        let place = tree.add_place(LevelId::ROOT, 4).unwrap();
        assert_eq!(tree.add_place(place, 4), Err(LayoutError::BelowPlace));
        assert_eq!(tree.add_level(place, LevelKind::Dense, vec![(0, 2)]), Err(LayoutError::BelowPlace));
        let two = vec![(0, 2), (1, 2)];
        assert_eq!(tree.add_level(LevelId::ROOT, LevelKind::Dynamic, two), Err(LayoutError::DynamicAxes));
        let list = tree.add_level(LevelId::ROOT, LevelKind::Dynamic, vec![(0, 2)]).unwrap();
        let inner = tree.add_level(list, LevelKind::Dense, vec![(1, 2)]).unwrap();
        let below = LayoutError::BelowDynamic(LevelKind::Bitmasked);
        assert_eq!(tree.add_level(inner, LevelKind::Bitmasked, vec![(1, 2)]), Err(below));
    }
}
