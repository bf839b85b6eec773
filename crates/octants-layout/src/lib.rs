//! The tree of levels: where each element of a field lies in memory, as data.
//!
//! A tree is described level by level ([`LevelTree`]). A level is a block of cells: extents along axes, the first axis
//! outermost in memory. A cell holds the levels and places below it side by side, in the order of their addition, each
//! at its alignment. Levels that share an axis nest: an index along the axis is a number in mixed radix. The extents of
//! the levels are its radices, outermost first.
//!
//! [`LevelTree::lay_out`] fixes what follows from the description, a [`TreeLayout`]:
//!
//! - sizes and alignment of cells, and the [`Placement`] of each component;
//! - for each level or place the [`CellIndex`] of each sparse level above it: the digits of an index that name a cell;
//! - for each sparse level a [`SparseArea`] behind the data: which cells are active, and room for a list of them.
//!
//! The data of a sparse level lies at full extent, as if the level were dense. The [`Activity`] of a kind of level says
//! what its area keeps. The rest of the crate asks for the activity and not for the kind, so that a further kind of
//! sparse level (`hash`) is a further variant there.
//!
//! The crate holds no memory. Sizes have 64 bits; what does not fit is a [`LayoutError`].
//!
//! Modules in reading order: `index_digit`, `placement`, `shared_axes`, `level`, `error`, `tree` (the description),
//! `cells` (what an index names), `measure` (sizes and places), `areas` (behind the data), `tree_layout`.

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
