//! [`LayoutError`]: why a tree is invalid, as a message for the user.

use std::fmt;

use crate::level::LevelKind;

/// A tree that cannot be described or laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayoutError {
    /// A level below the place of a component.
    BelowPlace,
    /// A sparse level below a dynamic one.
    BelowDynamic(LevelKind),
    /// A dynamic level with another number of axes than one.
    DynamicAxes,
    /// A level with more cells than their numbers have bits for.
    TooManyCells(LevelKind, u128),
    /// A tree whose size in bytes takes more than 63 bits.
    TooLarge,
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutError::BelowPlace => write!(f, "a place level cannot have levels below it"),
            LayoutError::BelowDynamic(kind) => {
                write!(f, "a {} level cannot be placed below a dynamic level", kind.name())
            }
            LayoutError::DynamicAxes => write!(f, "a dynamic level must have exactly one axis"),
            LayoutError::TooManyCells(kind, cells) => {
                write!(f, "a {} level can have at most 2^31 - 1 cells, but this one has {cells}", kind.name())
            }
            LayoutError::TooLarge => write!(f, "a tree of levels can have at most 2^63 - 1 bytes"),
        }
    }
}

impl std::error::Error for LayoutError {}
