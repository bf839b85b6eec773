//! For tests: a stand-in for HIP's library (`libamdhip64.so`) on a machine without an AMD GPU. It implements the
//! functions that our driver uses, as HIP's documentation describes them, as strictly as the documentation allows.
//!
//! - Streams are threads with queues. Between two pieces of work, a stream sleeps for a time that depends on a seed, so
//!   that every order occurs that events do not forbid.
//! - Stream-ordered memory becomes valid, and is filled with garbage, when the stream reaches the allocation. It is
//!   overwritten when the stream reaches the deallocation, and then reused for the next allocation.
//! - Misuse is recorded as a fault ([`faults`]), even if the real library would tolerate it: using an object while
//!   another device is current, using it after it was destroyed, or unloading code while it is queued.
//! - The work of a captured stream is recorded, and executed when the graph is launched, in one of the allowed orders,
//!   which depends on the seed.
//! - There are two devices, to detect calls that do not first make their device current.
//! - It also emulates hipSPARSE's products, if it is loaded under that name.
//! - Code is executed through the trait [`processor::Processor`], which has three implementations: GPU-style code
//!   for the host's processor is run ([`host_gpu`]); code of four chips is emulated ([`emulated`]); code of other
//!   chips is parsed but not run ([`code_object`]).
//!
//! The stand-in shows that our driver calls HIP according to its documentation, and that the code built on these calls
//! computes correct results in every order that they allow. It does not show that HIP conforms to its documentation.
//!
//! Environment variables, read when the library is first used: `HIP_VISIBLE_DEVICES`; `HIP_STANDIN_SEED`,
//! `HIP_STANDIN_VERSION`, `HIP_STANDIN_ARCH`, `HIP_STANDIN_MEMORY`; and `HIP_STANDIN_SABOTAGE=no-barriers`, which makes
//! emulated barriers do nothing, to check that tests then fail.
//!
//! Reading order: [`exports`] (HIP's functions), [`control`] (ours for tests), [`state`], [`outcome`], [`lock`],
//! [`faults`], [`memory`], [`product`], [`work`], [`stream`], [`event`], [`capture`], [`code`], [`processor`],
//! [`host_gpu`], [`fibers`], [`emulated`], [`code_object`].

pub mod capture;
pub mod code;
pub mod code_object;
pub mod control;
pub mod emulated;
pub mod event;
pub mod exports;
pub mod faults;
pub mod fibers;
pub mod host_gpu;
pub mod lock;
pub mod memory;
pub mod outcome;
pub mod processor;
pub mod product;
pub mod state;
pub mod stream;
pub mod work;
