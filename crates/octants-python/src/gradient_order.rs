//! [`GradientOrder`]: orders the gradients of a tape's launches on the streams of these launches.

use std::sync::Arc;

use octants_engine::runtime::LaunchOrder;
use pyo3::prelude::*;

use crate::stream::stream_or_current;
use crate::waiting::raised;

/// Gradients that wait only for earlier ones that use the same memory.
#[pyclass(module = "octants._octants", frozen)]
pub struct GradientOrder(pub Arc<LaunchOrder>);

#[pymethods]
impl GradientOrder {
    /// An order for gradients that run after the current stream's work.
    #[new]
    fn new(py: Python<'_>) -> PyResult<GradientOrder> {
        Ok(GradientOrder(Arc::new(LaunchOrder::new(stream_or_current(py, None)?))))
    }

    /// Orders the stream that was current after all gradients.
    fn join(&self, py: Python<'_>) -> PyResult<()> {
        self.0.join().map_err(|e| raised(py, e))
    }
}
