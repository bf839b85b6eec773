//! Array arguments that a launch copies: arrays of vectors or matrices with noncontiguous components, and arrays of
//! other libraries on the GPU that the device cannot use.

use octants_engine::runtime::{Stream, nesting};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::Gathered;
use crate::array_view::ArrayView;
use crate::package::Package;
use crate::program::Program;
use crate::waiting::waiting;

/// A copy, and its original.
pub struct CopiedArray<'py> {
    /// Which value or array.
    pub leaf: u32,
    copy: Bound<'py, PyAny>,
    original: Bound<'py, PyAny>,
    /// Bytes of the original, `[low, high)`.
    span: (u64, u64),
    /// Whether the original is in memory of another library, with that library's addresses.
    is_foreign: bool,
}

impl<'py> Gathered<'py> {
    /// Records the original of the array added last.
    #[cold]
    pub(super) fn note_copy(&mut self, view: &ArrayView, py: Python<'py>) {
        let (Some(span), Some(original), Some(copy)) = (self.spans.last(), &view.original, &view.owner) else { return };
        self.copied.push(CopiedArray {
            leaf: span.leaf,
            copy: copy.bind(py).clone(),
            original: original.array.bind(py).clone(),
            span: original.span,
            is_foreign: original.is_foreign,
        });
    }

    /// Raises if a copy would be wrong: the original is also passed directly, or the launch is repeated later.
    /// `written` says which arrays the kernel writes; `name` returns their names.
    #[cold]
    pub fn check_copies(&self, written: impl Fn(u32) -> bool, name: impl Fn(u32) -> String) -> PyResult<()> {
        let refuse = |array: &CopiedArray<'_>, why: &str| {
            let name = name(array.leaf);
            Err(PyValueError::new_err(if array.is_foreign {
                format!(
                    "the array given for `{name}` must be in memory that this device shares {why}: pass a qd.ndarray, \
                     or a tensor made by `torch.from_dlpack(ndarray)`"
                )
            } else {
                format!(
                    "the components of each element of the array given for `{name}` must be contiguous in memory \
                     {why}: pass numpy.ascontiguousarray(...) of it"
                )
            }))
        };
        for (i, array) in self.copied.iter().enumerate() {
            if nesting::capturing() {
                return refuse(array, "where its launch is captured in a graph");
            }
            let meets = |(leaf, low, high): (u32, u64, u64)| {
                low < array.span.1 && array.span.0 < high && (written(leaf) || written(array.leaf))
            };
            let others = self.copied[..i].iter().filter(|other| other.is_foreign == array.is_foreign);
            let others = others.map(|other| (other.leaf, other.span.0, other.span.1));
            let passed = self.spans.iter().filter(|_| !array.is_foreign).map(|s| (s.leaf, s.low, s.high));
            if passed.chain(others).any(meets) {
                return refuse(array, "where another argument shares its memory");
            }
        }
        Ok(())
    }

    /// Waits for a launch, copies written arrays back, and keeps the memory of copies for later launches.
    #[cold]
    pub fn copy_back(
        &self,
        py: Python<'_>,
        stream: Option<&Stream>,
        program: &Program,
        written: impl Fn(u32) -> bool,
    ) -> PyResult<()> {
        let stream = stream.unwrap_or_else(|| program.session.device().default_stream());
        waiting(py, |caller| stream.finish(caller))?;
        let copy_to = py.import("numpy")?.getattr(pyo3::intern!(py, "copyto"))?;
        let copies = Package::get(py)?.foreign_copies.bind(py);
        for array in &self.copied {
            let (original, copy) = (&array.original, &array.copy);
            match (written(array.leaf), array.is_foreign) {
                (true, true) => drop(copies.call_method1(pyo3::intern!(py, "copy_back"), (original, copy))?),
                (true, false) => drop(copy_to.call1((original, copy))?),
                (false, _) => {}
            }
        }
        // Only now, so that no argument of this launch takes the copy of another one.
        for array in self.copied.iter().filter(|array| array.is_foreign) {
            copies.call_method1(pyo3::intern!(py, "release"), (&array.original, &array.copy))?;
        }
        Ok(())
    }
}
