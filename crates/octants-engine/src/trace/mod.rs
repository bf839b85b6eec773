//! [`Tracing`]: a compilation's conversation with the outside, written down, so that a later process repeats the
//! questions instead of the compilation.
//!
//! The front end is a function of the arguments' types, the options, and the answers that
//! [`World`](octants_frontend::World) gives. So a process that asks what an earlier one has asked, in that order, and
//! is answered the same, would compile the same code: it takes the earlier outcome without parsing and lowering
//! anything. Nothing has to be known of what the questions mean, and nothing can be forgotten: what the front end does
//! not ask it does not know. Calls at compile time are made again, as the front end would make them.
//!
//! - [`answer`]: questions as data, and how each is put to a world
//! - [`fingerprint`]: answers as 16 bytes
//! - [`record`]: a world that writes down what it is asked
//! - [`recall`]: finding the traces of a kernel and asking again
//! - [`mod@outcome`]: what a launch must know, stored and read back
//!
//! Several traces of one kernel (values of a captured name, say) are tried at once: the front end asks the same as long
//! as it is answered the same, so each question is asked once, and the traces that expected another answer drop out.

mod answer;
mod fingerprint;
mod outcome;
mod recall;
mod record;

pub(crate) use outcome::kind_of;
pub use outcome::{Binding, stored_warning};
pub use recall::{Recalled, Request, Search};
pub(crate) use recall::{keep, outcome, search};
pub use record::Tracing;
