//! Loads code that an earlier process compiled for the same kernel, and records what was compiled here for later
//! processes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use octants_artifact::Key;
use octants_frontend::World;
use octants_runtime::Pointer;

use super::build::Launching;
use super::{Executable, Lowering, Session};
use crate::compile_times::{Phase, Stopwatch};
use crate::environment::dumps_stages;
use crate::gradient_store::GradientStore;
use crate::trace::{Binding, Recalled, Request, Search, keep, outcome, search};

impl Session {
    /// Checks whether a kernel need not be compiled. [`Session::lower`] then takes the [`Search::tracing`] for its
    /// world.
    pub fn search<'w>(&self, world: &'w dyn World, request: &Request<'_>) -> Search<'w> {
        // A compilation observer needs an actual compilation.
        let cache = self
            .cache
            .as_ref()
            .filter(|_| self.config().offline_cache && !self.config().shows_compilation() && !dumps_stages())
            // Race checks analyze the kernel, not its compiled code.
            .filter(|_| !self.config().checks_races())
            // So does fusion.
            .filter(|_| !self.keeps_fusion_sources());
        let common = cache.and_then(|cache| cache.common(&self.machine)).map(|mut key| {
            key.add("concurrent_launches", &self.launches_concurrently());
            key
        });
        search(world, cache, common, self.config(), request)
    }

    /// The code that an earlier compilation made, if it is still kept. `watch` has measured how long finding it took.
    pub fn load_recalled(&self, recalled: &Recalled, mut watch: Stopwatch) -> Option<Executable> {
        let mut code = self.load_again(recalled.artifact, &recalled.pointers, recalled, &mut watch)?;
        if let Some(stored) = &recalled.store {
            let mut count = self.load_again(stored.count, &stored.pointers, recalled, &mut watch)?;
            count.launching = Launching::result_only(stored.depends.clone());
            code.launching = Launching::WithStore(Arc::new(GradientStore::from_stored(count, stored)?));
        } else {
            code.launching = Launching::result_only(recalled.depends.clone());
        }
        self.recalled.fetch_add(1, Ordering::Relaxed);
        self.compilations.add(code.kernel.name(), true, watch);
        Some(code)
    }

    fn load_again(
        &self,
        key: Key,
        pointers: &[Pointer],
        recalled: &Recalled,
        watch: &mut Stopwatch,
    ) -> Option<Executable> {
        let artifact = self.cache.as_ref()?.get_again(&key)?;
        watch.lap(Phase::Load, "read");
        let pointers = pointers.to_vec();
        let exposes_addresses = recalled.exposes_addresses;
        let kernel = self.device.load(&artifact).ok()?.with_pointers(pointers.clone());
        let kernel = kernel.telling_addresses(exposes_addresses).kept_under(Some(key));
        // Those of the kernel itself; a launch of code that counts is not in reports.
        let kernel = kernel.with_access_lines(recalled.access_lines.clone());
        watch.lap(Phase::Link, "");
        let (layout, ret) = (recalled.layout.clone(), recalled.ret.clone());
        // With race checks, nothing is recalled, nor is code with recorded trip counts.
        Some(Executable::new((layout, ret), (kernel, pointers, exposes_addresses), (Some(key), true)))
    }

    /// Stores the questions of a compilation and their outcome; returns whether they were written.
    pub fn keep_trace(&self, search: Search<'_>, lowering: &Lowering, code: &Executable, may_alias: bool) -> bool {
        let (Some(cache), Some(artifact)) = (&self.cache, code.key) else { return false };
        // Its launches need the set of split arrays, or memory for trip counts.
        if !lowering.lowered.split_arrays.is_empty() || code.has_loop_trips() {
            return false;
        }
        let store = code.store().map(GradientStore::to_stored);
        // A store whose counting code is not kept could not be made again.
        if store.as_ref().is_some_and(Option::is_none) {
            return false;
        }
        let lowered = &lowering.lowered;
        let outcome = outcome(
            &Binding::of(lowered),
            (&code.layout, &code.pointers, code.exposes_addresses, &code.ret),
            (artifact, store.flatten(), code.depends().cloned(), code.kernel.access_lines()),
            (may_alias, lowering.has_groups(), lowering.may_record_trip_counts()),
            search.tracing.said(&lowered.sources),
        );
        keep(cache, search, outcome).unwrap_or_else(|notice| {
            self.lock_notices().push(notice);
            false
        })
    }
}
