//! [`Tracing`]: records the questions that a compilation asks its environment. A later process repeats the questions
//! instead of the compilation.
//!
//! The front end is a function of the argument types, the options, and the answers of a
//! [`World`](octants_frontend::World). If a process asks the questions of an earlier compilation in the same order and
//! gets the same answers, it would compile the same code. It then takes the stored outcome, without parsing or
//! lowering. A trace does not interpret questions, and misses nothing: the front end has no other source of
//! information. Calls at compile time are made again, as the front end would make them.
//!
//! - [`answer`]: questions as data, and how each is put to a world
//! - [`fingerprint`]: answers as 16 bytes
//! - [`record`]: a world that records what it is asked
//! - [`recall`]: finds the traces of a kernel and replays their questions
//! - [`mod@outcome`]: what a launch needs, stored and read back
//!
//! Several traces of one kernel (for several values of a captured name, say) are replayed together. Traces with a
//! common prefix of answers have the same next question, so each question is asked once. Traces that expect another
//! answer are dropped.

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
