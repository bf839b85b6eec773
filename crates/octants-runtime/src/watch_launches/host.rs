//! Races between accesses of the host to device memory and work that it has not waited for.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::clock::StreamId;
use super::compare::race_with_host;
use super::{AccessedRange, BufferId, DeviceWatch, State, Work};
use crate::caller::Caller;
use crate::error::Result;
use crate::race::Race;
use crate::report::lock;

impl DeviceWatch {
    /// To be called before the host accesses ranges of addresses.
    ///
    /// # Errors
    /// As [`Self::launch`].
    pub(crate) fn host_access(
        &self,
        (ranges, default_is_done): (&[AccessedRange], bool),
        caller: &dyn Caller,
    ) -> Result<()> {
        let Some(device) = self.device.upgrade() else { return Ok(()) };
        let mut used: BTreeMap<BufferId, Vec<AccessedRange>> = BTreeMap::new();
        for range in ranges {
            if let Some(buffer) = device.find_buffer(range.0) {
                used.entry((self.number, buffer.id)).or_default().push(*range);
            }
        }
        let state = lock(&self.all.state);
        let pending = state.pending(&used, default_is_done);
        drop(state);
        let site = || caller.call_site().unwrap_or_else(|| "<unknown>".into());
        let mut races: Vec<(StreamId, Race)> = Vec::new();
        for (work, ranges) in pending {
            if races.iter().all(|(known, _)| *known != work.stream) {
                races.extend(race_with_host(&work, ranges, site()).map(|race| (work.stream, race)));
            }
        }
        device.races.report(races.into_iter().map(|(_, race)| race).collect())
    }
}

impl State {
    /// The work that the host has not waited for and that may conflict with its accesses to buffers. For each buffer,
    /// the latest comes first.
    fn pending<'r>(
        &self,
        used: &'r BTreeMap<BufferId, Vec<AccessedRange>>,
        default_is_done: bool,
    ) -> Vec<(Arc<Work>, &'r [AccessedRange])> {
        let mut found = Vec::new();
        for (buffer, ranges) in used {
            let writes = ranges.iter().any(|range| range.2);
            for of in self.uses.get(buffer).into_iter().flatten().rev() {
                let (stream, number) = (of.work.stream, lock(&of.work.last).number);
                let is_done = self.host.holds(stream, number) || default_is_done && stream.stream == 0;
                if !is_done && (writes || of.written) {
                    found.push((of.work.clone(), &ranges[..]));
                }
            }
        }
        found
    }
}
