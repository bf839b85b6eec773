//! [`Lowered`]: the result of lowering.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use octants_diag::Sources;
use octants_ir::{BufferId, Kernel};

use super::packed_fields::PackedFields;
use super::sparse_levels::Activations;
use crate::world::{Capture, Obj};

/// The result of lowering a kernel: the IR, and how to fill its arguments.
#[derive(Debug, Clone)]
pub struct Lowered {
    /// The code.
    pub kernel: Kernel,
    /// For each of `kernel.buffers`, how a launch finds it; `None` for fields.
    pub buffers: Vec<Option<Capture>>,
    /// The arrays that are distributed over ranks, and the axis along which they are.
    pub split_arrays: BTreeMap<BufferId, u32>,
    /// For each of `kernel.roots`, the outside's id of the memory (`FieldDesc::components[..].root`).
    pub roots: Vec<u32>,
    /// For each of `kernel.params`, the parameter position and the members from there.
    pub params: Vec<(u32, Vec<String>)>,
    /// The annotation objects of the results, to rebuild Python values: one per result.
    pub returns: Vec<Obj>,
    /// Labels of checkpoints, with the objects that the user gave.
    pub checkpoints: Vec<(i64, Obj)>,
    /// The `stream_parallel` groups that are allowed to conflict with others.
    pub overlap_allowed: BTreeSet<u32>,
    /// The activations to insert once the kernel is differentiated; empty in modes that add no stores to fields.
    pub activations: Activations,
    /// The fields of quantized types. Accesses to them are replaced after differentiation, or during lowering if the
    /// kernel is not differentiated, unless `keeps_packed`.
    pub packed_fields: PackedFields,
    /// The accesses to them are still to be replaced.
    pub keeps_packed: bool,
    /// Files for run-time messages and diagnostics.
    pub sources: Sources,
    /// Time spent reading and parsing source text.
    pub parsing: Duration,
}
