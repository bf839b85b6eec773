//! [`Held`]: the objects that a launch keeps alive. [`HoldLater`]: objects that it keeps alive from the moment when
//! other threads may free them.

use pyo3::prelude::*;
use smallvec::SmallVec;

/// Objects that must live until a launch has ended.
pub type Held<'py> = SmallVec<[Bound<'py, PyAny>; 4]>;

/// Provides the objects that only the launch keeps alive once its thread releases the interpreter.
pub trait HoldLater {
    /// Adds the objects, with the interpreter still held.
    fn hold<'py>(&self, py: Python<'py>, held: &mut Held<'py>);
}

impl HoldLater for () {
    fn hold<'py>(&self, _py: Python<'py>, _held: &mut Held<'py>) {}
}
