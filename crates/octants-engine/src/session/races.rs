//! Races that are proved statically. Races between iterations of a parallel loop are found for the arguments of a
//! launch, before the launch. Races on loop-carried variables are found at compile time.

use std::sync::Arc;

use octants_diag::Span;
use octants_frontend::Lowered;
use octants_passes::CarriedLocal;
use octants_passes::find_races::{IterationRace, RaceSearch};
use octants_runtime::{Caller, Race, RaceAccess, RaceKind, Touch};

use super::Session;
use super::build::Executable;
use super::lowering::Lowering;
use super::race_check::{KernelWitness, RaceCheck, Unknown};
use crate::error::Error;

impl Session {
    /// Enables the search for races of code: between iterations, unless it is a gradient, and with other launches.
    pub(super) fn look_for_races(&self, lowering: &Lowering, code: &mut Executable) {
        let search = Arc::new(RaceSearch::of(&lowering.lowered.kernel, &lowering.lowered.overlap_allowed));
        let (sources, layout) = (lowering.lowered.sources.clone(), code.layout.clone());
        if lowering.checks_races && !search.is_safe() {
            code.races = Some(Box::new(RaceCheck::new(search.clone(), sources.clone(), layout.clone())));
        }
        code.kernel = code.kernel.clone().with_witness(Arc::new(KernelWitness::new(search, sources, layout)));
    }

    /// Refuses an access of the host to ranges of addresses that races with a launch.
    ///
    /// # Errors
    /// The races, unless they are collected.
    pub fn check_host_access(
        &self,
        ranges: &[(u64, u64, bool)],
        caller: &dyn Caller,
    ) -> Result<(), octants_runtime::DeviceError> {
        self.device.check_host_access((ranges, self.waits_after(self.device.default_stream())), caller)
    }

    /// Refuses groups that certainly touch the same elements. If the witness of a race is known, the race names its
    /// element.
    pub(super) fn refuse_overlaps(&self, lowered: &Lowered, found: Vec<(Race, Span, Span)>) -> Result<(), Error> {
        if found.is_empty() {
            return Ok(());
        }
        let search = RaceSearch::of(&lowered.kernel, &lowered.overlap_allowed);
        let witnesses = search.find(&Unknown);
        let races = found.into_iter().map(|(race, first, second)| {
            let same = |w: &&IterationRace| (w.first.span, w.second.span) == (first, second) && w.buffer == race.buffer;
            let index = witnesses.iter().find(same).map(|w| w.index.clone());
            Race { index, ..race }
        });
        Ok(self.device.races().report(races.collect())?)
    }

    /// Refuses a kernel with a loop-carried variable in a parallel loop.
    pub(super) fn refuse_carried_locals(&self, lowered: &Lowered, carried: Vec<CarriedLocal>) -> Result<(), Error> {
        let sources = &lowered.sources;
        let race = |found: CarriedLocal| {
            let of_loop = format!("the loop at {}", sources.location(found.of_loop));
            let side = |touch, span: Span, by: &str| RaceAccess {
                touch,
                at: sources.users_location(span),
                by: by.into(),
                launched_at: None,
            };
            Race {
                kind: RaceKind::Local,
                index: None,
                first: side(Touch::Read, found.load, "an iteration"),
                second: side(Touch::Write, found.store, "another iteration"),
                fix: super::lowering::fix_for_carried_local(&found.name, &of_loop),
                buffer: found.name,
            }
        };
        Ok(self.device.races().report(carried.into_iter().map(race).collect())?)
    }
}
