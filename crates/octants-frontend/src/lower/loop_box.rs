//! [`LoopBox`]: the iteration space of a run-time loop.

use octants_ir::{BufferId, Range};

use super::sparse_levels::ActiveCells;
use crate::value::Value;

/// The box of a run-time loop.
pub(super) struct LoopBox {
    /// Bounds in nesting order, outermost first.
    pub(super) ranges: Vec<Range>,
    /// For each of the user's axes, its position in `ranges`.
    pub(super) position: Vec<usize>,
    /// One loop variable holds all indices.
    pub(super) grouped: bool,
    pub(super) kind: BoxKind,
    /// The field whose elements these are.
    pub(super) elements: Option<BufferId>,
    /// Over active cells: the positions in their list, and the elements in a cell.
    pub(super) cells: Option<ActiveCells>,
    /// Over elements of a mesh: all of a kind, or those next to one.
    pub(super) visited: Option<Value>,
}

/// The origin of the iteration space of a loop.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum BoxKind {
    Range,
    Ndrange,
    /// The elements of a field or an array.
    Elements,
    /// Elements of a mesh.
    Mesh,
}
