//! [`ElementView`]: components of a field, or any strided part of a buffer, as a kernel argument.

use octants_engine::ir::Type;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::array_view::ArrayView;
use crate::buffer::Buffer;
use crate::element_types::scalar_by_name;

/// Scalars in a buffer.
#[pyclass(module = "octants._octants", frozen)]
pub struct ElementView {
    buffer: Py<Buffer>,
    offset: u64,
    elem: Type,
    extents: SmallVec<[u64; 4]>,
    strides: SmallVec<[i64; 4]>,
}

impl ElementView {
    /// As an argument.
    pub fn view(&self, py: Python<'_>) -> PyResult<ArrayView> {
        let mut view = ArrayView {
            address: self.buffer.get().address(py)? + self.offset,
            elem: self.elem.clone(),
            extents: self.extents.clone(),
            strides: self.strides.clone(),
            readonly: false,
            host: false,
            owner: None,
            ready_on: None,
            needs_grad: false,
            needs_dual: false,
            serial: self.buffer.get().serial(),
            split: None,
            split_axis: None,
            original: None,
        };
        view.forget_dense_strides();
        Ok(view)
    }
}

#[pymethods]
impl ElementView {
    /// `offset` and `strides` are in bytes.
    #[new]
    fn new(
        buffer: &Bound<'_, Buffer>,
        dtype_name: &str,
        offset: u64,
        shape: Vec<u64>,
        strides: Vec<u64>,
    ) -> PyResult<ElementView> {
        let scalar = scalar_by_name(dtype_name)?;
        let reach: u64 = shape.iter().zip(&strides).map(|(n, s)| n.saturating_sub(1).saturating_mul(*s)).sum();
        let end = offset.saturating_add(reach).saturating_add(scalar.bytes().into());
        if shape.len() != strides.len() || end > buffer.get().len() {
            return Err(PyValueError::new_err(format!(
                "the elements are outside a buffer of {} bytes",
                buffer.get().len()
            )));
        }
        Ok(ElementView {
            buffer: buffer.clone().unbind(),
            offset,
            elem: Type::Scalar(scalar),
            extents: SmallVec::from_vec(shape),
            strides: strides.into_iter().map(|s| s as i64).collect(),
        })
    }
}
