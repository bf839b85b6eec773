//! `Sizes`: sizes, alignment and offsets, computed from a tree's description.

use crate::error::LayoutError;
use crate::level::{LevelId, LevelKind};
use crate::placement::{Digit, Placement};
use crate::tree::LevelTree;

/// A size that a buffer may have.
const MOST_BYTES: u64 = i64::MAX as u64;

/// The layout of a level.
#[derive(Debug, Clone, Default)]
struct Measured {
    /// Its offset in a cell of the level above.
    offset: u64,
    cell_bytes: u64,
    /// The bytes of all its cells.
    bytes: u64,
    alignment: u64,
    below: Vec<LevelId>,
}

/// Sizes and places of all levels.
#[derive(Debug, Clone)]
pub(crate) struct Sizes {
    measured: Vec<Measured>,
}

impl Sizes {
    /// Sizes and places of the levels for which `keeps` holds, and of those above them.
    pub fn of(tree: &LevelTree, keeps: &impl Fn(LevelId) -> bool) -> Result<Sizes, LayoutError> {
        Ok(Sizes { measured: measure(tree, keeps)? })
    }

    /// Bytes of the data.
    pub fn data_bytes(&self) -> u64 {
        self.measured[LevelId::ROOT.index()].bytes
    }

    /// Bytes of a cell of a level; zero for places.
    pub fn cell_bytes(&self, level: LevelId) -> u64 {
        self.measured.get(level.index()).map_or(0, |m| m.cell_bytes)
    }

    /// The offset of a level in a cell of its parent.
    pub fn offset_in_cell(&self, level: LevelId) -> u64 {
        self.measured.get(level.index()).map_or(0, |m| m.offset)
    }

    /// The levels and places in a cell of a level, in their order in memory.
    pub fn below(&self, level: LevelId) -> &[LevelId] {
        &self.measured[level.index()].below
    }

    /// All levels and places below a level, in preorder.
    pub fn descendants(&self, level: LevelId) -> Vec<LevelId> {
        let mut found = Vec::new();
        let mut open: Vec<LevelId> = self.below(level).iter().rev().copied().collect();
        while let Some(next) = open.pop() {
            found.push(next);
            open.extend(self.below(next).iter().rev());
        }
        found
    }

    /// The placement of a component.
    pub fn placement(&self, tree: &LevelTree, place: LevelId) -> Placement {
        let mut by_axis: Vec<(u8, Vec<Digit>)> = Vec::new();
        for (axis, digit) in self.digits(tree, place).into_iter().map(|(_, axis, digit)| (axis, digit)) {
            let at = match by_axis.binary_search_by_key(&axis, |(axis, _)| *axis) {
                Ok(at) => at,
                Err(at) => {
                    by_axis.insert(at, (axis, Vec::new()));
                    at
                }
            };
            let digits = &mut by_axis[at].1;
            // Levels of one axis that follow one another without a gap count as one.
            match digits.last_mut() {
                Some(outer) if outer.stride == digit.extent * digit.stride => {
                    *outer = Digit { extent: outer.extent * digit.extent, stride: digit.stride };
                }
                _ => digits.push(digit),
            }
        }
        Placement { base: self.base(tree, place), axes: by_axis.into_iter().map(|(_, digits)| digits).collect() }
    }

    /// The byte at which the first of a level or place begins.
    pub fn base(&self, tree: &LevelTree, level: LevelId) -> u64 {
        tree.path(level).map(|of| self.offset_in_cell(of)).sum()
    }

    /// All digits on the way from the root to a level or place, with the level and the axis of each.
    pub fn digits(&self, tree: &LevelTree, level: LevelId) -> Vec<(LevelId, u8, Digit)> {
        let mut found = Vec::new();
        for of in tree.path_from_root(level) {
            let mut stride = self.measured[of.index()].bytes;
            for &(axis, extent) in &tree.levels[of.index()].axes {
                stride /= extent.max(1);
                found.push((of, axis, Digit { extent, stride }));
            }
        }
        found
    }
}

fn measure(tree: &LevelTree, keeps: &impl Fn(LevelId) -> bool) -> Result<Vec<Measured>, LayoutError> {
    let mut measured: Vec<Measured> = vec![Measured::default(); tree.levels.len()];
    // Children come after their level, so the reverse order measures them first.
    for number in (0..tree.levels.len()).rev() {
        let id = LevelId(number as u32);
        let level = &tree.levels[number];
        let mut below = std::mem::take(&mut measured[number].below);
        if below.is_empty() && level.parent.is_some() && !keeps(id) {
            continue;
        }
        if let Some(parent) = level.parent {
            measured[parent.index()].below.push(id);
        }
        if level.kind == LevelKind::Place {
            measured[number] =
                Measured { bytes: level.scalar_bytes, alignment: level.scalar_bytes.max(1), ..Measured::default() };
            continue;
        }
        below.reverse();
        let (mut size, mut alignment) = (0, 1);
        for child in &below {
            let child = &mut measured[child.index()];
            child.offset = round_up(size, child.alignment)?;
            size = checked(child.offset.checked_add(child.bytes))?;
            alignment = alignment.max(child.alignment);
        }
        let cell_bytes = round_up(size, alignment)?;
        let bytes = level.axes.iter().try_fold(cell_bytes, |n, (_, extent)| checked(n.checked_mul(*extent)))?;
        measured[number] = Measured { offset: 0, cell_bytes, bytes, alignment, below };
    }
    Ok(measured)
}

/// A size in bytes, unless it is too large.
pub(crate) fn checked(bytes: Option<u64>) -> Result<u64, LayoutError> {
    bytes.filter(|bytes| *bytes <= MOST_BYTES).ok_or(LayoutError::TooLarge)
}

pub(crate) fn round_up(bytes: u64, alignment: u64) -> Result<u64, LayoutError> {
    checked(bytes.checked_next_multiple_of(alignment))
}
