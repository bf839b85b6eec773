//! This package's ndarrays as arguments.

use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::array_view::ArrayView;
use crate::ndarray::Ndarray;

/// The view of an ndarray.
pub fn view(array: &Bound<'_, Ndarray>) -> PyResult<ArrayView> {
    let this = array.get();
    Ok(ArrayView {
        address: this.address(array.py())?,
        elem: this.elem().clone(),
        extents: SmallVec::from_slice(this.extents()),
        strides: SmallVec::from_slice(this.strides()),
        readonly: false,
        host: false,
        owner: None,
        ready_on: None,
        needs_grad: this.has_grad(),
        needs_dual: false,
        serial: this.memory().serial(),
        split_axis: this.split_axis(),
        split: if this.split_axis().is_some() {
            let low = this.memory_address(array.py())?;
            Some((low, low + this.bytes()))
        } else {
            None
        },
        original: None,
    })
}
