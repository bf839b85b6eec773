//! Array arguments that a launch copies: arrays of vectors or matrices with noncontiguous components.

use octants_engine::runtime::{Stream, nesting};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::Gathered;
use crate::array_view::ArrayView;
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
        });
    }

    /// Raises if a copy would be wrong: the original is also passed directly, or the launch is repeated later.
    /// `written` says which arrays the kernel writes; `name` returns their names.
    #[cold]
    pub fn check_copies(&self, written: impl Fn(u32) -> bool, name: impl Fn(u32) -> String) -> PyResult<()> {
        let refuse = |array: &CopiedArray<'_>, why: &str| {
            Err(PyValueError::new_err(format!(
                "the components of each element of the array given for `{}` must be contiguous in memory {why}: pass \
                 numpy.ascontiguousarray(...) of it",
                name(array.leaf)
            )))
        };
        for (i, array) in self.copied.iter().enumerate() {
            if nesting::capturing() {
                return refuse(array, "where its launch is captured in a graph");
            }
            let meets = |(leaf, low, high): (u32, u64, u64)| {
                low < array.span.1 && array.span.0 < high && (written(leaf) || written(array.leaf))
            };
            let others = self.copied[..i].iter().map(|other| (other.leaf, other.span.0, other.span.1));
            if self.spans.iter().map(|s| (s.leaf, s.low, s.high)).chain(others).any(meets) {
                return refuse(array, "where another argument shares its memory");
            }
        }
        Ok(())
    }

    /// Waits for a launch, and copies written arrays back.
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
        let mut written = self.copied.iter().filter(|array| written(array.leaf));
        written.try_for_each(|array| copy_to.call1((&array.original, &array.copy)).map(drop))
    }
}
