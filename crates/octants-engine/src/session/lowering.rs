//! [`Lowering`]: lowers source to IR.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use octants_autodiff::{
    Differentiation, Keeping, LoopTrips, StoreNeed, StoredState, differentiate, may_record_trip_counts,
    record_loop_trips,
};
use octants_diag::{Code, Diagnostic};
use octants_frontend::{ArgSpec, Lowered, Obj, Options, World};
use octants_ir::{AutodiffMode, Kernel, TargetInfo};
use octants_passes::Alias;
use octants_passes::{CarriedLocal, find_carried_locals, find_divergence, find_partial_products, resolve_block_dims};

use super::Session;
use crate::compile_times::{Phase, Stopwatch};
use crate::error::CompileError;

/// A kernel after the front end: what [`Session::build`] takes. It refers to host objects only by number, so it may be
/// sent to other threads.
#[derive(Clone)]
pub struct Lowering {
    /// The output of the front end.
    pub lowered: Lowered,
    /// For a gradient: the values stored in memory of the launch.
    pub store: Option<StoreNeed>,
    /// The trip counts of loops that a launch records, or that a gradient reads.
    pub(super) trips: Option<LoopTrips>,
    /// Races between iterations are looked for.
    pub(super) checks_races: bool,
    /// The code only computes its results.
    pub(super) result_only: bool,
    /// The source of a gradient, how it stores states, and which arrays alias.
    undifferentiated: Option<(Kernel, Keeping, Vec<Alias>)>,
    pub(super) watch: Stopwatch,
}

impl Lowering {
    /// Wraps a kernel that was lowered elsewhere.
    pub fn new(lowered: Lowered) -> Lowering {
        Lowering {
            lowered,
            store: None,
            trips: None,
            checks_races: false,
            result_only: false,
            undifferentiated: None,
            watch: Stopwatch::default(),
        }
    }

    /// The length of some loop may come from memory, so that it may change before the kernel's gradient runs.
    pub fn may_record_trip_counts(&self) -> bool {
        may_record_trip_counts(&self.lowered.kernel)
    }

    /// Whether an array that the kernel uses has a gradient or dual, as the mode requires.
    pub fn has_shadow_buffers(&self) -> bool {
        !self.undifferentiated_kernel().shadow_buffers.is_empty()
    }

    /// It is the gradient of a kernel.
    pub(super) fn is_gradient(&self) -> bool {
        self.undifferentiated.is_some()
    }

    /// The kernel as the user wrote it.
    pub(super) fn undifferentiated_kernel(&self) -> &Kernel {
        self.undifferentiated.as_ref().map_or(&self.lowered.kernel, |(kernel, ..)| kernel)
    }

    /// The values stored in memory of the launch, one comment line each.
    pub fn kept(&self) -> String {
        let line = |k: &StoredState| {
            let place = self.lowered.sources.location(k.span);
            let when = match k.every {
                1 => "each iteration".to_owned(),
                n => format!("every {n} iterations"),
            };
            format!("; keeps `{}` of the loop at {place}: {} bytes for {when}\n", k.name, k.bytes)
        };
        self.store.iter().flat_map(|s| &s.kept).map(line).collect()
    }

    /// Lets each launch record the trip counts of loops whose gradient needs them.
    pub fn record_loop_trips(&mut self) {
        if self.lowered.split_arrays.is_empty() {
            self.trips = record_loop_trips(&mut self.lowered.kernel);
        }
    }

    /// Differentiates the kernel in a mode; a gradient stores states according to `keeping`; `warn` receives warnings
    /// for the user. `aliases` are the arrays that are the same memory in this call.
    pub fn differentiate(
        &mut self,
        mode: AutodiffMode,
        aliases: &[Alias],
        keeping: Keeping,
        warn: &mut dyn FnMut(Diagnostic),
    ) -> Result<(), CompileError> {
        if mode == AutodiffMode::None {
            return Ok(());
        }
        let mut asked = Differentiation::new(mode, keeping);
        asked.aliases.extend(aliases);
        asked.sources.clone_from(&self.lowered.sources);
        // A launch on split arrays records nothing.
        asked.replays_trips = self.lowered.split_arrays.is_empty();
        self.undifferentiated =
            (mode == AutodiffMode::Reverse).then(|| (self.lowered.kernel.clone(), keeping, aliases.to_vec()));
        let made = differentiate(&mut self.lowered.kernel, &mut asked);
        asked.warnings.into_iter().for_each(warn);
        made.map_err(|errors| CompileError::User(errors, self.lowered.sources.clone()))?;
        self.lowered.activations.insert_into(&mut self.lowered.kernel);
        if !self.lowered.keeps_packed {
            self.lowered.packed_fields.expand(&mut self.lowered.kernel);
        }
        (self.store, self.trips) = (asked.store, asked.trips.or(self.trips));
        self.result_only = matches!(mode, AutodiffMode::Trips | AutodiffMode::Reads);
        if self.result_only || mode == AutodiffMode::Reverse {
            self.lowered.returns.clear();
        }
        self.watch.lap(Phase::Passes, if self.result_only { "record trip counts" } else { "differentiate" });
        Ok(())
    }

    /// The same for a machine on which gradients keep states in this way.
    pub(crate) fn kept_as(&self, keeping: Keeping) -> Cow<'_, Lowering> {
        match &self.undifferentiated {
            Some((kernel, other, aliases)) if *other != keeping => {
                let mut lowering = self.clone();
                lowering.lowered.kernel = kernel.clone();
                // The user was warned when the gradient was requested.
                let made = lowering.differentiate(AutodiffMode::Reverse, aliases, keeping, &mut |_| ());
                made.expect("compiler bug: a gradient cannot be made again");
                Cow::Owned(lowering)
            }
            _ => Cow::Borrowed(self),
        }
    }
}

/// How gradients keep states on a machine: the processor's cache holds them.
pub(crate) fn keeping_on(info: &TargetInfo) -> Keeping {
    if info.has_grid { Keeping::Blocks } else { Keeping::Iterations }
}

impl Session {
    /// How gradients keep states on the session's device.
    pub fn keeping(&self) -> Keeping {
        keeping_on(&self.machine.info())
    }

    /// Source to IR, with the shadow buffers that `mode` will need. The only step that queries the host world.
    pub fn lower(
        &self,
        world: &dyn World,
        kernel: Obj,
        args: &[ArgSpec],
        mode: AutodiffMode,
    ) -> Result<Lowering, CompileError> {
        let mut watch = Stopwatch::default();
        self.lowered.fetch_add(1, Ordering::Relaxed);
        let info = self.target_info();
        let options = Options {
            subgroup_size: info.subgroup_size,
            shared_bytes: info.max_shared_bytes,
            default_fp: self.config().default_fp,
            default_ip: self.config().default_ip,
            debug: self.config().debug,
            short_circuit: self.config().short_circuit_operators,
            unrolling_limit: self.config().unrolling_limit,
            graph_max_iterations: self.config().graph_max_iterations,
            mode,
            // Races are races on elements, not on the words that have several of them.
            keeps_packed: self.config().checks_races(),
        };
        match octants_frontend::lower(world, kernel, args, &options) {
            Ok(mut lowered) => {
                watch.lap_two((Phase::Parse, lowered.parsing), Phase::Lower);
                self.check_groups(world, &lowered, &[])?;
                let mut mistakes = resolve_block_dims(&mut lowered.kernel);
                mistakes.extend(find_divergence(&lowered.kernel, info.subgroup_size));
                mistakes.extend(find_partial_products(&lowered.kernel, info.subgroup_size));
                if !mistakes.is_empty() {
                    return Err(CompileError::User(mistakes, lowered.sources));
                }
                let checks_races = self.config().checks_races() && mode == AutodiffMode::None;
                let carried =
                    if mode == AutodiffMode::None { find_carried_locals(&lowered.kernel) } else { Vec::new() };
                if checks_races {
                    self.refuse_carried_locals(&lowered, carried)?;
                } else {
                    warn_of_carried_locals(world, &lowered, carried);
                }
                watch.lap(Phase::Lower, "check groups and barriers");
                Ok(Lowering { checks_races, watch, ..Lowering::new(lowered) })
            }
            Err((diagnostics, sources)) => Err(CompileError::User(diagnostics, sources)),
        }
    }
}

/// Warns about loop-carried variables of parallel loops, which plain Python loops may have.
fn warn_of_carried_locals(world: &dyn World, lowered: &Lowered, found: Vec<CarriedLocal>) {
    for carried in found {
        let name = carried.name;
        let of_loop = lowered.sources.location(carried.of_loop);
        let text = format!(
            "`{name}` is computed from its value in another iteration, but the iterations of this loop ({of_loop}) run \
             in parallel and in any order: the result is undefined"
        );
        world.warn(
            *Diagnostic::new(Code::Value, carried.store, text).with_hint(fix_for_carried_local(&name, "the loop")),
        );
    }
}

/// The suggested fix.
pub(super) fn fix_for_carried_local(name: &str, of_loop: &str) -> String {
    format!(
        "write `qd.loop_config(serialize=True)` above {of_loop} to run it in order, update `{name}` by one atomic \
         operation such as `qd.atomic_add`, or make it a variable of the loop's body"
    )
}
