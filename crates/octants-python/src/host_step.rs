//! [`HostStep`]: a step of a captured graph that Python code, or a launch on split arrays, performs at each launch of
//! the graph.

use std::sync::Arc;

use octants_engine::runtime;
use pyo3::prelude::*;

use crate::errors;

type Perform = dyn Fn(Python<'_>, &runtime::Stream) -> PyResult<()> + Send + Sync;

/// The step. It is given the stream that the graph is launched on.
pub struct HostStep(Box<Perform>);

impl HostStep {
    /// A step for the runtime, which does not know what it is.
    pub fn make(
        perform: impl Fn(Python<'_>, &runtime::Stream) -> PyResult<()> + Send + Sync + 'static,
    ) -> Arc<runtime::HostStep> {
        Arc::new(HostStep(Box::new(perform)))
    }

    /// Performs a step of a graph that is launched on a stream.
    pub fn perform(step: &runtime::HostStep, py: Python<'_>, stream: &runtime::Stream) -> PyResult<()> {
        match step.downcast_ref::<HostStep>() {
            Some(step) => step.0(py, stream),
            None => Err(errors::runtime_error(py, "compiler bug: a step of the host is not Python's")),
        }
    }
}
