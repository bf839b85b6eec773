//! Program analyses: the memory that an address points to, the memory and the elements that code accesses, effects,
//! costs. Results are cached for the passes that need them.
//!
//! Nothing here changes a program. A fact is valid for the body that it was computed from until the body changes.
//! [`BodyFacts`] are cached in the body and dropped when it changes.
//!
//! Reading order: [`addresses`], [`constants`], [`code_layout`], [`iterations`], `local_uses`, [`memory_classes`],
//! [`exits`], [`effects`], [`behavior`], [`cost_model`], [`affine`], [`dependence`], `fixed_distance`,
//! [`same_values`], [`colors`], [`mod@access_sets`], [`mod@task_order`], [`short_tasks`], `unproved_buffers`,
//! [`launch_bounds`]; [`body_facts`], which caches some of them, and [`mod@function_effects`].

pub mod access_sets;
pub mod addresses;
pub mod affine;
pub mod behavior;
pub mod body_facts;
pub mod code_layout;
pub mod colors;
pub mod constants;
pub mod cost_model;
pub mod dependence;
pub mod effects;
pub mod exits;
mod fixed_distance;
pub mod function_effects;
pub mod iterations;
pub mod launch_bounds;
mod local_uses;
pub mod memory_classes;
pub mod same_values;
pub mod short_tasks;
mod solve_equations;
pub mod task_order;
mod unproved_buffers;

pub use octants_ir::{Affine, Term};

pub use access_sets::{Access, AccessKind, AxisSet, TaskAccess, access_sets, describe_access};
pub use addresses::{
    Place, first_use_sets, first_uses_set, for_each_element, for_each_local, for_each_use, is_read, points_into,
    reads_before_set, trace_address, trace_element, trace_indices,
};
pub use affine::Sums;
pub use behavior::{OwnBehavior, inlined_sizes};
pub use body_facts::{BodyFacts, local_uses, own_behavior};
pub use code_layout::CodeLayout;
pub use colors::Color;
pub use constants::known_int;
pub use cost_model::{CostModel, UNKNOWN_TRIPS, estimate_trips};
pub use dependence::{BetweenIterations, Dependence, KnownMemory, Subscript};
pub use effects::{Effects, inst_effects};
pub use exits::{exits_of, may_leave};
pub use function_effects::{body_effects, compute_access, function_effects};
pub use iterations::{locals_of_all_iterations, runs_once, shared_locals, touched_at_own_indices};
pub use launch_bounds::launch_bound;
pub use memory_classes::MemoryClasses;
pub use same_values::{SameRanges, same_address, same_value};
pub use short_tasks::is_short;
pub use solve_equations::Conflict;
pub use task_order::task_order;
pub use unproved_buffers::unproved_buffers;
