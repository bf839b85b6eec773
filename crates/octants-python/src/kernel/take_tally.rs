//! Runs the kernel that tells a launch's tally.

use octants_engine::ir::AutodiffMode;
use pyo3::prelude::*;

use super::Kernel;
use crate::specialization::Slots;
use crate::tally::Tally;

impl Kernel {
    /// The tally of a launch with these arguments and numbers as memory is now; the mode is that of loops, or that of
    /// what gradients read too.
    pub(super) fn take_tally<'py>(
        slf: &Bound<'py, Self>,
        args: &[Bound<'py, PyAny>],
        mode: AutodiffMode,
        numbers: Option<&[u64]>,
    ) -> PyResult<Tally> {
        let (result, _) = slf.get().run_with(slf, args, mode, numbers, &mut Slots::new())?;
        Tally::of(result, slf.py())
    }
}
