//! Facts about code, found once and asked for by passes: where addresses point, what code touches, which elements.
//!
//! Nothing here changes a program. A fact holds for the body that it was asked of, as it was then.
//!
//! Reading order: [`addresses`], [`constants`], [`code_layout`], [`iterations`], [`effects`], [`affine`], [`access_sets`].

pub mod access_sets;
pub mod addresses;
pub mod affine;
pub mod code_layout;
pub mod constants;
pub mod effects;
pub mod iterations;

pub use access_sets::{Access, AccessKind, AxisSet, TaskAccess, access_sets, describe_access};
pub use addresses::{
    Place, first_use_sets, for_each_element, for_each_local, for_each_use, may_overlap, points_into, same_address,
    trace_address, trace_element,
};
pub use affine::{Affine, Sums, Term};
pub use code_layout::CodeLayout;
pub use constants::known_int;
pub use effects::{Effects, body_effects, compute_access, function_effects, inst_effects};
pub use iterations::{locals_of_all_iterations, runs_once, shared_locals, touched_at_own_indices};
