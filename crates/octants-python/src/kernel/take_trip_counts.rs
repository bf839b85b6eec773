//! Runs the kernel that computes a launch's trip-count record.

use pyo3::prelude::*;

use super::Kernel;
use super::launch_request::LaunchRequest;
use crate::specialization::Slots;
use crate::trip_count_record::TripCountRecord;

impl Kernel {
    /// The trip-count record of a launch with these arguments and the present memory. The mode records loops only, or
    /// also the values that gradients read.
    pub(super) fn take_trip_counts<'py>(
        slf: &Bound<'py, Self>,
        args: &[Bound<'py, PyAny>],
        request: LaunchRequest<'_>,
    ) -> PyResult<TripCountRecord> {
        let (result, _) = slf.get().run_with(slf, args, request, &mut Slots::new())?;
        TripCountRecord::of(result, slf.py())
    }
}
