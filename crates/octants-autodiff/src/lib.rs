//! Differentiation: transforms a kernel into the one that computes its derivatives, before the kernel pipeline runs.
//!
//! [`differentiate()`] runs the table [`DIFFERENTIATE`]; later stages do not deal with derivatives. The front end has
//! added the shadow buffers of the kernel's arrays, gradients or duals, to its buffers. Both modes use one table of
//! rules, [`derivative_rules`].
//!
//! Reading order: `differentiate`, [`derivative_rules`], `loop_trips`, `differentiate_forward`,
//! `differentiate_reverse`, `join_conflicting_groups`, and the modes that check the assumptions of gradients,
//! `validate_reads` and `differentiate_reverse/record_trip_counts`.

mod demote_volatile_loads;
pub mod derivative_rules;
mod differentiate;
mod differentiate_forward;
mod differentiate_reverse;
mod exchange_rules;
mod join_conflicting_groups;
mod loop_trips;
mod memory_use;
mod promote_counters;
mod refuse_cooperation;
mod refuse_shared_writes;
mod structure_exits;
mod validate_reads;
mod warn_of_stored_bits;

pub use differentiate::{DIFFERENTIATE, Differentiation, differentiate};
pub use differentiate_reverse::{
    Keeping, STORE_PARAMS, StoreArguments, StoreNeed, StoredState, may_record_trip_counts,
};
pub use loop_trips::{LoopTrips, record_loop_trips};
