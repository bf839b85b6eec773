//! Guarded iterations of a data-dependent loop: one launch runs all of them, or the host queues them before it knows
//! whether the loop has ended.

use octants_artifact::GuardedIterations;

use super::{Completion, Place, Walk};
use crate::capture::ForeignGraph;
use crate::driver::{DevicePtr, Launch};
use crate::error::Result;
use crate::sections::{DataDependentLoop, Section};

/// From this iteration on, iterations are recorded as a graph: recording takes as long as several iterations.
const RECORDED_AT: u32 = 24;
/// Iterations of such a graph. The copy of the condition after it takes as long as a few small iterations.
const RECORDED: u32 = 8;

impl Walk<'_> {
    /// The host may run ahead of the device: iterations may be queued before their condition is known. Messages are
    /// read only while nothing runs that sends them.
    pub(super) fn queues_ahead(&self, launch: &Launch<'_>) -> bool {
        let queues = matches!(self.completion, Completion::Queued { .. }) && !self.measures;
        queues && launch.channel.0 == 0 && !self.stream.device.host_addressable
    }

    /// Queues a loop as one launch, if that is possible and faster.
    ///
    /// # Safety
    /// As [`Walk::run`].
    pub(super) unsafe fn in_one_launch(&self, at: Place, number: u32, launch: &Launch<'_>) -> Result<bool> {
        let (driver, module) = (&self.stream.device.driver, self.kernel.module);
        // SAFETY: the contract above; the kernel is loaded while it is borrowed.
        Ok(self.queues_ahead(launch) && unsafe { driver.launch_loop(at.on, module, number, launch)? })
    }

    /// As [`Walk::rounds`]. From the third iteration on, work is queued before the condition of the work before it
    /// arrives, so the device does not wait for the host. Loops of one iteration are common, and queue nothing in vain.
    /// In a long loop that work is a graph of several iterations: with the driver's own calls on an H200, an iteration
    /// of four small tasks takes 4.2 us in such graphs, and 13 to 19 us if the tasks are launched one by one.
    ///
    /// # Safety
    /// As [`Walk::run`].
    pub(super) async unsafe fn guarded_rounds(
        &self,
        at: Place,
        (of, guarded, body): (&DataDependentLoop, GuardedIterations, &[Section]),
        launch: &Launch<'_>,
    ) -> Result<()> {
        let guard = DevicePtr(launch.frame.0 + guarded.guard);
        // SAFETY: the contract above.
        unsafe {
            self.sections(at, body, launch).await?;
            if !self.holds(at, &of.condition, launch).await? {
                return Ok(());
            }
            let round = Launch { guard, ..*launch };
            let mut places = [at, Place { word: at.word + 1, ..at }];
            self.sections(at, body, &round).await?;
            let mut before = self.queue_copy(places[0], &of.condition, launch)?;
            let mut recorded = None;
            for queued in 2.. {
                if queued == RECORDED_AT {
                    recorded = self.record(at, body, &round).await;
                }
                match &recorded {
                    Some(graph) => graph.launch(at.on)?,
                    None => self.sections(at, body, &round).await?,
                }
                let copy = self.queue_copy(places[1], &of.condition, launch)?;
                let ends = self.arrived(places[0], before, launch).await? == 0;
                before = copy;
                places.reverse();
                if ends {
                    break;
                }
            }
            // The iterations that were queued last do nothing, but their copy uses the word.
            self.arrived(places[0], before, launch).await.map(|_| ())
        }
    }

    /// Records iterations as a graph for this launch; `None` if that is not possible, with nothing queued.
    ///
    /// # Safety
    /// As [`Walk::run`]; the iterations are guarded.
    async unsafe fn record(&self, at: Place, body: &[Section], round: &Launch<'_>) -> Option<ForeignGraph> {
        let device = &self.stream.device;
        let is_plain = body.iter().all(|section| matches!(section, Section::InOrder(_)));
        // SAFETY: the contract above.
        unsafe {
            if !is_plain || !device.driver.begin_recording(at.on).unwrap_or(false) {
                return None;
            }
            let mut all = Ok(());
            for _ in 0..RECORDED {
                if all.is_ok() {
                    all = self.sections(at, body, round).await;
                }
            }
            let graph = device.driver.end_recording(at.on).map(|ready| ForeignGraph::new(device.clone(), ready));
            // Without a graph the iterations are queued one by one, which reports what is wrong with them.
            all.and(graph).ok()
        }
    }
}
