//! A stand-in for HIP's library (`libamdhip64.so`) on a machine without an AMD GPU, for tests only: the functions that
//! our driver uses, with the meaning that HIP's documentation gives them, as strict as it allows.
//!
//! - Streams are threads with queues. Between two pieces of work a seed decides how long a stream sleeps, so that
//!   orders come up that no event forbids.
//! - Memory of a stream is valid, and filled with rubbish, once the stream has come to its allocation; it is
//!   overwritten when the stream comes to its release, and then given to the next allocation.
//! - What a program must not do is written down as a fault ([`faults`]) even where the real library would let it pass:
//!   an object used while another device is the thread's, or after it was destroyed, or code unloaded while it is
//!   queued.
//! - A captured stream's work is written down, and done where the graph is launched, in an order that the seed chooses
//!   among those allowed.
//! - There are two devices, so that a call that forgets to make its device the thread's own shows.
//! - It also emulates hipSPARSE's products, if it is loaded under that name.
//! - Running code is behind a trait ([`processor::Processor`]): code in, memory and arguments in, results out. It is
//!   code of the same form as a GPU's, made for this machine's processor ([`twin`]); code of four chips, which is
//!   emulated ([`emulated`]); or code of other chips, which is read and not run ([`code_object`]).
//!
//! What this proves: that our driver's calls are right by HIP's documentation, and that what is built on them computes
//! right results in every order that they allow. What it does not: that HIP keeps to its documentation.
//!
//! Environment variables, read when the library is first used: `HIP_VISIBLE_DEVICES`; `HIP_STANDIN_SEED`,
//! `HIP_STANDIN_VERSION`, `HIP_STANDIN_ARCH`, `HIP_STANDIN_MEMORY`; `HIP_STANDIN_SABOTAGE=no-barriers`, for tests of
//! tests: emulated barriers do nothing.
//!
//! Reading order: [`exports`] (HIP's functions), [`control`] (ours for tests), [`state`], [`outcome`], [`lock`],
//! [`faults`], [`memory`], [`product`], [`work`], [`stream`], [`event`], [`capture`], [`code`], [`processor`],
//! [`twin`], [`fibers`], [`emulated`], [`code_object`].

pub mod capture;
pub mod code;
pub mod code_object;
pub mod control;
pub mod emulated;
pub mod event;
pub mod exports;
pub mod faults;
pub mod fibers;
pub mod lock;
pub mod memory;
pub mod outcome;
pub mod processor;
pub mod product;
pub mod state;
pub mod stream;
pub mod twin;
pub mod work;
