//! [`SplitArray`]: where launches find the arrays of a kernel that are split over ranks.

use octants_engine::artifact::SplitTask;
use octants_engine::frontend::{Capture, Obj};
use octants_engine::trace::Binding;
use pyo3::prelude::*;

use crate::errors;
use crate::world::PyWorld;

/// A split array of a kernel: its buffer number, and its source in a launch.
pub struct SplitArray {
    /// The number.
    pub buffer: u32,
    found: Found,
}

enum Found {
    /// An argument, or an object reached from one by attributes.
    Argument(u32, Vec<String>),
    Object(Py<PyAny>),
}

impl SplitArray {
    /// The split arrays of a kernel, from its tasks' accesses.
    pub fn all_of<'a>(
        binding: &Binding,
        tasks: impl Iterator<Item = &'a SplitTask>,
        world: &PyWorld<'_>,
    ) -> Vec<SplitArray> {
        let of_task = |t: &'a SplitTask| {
            let rows = t.reads.iter().chain(&t.adds).map(|rows| rows.0);
            rows.chain(t.writes.iter().copied()).chain(t.local.iter().map(|rows| rows.buffer))
        };
        let mut buffers: Vec<u32> = tasks.flat_map(of_task).collect();
        buffers.sort_unstable();
        buffers.dedup();
        let object = |obj: &Obj| Found::Object(world.object(*obj).clone().unbind());
        let found = |capture: &Capture| match capture {
            Capture::Arg { index, path } | Capture::ShadowBuffer { index, path, .. } => {
                Found::Argument(*index, path.clone())
            }
            Capture::Object { from: Some((index, path)), .. } => Found::Argument(*index, path.clone()),
            Capture::Object { obj, from: None } => object(obj),
        };
        let array = |buffer: u32| {
            let capture = binding.buffers[buffer as usize].as_ref()?;
            Some(SplitArray { buffer, found: found(capture) })
        };
        buffers.into_iter().filter_map(array).collect()
    }

    /// The array of a launch with these arguments.
    pub fn object<'py>(&self, args: &[Bound<'py, PyAny>], py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.found {
            Found::Object(object) => Ok(object.bind(py).clone()),
            Found::Argument(index, path) => {
                let first = args.get(*index as usize).cloned();
                let first = first.ok_or_else(|| errors::runtime_error(py, "compiler bug: an argument is missing"))?;
                path.iter().try_fold(first, |object, name| object.getattr(name.as_str()))
            }
        }
    }

    /// Whether it is reached from an argument, so that the call's key includes its overlaps.
    pub fn is_argument(&self) -> bool {
        matches!(self.found, Found::Argument(..))
    }
}
