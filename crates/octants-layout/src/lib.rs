//! Trees of levels: the memory layout of fields, as data.
//!
//! A tree is described level by level ([`LevelTree`]). A level is a block of cells: extents along axes, the first axis
//! outermost in memory. A cell contains the levels and components below it one after the other, in the order in which
//! they were added, each with its alignment. Levels that share an axis nest: an index along the axis is a mixed-radix
//! number. The extents of the levels are its radices, outermost first.
//!
//! [`LevelTree::lay_out`] computes a [`TreeLayout`] from the description:
//!
//! - sizes and alignment of cells, and the [`Placement`] of each component;
//! - for each level or component, the [`CellIndex`] of each sparse level above it: the digits of an index that select a
//!   cell;
//! - for each sparse level, a [`SparseArea`] after the data: which cells are active, and space for a list of them.
//!
//! The data of a sparse level has its full extent, as if the level were dense. The [`Activity`] of a kind of level says
//! what its area contains. The rest of the crate depends on the activity and not on the kind, so another kind of sparse
//! level (`hash`) would need only another variant there.
//!
//! The crate allocates no memory. Sizes have 64 bits; overflow is a [`LayoutError`].
//!
//! Modules in reading order: `index_digit`, `placement`, `shared_axes`, `level`, `error`, `tree` (the description),
//! `cells` (the cells that an index selects), `measure` (sizes and placements), `areas` (the metadata after the data),
//! `tree_layout`.

mod areas;
mod cells;
mod error;
mod index_digit;
mod level;
mod measure;
mod placement;
mod shared_axes;
mod tree;
mod tree_layout;

pub use areas::{CellView, NestedLevel, SparseArea};
pub use cells::CellIndex;
pub use error::LayoutError;
pub use index_digit::IndexDigit;
pub use level::{Activity, LevelId, LevelKind};
pub use placement::{Digit, Placement, common_step};
pub use shared_axes::{SharedAxis, shared_axes};
pub use tree::LevelTree;
pub use tree_layout::TreeLayout;
