//! The trip counts that launches record for gradients: see octants-autodiff's `loop_trips`. A tape and a captured graph
//! keep those of each launch. For manual gradients, a kernel keeps those of its latest launches.

use std::sync::Arc;

use octants_engine::ir::AutodiffMode;
use octants_engine::runtime::{Buffer, CounterSnapshot, nesting};
use pyo3::prelude::*;

use super::{Kernel, Prepared};
use crate::argument::{Follows, Gathered};
use crate::captured_graph;
use crate::errors;
use crate::specialization::{Slots, Specialization};

/// Number of launches whose trip counts a kernel keeps.
const LAUNCHES: usize = 16;

/// The latest launches, with their arguments. The last is the most recent one.
#[derive(Default)]
pub(super) struct RecordedTrips(Vec<RecordedLaunch>);

struct RecordedLaunch {
    /// The specialization's number.
    number: u64,
    /// Its argument slots.
    slots: Slots,
    trips: Buffer,
}

impl RecordedTrips {
    fn note(&mut self, launch: RecordedLaunch) {
        self.0.retain(|known| known.number != launch.number || known.slots != launch.slots);
        if self.0.len() == LAUNCHES {
            self.0.remove(0);
        }
        self.0.push(launch);
    }

    fn find(&self, number: u64, slots: &Slots) -> Option<Buffer> {
        let found = self.0.iter().find(|known| known.number == number && known.slots == *slots);
        found.map(|known| known.trips.clone())
    }
}

impl Kernel {
    /// Sets the argument slots of recorded trip counts: new memory for a launch of the kernel, and the counts of that
    /// launch for a manual gradient.
    #[cold]
    pub(super) fn add_loop_trips<'py>(
        &self,
        py: Python<'py>,
        prepared: &Prepared,
        (gathered, args): (&mut Gathered<'py>, &[Bound<'py, PyAny>]),
        (spec, slots): (&Specialization, &mut Slots),
        mode: AutodiffMode,
    ) -> PyResult<Option<Buffer>> {
        if mode != AutodiffMode::Reverse {
            return self.record_loop_trips(py, prepared, spec, slots);
        }
        let repeated = captured_graph::repeated_counters().filter(|counters| counters.trips().is_some());
        let counters = match repeated {
            Some(counters) => Some(counters),
            None => self.recorded_loop_trips(py, prepared, args)?,
        };
        if let Some(counters) = counters {
            if nesting::capturing() {
                captured_graph::note_counters(counters.clone());
            }
            gathered.follows = Some(Follows { order: None, counters });
        }
        Ok(None)
    }

    /// Sets the argument slots of trip counts that a launch of the kernel records, and returns their memory.
    pub(super) fn record_loop_trips(
        &self,
        py: Python<'_>,
        prepared: &Prepared,
        spec: &Specialization,
        slots: &mut Slots,
    ) -> PyResult<Option<Buffer>> {
        let asked = slots.clone();
        let repeated = captured_graph::repeated_counters();
        let reused = repeated.as_ref().and_then(|counters| counters.trips());
        let trips = prepared.program.session.record_loop_trips(&spec.code, slots, reused);
        let trips = trips.map_err(|e| errors::from_engine(py, e))?;
        if let Some(trips) = &trips {
            let launch = RecordedLaunch { number: spec.number, slots: asked, trips: trips.clone() };
            if let Some(known) = self.lock().known.iter_mut().find(|k| k.serial == prepared.program.serial) {
                known.trips.note(launch);
            }
        }
        Ok(trips)
    }

    /// The trip counts of the latest launch with these arguments, if there are any.
    fn recorded_loop_trips<'py>(
        &self,
        py: Python<'py>,
        prepared: &Prepared,
        args: &[Bound<'py, PyAny>],
    ) -> PyResult<Option<Arc<CounterSnapshot>>> {
        let mut gathered = self.gather(prepared, args, AutodiffMode::None)?;
        let known = self.lock().of(prepared.program.serial).to_vec();
        for spec in known {
            let mut slots = Slots::new();
            if *spec.key != *gathered.key
                || !spec.is_alive(py, &prepared.program.session)
                || !spec.fill(&mut gathered, args, &mut slots, false)?
            {
                continue;
            }
            let state = self.lock();
            let of_program = state.known.iter().find(|k| k.serial == prepared.program.serial);
            let trips = of_program.and_then(|known| known.trips.find(spec.number, &slots));
            return Ok(trips.map(|trips| Arc::new(CounterSnapshot::of_trips(trips))));
        }
        Ok(None)
    }
}
