//! The part that code generators share: the properties of a program on which its code and its launcher must agree.
//!
//! # Invariants
//!
//! - Argument slots, frame slots, message sites and the task graph are numbered here, so the artifact is described in
//!   one way for all code generators.
//! - Nothing here generates code or depends on a machine.
//!
//! Reading order: [`memory_layout`], [`facts`], [`mod@launch_bound`], [`mod@describe_loop`], [`mod@wide_form`],
//! [`mod@graph_parts`], [`mod@persistent_loops`], [`aggregates`].

pub mod aggregates;
pub mod describe_loop;
pub mod facts;
pub mod graph_parts;
pub mod launch_bound;
pub mod memory_layout;
pub mod persistent_loops;
pub mod wide_form;

pub use describe_loop::{describe_loop, is_grid, parallel_loop};
pub use facts::{Facts, kind_of};
pub use graph_parts::graph_parts;
pub use launch_bound::launch_bound;
pub use memory_layout::MemoryLayout;
pub use persistent_loops::{PersistentLoop, persistent_loops};
pub use wide_form::wide_form;
