//! The front end: lowers the text of a kernel and compile-time values to IR.
//!
//! The host language (Python, or a table in a test) is reached through one trait, [`world::World`]. Reading order:
//! [`world`], [`ast`], [`parse`], [`arith`], [`value`], [`mod@lower`] and its children.

pub mod arith;
pub mod ast;
mod lower;
mod packed_component;
pub mod parse;
mod syntax_facts;
mod value;
pub mod world;

pub use lower::{Activations, Lowered, PackedFields, lower};
pub use packed_component::{BitRange, PackedComponent, PackedDigits, PackedNumber};

pub use world::{
    ArgSpec, Capture, Entity, FieldDesc, FuncKind, FuncParam, FuncSource, GraphUse, HostValue, LineEvent, NdarrayDesc,
    Obj, Options, Reach, World, WorldError, WorldResult, shadow_attribute,
};
