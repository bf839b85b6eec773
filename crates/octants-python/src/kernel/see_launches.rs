//! Decides which launches are recorded for manual gradients: see [`crate::launch_history`].

use std::sync::atomic::Ordering;

use octants_engine::ir::AutodiffMode;
use octants_engine::runtime;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use super::Kernel;
use super::launch_request::LaunchRequest;
use crate::specialization::{Slots, Specialization};
use crate::trip_count_record::TripCountRecord;

impl Kernel {
    /// Records a launch that has run, for manual gradients.
    #[cold]
    pub(super) fn see_launch<'py>(
        slf: &Bound<'py, Self>,
        args: &[Bound<'py, PyAny>],
        (spec, slots): (&Specialization, &[u64]),
    ) -> PyResult<()> {
        let (this, py) = (slf.get(), slf.py());
        let differentiated = this.differentiated.load(Ordering::Relaxed);
        if !(differentiated || spec.may_have_gradient) || !spec.seen.wants_more(differentiated) {
            return Ok(());
        }
        let (prepared, _) = this.prepared(py)?;
        let mut gathered = this.gather(&prepared, args, AutodiffMode::Trips)?;
        let mut trip_count_slots = Slots::new();
        let found =
            Self::find_or_compile(slf, &prepared, &mut gathered, args, &mut trip_count_slots, AutodiffMode::Trips);
        let recording = match found {
            // The kernel may not be differentiable, and its gradient has not been requested.
            Err(error) if error.is_instance_of::<PyException>(py) => {
                spec.sees_launches.store(false, Ordering::Relaxed);
                spec.seen.end();
                return Ok(());
            }
            found => found?,
        };
        let trip_counts = TripCountRecord::of(
            this.launch(py, &prepared, &recording, (&gathered, &[]), &trip_count_slots, None)?,
            py,
        )?;
        if trip_counts.is_empty() {
            spec.has_no_trip_counts();
        } else {
            spec.seen.add(slots, trip_counts);
            this.sees_launches.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Forgets the recorded launches: the next gradient may refer to a launch that is not recorded here, on a stream or
    /// for a tape.
    pub(super) fn forget_seen(&self) {
        if self.sees_launches.swap(false, Ordering::Relaxed) {
            self.lock().known.iter().flat_map(|k| &k.specializations).for_each(|spec| spec.seen.forget());
        }
    }

    /// Raises if the trip counts of a manual gradient with these arguments match no recorded launch.
    pub(super) fn check_seen<'py>(
        slf: &Bound<'py, Self>,
        args: &[Bound<'py, PyAny>],
        stream: Option<&runtime::Stream>,
    ) -> PyResult<()> {
        let (this, py) = (slf.get(), slf.py());
        this.differentiated.store(true, Ordering::Relaxed);
        let (prepared, _) = this.prepared(py)?;
        let mut gathered = this.gather(&prepared, args, AutodiffMode::None)?;
        let mut slots = Slots::new();
        let known = this.lock().of(prepared.program.serial).to_vec();
        for spec in known {
            let is_it = *spec.key == *gathered.key && spec.is_alive(py, &prepared.program.session);
            if !is_it
                || !spec.sees_launches.load(Ordering::Relaxed)
                || !spec.fill(&mut gathered, args, &mut slots, false)?
            {
                continue;
            }
            if spec.seen.lacks_gradient(&slots) {
                let now = Self::take_trip_counts(
                    slf,
                    args,
                    LaunchRequest { mode: AutodiffMode::Trips, stream, ..LaunchRequest::default() },
                )?;
                if let Some(was) = spec.seen.unlike(&slots, &now) {
                    return was.check(&now, &this.name, py);
                }
            }
            break;
        }
        Ok(())
    }
}
